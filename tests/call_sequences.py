"""Generated calls over random registrations: every kernel that runs, in order, with the set that it was handed.

A program is a value: up to three operators with kernels at random keys, fallbacks, and a few calls under guards. Each
kernel writes down its operator, the key that it was registered at and the set that it got; then it returns, hands on,
calls another operator or fails. A `Side` runs a program on one dispatcher: `LabSide` here, PyTorch's in tests/live.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    InvariantError,
    Library,
    Tensor,
    fallthrough,
    operator,
)
from dispatchlab.call import (
    AutoDispatchBelowADInplaceOrView,
    AutoDispatchBelowAutograd,
    DType,
    ExcludeDispatchKeyGuard,
    IncludeDispatchKeyGuard,
    InferenceMode,
    Layout,
)
from dispatchlab.lab import AutogradError, Lab, no_grad, set_grad_enabled
from dispatchlab.lab.overrides import DispatchMode, PythonDispatch, disabled, make_wrapper_subclass
from tests.call_programs import COMPOSITES, FREE, RELATED, inference, ones, with_keys

# -- what a program is made of

TYPES = (
    *("Tensor", "Tensor", "Tensor", "Tensor", "Tensor?", "Tensor[]", "Tensor?[]"),
    *("int", "float", "bool", "Scalar", "str", "int[]", "int?", "int=3", "Tensor?=None", "*int=3", "*Tensor"),
)
"""Types of arguments; with a default, and, after an asterisk, by name alone."""

RETURNS = (
    "Tensor",
    "Tensor",
    "Tensor",
    "Tensor",
    "()",
    "Tensor[]",
    "(Tensor, Tensor)",
    "int",
    "Tensor(a!)",
    "Tensor(a)",
)

KEYS = (
    *("CPU", "CPU", "CPU", "Meta", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU", "NestedTensorCPU"),
    *("BackendSelect", "Python", "Functionalize", "Conjugate", "Negative", "ZeroTensor", "ADInplaceOrView"),
    *("AutogradOther", "AutogradCPU", "AutogradCPU", "AutogradMeta", "AutogradNestedTensor", "Tracer", "AutocastCPU"),
    *("FuncTorchBatched", "PythonTLSSnapshot", "PreDispatch", "Fake"),
    *(*COMPOSITES, "CompositeImplicitAutograd", "CompositeExplicitAutograd", "Autograd"),
)
"""Keys of kernels, those more often that more calls pass."""

DOES = (
    *("new", "new", "new", "input", "input", "below", "below", "below", "removed", "guarded", "below autograd"),
    *("again", "call", "call", "call no_grad", "call inference", "call below autograd", "twice", "raise", "wrong"),
)
"""What a kernel does after it has written itself down; see `Side.kernel`."""

GUARDS = (
    *("no_grad", "no_grad", "enable_grad", "inference on", "inference on", "inference off", "below autograd"),
    *("below views", "mode on", "mode on", "mode new", "mode twice"),
    *(f"exclude {key}" for key in ("AutogradCPU", "ADInplaceOrView", "BackendSelect", "Python", "Conjugate", "CPU")),
    *(f"include {key}" for key in ("AutogradCPU", "AutogradOther", "PreDispatch", "FuncTorchBatched", "Functionalize")),
    *(f"include {key}" for key in ("SparseCPU", "Meta", "AutogradMeta", "Conjugate")),
)

Given = str | tuple[str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Planted:
    """A kernel: at which key, and what it does; `fallthrough` for a fallthrough."""

    key: str
    does: str


@dataclass(frozen=True, slots=True)
class Defined:
    """An operator: its types, what it returns, its kernels in order."""

    types: tuple[str, ...]
    returns: str
    kernels: tuple[Planted, ...]

    def schema(self, name: str) -> str:
        """Its schema under a name."""
        parts, by_name = [], False
        for at, type_ in enumerate(self.types):
            plain, _, default = type_.removeprefix("*").partition("=")
            if type_.startswith("*") and not by_name:
                by_name = True
                parts.append("*")
            if at == 0 and "(" in self.returns and plain == "Tensor":
                plain = self.returns if self.returns.startswith("Tensor(") else plain
            parts.append(f"{plain} a{at}{'=' if default else ''}{default}")
        return f"{name}({', '.join(parts)}) -> {self.returns}"


@dataclass(frozen=True, slots=True)
class Called:
    """A call of the first operator.

    Args:
        given: the kinds of tensors that are its arguments.
        guards: around all, the outermost first.
    """

    given: tuple[Given, ...]
    guards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Operators, fallbacks on top of the builtin ones, and calls of the first operator."""

    operators: tuple[Defined, ...]
    fallbacks: tuple[Planted, ...]
    calls: tuple[Called, ...]


