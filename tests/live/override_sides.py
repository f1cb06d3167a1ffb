"""The same program about overrides, on the lab and on the running PyTorch: what it uses of either, under one name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import pytest

from dispatchlab import CallError, Dispatcher, DispatchKeySet, ErrorKind, Lab, Library, boxed, fallthrough
from dispatchlab import Tensor as LabTensor
from dispatchlab.call import (
    DType,
    ExcludeDispatchKeyGuard,
    ForceDispatchKeyGuard,
    IncludeDispatchKeyGuard,
    MemoryFormat,
    excluded,
    included,
    operator,
)
from dispatchlab.call.tensor import shallow_copy
from dispatchlab.lab import no_grad
from dispatchlab.lab.overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    DispatchMode,
    FunctionMode,
    Functions,
    PythonDispatch,
    as_subclass,
    disabled,
    enable_reentrant_dispatch,
    enable_torch_function,
    function_modes,
    handle_torch_function,
    has_torch_function,
    is_in_dispatch_mode,
    is_torch_function_all_disabled,
    is_torch_function_enabled,
    make_wrapper_subclass,
    modes,
    no_dispatch,
    redispatch_function,
    torch_function_dispatch,
    without_defaults,
)
from dispatchlab.model.keys import parse_key

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


if not torch.__version__.startswith("2.13."):
    pytest.skip("the rules of overrides are those of PyTorch 2.13", allow_module_level=True)


class ProgramError(Exception):
    """What programs raise themselves; it is compared by its class."""


def rounded(numbers: Any) -> Any:
    """Numbers without the last digits, in which the two may differ."""
    return [rounded(one) for one in numbers] if isinstance(numbers, list) else round(numbers, 4)


class Side:
    """One of the two.

    Attributes:
        Tensor: the class that tensors have and classes of tensors derive from.
        f: functions by name.
        FunctionMode: the class that function modes derive from.
        DispatchMode: the class that modes of operators derive from.
    """

    Tensor: Any
    f: Any
    FunctionMode: Any
    DispatchMode: Any

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def new(self, kind: Any, data: Any) -> Any:
        """A tensor of a class, of numbers."""
        return self.as_subclass(self.tensor(data), kind)

    def show(self, value: Any) -> Any:
        """A value as it is compared."""
        if isinstance(value, list | tuple):
            return [self.show(one) for one in value]
        if isinstance(value, dict):
            return {name: self.show(one) for name, one in value.items()}
        if isinstance(value, torch.Tensor | LabTensor):
            kind = type(value).__name__
            with self.disable():
                elem = getattr(value, "elem", None)
                return [kind, self.show(elem)] if elem is not None else [kind, self.numbers(value)]
        if isinstance(value, type):
            return value.__name__
        if callable(value):
            return self.name(value)
        if isinstance(value, Enum):
            return str(value)
        if value is None or isinstance(value, float | int | str):
            return value
        is_programs = type(value).__module__.startswith("tests.") and "__repr__" not in vars(type(value))
        return type(value).__name__ if is_programs else str(value).removeprefix("torch.")

    @staticmethod
    def is_tensor(value: Any) -> bool:
        """Whether it is a tensor of either."""
        return isinstance(value, torch.Tensor | LabTensor)

    def numbers_of(self, value: Any) -> Any:
        """The numbers of the tensors of a value."""
        if isinstance(value, list | tuple):
            return [self.numbers_of(one) for one in value]
        with self.disable():
            return self.numbers(value) if isinstance(value, torch.Tensor | LabTensor) else value

    def outcome(self, call: Callable[..., Any], *args: Any) -> Any:
        """What a call returns, or how it ends."""
        try:
            return self.show(call(*args))
        except ProgramError as error:
            return f"{type(error).__name__}{error.args}"
        except TypeError:
            return "TypeError"
        except Exception:  # the kinds of the two differ, and PyTorch's are RuntimeError, ValueError, IndexError
            return "refused"

    def warned(self, call: Callable[..., Any], *args: Any) -> list[str]:
        """The categories of the warnings of a call about handlers."""
        with warnings.catch_warnings(record=True) as caught, self.always_warning():
            warnings.simplefilter("always")
            call(*args)
        return [each.category.__name__ for each in caught if "as a plain method" in str(each.message)]

    def mode(self, handler: Callable[..., Any]) -> Any:
        """A function mode with that handler, which gets the mode first."""

        def run(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handler(mode, func, types, args, kwargs or {})

        return type("Mode", (self.FunctionMode,), {"__torch_function__": run})()

    def dispatch_mode(self, handler: Callable[..., Any], name: str = "Mode") -> Any:
        """A mode of operators with that handler, which gets the mode first."""

        def run(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handler(mode, func, types, args, kwargs or {})

        return type(name, (self.DispatchMode,), {"__torch_dispatch__": run})()

    def kind(self, name: str, handler: Callable[..., Any], *bases: Any) -> Any:
        """A class of tensors with that handler of public functions, which gets the class first."""

        def run(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handler(cls, func, types, args, kwargs or {})

        return type(name, bases or (self.Tensor,), {"__torch_function__": classmethod(run)})

    def duck(self, name: str, handler: Callable[..., Any], *bases: Any) -> Any:
        """A class that is no tensor, with that handler."""
        return self.kind(name, handler, *(bases or (object,)))

    def wrapper(self, name: str, handler: Callable[..., Any], *bases: Any) -> Any:
        """A class of tensors around others, with that handler of operators, which gets the class first."""
        side = self

        def new(cls: Any, elem: Any, *, requires_grad: bool = False) -> Any:
            made = side.make_wrapper(cls, elem, requires_grad=requires_grad)
            made.elem = elem
            return made

        def run(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handler(cls, func, types, args, kwargs or {})

        body = {
            "__new__": staticmethod(new),
            "__init__": lambda self, *args, **kwargs: None,
            "__torch_function__": self.disabled,
            "__torch_dispatch__": classmethod(run),
        }
        return type(name, bases or (self.Tensor,), body)

    def inner(self, value: Any) -> Any:
        """What wrappers wrap, in lists and tuples, too."""
        if isinstance(value, list | tuple):
            return type(value)([self.inner(one) for one in value])
        if isinstance(value, dict):
            return {name: self.inner(one) for name, one in value.items()}
        return value.__dict__.get("elem", value) if hasattr(value, "__dict__") else value

    def logging(self, log: list[Any], *, reentrant: bool = False) -> Any:
        """A class of wrappers that notes each call and goes on with what is wrapped."""

        def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            with self.reentrant() if reentrant else self.nothing():
                result = func(*self.inner(args), **self.inner(kwargs))
            log.append([self.op_name(func), len(args), sorted(kwargs), self.show(self.inner(args))])
            if self.op_name(func).partition(".")[0].endswith("_"):
                return args[0]
            return cls(result) if isinstance(result, torch.Tensor | LabTensor) else result

        return self.wrapper("Logging", handler)

    @contextmanager
    def always_warning(self) -> Iterator[None]:
        """Warnings come each time."""
        yield

    @contextmanager
    def nothing(self) -> Iterator[None]:
        """No guard."""
        yield


class _Ours(Side):
    def outcome(self, call: Callable[..., Any], *args: Any) -> Any:
        def kinds() -> Any:
            try:
                return call(*args)
            except CallError as error:
                # What PyTorch's parser refuses is a TypeError there.
                if error.kind in (ErrorKind.WRONG_TYPE, ErrorKind.MISSING_ARGUMENT, ErrorKind.EXTRA_ARGUMENT):
                    raise TypeError(str(error)) from None
                raise

        return super().outcome(kinds)

    fallthrough = fallthrough
    FunctionMode, DispatchMode = FunctionMode, DispatchMode
    disable, disable_subclass, enable = DisableTorchFunction, DisableTorchFunctionSubclass, enable_torch_function
    enabled, all_disabled = staticmethod(is_torch_function_enabled), staticmethod(is_torch_function_all_disabled)
    has, handle = staticmethod(has_torch_function), staticmethod(handle_torch_function)
    redispatch = staticmethod(redispatch_function)
    function_modes, modes = staticmethod(function_modes), staticmethod(modes)
    disabled = staticmethod(disabled)
    no_grad, no_dispatch, reentrant = no_grad, staticmethod(no_dispatch), enable_reentrant_dispatch
    included, excluded = staticmethod(included), staticmethod(excluded)
    include, exclude, force = IncludeDispatchKeyGuard, ExcludeDispatchKeyGuard, ForceDispatchKeyGuard
    float64, float32, contiguous = DType.float64, DType.float32, MemoryFormat.contiguous_format

    def __init__(self) -> None:
        self.lab = Lab(Dispatcher("torch-2.13"))
        self.python = PythonDispatch(self.lab.dispatcher)
        self.f = Functions(self.lab)
        self.Tensor = self.f.Tensor

    def tensor(self, data: Any, *, requires_grad: bool = False) -> Any:
        return self.f.tensor(data, requires_grad=True) if requires_grad else self.f.tensor(data)

    def numbers(self, value: Any) -> Any:
        return None if value.elements is None else rounded(LabTensor.numpy(value).tolist())

    def name(self, func: Any) -> str:
        return self.f.resolve_name(func) or str(func.__name__)

    def op_name(self, func: Any) -> str:
        return str(func.name)

    def overridable(self, dispatcher: Any) -> Any:
        return torch_function_dispatch(dispatcher, verify=False)

    def as_subclass(self, value: Any, kind: Any) -> Any:
        return as_subclass(value, kind, self.lab.alias)

    def make_subclass(self, kind: Any, elem: Any, *, requires_grad: bool = False) -> Any:
        with no_dispatch():
            made = shallow_copy(self.lab.detach(elem), LabTensor)
        made = as_subclass(made, kind)
        with DisableTorchFunction():
            made.requires_grad = requires_grad
        return made

    def make_wrapper(self, kind: Any, like: Any, **options: Any) -> Any:
        return make_wrapper_subclass(kind, like, **options)

    def with_keys(self, kind: Any, like: Any, *keys: str) -> Any:
        return make_wrapper_subclass(kind, like, extra_dispatch_keys=self.key_set(*keys))

    def key_set(self, *names: str) -> Any:
        return DispatchKeySet.of(*map(parse_key, names))

    def keys(self, value: Any) -> set[str]:
        return {str(key) for key in value.key_set}

    def without(self, keys: Any, name: str) -> Any:
        return keys - self.key_set(name)

    def op(self, name: str) -> Any:
        return operator(self.lab.dispatcher, name)

    def library(self, namespace: str, kind: str, key: str = "") -> Any:
        return Library(namespace, kind, key, dispatcher=self.lab.dispatcher)

    def held_library(self, namespace: str, kind: str) -> Any:
        return Library(namespace, kind, dispatcher=self.lab.dispatcher)

    def release(self, library: Any) -> None:
        library.release()

    def mend(self, library: Any) -> None:
        """Nothing has to be fixed."""

    def forget(self, namespace: str) -> None:
        """Nothing but libraries holds an operator here."""

    def call_boxed(self, name: str, *args: Any) -> Any:
        called = self.op(name)
        stack = [*args, *[called.table.signature.default(at) for at in range(len(args), len(called.schema.arguments))]]
        called.call_boxed(stack)
        (result,) = stack
        return result

    def with_python(self, keys: Any) -> Any:
        return keys | self.key_set("Python", "CPU", "PythonTLSSnapshot")

    def fallback(self, library: Any, function: Any, key: str, *, with_keyset: bool = False) -> None:
        def kernel(called: Any, keys: Any, stack: list[Any]) -> None:
            start = len(stack) - len(called.schema.arguments)
            args, kwargs = without_defaults(called.schema, stack[start:])
            stack[start:] = [function(*((keys,) if with_keyset else ()), called, *args, **kwargs)]

        library.fallback(boxed(kernel, with_keyset=True) if callable(function) else function, key)

    def stride(self, value: Any) -> tuple[int, ...]:
        return tuple(value.strides)

    def version(self, value: Any) -> int:
        return int(value.version)

    def came_from(self, value: Any) -> str | None:
        return None if value.grad_fn is None else str(value.grad_fn.name)

    def backward(self, value: Any, gradient: Any = None) -> None:
        self.lab.backward(value, gradient)

    def base(self, value: Any) -> Any:
        return value.base

    def in_mode(self, *, infra: bool = True) -> bool:
        return is_in_dispatch_mode(include_infra_modes=infra)

    def has_operator(self, name: str) -> bool:
        return self.lab.dispatcher.find_schema(name) is not None


class _Functions:
    """PyTorch's functions, wherever they are."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Theirs(Side):
    f = _Functions()
    fallthrough = staticmethod(torch.library.fallthrough_kernel)
    Tensor = torch.Tensor
    FunctionMode = torch.overrides.TorchFunctionMode
    DispatchMode = torch.utils._python_dispatch.TorchDispatchMode
    disable, disable_subclass = torch._C.DisableTorchFunction, torch._C.DisableTorchFunctionSubclass
    enable = staticmethod(torch.overrides._enable_torch_function)
    enabled = staticmethod(torch._C._is_torch_function_enabled)
    all_disabled = staticmethod(torch._C._is_torch_function_all_disabled)
    has, handle = (
        staticmethod(torch.overrides.has_torch_function),
        staticmethod(torch.overrides.handle_torch_function),
    )
    disabled = torch._C._disabled_torch_function_impl
    no_grad, no_dispatch = torch.no_grad, staticmethod(torch.utils._mode_utils.no_dispatch)
    reentrant = staticmethod(torch.overrides.enable_reentrant_dispatch)
    included = staticmethod(torch._C._dispatch_tls_local_include_set)
    excluded = staticmethod(torch._C._dispatch_tls_local_exclude_set)
    exclude, force = torch._C._ExcludeDispatchKeyGuard, torch._C._ForceDispatchKeyGuard
    float64, float32, contiguous = torch.float64, torch.float32, torch.contiguous_format

    @contextmanager
    def always_warning(self) -> Iterator[None]:
        """What PyTorch says in C++ is said once in a process, unless it has to say it always."""
        before = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(before)

    def redispatch(self, *args: Any) -> Any:
        return torch.overrides.redispatch_function(*args)

    def function_modes(self) -> Any:
        return tuple(torch.overrides._get_current_function_mode_stack())

    def modes(self) -> Any:
        return tuple(torch.utils._python_dispatch._get_current_dispatch_mode_stack())

    def tensor(self, data: Any, *, requires_grad: bool = False) -> Any:
        return torch.tensor(data, requires_grad=True) if requires_grad else torch.tensor(data)

    def numbers(self, value: Any) -> Any:
        with torch._C._DisableTorchDispatch():
            keeps = type(value).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
            return rounded(value.detach().tolist()) if keeps else None

    def name(self, func: Any) -> str:
        found = torch.overrides.resolve_name(func)
        if found is None or not found.startswith("torch.Tensor."):
            return str(func.__name__)
        return str(found).removeprefix("torch.")

    def op_name(self, func: Any) -> str:
        return str(func._schema.name + ("." + func._schema.overload_name).rstrip("."))

    def overridable(self, dispatcher: Any) -> Any:
        return torch.overrides.wrap_torch_function(dispatcher)

    def as_subclass(self, value: Any, kind: Any) -> Any:
        return value.as_subclass(kind)

    def make_subclass(self, kind: Any, elem: Any, *, requires_grad: bool = False) -> Any:
        return torch.Tensor._make_subclass(kind, elem, requires_grad)

    def make_wrapper(self, kind: Any, like: Any, **options: Any) -> Any:
        if not isinstance(like, torch.Tensor):
            return torch.Tensor._make_wrapper_subclass(kind, like, **options)
        return torch.Tensor._make_wrapper_subclass(
            kind, like.size(), strides=like.stride(), dtype=like.dtype, device=like.device, **options
        )

    def with_keys(self, kind: Any, like: Any, *keys: str) -> Any:
        fixed = (torch.contiguous_format, like.dtype, like.layout, like.device, False, False, None, False, False)
        return torch.Tensor._make_wrapper_subclass(kind, like.size(), like.stride(), 0, *fixed, self.key_set(*keys))

    def key_set(self, *names: str) -> Any:
        made = torch._C.DispatchKeySet(torch._C._parse_dispatch_key("Undefined"))
        for name in names:
            made = made | torch._C.DispatchKeySet(torch._C._parse_dispatch_key(name))
        return made

    def keys(self, value: Any) -> set[str]:
        text = str(torch._C._dispatch_keys(value)).removeprefix("DispatchKeySet(").removesuffix(")")
        return set(text.split(", "))

    def without(self, keys: Any, name: str) -> Any:
        return keys.remove(torch._C._parse_dispatch_key(name))

    @contextmanager
    def include(self, key: Any) -> Iterator[None]:
        with torch._C._ForceDispatchKeyGuard(self.included() | key, self.excluded()):
            yield

    def op(self, name: str) -> Any:
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")

    def library(self, namespace: str, kind: str, key: str = "") -> Any:
        return torch.library._scoped_library(namespace, kind, key)

    def held_library(self, namespace: str, kind: str) -> Any:
        return torch.library.Library(namespace, kind)

    def release(self, library: Any) -> None:
        library._destroy()

    def mend(self, library: Any) -> None:
        """Drop names with the namespace twice, which PyTorch 2.13 keeps and fails on at the end."""
        library._op_defs.difference_update([name for name in library._op_defs if name.count("::") > 1])

    def forget(self, namespace: str) -> None:
        """Drop what `torch.ops` keeps, which does not hold a registration."""
        if hasattr(torch.ops, namespace):
            delattr(torch.ops, namespace)

    def call_boxed(self, name: str, *args: Any) -> Any:
        base, _, overload = name.partition(".")
        return torch._C._dispatch_call_boxed(torch._C._dispatch_find_schema_or_throw(base, overload), *args)

    def with_python(self, keys: Any) -> Any:
        return keys | self.key_set("Python", "CPU", "PythonTLSSnapshot")

    def fallback(self, library: Any, function: Any, key: str, *, with_keyset: bool = False) -> None:
        library.fallback(function, key, with_keyset=with_keyset)

    def stride(self, value: Any) -> tuple[int, ...]:
        return tuple(value.stride())

    def version(self, value: Any) -> int:
        return int(value._version)

    def came_from(self, value: Any) -> str | None:
        return None if value.grad_fn is None else str(value.grad_fn.name()).removeprefix("torch::autograd::")

    def backward(self, value: Any, gradient: Any = None) -> None:
        value.backward(gradient)

    def base(self, value: Any) -> Any:
        return value._base

    def in_mode(self, *, infra: bool = True) -> bool:
        return bool(torch.utils._python_dispatch.is_in_torch_dispatch_mode(include_infra_modes=infra))

    def has_operator(self, name: str) -> bool:
        return any(one.name == name for one in torch._C._jit_get_all_schemas())


def sides() -> tuple[Side, Side]:
    """The lab, on a dispatcher of its own, and PyTorch."""
    return _Ours(), _Theirs()
