"""Watch a program: patch imports, warnings and PyTorch, to note how the program uses them.

PyTorch is patched when the program imports it, so the program can set environment variables before the import.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.bridge.wrapped_functions import WrappedFunctions
from dispatchlab.live.failure.program_watch import OURS, STARTED, ProgramWatch, plain_text, position_of

_KEPT_CALLS: Final = 3
_KEPT_NUMBERS: Final = 65_536
_WRAPPED: Final = WrappedFunctions()


def start(watch: ProgramWatch) -> None:
    """Watch this process from now on."""
    STARTED.append(watch)
    if "torch" in sys.modules:
        watch_torch(watch)
    else:
        sys.meta_path.insert(0, _TorchFinder(watch))
    sys.meta_path.append(_MissingModules(watch))
    _around(importlib.machinery.ExtensionFileLoader, "create_module", _load_extension, watch)
    _around(warnings, "showwarning", _warn, watch)


def _around(owner: Any, name: str, around: Callable[..., object], watch: ProgramWatch) -> None:
    """Replace a function by a function that gets the watch and the original before the arguments."""
    _WRAPPED.wrap(owner, name, functools.partial(around, watch))


def after(owner: Any, name: str, then: Callable[..., object]) -> None:
    """Call a second function after a function, with its result and arguments, and ignore its exceptions."""

    def around(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        with suppress(Exception):
            then(result, *args, **kwargs)
        return result

    _WRAPPED.wrap(owner, name, around)


class _MissingModules(importlib.abc.MetaPathFinder):
    """The last finder in the list: it gets only modules that no other finder finds."""

    def __init__(self, watch: ProgramWatch) -> None:
        self.watch = watch

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        at = self.watch.position(sys._getframe(1))
        asked = _importer(sys._getframe(1))
        if at is not None and asked is not None and self.watch.is_users(asked):
            self.watch.note("missing module", name, f"No module named {name!r}", at)


def _importer(frame: FrameType | None) -> str | None:
    """Return the file of the import statement that leads here."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen importlib") and not file.startswith(OURS):
            return file
        frame = frame.f_back
    return None


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as the other finders do, and patches torch after the import."""

    def __init__(self, watch: ProgramWatch) -> None:
        self.watch = watch

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            with suppress(Exception):
                watch_torch(self.watch)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _load_extension(
    watch: ProgramWatch, create: Callable[..., ModuleType], loader: Any, spec: ModuleSpec
) -> ModuleType:
    """Note an extension module that cannot be loaded."""
    try:
        return create(loader, spec)
    except ImportError as error:
        watch.note("failed import", spec.name, plain_text(error))
        raise


def _warn(
    watch: ProgramWatch, show: Callable[..., None], message: Any, category: Any, *rest: Any, **named: Any
) -> None:
    watch.note("warning", category.__name__, str(message))
    show(message, category, *rest, **named)


def watch_torch(watch: ProgramWatch) -> None:
    """Patch the functions of `torch.library` and `torch.ops` that register, load and release."""
    importlib.import_module("torch.library")
    modes = importlib.import_module("torch.utils._python_dispatch")
    public, library, definition = torch().library, torch().library.Library, torch().library.CustomOpDef
    after(library, "define", lambda result, self, schema, *_, **__: watch.note("define", _named(self.ns, str(schema))))
    after(library, "_destroy", functools.partial(_note_destroyed, watch))
    ask = watch.unknown.add
    after(
        public,
        "custom_op",
        lambda _, name, *__, **options: ask(name if options.get("mutates_args") == "unknown" else ""),
    )
    after(public, "_del_library", lambda result, *given: _note_released(watch, given[3], given[1]))
    _around(library, "impl", _impl, watch)
    after(library, "fallback", functools.partial(_note_fallback, watch))
    for name in ("register_fake", "register_autograd", "register_vmap"):
        after(public, name, lambda _, op, *__, kind=name, **___: watch.note(kind, _op_text(op)))
    _around(definition, "register_kernel", _register_kernel, watch)
    _around(definition, "register_fake", _fake_of_custom_op, watch)
    after(definition, "__init__", functools.partial(_note_custom_op, watch))
    for owner in (public, definition):
        after(owner, "register_autograd", functools.partial(_note_formula, watch))
    _around(type(torch().ops), "load_library", _load_library, watch)
    after(torch().overrides.TorchFunctionMode, "__enter__", functools.partial(_note_mode, watch, "TorchFunctionMode"))
    entered, stack = functools.partial(_note_mode, watch, "TorchDispatchMode"), modes._get_current_dispatch_mode_stack
    after(modes.TorchDispatchMode, "__enter__", entered)
    after(torch().inference_mode, "__enter__", lambda *_: [entered(None, mode) for mode in stack()])
    function, apply = torch().autograd.Function, torch().autograd.Function.apply.__func__
    function.apply = classmethod(functools.update_wrapper(functools.partial(_apply, watch, apply), apply))
    after(torch(), "compile", lambda result, *_, **__: watch.note("compiled", "torch.compile"))
    logging.getLogger("torch.export").addFilter(functools.partial(_note_log, watch))


def note_calls(watch: ProgramWatch) -> None:
    """Keep the arguments of the first calls of operators outside PyTorch."""
    for owner in (torch()._ops.OpOverloadPacket, torch()._ops.OpOverload):
        _around(owner, "__call__", _noted_call, watch)


def _noted_call(watch: ProgramWatch, call: Callable[..., Any], op: Any, /, *args: Any, **kwargs: Any) -> Any:
    name = getattr(op, "_qualified_op_name", "") or op._name
    if name.partition("::")[0] not in ("aten", "prim", "prims"):
        keep_call(watch, name, args, kwargs)
    return call(op, *args, **kwargs)


def save_calls(watch: ProgramWatch, path: Path) -> None:
    """Write the kept arguments that can be read back safely, on the CPU, so that any machine can read them."""
    plain = (torch().Tensor, int, float, str, bool, type(None), torch().dtype, torch().device)
    kept = dict[str, list[Any]]()
    for name, calls in watch.calls.items():
        for call in calls:
            leaves, spec = torch().utils._pytree.tree_flatten(call)
            with suppress(Exception):  # a backend that cannot copy to the CPU
                if all(isinstance(each, plain) for each in leaves):
                    kept.setdefault(name, []).append(spec.unflatten(map(_on_cpu, leaves)))
    torch().save(kept, path)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch().device):
        return torch().device("cpu")
    return value.detach().cpu().requires_grad_(value.requires_grad) if isinstance(value, torch().Tensor) else value


def _note_log(watch: ProgramWatch, record: logging.LogRecord) -> bool:
    """Note the log of torch.export: load() names a missing operator only in the log."""
    if record.levelno >= logging.WARNING:
        text = record.getMessage() + (logging.Formatter().formatException(record.exc_info) if record.exc_info else "")
        watch.note("warning", record.name, text)
    return True


def _named(namespace: str, schema: str) -> str:
    name = schema.partition("(")[0].strip()
    return name if "::" in name else f"{namespace}::{name}"


def _op_text(op: Any) -> str:
    return str(getattr(op, "_qualname", "") or getattr(op, "_name", "") or op)


def _note_fallback(watch: ProgramWatch, result: Any, library: Any, fn: Any, key: str = "", **_: Any) -> None:
    key = str(key or library.dispatch_key)
    watch.note("fallback", key)
    note_function(watch, "_", f"fallback for {key}", fn)


def _note_released(watch: ProgramWatch, defs: set[str], impls: set[str]) -> None:
    """Note the released registrations of a Library; there are none if it was destroyed before."""
    for name in sorted(defs):
        watch.note("collected", name, "def")
    for name in sorted(impls):
        parts = name.split("/")
        watch.note("collected", f"{parts[0]}::{parts[1]}" if len(parts) > 1 else name, parts[-1])
    defs.clear()
    impls.clear()


def _note_destroyed(watch: ProgramWatch, result: None, library: Any) -> None:
    watch.destroyed.update((*library._op_defs, *library._op_impls))
    _note_released(watch, library._op_defs, library._op_impls)


def _note_formula(
    watch: ProgramWatch, result: Any, op: Any, backward: Any, /, *, setup_context: Any = None, **_: Any
) -> None:
    note_function(watch, _op_text(op), "backward", backward)
    note_function(watch, _op_text(op), "setup_context", setup_context)


def _fake_of_custom_op(watch: ProgramWatch, register: Callable[..., Any], op: Any, fn: Any, /) -> Any:
    watch.note("register_fake", op._qualname)
    note_function(watch, op._qualname, "fake", fn)
    return register(op, fn)


def _note_custom_op(watch: ProgramWatch, result: None, op: Any, *_: Any, **__: Any) -> None:
    watch.note("custom_op", op._qualname, op._schema)
    note_function(watch, op._qualname, "custom_op", op._init_fn)


def _note_mode(watch: ProgramWatch, base: str, result: Any, mode: Any) -> None:
    if not type(mode).__module__.startswith("torch"):
        state = " in inference mode" if torch().is_inference_mode_enabled() else ""
        watch.note("entered mode", type(mode).__name__, base + state)


def _load_library(watch: ProgramWatch, load: Callable[..., Any], ops: Any, path: Any) -> None:
    try:
        load(ops, path)
    except Exception as error:
        watch.note("failed library", str(path), plain_text(error.__cause__ or error))
        raise
    watch.note("loaded library", str(path))


def _impl(
    watch: ProgramWatch,
    impl: Callable[..., Any],
    library: Any,
    op_name: Any,
    fn: Any,
    dispatch_key: str = "",
    **options: Any,
) -> Any:
    """Note a kernel, and keep the arguments of its first calls."""
    full = _named(library.ns, op_name if isinstance(op_name, str) else getattr(op_name, "_name", str(op_name)))
    key = dispatch_key or library.dispatch_key or "CompositeImplicitAutograd"
    result = impl(library, op_name, _keeping(watch, full, key, fn, options), dispatch_key, **options)
    watch.note("impl", full, key)
    if fn is torch().library.fallthrough_kernel:
        watch.note("function", full, f"fallthrough at {key}")
    note_function(watch, full, key, fn, keyset=bool(options.get("with_keyset")))
    return result


def _register_kernel(
    watch: ProgramWatch, register: Callable[..., Any], op: Any, device_types: Any, fn: Any = None, /
) -> Any:
    """Note a kernel that replaces another of a custom operator, and keep the arguments of its first calls."""
    devices = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)
    replaced = [device for device in devices if device in op._backend_fns]

    def registered(function: Any) -> Any:
        @functools.wraps(function)
        def kernel(*args: Any, **named: Any) -> Any:
            return watched_call(watch, op._qualname, function, args, named)

        register(op, device_types, kernel)
        for device in replaced:  # the dispatcher gets the first kernel only
            key = torch()._C._dispatch_key_for_device(device) if device else "CompositeExplicitAutograd"
            watch.note("impl", op._qualname, key)
        return function

    return registered if fn is None else registered(fn)


def note_function(watch: ProgramWatch, operator: str, role: str, fn: Any, *, keyset: bool = False) -> None:
    """Note a function of the user, and whether its operator can call it.

    Args:
        watch: the watch that notes the function.
        operator: the operator's full name.
        role: the key of a kernel, or `fake`, `backward`, `setup_context`.
        fn: the function.
        keyset: whether the function gets the key set before the arguments.
    """
    owner: Any = getattr(fn, "__self__", None)
    if torch().autograd.Function in getattr(owner, "__mro__", ()) and fn == owner.apply:  # it calls forward, with ctx
        fn, keyset = owner.forward, owner.setup_context is torch().autograd.Function.setup_context
    code = getattr(fn, "__code__", None)
    if code is None or not watch.is_users(code.co_filename):
        return
    at = position_of(code.co_filename, code.co_firstlineno, code.co_name)
    watch.note("function", operator, role, at)
    with suppress(Exception):
        signature = inspect.signature(fn, follow_wrapped=False)  # a wrapper may take other arguments
        if _cannot_be_called(signature, schema_of(operator), role, keyset=keyset):
            watch.note("unfit function", operator, f"{role}: {', '.join(_shown(signature))}", at)


def schema_of(operator: str) -> Any:
    """Return PyTorch's schema of an operator."""
    packet, _, overload = operator.partition(".")
    return torch()._C._dispatch_find_schema_or_throw(packet, overload).schema()