def program(choose: random.Random, kinds: Sequence[str], *, calls: int) -> Program:
    """A random program.

    Args:
        choose: the source of everything.
        kinds: what tensors there are.
        calls: how many calls there are.
    """
    count = choose.choice((1, 1, 2, 3))
    wanted = [choose.choice(kinds) for _ in range(3)]
    operators = tuple(_defined(choose, wanted) for _ in range(count))
    free = choose.sample(FREE, choose.choice((0, 0, 0, 1, 2)))
    fallbacks = tuple(Planted(key, choose.choice(("fallthrough", "new", "below", "again"))) for key in free)
    first = operators[0]
    made = []
    for _ in range(calls):
        given = tuple(_given(choose, wanted if choose.random() < 0.7 else kinds, type_) for type_ in first.types)
        guards = tuple(choose.choice(GUARDS) for _ in range(choose.choice((0, 0, 0, 1, 1, 2, 3))))
        made.append(Called(given, tuple(one for one in guards if not _crashes(given, one))))
    return Program(operators, fallbacks, tuple(made))


def _crashes(given: Sequence[Given], guard: str) -> bool:
    """Whether PyTorch may crash: it clones a lazy tensor to get its elements, with a kernel of another backend."""
    lazy = any(one is not None and one.startswith(("conj", "neg", "zero")) for one in _flat(given))
    return lazy and guard in ("include SparseCPU", "include Meta")


def _defined(choose: random.Random, kinds: Sequence[str]) -> Defined:
    types = [choose.choice(TYPES) for _ in range(choose.choice((1, 2, 2, 3, 4)))]
    returns = choose.choice(RETURNS)
    if "(a" in returns:
        types[0] = "Tensor"
    # Positional arguments without a default come first, then those with one, then those by name.
    types.sort(key=lambda type_: (type_.startswith("*"), "=" in type_))
    if "(a" in returns and types[0] != "Tensor":
        types.insert(0, "Tensor")
    keys = choose.sample(KEYS, choose.choice((0, 2, 3, 4, 6, 8, 11)))
    passed = RELATED.get(choose.choice(kinds).removesuffix(" requires_grad"))
    keys += choose.choice(
        (("CPU",), ("CompositeImplicitAutograd",), ("CompositeExplicitAutograd",), passed or ("CPU", "AutogradCPU"))
    )
    kernels = [Planted(key, _does(choose, key)) for key in dict.fromkeys(keys)]
    return Defined(tuple(types), returns, tuple(kernels))


def _does(choose: random.Random, key: str) -> str:
    if not DispatchKey[key].is_alias and choose.random() < 0.2:
        return "fallthrough"
    return choose.choice(DOES)


def _given(choose: random.Random, kinds: Sequence[str], type_: str) -> Given:
    if "Tensor" not in type_ or (type_.endswith("=None") and choose.random() < 0.5):
        return None
    if "[]" in type_:
        optional = "?" in type_
        return tuple(
            None if optional and choose.random() < 0.3 else choose.choice(kinds) for _ in range(choose.randint(0, 3))
        )
    absent = 0.3 if "?" in type_ else 0.03
    return None if choose.random() < absent else choose.choice(kinds)


# -- running one

