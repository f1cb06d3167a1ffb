"""Reprs of public values: frozen ones are code that makes an equal value, the others name what they stand for."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, IntEnum, StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from types import FunctionType

import pytest

import dispatchlab
from dispatchlab import (
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    LabEngine,
    Library,
    boxed,
    check_order,
    explain,
    fallthrough,
    open_registry,
    operator,
    ops,
    tensor,
    trace,
)
from dispatchlab._short_repr import WordEnum
from dispatchlab.call import AutoDispatchBelowAutograd, ForceDispatchKeyGuard, Generator, InferenceMode
from dispatchlab.codegen import read_native_functions
from dispatchlab.lab import Lab, no_grad
from dispatchlab.lab.overrides import DisableTorchFunction, DispatchMode, Functions, PythonDispatch, no_dispatch
from dispatchlab.model import key_set, keys, names, registration, schema_parser
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    NameOnly,
    SourceLocation,
    TorchLibraryCall,
    TorchLibraryFunction,
)
from dispatchlab.model.schema_parser import parse_inferred, parse_name, parse_schema
from dispatchlab.prover import result
from dispatchlab.registries import model as registry_model

CODE = {
    name: value
    for module in (key_set, keys, names, registration, schema_parser)
    for name, value in vars(module).items()
}
FOO = parse_name("test::foo.out")
SCHEMA = parse_schema("test::foo.out(Tensor x, *, str s='a') -> Tensor")
TYPED = Kernel(KernelForm.UNBOXED, parse_inferred("(Tensor _0) -> Tensor _0"), "at::Tensor (at::Tensor)")
NEWEST = bundled_profiles()[-1]
SCHEMAS = Path(__file__).parent / "data" / "torch-2.13-schemas.txt"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (FOO, "parse_name('test::foo.out')"),
        (DispatchKey.CPU, "DispatchKey.CPU"),
        (DispatchKeySet(), "DispatchKeySet.of()"),
        (
            DispatchKeySet.of(DispatchKey.CPU, DispatchKey.AutogradCPU),
            "DispatchKeySet.of(DispatchKey.CPU, DispatchKey.AutogradCPU)",
        ),
        (DispatchKeySet(1), "DispatchKeySet(0x1)"),
        (Kernel(), "Kernel()"),
        (Impl(FOO, DispatchKey.CPU, debug="a"), "Impl(parse_name('test::foo.out'), DispatchKey.CPU, debug='a')"),
        (Impl(FOO, location=SourceLocation("a.yaml", 3)), "Impl(parse_name('test::foo.out'))"),
        (Fallback(None), "Fallback(None)"),
        (Claim("test", "a"), "Claim('test', 'a')"),
        (NameOnly(FOO), "NameOnly(parse_name('test::foo.out'))"),
        (Def(FOO, None, kernel=TYPED), f"Def(parse_name('test::foo.out'), None, kernel={TYPED!r})"),
        (
            Block("test", BlockKind.DEF, (Impl(FOO),)),
            "Block('test', BlockKind.DEF, (Impl(parse_name('test::foo.out')),))",
        ),
    ],
)
def test_a_value_prints_as_the_code_that_makes_it(value: object, text: str) -> None:
    assert repr(value) == text
    assert eval(text, CODE) == value


@pytest.mark.parametrize(
    "value",
    [
        SCHEMA,
        TYPED,
        Def(SCHEMA, AliasKind.PURE_FUNCTION, frozenset({"pointwise"}), "a", TYPED, DispatchKey.CPU),
        TorchLibraryCall(TorchLibraryFunction.REGISTER_KERNEL, FOO, ("cpu", "cuda")),
        DispatchKeySet.full(),
        *DispatchKey,
    ],
)
def test_a_repr_reads_back_as_an_equal_value(value: object) -> None:
    assert eval(repr(value), CODE) == value


def enums() -> list[type[Enum]]:
    """Every enum of every module that can be imported without PyTorch, and with what is installed."""
    needs = ["dispatchlab.live.", "dispatchlab.questions.check.trial_process", "dispatchlab.__main__"]
    if find_spec("textual") is None:
        needs.append("dispatchlab.questions.explore.")
    for module in walk_packages(dispatchlab.__path__, "dispatchlab."):
        if not module.name.startswith(tuple(needs)):
            import_module(module.name)
    found = [*StrEnum.__subclasses__(), *WordEnum.__subclasses__(), *IntEnum.__subclasses__(), *Enum.__subclasses__()]
    return [one for one in found if one.__module__.startswith("dispatchlab.")]


def test_a_member_of_an_enum_prints_as_the_code_that_names_it() -> None:
    members = [member for each in enums() for member in each]
    assert [repr(member) for member in members] == [f"{type(member).__name__}.{member.name}" for member in members]
    assert len({type(member) for member in members}) > 25


def test_the_result_of_a_check_prints_as_the_code_that_makes_it() -> None:
    found = check_order([Impl(FOO, DispatchKey.CPU, debug="a"), Impl(FOO, DispatchKey.CPU, debug="b"), Claim("test")])
    assert found.counterexample is not None
    assert repr(found.counterexample).startswith("Counterexample(Flaw.NON_COMMUTING, (0, 1), (1, 0), ")
    assert eval(repr(found.exploration), vars(result)) == found.exploration
    refused = check_order([Claim("test"), Claim("test")]).exploration
    assert refused.conflicts
    assert eval(repr(refused), vars(result)) == refused


def test_every_schema_of_torch_has_a_repr_that_reads_back() -> None:
    schemas = [parse_schema(line) for line in SCHEMAS.read_text(encoding="utf-8").splitlines()[::20]]
    assert len(schemas) > 100
    assert [eval(repr(schema), CODE) for schema in schemas] == schemas


def test_the_repr_of_a_mutable_value_names_what_it_stands_for() -> None:
    dispatcher = Dispatcher()
    assert repr(dispatcher) == f"<Dispatcher {NEWEST} with 0 operators>"
    with Library("test", "DEF", dispatcher=dispatcher) as library:
        library.define("foo(Tensor x) -> Tensor")
        foo = operator(dispatcher, "test::foo")
        assert repr(dispatcher) == f"<Dispatcher {NEWEST} with 1 operator>"
        assert repr(foo) == "<Operator test::foo(Tensor x) -> Tensor>"
        assert repr(library) == "<Library test DEF>"
    assert repr(foo) == "<Operator test::foo>"
    assert repr(Lab()).startswith(f"<Lab on <Dispatcher {NEWEST} with ")
    assert eval(repr(tensor([1.0, 2.5], requires_grad=True)), {"tensor": tensor}).requires_grad


def test_a_recorded_operator_prints_as_the_code_that_makes_it() -> None:
    recorded = open_registry().operator("aten::relu")
    assert recorded is not None
    assert recorded.kernels
    assert eval(repr(recorded), {**CODE, **vars(registry_model)}) == recorded


class Mode(DispatchMode):
    """A mode that handles nothing."""


def reachable() -> dict[str, object]:
    """What public functions and methods give, by how it is had."""
    dispatcher, lab, engine = Dispatcher(), Lab(), LabEngine()
    library = Library("test", "DEF", dispatcher=dispatcher)
    handle = library.define("foo(Tensor x) -> Tensor")
    library.impl("foo", lambda x: x, "CPU", debug="fn")
    x = tensor([1.0], requires_grad=True)
    with trace() as traced:
        y = lab.mul(x, x)
    space = engine.space([Claim("test")], ())
    return {
        "dispatcher": dispatcher,
        "entry": dispatcher.operator_entry("test::foo"),
        "view": dispatcher.explain("test::foo"),
        "snapshot": dispatcher.snapshot(parse_name("test::foo")),
        "handle": handle,
        "library": library,
        "operator": operator(dispatcher, "test::foo"),
        "ops": (ops(dispatcher), ops(dispatcher).test, ops(dispatcher).test.foo),
        "lab": lab,
        "tensor": (y, lab.view(x, [1, 1])),
        "trace": traced,
        "check": check_order([Impl(FOO, debug="a"), Impl(FOO, debug="b")]),
        "explain": explain("aten::add.Tensor"),
        "registry": (open_registry(), open_registry().load(), open_registry().operator("aten::relu")),
        "engine": (engine, space, space.empty()),
        "kernels": (boxed(lambda op, stack: None), fallthrough),
        "guards": (InferenceMode(), no_dispatch(), AutoDispatchBelowAutograd(), no_grad(), DisableTorchFunction()),
        "sets": ForceDispatchKeyGuard(DispatchKeySet(), DispatchKeySet()),
        "overrides": (Functions(lab), PythonDispatch(Dispatcher()), Mode()),
        "generator": Generator(),
        "native functions": read_native_functions("- func: twice(Tensor self) -> Tensor"),
    }


def found_from(how: str, value: object, steps: int) -> Iterator[tuple[str, object]]:
    """A value of this package and what its public attributes hold, with how each is had."""
    if isinstance(value, Mapping | Sequence | frozenset) and type(value).__module__ == "builtins":
        if not isinstance(value, str):
            for each in [*(value.values() if isinstance(value, Mapping) else value)][:5]:
                yield from found_from(f"{how}[]", each, steps)
        return
    if isinstance(value, type | FunctionType) or not type(value).__module__.startswith(("dispatchlab", __name__)):
        return
    yield how, value
    for name in dir(value) if steps else ():
        if not name.startswith("_"):
            yield from found_from(f"{how}.{name}", getattr(value, name), steps - 1)


def test_whatever_is_two_steps_from_a_public_name_says_what_it_is() -> None:
    found = [one for how, value in reachable().items() for one in found_from(how, value, 2)]
    assert [how for how, value in found if type(value).__repr__ is object.__repr__] == []
    nested = [how for how, value in found if f"<{type(value).__module__}" in repr(value)]
    assert nested == []
    assert len({type(value) for _, value in found}) > 60