def _cannot_be_called(signature: inspect.Signature, schema: Any, role: str, *, keyset: bool) -> bool:
    """Bind a signature as the dispatcher calls it: with all arguments, and without arguments equal to their default."""
    if role == "setup_context":
        extra = {"keyword_only_inputs": 0} if any(a.kwarg_only for a in schema.arguments) else {}
        return not _binds(signature, (), {"ctx": 0, "inputs": 0, "output": 0, **extra})
    if role == "backward":
        return not _binds(signature, (0,) * (1 + len(schema.returns)), {})
    first = (0,) if keyset else ()
    whole = [a for a in schema.arguments if not a.kwarg_only]
    named = {a.name: 0 for a in schema.arguments if a.kwarg_only}
    needed = [a for a in whole if not a.has_default_value()]
    required = {a.name: 0 for a in schema.arguments if a.kwarg_only and not a.has_default_value()}
    every = _binds(signature, first + (0,) * len(whole), named)
    return not every or not _binds(signature, first + (0,) * len(needed), required)


def _binds(signature: inspect.Signature, args: tuple[int, ...], kwargs: dict[str, int]) -> bool:
    with suppress(TypeError):
        return signature.bind(*args, **kwargs) is not None
    return False


def _shown(signature: inspect.Signature) -> list[str]:
    return [
        str(parameter.replace(annotation=inspect.Parameter.empty)).replace(" ", "")
        for parameter in signature.parameters.values()
    ]