Line = tuple[object, ...]
"""A kernel that ran, a handler that was asked, or how a call ended."""

LONGEST = 40
"""A call of more kernels than this is cut off, on every side after the same kernel."""


class PlantedError(Exception):
    """What a planted kernel raises."""


class TooLongError(Exception):
    """A call ran more kernels than are compared."""


class Side(ABC):
    """One dispatcher that runs programs."""

    def __init__(self) -> None:
        self.log: list[Line] = []
        self.given: list[Any] = []
        self.fresh: list[Any] = []
        self.operators: list[Any] = []
        self.program = Program((), (), ())
        self.names: dict[str, str] = {}

    # -- what differs

    @abstractmethod
    def register(self, program: Program, number: int) -> AbstractContextManager[list[Any]]:
        """Register all of a program under names that nobody has; gives the operators."""

    @abstractmethod
    def tensor(self, kind: str) -> Any:
        """A tensor."""

    @abstractmethod
    def is_tensor(self, value: object) -> bool: ...

    @abstractmethod
    def guard(self, name: str) -> AbstractContextManager[object]: ...

    @abstractmethod
    def exclude(self, keys: Any) -> AbstractContextManager[object]:
        """Exclude the highest functionality of a set."""

    @abstractmethod
    def bits(self, keys: Any) -> int: ...

    @abstractmethod
    def below(self, keys: Any) -> Any:
        """A set without its highest key and everything above."""

    @abstractmethod
    def removed(self, keys: Any) -> Any:
        """A set without its highest key."""

    @abstractmethod
    def is_empty(self, keys: Any) -> bool:
        """Whether a set has no functionality."""

    @abstractmethod
    def name_of(self, called: Any) -> str: ...

    @abstractmethod
    def keys_of(self, value: Any) -> int: ...

    @abstractmethod
    def history_of(self, value: Any) -> str: ...

    @abstractmethod
    def failure(self, error: Exception) -> Line:
        """What an error says, in words that the sides share."""

    # -- what does not

    def run(self, program: Program, number: int) -> list[list[Line]]:
        """What each call of a program comes to."""
        self.program = program
        with self.register(program, number) as self.operators:
            return [self._called(one) for one in program.calls]

    def _called(self, one: Called) -> list[Line]:
        self.log = []
        positional, named = self._values(program_types := self.program.operators[0].types, one.given)
        self.given = [value for value in _flat([*positional, *named.values()]) if self.is_tensor(value)]
        assert len(program_types) == len(one.given)
        # Made beforehand: a factory is a call, which guards and modes would meet.
        self.fresh = [self.tensor("cpu") for _ in range(8)]
        try:
            with ExitStack() as held:
                for name in one.guards:
                    held.enter_context(self.guard(name))
                found = self.about(self.operators[0](*positional, **named))
        except (PlantedError, TooLongError) as error:
            end: Line = (type(error).__name__,)
        except Exception as error:
            end = self.failure(error)
        else:
            end = ("returned", found)
        return [*self.log, end]

    def _values(self, types: Sequence[str], given: Sequence[Given]) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        by_name = False
        for at, (type_, one) in enumerate(zip(types, given, strict=True)):
            if "Tensor" not in type_:
                if "=" in type_:
                    by_name = True
                    continue
                value: Any = self.plain(type_)
            elif isinstance(one, tuple):
                value = [None if kind is None else self.tensor(kind) for kind in one]
            else:
                value = None if one is None else self.tensor(one)
            if by_name or type_.startswith("*"):
                named[f"a{at}"] = value
            else:
                positional.append(value)
        return positional, named

    @staticmethod
    def plain(type_: str) -> Any:
        """A value of a type that is no tensor."""
        return {"int": 7, "float": 0.5, "bool": True, "Scalar": 2, "str": "s", "int[]": [1, 2], "int?": 4}[type_]

    def about(self, value: Any) -> object:
        """What is compared of a value: which argument a tensor is, its keys, and its history."""
        if isinstance(value, list | tuple):
            return (type(value).__name__, *map(self.about, value))
        if not self.is_tensor(value):
            return repr(value)
        same = next((at for at, one in enumerate(self.given) if one is value), None)
        return (same, self.keys_of(value), self.history_of(value))

    def note(self, *what: object) -> None:
        """Write a line; a call that is too long ends here."""
        self.log.append(what)
        if len(self.log) >= LONGEST:
            raise TooLongError

    def kernel(self, what: str, planted: Planted, at: int) -> Callable[..., Any]:
        """A kernel of operator `at`, or a fallback, which gets the operator after the key set."""

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            self.note(what, at, planted.key, self.bits(keys))
            return self._does(planted.does, self.operators[at], at, keys, args, kwargs)

        def fallback(keys: Any, called: Any, *args: Any, **kwargs: Any) -> Any:
            name = self.name_of(called)
            self.note(what, name, planted.key, self.bits(keys))
            found = next((at for at, one in enumerate(self.operators) if self.name_of(one) == name), None)
            if found is None:
                raise PlantedError
            return self._does(planted.does, called, found, keys, args, kwargs)

        return kernel if what == "kernel" else fallback

    def _does(self, does: str, called: Any, at: int, keys: Any, args: Any, kwargs: Any) -> Any:
        match does:
            case "below" | "removed" | "guarded" | "below autograd" | "again" | "twice" if self.is_empty(keys):
                return self.result(at, [*args, *kwargs.values()], new=True)
            case "new" | "input":
                return self.result(at, [*args, *kwargs.values()], new=does == "new")
            case "below":
                return called.redispatch(self.below(keys), *args, **kwargs)
            case "removed":
                return called.redispatch(self.removed(keys), *args, **kwargs)
            case "guarded":
                with self.exclude(keys):
                    return called.redispatch(self.below(keys), *args, **kwargs)
            case "below autograd":
                with self.guard("below autograd"):
                    return called.redispatch(self.below(keys), *args, **kwargs)
            case "again":
                with self.exclude(keys):
                    return called(*args, **kwargs)
            case "twice":
                called.redispatch(self.below(keys), *args, **kwargs)
                return called.redispatch(self.below(keys), *args, **kwargs)
            case "raise":
                raise PlantedError
            case "wrong":
                return "a string"
        guard = does.removeprefix("call").strip()
        with self.guard({"inference": "inference on"}.get(guard, guard)) if guard else ExitStack():
            return self._calls_on(at, [*args, *kwargs.values()])

    def _calls_on(self, at: int, values: Sequence[Any]) -> Any:
        """Call the next operator with these tensors, and return what this one returns."""
        following = at + 1
        if following >= len(self.operators):
            return self.result(at, values, new=False)
        tensors = [one for one in _flat(values) if self.is_tensor(one)]
        position = 0
        by_name = False
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for number, type_ in enumerate(self.program.operators[following].types):
            if "Tensor" not in type_:
                if "=" in type_:
                    by_name = True
                    continue
                value = self.plain(type_.removeprefix("*"))
            else:
                found = tensors[position % len(tensors)] if tensors else None
                position += 1
                value = ([found] if tensors else []) if "[]" in type_ else found
            if by_name or type_.startswith("*"):
                named[f"a{number}"] = value
            else:
                positional.append(value)
        result = self.operators[following](*positional, **named)
        return self.result(at, [one for one in _flat([result]) if self.is_tensor(one)] or values, new=False)

    def result(self, at: int, values: Sequence[Any], *, new: bool) -> Any:
        """Something that operator `at` may return: new tensors, or the first one among the values."""
        found = next((one for one in _flat(values) if self.is_tensor(one)), None)
        one = self.made() if new or found is None else found
        match self.program.operators[at].returns:
            case "()":
                return None
            case "int":
                return 5
            case "Tensor[]":
                return [one, one]
            case "(Tensor, Tensor)":
                return one, self.made()
            case _:
                return one

    def made(self) -> Any:
        """A tensor that nobody else has, as long as there are any."""
        return self.fresh.pop() if len(self.fresh) > 1 else self.fresh[0]

    def handled(self, who: str, does: str, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What a handler does."""
        self.note(who, self.name_of(func), *(one.__name__ for one in types))
        at = next((at for at, one in enumerate(self.operators) if self.name_of(one) == self.name_of(func)), None)
        if does == "new" and at is not None:
            return self.result(at, [*args, *(kwargs or {}).values()], new=True)
        if does == "twice":
            func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def kinds_of(given: Sequence[Given]) -> list[str]:
    """The kinds of the tensors that a call is given."""
    return [kind for kind in _flat(given) if kind is not None]


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for one in values:
        if isinstance(one, list | tuple):
            yield from _flat(one)
        else:
            yield one


# -- the lab

_HELD: list[LabSide] = []


class Wrapper(Tensor):
    """A tensor around another one, whose handler writes itself down and hands on what it wraps."""

    __slots__ = ("elem",)
    elem: Tensor
    __torch_function__ = disabled

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        side = _HELD[-1]
        side.note("wrapper", side.name_of(func), *(one.__name__ for one in types))
        return unwrapped_call(cls, func, args, kwargs or {})


def unwrapped_call(kind: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Call with what is wrapped."""

    def inner(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [inner(one) for one in value]
        return value.elem if isinstance(value, kind) else value

    return func(*map(inner, args), **{name: inner(one) for name, one in kwargs.items()})


def _lab_wrapper(elem: Tensor, *, requires_grad: bool = False) -> Tensor:
    made = make_wrapper_subclass(Wrapper, elem, requires_grad=requires_grad)
    made.elem = elem
    return made


LAB_KINDS: Mapping[str, Callable[[], Tensor]] = {
    "cpu": ones,
    "cpu requires_grad": lambda: ones(requires_grad=True),
    "cpu int": lambda: Tensor(np.ones(2, np.int64)),
    "meta": lambda: ones(device="meta"),
    "meta requires_grad": lambda: ones(device="meta", requires_grad=True),
    "cpu sparse": lambda: ones(layout=Layout.sparse),
    "cpu sparse requires_grad": lambda: ones(layout=Layout.sparse, requires_grad=True),
    "csr": lambda: ones(layout=Layout.sparse_csr),
    "csr requires_grad": lambda: ones(layout=Layout.sparse_csr, requires_grad=True),
    "cpu quantized": lambda: ones(dtype=DType.quint8),
    "mkldnn": lambda: ones(layout=Layout.mkldnn),
    "nested": lambda: ones(layout=Layout.jagged),
    "conj": lambda: with_keys("CPU", "Conjugate"),
    "conj requires_grad": lambda: with_keys("CPU", "Conjugate", requires_grad=True),
    "neg": lambda: with_keys("CPU", "Negative", dtype=np.float32),
    "neg requires_grad": lambda: with_keys("CPU", "Negative", dtype=np.float32, requires_grad=True),
    "zero": lambda: with_keys("CPU", "ZeroTensor", dtype=np.float32),
    "inference": inference,
    "wrapper": lambda: _lab_wrapper(ones()),
    "wrapper requires_grad": lambda: _lab_wrapper(ones(), requires_grad=True),
    "wrapper of requires_grad": lambda: _lab_wrapper(ones(requires_grad=True)),
    "wrapper of wrapper": lambda: _lab_wrapper(_lab_wrapper(ones()), requires_grad=True),
    "wrapper of meta": lambda: _lab_wrapper(ones(device="meta")),
}
"""Every kind of tensor that both sides can make."""

PLAIN = ("cpu", "cpu requires_grad", "meta", "cpu sparse", "wrapper", "conj")


SAME_WORDS = {
    "Negative": "Conjugate",
    "BatchedNestedTensor": "FuncTorchBatched",
    "Batched": "FuncTorchBatched",
    "FuncTorchDynamicLayerBackMode": "FuncTorchDynamicLayerFrontMode",
}
"""Keys whose builtin fallbacks fail in PyTorch with the words of another one's."""


class LabSide(Side):
    """The lab under the rules of a version.

    Args:
        semantics: which.
    """

    def __init__(self, semantics: str = "torch-2.13") -> None:
        super().__init__()
        self.lab = Lab(Dispatcher(semantics))
        self.dispatcher = self.lab.dispatcher

    @contextmanager
    def register(self, program: Program, number: int) -> Iterator[list[Any]]:
        with ExitStack() as held:
            held.enter_context(PythonDispatch(self.dispatcher))
            everywhere = held.enter_context(Library("_", "IMPL", dispatcher=self.dispatcher))
            for one in program.fallbacks:
                if one.does == "fallthrough":
                    everywhere.fallback(fallthrough, one.key)
                else:
                    everywhere.fallback(self.kernel("fallback", one, 0), one.key, with_keyset=True)
            library = held.enter_context(Library("callseq", "FRAGMENT", dispatcher=self.dispatcher))
            names = [f"p{number}_{at}" for at in range(len(program.operators))]
            for at, (name, defined) in enumerate(zip(names, program.operators, strict=True)):
                library.define(defined.schema(name))
                for one in defined.kernels:
                    skips = one.does == "fallthrough"
                    function = fallthrough if skips else self.kernel("kernel", one, at)
                    library.impl(name, function, one.key, with_keyset=not skips, debug=one.key)
            _HELD.append(self)
            held.callback(_HELD.pop)
            yield [operator(self.dispatcher, f"callseq::{name}") for name in names]

    def tensor(self, kind: str) -> Any:
        return LAB_KINDS[kind]()

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, Tensor)

    def guard(self, name: str) -> AbstractContextManager[object]:
        what, _, detail = name.partition(" ")
        match what:
            case "no_grad":
                return no_grad()
            case "enable_grad":
                return set_grad_enabled(enabled=True)
            case "inference":
                return InferenceMode(detail == "on")
            case "below":
                return AutoDispatchBelowAutograd() if detail == "autograd" else AutoDispatchBelowADInplaceOrView()
            case "include":
                return IncludeDispatchKeyGuard(DispatchKey[detail])
            case "exclude":
                return ExcludeDispatchKeyGuard(DispatchKey[detail])
            case _:
                assert what == "mode"
                return self._mode(detail)

    def _mode(self, does: str) -> DispatchMode:
        def handler(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.handled("mode", does, func, types, args, kwargs)

        made: DispatchMode = type("Mode", (DispatchMode,), {"__torch_dispatch__": handler})()
        return made

    def exclude(self, keys: Any) -> AbstractContextManager[object]:
        return ExcludeDispatchKeyGuard(DispatchKeySet.of(keys.highest()))

    def bits(self, keys: Any) -> int:
        found: int = keys.bits
        return found

    def below(self, keys: Any) -> Any:
        return keys & DispatchKeySet.full_after(keys.highest())

    def removed(self, keys: Any) -> Any:
        return keys.remove(keys.highest())

    def is_empty(self, keys: Any) -> bool:
        return not keys.bits >> 16

    def name_of(self, called: Any) -> str:
        return str(called.name)

    def keys_of(self, value: Any) -> int:
        found: int = value.key_bits
        return found

    def history_of(self, value: Any) -> str:
        made_by = "" if value.grad_fn is None else f" {value.grad_fn.name}"
        version = "" if value.is_inference() else f" v{value.version}"
        return f"{value.requires_grad}{made_by}{version}"

    def failure(self, error: Exception) -> Line:
        match error:
            case CallError() if error.kind == "other":
                key = error.facts.get("key", str(error))
                return ("fails", SAME_WORDS.get(key, key))
            case CallError() if error.kind in ("wrong_return", "wrong_type"):
                return ("wrong_value",)
            case CallError():
                return (str(error.kind), error.facts.get("key", str(error)))
            case InvariantError():
                return ("broken", "")
            case AutogradError():
                return ("autograd", str(error.kind))
            case _:
                return (type(error).__name__, str(error))
