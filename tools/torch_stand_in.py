"""Modules with PyTorch's names that stand on a lab dispatcher, as far as PyTorch's tests of its dispatcher use them.

    modules = stand_in("torch-2.13")
    modules["torch._C"]._dispatch_library("FRAGMENT", "test", "").def_("foo(Tensor x) -> Tensor")

Everything goes through `Dispatcher`, `Library` and `operator`. Refusals come as PyTorch words them, since its tests
compare the texts. What PyTorch has registered is there, from the bundled registry of the version. The check of
invariants finds what PyTorch's finds under a model of PyTorch, and everything under `strict`.
Source: torch/csrc/utils/python_dispatch.cpp.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import unittest
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import expecttest
import numpy as np

from dispatchlab import (
    Block,
    BlockKind,
    CallError,
    Def,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    DispatchLabError,
    ErrorKind,
    Impl,
    Kernel,
    KernelForm,
    Library,
    OperatorName,
    OverrideWarning,
    RegistrationError,
    Tensor,
    bundled_registries,
    dispatch,
    fallthrough,
    open_registry,
    operator,
    parse_name,
    parse_schema,
    unboxed,
)
from dispatchlab.call.local_key_set import AutoDispatchBelowADInplaceOrView
from dispatchlab.call.tensor_options import DType
from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.introspection import fallbacks_in
from dispatchlab.engine.invariants import expected_slots, holding, stale_keys
from dispatchlab.engine.kernel import AMBIGUOUS, KernelLike, kernel_function
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import RefusalError
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.keys import SLOT_KEYS, UnknownKeyError, parse_key
from dispatchlab.model.registration import Registration
from dispatchlab.model.schema import Argument, FunctionSchema, SimpleType
from dispatchlab.model.slot_set import UNDEFINED_SLOT, set_bits
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.replay import replay


class StandInError(DispatchLabError):
    """Something that PyTorch can do, and its stand-in cannot."""

    message: str

    template = "{message}"


def stand_in(semantics: str, python_dispatcher: Path | None = None, *, recorded: bool = True) -> dict[str, ModuleType]:
    """The modules by their names, to be put into `sys.modules` before a test of PyTorch is imported.

    Args:
        semantics: which dispatcher they stand on.
        python_dispatcher: PyTorch's `torch/_python_dispatcher.py`, which is plain Python upon `torch._C`.
        recorded: begin with what PyTorch has registered; else with its backend fallbacks alone.

    Raises:
        DispatchLabError: there are no such semantics.
    """
    dispatcher, kept = _with_registry(semantics) if recorded else (Dispatcher(semantics), ())
    torch, torch_c = ModuleType("torch"), _module("torch._C", _functions_of_c(dispatcher))
    extensions: list[object] = [kept]
    torch.__dict__.update(
        _C=torch_c,
        zeros=lambda shape: Tensor(np.zeros(shape, np.float32)),
        qint8=DType.qint8,
        quantize_per_tensor=_quantize_per_tensor,
        __getattr__=partial(_operator_named, dispatcher),
        utils=_package("torch.utils"),
    )
    load = partial(_load_extension, dispatcher, extensions)
    cpp_extension = torch.utils.cpp_extension = _module("torch.utils.cpp_extension", {"load": load})
    common = {
        "TestCase": TestCase,
        "run_tests": unittest.main,
        "CapturedOutput": CapturedOutput,
        "HardwareClassification": HardwareClassification,
    }
    modules = {
        "torch": torch,
        "torch._C": torch_c,
        "torch.utils": torch.utils,
        "torch.utils.cpp_extension": cpp_extension,
        "torch.testing": _package("torch.testing"),
        "torch.testing._internal": _package("torch.testing._internal"),
        "torch.testing._internal.common_utils": _module("torch.testing._internal.common_utils", common),
    }
    torch.__path__ = []
    if python_dispatcher is not None:
        modules["torch._python_dispatcher"] = _upon(modules, "torch._python_dispatcher", python_dispatcher)
    return modules


def _module(name: str, names: Mapping[str, object]) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


def _package(name: str) -> ModuleType:
    made = ModuleType(name)
    made.__path__ = []
    return made


def _upon(modules: Mapping[str, ModuleType], name: str, path: Path) -> ModuleType:
    """Run a file of PyTorch as a module that imports these modules and no others of PyTorch."""
    made = ModuleType(name)
    made.__file__ = str(path)
    with _installed(modules):
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), made.__dict__)
    return made


@contextlib.contextmanager
def _installed(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "torch"}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


# -- torch._C


def _function_identity(kernel: Kernel) -> Hashable:
    """What PyTorch compares kernels by: the function pointers, which all Python kernels have in common."""
    return kernel.form, kernel.signature, kernel.symint, kernel.reference


def upstream_violations(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> tuple[str, ...]:
    """The runtime keys for which PyTorch's own check fails; empty when it passes.

    It compares function pointers only and skips Undefined.
    """
    expected = expected_slots(entry, fallbacks, semantics)
    differing: list[str] = []
    for slot in semantics.in_order(set_bits(stale_keys(entry.slots, expected) & ~UNDEFINED_SLOT)):
        held, wanted = holding(entry.slots, slot), holding(expected, slot)
        pair = [
            None if one is None else "ambiguous" if one is AMBIGUOUS else _function_identity(one.registered.kernel)
            for one in (held, wanted)
        ]
        if pair[0] != pair[1]:
            differing.append(str(SLOT_KEYS[slot]))
    return tuple(differing)


def _functions_of_c(dispatcher: Dispatcher) -> dict[str, object]:
    def dump(name: str) -> str:
        return "" if dispatcher.find_op(name) is None else dispatcher.dump(name)

    def dump_table(name: str) -> str:
        return "" if dispatcher.find_op(name) is None else dispatcher.dump_table(name)

    def check_invariants(name: str) -> None:
        entry = dispatcher.operator_entry(name)
        if entry is not None and not dispatcher.semantics.is_atomic:
            stale = upstream_violations(entry, fallbacks_in(dispatcher.state), dispatcher.semantics)
            if stale:
                raise RegistrationError(ErrorKind.OTHER, f"stale slots of {name}: {', '.join(stale)}")
        elif entry is not None:
            dispatcher.check_invariants(name)

    def check_all_invariants() -> None:
        for name in dispatcher.operators():
            check_invariants(str(name))

    def has_kernel(name: str, key: DispatchKey | None = None) -> bool:
        entry = dispatcher.operator_entry(name)
        held = () if entry is None else dispatcher.dump(name).splitlines()
        return any(" :: " in line and (key is None or line.startswith(f"{key}:")) for line in held)

    def names_at(text: str = "") -> list[str]:
        key = _key(text) if text else None
        return [str(name) for name in dispatcher.operators() if key is None or has_kernel(str(name), key)]

    def print_names_at(text: str = "") -> None:
        sys.stdout.writelines(f"{name}\n" for name in names_at(text))

    return {
        "_dispatch_library": lambda kind, namespace, key="", file="/dev/null", line=0: _worded(
            partial(StandInLibrary, dispatcher, kind, namespace, key, f"registered at {file}:{line}")
        ),
        "_dispatch_dump": _wording(dump),
        "_dispatch_dump_table": _wording(dump_table),
        "_dispatch_check_invariants": _wording(check_invariants),
        "_dispatch_check_all_invariants": _wording(check_all_invariants),
        "_dispatch_find_dangling_impls": lambda: [dump(str(name)) for name in dispatcher.dangling_impls()],
        "_dispatch_get_all_op_names": names_at,
        "_dispatch_get_registrations_for_dispatch_key": _wording(names_at),
        "_dispatch_print_registrations_for_dispatch_key": _wording(print_names_at),
        "_dispatch_has_kernel": _wording(lambda name: has_kernel(name)),
        "_dispatch_has_kernel_for_dispatch_key": _wording(lambda name, key: has_kernel(name, _key(key))),
        "DispatchKey": DispatchKey,
        "DispatchKeySet": DispatchKeySet,
    }


class StandInLibrary:
    """What `torch._C._dispatch_library` gives: its registrations go when it is forgotten.

    Args:
        dispatcher: where it registers.
        kind: DEF, FRAGMENT or IMPL.
        namespace: its namespace.
        key: its dispatch key; empty for none.
        debug: what dumps print of its registrations.
    """

    def __init__(self, dispatcher: Dispatcher, kind: str, namespace: str, key: str, debug: str) -> None:
        self._library = Library(namespace, kind, key, dispatcher=dispatcher, debug=debug)

    def reset(self) -> None:
        """Release everything."""
        self._library.release()

    def def_(self, schema: str, alias: str = "") -> StandInLibrary:
        """`m.def(torch::schema(schema, alias))`."""
        return self._made(lambda: self._library.define(schema, alias_analysis=alias))

    def define(self, schema: str, alias: str = "") -> str:
        """The same, and the name of what was defined."""
        self.def_(schema, alias)
        name = parse_schema(schema).name
        return f"{name.name}.{name.overload}" if name.overload else name.name

    def def_legacy(self, schema: str) -> StandInLibrary:
        """`m.def` of a parsed schema, whose alias kind is left at the default."""
        return self._made(lambda: self._library.define(parse_schema(schema)))

    def def_name_t_t(self, name: str, dispatch: str = "", debug: str = "default_def_name_t_t") -> StandInLibrary:
        """`m.def` of a name with a kernel `(Tensor) -> Tensor`, whose schema is inferred."""
        return self._made(lambda: self._library.define(name, _t_t(dispatch, debug)))

    def def_schema_t_t(
        self, schema: str, dispatch: str = "", alias: str = "", debug: str = "default_def_schema_t_t"
    ) -> StandInLibrary:
        """`m.def` of a schema with such a kernel."""

        def register() -> None:
            kernel = _t_t(dispatch, debug)  # which PyTorch reads before the schema
            self._library.define(parse_schema(schema), kernel, alias_analysis=alias or "FROM_SCHEMA")

        return self._made(register)

    def impl_t_t(self, name: str, dispatch: str = "", debug: str = "impl_t_t") -> StandInLibrary:
        """`m.impl` of such a kernel."""
        return self._made(lambda: self._library.impl(name, _t_t(dispatch, debug)))

    def impl(self, name: str, dispatch: str | DispatchKey, function: Callable[..., object]) -> None:
        """`m.impl` of a Python function; a key that is given as a `DispatchKey` need not be one that PyTorch parses."""
        kernel, text = _at(dispatch, function)
        self._made(lambda: self._library.impl(name, kernel, text))

    def fallback_fallthrough(self, dispatch: str = "") -> StandInLibrary:
        """`m.fallback` of a fallthrough."""
        return self._made(lambda: self._library.fallback(fallthrough, dispatch))

    def fallback(
        self,
        dispatch: str | DispatchKey,
        function: Callable[..., object],
        with_keyset: bool = False,  # noqa: FBT001, FBT002  # PyTorch's
    ) -> None:
        """`m.fallback` of a Python function."""
        kernel, text = _at(dispatch, kernel_function(function, with_keyset=with_keyset))
        self._made(lambda: self._library.fallback(kernel, text))

    def _made(self, register: Callable[[], object]) -> StandInLibrary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverrideWarning)  # PyTorch warns on standard error, and tests go on
            _worded(register)
        return self


def _at(key: str | DispatchKey, function: KernelLike) -> tuple[KernelLike, str]:
    """A kernel and the text of its key; a key that is given as such is the kernel's own."""
    return (dispatch(key, function), "") if isinstance(key, DispatchKey) else (function, key)