def note_result(watch: ProgramWatch, operator: str, arguments: object, result: object) -> None:
    """Note a result that does not fit the schema, or is not on the device of the arguments."""
    schema = schema_of(operator)
    kinds = [str(value.type) for value in schema.returns]
    if not kinds:
        fits = result is None
    elif len(kinds) > 1:
        fits = isinstance(result, tuple | list) and len(result) == len(kinds)
    else:
        wanted: dict[str, Any] = {"Tensor": torch().Tensor, "List[Tensor]": list | tuple}
        fits = isinstance(result, wanted.get(kinds[0], object))
    inputs, tensors = map(_tensors_of, (arguments, result))
    if tensors and not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
        watch.note("integer result", operator, str(tensors[0].dtype))
    if not fits:
        given = f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__
        watch.note("wrong result", operator, f"{given}\n{', '.join(kinds) or 'nothing'}")
    devices = {tensor.device.type for tensor in inputs}
    # A number beside other results, such as the state of a generator, may stay on the CPU.
    made = [tensor.device.type for tensor in tensors if tensor.dim() or len(tensors) == 1]
    other = [device for device in made if device not in devices]
    if len(devices) == 1 and other and not any(argument.name == "device" for argument in schema.arguments):
        watch.note("other device", operator, f"{other[0]}\n{devices.pop()}")


def _tensors_of(values: object) -> list[Any]:
    return [leaf for leaf in torch().utils._pytree.tree_leaves(values) if isinstance(leaf, torch().Tensor)]


def _keeping(watch: ProgramWatch, operator: str, key: str, fn: Any, options: dict[str, Any]) -> Any:
    """Return a kernel that keeps copies of the arguments of its first calls; other objects unchanged."""
    ours = getattr(getattr(fn, "__code__", None), "co_filename", "")
    if not ours or not watch.is_users(ours) or options.get("with_keyset") or key.startswith(("Meta", "Autograd")):
        return fn

    @functools.wraps(fn)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return watched_call(watch, operator, fn, args, kwargs)

    return kernel


def _apply(watch: ProgramWatch, apply: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
    """Keep the arguments of the first calls of a Function of the program; note a write that autograd does not see."""
    forward, name = getattr(inspect.unwrap(function.forward), "__code__", None), function.__name__
    plain = not torch()._C._are_functorch_transforms_active()
    if not plain or forward is None or not watch.is_users(forward.co_filename):
        return apply(function, *args, **kwargs)
    if name not in watch.functions:
        backward = getattr(inspect.unwrap(function.backward), "__code__", forward)
        watch.note("function", name, "Function", position_of(backward.co_filename, backward.co_firstlineno, name))
        watch.functions[name] = function
    keep_call(watch, name, args, kwargs)
    graded = [each for each in args if isinstance(each, torch().Tensor) and each.requires_grad]
    before = [each._version for each in graded]
    result = apply(function, *args, **kwargs)
    returned = torch().utils._pytree.tree_leaves(result) if torch().is_grad_enabled() else graded
    for each, version in zip(graded, before, strict=True):
        if each._version != version and not any(each is value for value in returned):
            names = [*inspect.signature(function.forward).parameters]
            names = names[function.setup_context is torch().autograd.Function.setup_context :]  # without ctx
            at = next(at for at, given in enumerate(args) if given is each)
            watch.note("not marked dirty", name, names[min(at, len(names) - 1)])  # the last name may be that of *args
    return result


def watched_call(watch: ProgramWatch, operator: str, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a kernel, keep copies of its first arguments, and note undeclared writes of arguments."""
    before = keep_call(watch, operator, args, kwargs)
    with suppress(Exception):
        for argument, value in zip(schema_of(operator).arguments, args, strict=False):
            if value is None and str(argument.type) == "Tensor":
                watch.note("got None", operator, argument.name)
    result = fn(*args, **kwargs)
    with suppress(Exception):
        note_result(watch, operator, (args, kwargs), result)
    if before is not None:
        with suppress(Exception):
            _note_writes(watch, operator, before, (args, kwargs))
        with suppress(Exception):
            names = [argument.name for argument in schema_of(operator).arguments]
            shared = dict.fromkeys(aliases(schema_of(operator), zip(names, args, strict=False), result))
            if shared.pop("another result", "") or shared:
                watch.note("returned alias", operator, ", ".join(shared))
    return result


def _note_writes(watch: ProgramWatch, operator: str, before: Any, after: Any) -> None:
    schema = schema_of(operator)
    names = [argument.name for argument in schema.arguments]
    old, new = ({**dict(zip(names, args, strict=False)), **kwargs} for args, kwargs in (before, after))
    declared = {argument.name: new.get(argument.name) for argument in schema.arguments if argument.is_write}
    changed = (name for name in new if name not in declared and not _same(old[name], new[name]))
    writes = {name: value for name, value in declared.items() if any(each.numel() for each in _tensors_of(value))}
    if not all(_same(old[name], value) for name, value in writes.items()):
        watch.wrote.add(operator)
    elif writes:
        watch.note("wrote nothing", operator, ", ".join(writes))
    overlaps = torch()._C._overlaps  # such a tensor is written because it shares memory with a declared argument
    written = [name for name in changed if not any(overlaps(new[name], other) for other in declared.values())]
    if written:
        watch.note("wrote undeclared", operator, ", ".join(written))


def aliases(schema: Any, arguments: Iterable[tuple[str, Any]], result: Any) -> Iterator[str]:
    """Return the argument, or `another result`, whose storage each result shares, though the schema says it is new."""

    def storage(tensor: Any) -> int:
        with suppress(NotImplementedError):  # a layout without one
            held = tensor.untyped_storage()
            return int(held.data_ptr() or held._cdata)  # a backend in Python has no memory behind it
        return id(tensor)

    held = {storage(tensor): name for name, value in arguments for tensor in _tensors_of(value) if tensor.numel()}
    for returned, value in zip(schema.returns, result if isinstance(result, tuple | list) else (result,), strict=False):
        for tensor in filter(lambda each: each.numel(), _tensors_of(value)):
            name = held.get(storage(tensor), "")
            held[storage(tensor)] = name or "another result"
            if name and returned.alias_info is None:
                yield name


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list | tuple):
        return all(_same(*pair) for pair in zip(old, new, strict=False))
    if not isinstance(old, torch().Tensor) or old.device.type == torch()._C._get_privateuse1_backend_name():
        return True  # a backend that is being written may copy nothing
    return bool(torch().equal(*(each.detach().cpu().nan_to_num() for each in (old, new))))  # not on a wrong backend


def keep_call(watch: ProgramWatch, operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Keep and return copies of the arguments of an operator's first calls, if they are small."""
    if "::" in operator and (state := _state_of_call(args)) and (operator, state) not in watch.states:
        watch.states.add((operator, state))
        watch.note("called", operator, state)
    calls = watch.calls.setdefault(operator, [])
    watch.copied[operator] += 1
    with suppress(Exception):
        if watch.copied[operator] <= _KEPT_CALLS:
            calls[_KEPT_CALLS - 1 :] = [copy_of((args, kwargs))]
            return calls[-1]
    return None


def _state_of_call(args: tuple[Any, ...]) -> str:
    """Return the modes around a call, in words, and the dtypes of its tensors if they differ."""
    states = [f"autocast {device}" for device in ("cpu", "cuda", "xpu") if torch().is_autocast_enabled(device)]
    if torch().is_inference_mode_enabled():
        states.append("inference mode")
    dtypes = dict.fromkeys(str(a.dtype) for a in args if isinstance(a, torch().Tensor) and a.is_floating_point())
    mixed = f"; {' and '.join(dtypes)}" if states and len(dtypes) > 1 else ""
    if any(tensor.requires_grad for tensor in _tensors_of(args)):
        states.append("gradients")
    return ", ".join(states) + mixed


def copy_of(value: Any) -> Any:
    """Return a value with its tensors copied.

    Raises:
        ValueError: a tensor is large, or does not contain plain numbers.
    """

    def copied(tensor: Any) -> Any:
        if tensor.numel() > _KEPT_NUMBERS or type(tensor) not in (torch().Tensor, torch().nn.Parameter):
            raise ValueError
        copy = tensor.detach().clone()
        return copy.requires_grad_() if tensor.requires_grad else copy  # which functorch refuses

    return torch().utils._pytree.tree_map_only(torch().Tensor, copied, value)