def _t_t(key: str, debug: str) -> Any:
    kernel = unboxed(_identity).debug(debug)
    return dispatch(key, kernel) if key else kernel


def _identity(x: Tensor) -> Tensor:
    return x


def _key(text: str | DispatchKey) -> DispatchKey:
    try:
        return parse_key(str(text))
    except UnknownKeyError:
        raise RegistrationError(ErrorKind.UNKNOWN_KEY, str(text), {"key": str(text)}) from None


# -- errors as PyTorch words them


def _wording(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: _worded(partial(function, *args, **kwargs))


def _worded(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except DispatchLabError as error:
        missing = isinstance(error, CallError) and error.kind is ErrorKind.MISSING_KERNEL
        worded = (NotImplementedError if missing else RuntimeError)(text_of(error))
    try:
        raise worded
    finally:
        del worded  # else it and this frame hold each other, and what was called outlives its last reference


_TEXTS = {
    ErrorKind.DUPLICATE_DEF: (
        "Tried to register an operator ({schema}) with the same name and overload name multiple times. "
        "Each overload's schema should only be registered with a single call to def(). "
        "Duplicate registration: {debug}. Original registration: {other_debug}"
    ),
    ErrorKind.SCHEMA_MISMATCH: (
        "Inferred operator schema for a C++ kernel function doesn't match the expected function schema.\n"
        "  operator: {operator}\n"
        "  expected schema: {def_schema}\n"
        "    {def_debug}\n"
        "  inferred schema: {inferred_schema}\n"
        "    {inferred_debug}\n"
        "  reason: {reason}"
    ),
    ErrorKind.SIGNATURE_MISMATCH: (
        "\nMismatch in kernel C++ signatures\n"
        "  operator: {operator}\n"
        "  kernel 1: {other_signature}\n"
        "    dispatch key: {other_key}\n"
        "    {other_debug}\n"
        "  kernel 2: {signature}\n"
        "    dispatch key: {key}\n"
        "    {debug}\n"
    ),
    ErrorKind.DUPLICATE_FALLBACK: (
        "Tried to register multiple backend fallbacks for the same dispatch key {key}; "
        "previous registration {other_debug}, new registration {debug}"
    ),
    ErrorKind.DUPLICATE_LIBRARY: (
        "Only a single TORCH_LIBRARY can be used to register the namespace {namespace}; please put all of your "
        "definitions in a single TORCH_LIBRARY block.  If you were trying to specify implementations, consider using "
        "TORCH_LIBRARY_IMPL (which can be duplicated).  If you really intended to define operators for a single "
        "namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to explicitly indicate this.  "
        "Previous registration of TORCH_LIBRARY was {other_debug}; latest registration was {debug}"
    ),
    ErrorKind.UNKNOWN_KEY: "could not parse dispatch key: {key}",
    ErrorKind.MISSING_KERNEL: "Could not run '{operator}' with arguments from the '{key}' backend.",
}


def text_of(error: DispatchLabError) -> str:
    """PyTorch's text for an error, made of its facts; the lab's own where PyTorch's is not compared."""
    if isinstance(error, RefusalError) and error.kind in _TEXTS:
        return _TEXTS[error.kind].format_map(error.facts)
    return str(error)


# -- what PyTorch has registered


def _with_registry(semantics: str) -> tuple[Dispatcher, object]:
    """A dispatcher with the registrations of PyTorch, and what holds them."""
    names = bundled_registries()
    registry = open_registry(semantics if semantics in names else names[-1])
    dispatcher = Dispatcher(for_registry(semantics, torch=registry.torch), builtin_fallbacks=False)
    return dispatcher, replay(registry, lambda one: dispatcher.register(_callable(dispatcher, one)))


# Note [Recorded kernels that can run]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# No function is behind a recorded kernel. Two kinds are the same for every operator, because PyTorch generates them: a
# kernel of VariableType hands the call on below autograd, and the functional kernel of a structured operator at
# CompositeExplicitAutogradNonFunctional calls its out variant. So a call gets to the key at which there is no kernel,
# or to a kernel of which only the name is known.


def _callable(dispatcher: Dispatcher, registration: Registration) -> Registration:
    """A recorded registration with a function, where it is known what its kernel does."""
    if not isinstance(registration, Impl):
        return registration
    function: Callable[..., object]
    if "/VariableType_" in registration.debug:
        function = partial(_below_autograd, dispatcher, registration.operator)
    elif "/RegisterCompositeExplicitAutogradNonFunctional" in registration.debug:
        function = partial(_out_variant, dispatcher, registration.operator)
    else:
        return registration
    return replace(registration, kernel=replace(registration.kernel, function=function, with_keyset=True))


def _below_autograd(dispatcher: Dispatcher, name: OperatorName, keys: DispatchKeySet, *given: object) -> object:
    below = keys & DispatchKeySet.full_after(DispatchKey.AutogradFunctionality)
    plain, named = _as_called(dispatcher.find_schema_or_raise(name), given)
    with AutoDispatchBelowADInplaceOrView():
        return operator(dispatcher, name).redispatch(below, *plain, **named)


def _out_variant(dispatcher: Dispatcher, name: OperatorName, keys: DispatchKeySet, *given: object) -> object:
    functional = dispatcher.find_schema_or_raise(name)
    for other in dispatcher.operators():
        schema = dispatcher.find_schema(other) if other.qualified == name.qualified else None
        outs = () if schema is None else tuple(filter(_is_out, schema.arguments))
        if schema is not None and outs and schema.arguments == (*functional.arguments, *outs):
            like = next(value for value in given if isinstance(value, Tensor))
            made = [Tensor(np.empty(0), device=like.device, dtype=like.dtype) for _ in outs]
            plain, named = _as_called(schema, (*given, *made))
            return operator(dispatcher, other)(*plain, **named)
    raise StandInError(f"{name} has no out variant, which its kernel for {keys} calls")


def _as_called(schema: FunctionSchema, given: Sequence[object]) -> tuple[list[object], dict[str, object]]:
    """What a kernel was given, in order, as a caller of its operator writes it."""
    pairs = list(zip(schema.arguments, given, strict=True))
    named = {argument.name: value for argument, value in pairs if argument.kwarg_only}
    return [value for argument, value in pairs if not argument.kwarg_only], named


def _is_out(argument: Argument) -> bool:
    return argument.kwarg_only and argument.alias is not None and argument.alias.is_write


def _operator_named(dispatcher: Dispatcher, name: str) -> Callable[..., object]:
    """`torch.NAME`: the operator `aten::NAME` that has no overload."""
    if dispatcher.find_schema(f"aten::{name}") is None:
        raise AttributeError(f"the stand-in of torch has no {name}")
    return _wording(operator(dispatcher, f"aten::{name}"))


def _quantize_per_tensor(x: Tensor, scale: float, zero_point: int, dtype: DType) -> Tensor:
    info = np.iinfo(dtype.numpy)
    return Tensor(np.clip(np.rint(x.numpy() / scale) + zero_point, info.min, info.max), dtype=dtype)


# -- torch.utils.cpp_extension: nothing is compiled, the registrations are read

_BLOCK = re.compile(
    r"^TORCH_LIBRARY(?P<kind>_IMPL|_FRAGMENT|)\(\s*(?P<namespace>\w+)\s*(?:,\s*(?P<key>\w+)\s*)?,\s*(?P<name>\w+)\s*\)"
    r"\s*\{(?P<body>.*?)^\}",
    re.DOTALL | re.MULTILINE,
)
_KINDS = {"": BlockKind.DEF, "_FRAGMENT": BlockKind.FRAGMENT, "_IMPL": BlockKind.IMPL}
_CALL = re.compile(r'\w+\.(?P<what>def|impl)\(\s*"(?P<text>[^"]*)"\s*(?:,\s*&?(?P<function>\w+)\s*)?\)')
_TYPES = {"at::Tensor": "Tensor", "torch::Tensor": "Tensor", "int64_t": "int", "double": "float", "bool": "bool"}


def _load_extension(
    dispatcher: Dispatcher, kept: list[object], name: str, sources: Sequence[str], **options: object
) -> ModuleType:
    """Register what the blocks of C++ sources register, as loading the compiled extension does."""
    for source in map(Path, sources):
        for block in blocks_of(source.read_text(encoding="utf-8"), str(source)):
            kept.append(_worded(partial(dispatcher.register, block)))
    return ModuleType(name)


def blocks_of(text: str, path: str) -> Iterator[Block]:
    """The blocks of a C++ source, as far as they are calls of `def` and `impl` with a literal and a plain function.

    Raises:
        StandInError: a block holds something else, or a function with other types.
    """
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        statements = [one.strip() for one in found["body"].split(";") if one.strip()]
        made: list[Def | Impl] = []
        for statement in statements:
            call = _CALL.fullmatch(statement)
            if call is None:
                raise StandInError(f"{path}:{line}: this registration cannot be read without a compiler: {statement}")
            kernel = None if call["function"] is None else _kernel(text, call["function"], f"{path}:{line}")
            debug = f"registered at {path}:{line}"
            if call["what"] == "impl":
                made.append(Impl(parse_name(call["text"]), None, kernel or Kernel(), debug))
            else:
                made.append(Def(parse_schema(call["text"]), debug=debug, kernel=kernel))
        key = None if found["key"] is None else _key(found["key"])
        yield Block(found["namespace"], _KINDS[found["kind"]], tuple(made), key, f"registered at {path}:{line}")


def _kernel(text: str, function: str, where: str) -> Kernel:
    found = re.search(rf"^\s*(?:static\s+)?([\w:]+)\s+{function}\s*\(([^)]*)\)\s*\{{", text, re.MULTILINE)
    if found is None:
        raise StandInError(f"{where}: no function {function} is written out in this file")
    given = [one.strip() for one in found[2].split(",") if one.strip()]
    arguments = tuple(Argument(f"_{at}", _type(one.rsplit(" ", 1)[0], where)) for at, one in enumerate(given))
    returns = () if found[1] == "void" else (Argument("_0", _type(found[1], where)),)
    schema = FunctionSchema(OperatorName("", ""), arguments, returns)
    return Kernel(KernelForm.UNBOXED, schema, cpp_signature(schema), is_symint_schema(schema))


def _type(text: str, where: str) -> SimpleType:
    plain = text.removeprefix("const ").rstrip("& ")
    if plain not in _TYPES:
        raise StandInError(f"{where}: the C++ type {text} is not one of {', '.join(_TYPES)}")
    return SimpleType(_TYPES[plain])


# -- torch.testing._internal.common_utils


class TestCase(expecttest.TestCase):
    """PyTorch's base of tests, whose messages may be functions of the standard message."""

    def _formatMessage(self, msg: Any, standardMsg: str) -> str:
        return str(msg(standardMsg)) if callable(msg) else super()._formatMessage(msg, standardMsg)


class CapturedOutput(contextlib.AbstractContextManager["CapturedOutput"]):
    """Keeps what is printed in its block as `capturedtext`."""

    def __init__(self) -> None:
        self.capturedtext = ""

    def __enter__(self) -> CapturedOutput:
        self._text = io.StringIO()
        self._redirection = contextlib.redirect_stdout(self._text)
        self._redirection.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._redirection.__exit__(*error)
        self.capturedtext = self._text.getvalue()


class _AnyName(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class HardwareClassification(metaclass=_AnyName):
    """On which hardware tests are worth running; nothing here depends on it, so every name is accepted."""
