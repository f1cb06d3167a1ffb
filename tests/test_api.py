"""The public API: checks of order, explanations and registries from Python; doctests on every public name."""

from __future__ import annotations

import doctest
import inspect
import re
import warnings
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import dispatchlab
import dispatchlab.call
import dispatchlab.codegen
import dispatchlab.lab
import dispatchlab.lab.overrides
import dispatchlab.scenario
from dispatchlab import (
    Block,
    BlockKind,
    Def,
    Dispatcher,
    DispatchKey,
    DispatchLabError,
    ErrorKind,
    Fallback,
    Impl,
    Lab,
    Library,
    NameOnly,
    RegistrationError,
    Verdict,
    check_order,
    diff,
    dump,
    explain,
    explore,
    load_scenario,
    open_registry,
    parse_name,
    parse_scenario,
    parse_schema,
    scenario_text,
    tensor,
)
from dispatchlab.errors import RequestError
from dispatchlab.model.profile import semantics_names
from dispatchlab.prover.result import Expectation
from dispatchlab.scenario import Scenario

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "scenarios"
PACKAGES = (
    dispatchlab.call,
    dispatchlab.codegen,
    dispatchlab.lab,
    dispatchlab.lab.overrides,
    dispatchlab.scenario,
)
STALE = SCENARIOS / "defects" / "stale_quantized_torch.yaml"
FOO = parse_name("test::foo")
DEF = Def(parse_schema("test::foo(Tensor x) -> Tensor"))


def cpu(debug: str) -> Impl:
    return Impl(FOO, DispatchKey.CPU, debug=debug)


def test_a_scenario_file_is_checked_as_permute_checks_it() -> None:
    check = check_order(STALE)
    assert (check.verdict, check.as_expected) == (Verdict.ORDER_DEPENDENT, True)
    assert repr(check) == "<OrderCheck: order-dependent, non-commuting: +2 +1 against +1 +2>"
    assert (
        "cause: the order of the kernel fn_math (CompositeImplicitAutograd) and the kernel fn_quantizedcpu "
        "(QuantizedCPU) decides which kernel a call of test::foo runs at AutogradOther. If fn_math comes first, "
    ) in str(check)
    assert (check.exploration.sets, check.exploration.states, check.exploration.edges) == (7, 8, 11)


def test_a_scenario_is_checked_under_the_semantics_that_are_asked_for() -> None:
    check = check_order(load_scenario(str(STALE)), semantics="strict")
    assert (check.verdict, check.as_expected) == (Verdict.ORDER_INDEPENDENT, False)


def test_registrations_are_checked_without_a_file() -> None:
    check = check_order([DEF, cpu("fn_1"), Fallback(DispatchKey.AutogradXLA)])
    assert repr(check) == "<OrderCheck: order-independent, 3 registrations>"
    assert str(check).startswith("registrations: order-independent (")


def test_what_was_checked_is_a_scenario_that_loads_back() -> None:
    check = check_order([DEF, cpu("fn_1"), cpu("fn_2")])
    assert check.verdict is Verdict.ORDER_DEPENDENT
    again = parse_scenario(scenario_text(check.scenario))
    assert again.registrations == check.scenario.registrations
    assert check_order(again).counterexample == check.counterexample


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        (None, "nothing"),
        ([], "no registrations"),
        (DEF, "one Def, which has no order: give all of them in a list"),
        ([DEF, "impl"], "a str among them"),
        (3, "a int"),
    ],
)
def test_a_check_of_nothing_is_refused_with_what_was_found(subject: object, found: str) -> None:
    with pytest.raises(DispatchLabError) as caught:
        check_order(subject)  # type: ignore[arg-type]
    assert str(caught.value).endswith(f"but got {found}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"semantics": "strct"}, f"expected one of torch, {', '.join(semantics_names())}; did you mean strict?"),
        ({"engine": "troch"}, "engine='troch': expected one of lab, torch; did you mean torch?"),
        ({"walk": "grpah"}, "walk='grpah': expected one of auto, graph, orders, sample; did you mean graph?"),
        ({"samples": 3}, "samples=3: the walk auto takes no samples; use walk='sample'"),
        ({"walk": "sample", "samples": 0}, "samples=0: expected more than 0"),
        ({"max_states": 0}, "max_states=0: expected more than 0"),
        ({"timeout_s": -1.0}, "timeout_s=-1.0: expected more than 0"),
        (
            {"engine": "torch", "semantics": "strict"},
            "semantics='strict': the engine torch behaves as the PyTorch that is installed; leave semantics out, or "
            "use engine='lab'",
        ),
    ],
)
def test_an_option_that_would_not_be_looked_at_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(DispatchLabError) as caught:
        check_order([DEF], **options)
    assert str(caught.value).endswith(text)


def test_a_check_of_a_package_without_torch_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.live.bridge.torch.find_spec", lambda name: None)
    with pytest.raises(DispatchLabError, match=r"needs PyTorch.*pip install 'dispatchlab\[torch\]'"):
        check_order(package="my_package")


def test_a_check_of_overridden_kernels_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_order([cpu("fn_1"), cpu("fn_2")], semantics="torch-2.13").verdict is Verdict.ORDER_DEPENDENT


def test_a_library_is_one_registration_of_a_check() -> None:
    block = Block("test", BlockKind.DEF, (DEF, cpu("fn_1")))
    assert check_order([block, Impl(FOO, DispatchKey.CUDA)]).exploration.registrations == 2


def test_texts_stand_for_schemas_names_and_keys() -> None:
    both = Def("test::foo(Tensor x) -> Tensor"), Impl("test::foo", "CPU")
    assert both == (Def(parse_schema("test::foo(Tensor x) -> Tensor")), Impl(FOO, DispatchKey.CPU))
    others = Fallback("XLA"), NameOnly("test::foo")  # type: ignore[arg-type]
    assert others == (Fallback(DispatchKey.XLA), NameOnly(FOO))
    assert Def("test::foo").operator == FOO
    block = Block("test", BlockKind.IMPL, (Impl("foo"),), "CPU")  # type: ignore[arg-type]
    assert (block.key, check_order([*both, block]).verdict) == (DispatchKey.CPU, Verdict.ORDER_DEPENDENT)
    for wrong, text in (
        (lambda: Def("foo(Tenso x)"), "did you mean Tensor"),
        (lambda: Impl("foo", "CPUU"), "mean CPU"),
    ):
        with pytest.raises(DispatchLabError, match=text):
            wrong()


def test_a_call_on_a_dispatcher_is_explained() -> None:
    dispatcher = Dispatcher()
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    library.define("foo(Tensor x) -> Tensor")
    library.impl("foo", lambda x: x, "CPU", debug="fn_cpu")
    assert explain("test::foo", "cpu", of=dispatcher).kernels[-1] == "fn_cpu"
    assert explain("test::foo", "cuda", of=dispatcher).refusal is ErrorKind.MISSING_KERNEL


def test_an_explanation_of_an_unknown_operator_is_refused() -> None:
    with pytest.raises(RegistrationError, match="there is no operator test::bar"):
        explain("test::bar", of=Dispatcher())
    with pytest.raises(DispatchLabError, match="did you mean"):
        explain("aten::ad.Tensor")


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("neg", (7,), "and was given int; an argument that does not decide the dispatch is left out"),
        ("neg", ([tensor([1.0])],), "self is Tensor, and was given list:cpu"),
        ("stack", (tensor([1.0]),), "tensors is Tensor[], and was given cpu"),
        ("neg", (tensor([1.0]), tensor([2.0])), "'cpu' is one argument too many: aten::neg has 1 that decide"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_not_explained(
    name: str, arguments: tuple[Any, ...], text: str
) -> None:
    with pytest.raises(DispatchLabError, match=re.escape(text)):
        explain(Lab()(name), *arguments)


def test_the_keys_of_a_tensor_are_those_of_its_explanation() -> None:
    x = tensor([1.0], device="cuda", requires_grad=True)
    (shown,) = explain(Lab()("stack"), [x, tensor([1.0])]).explanation.arguments
    assert shown.given == "list:cuda requires_grad, cpu"
    assert shown.keys == x.key_set | tensor([1.0]).key_set


def test_an_explanation_prints_as_the_command_does() -> None:
    text = str(explain("aten::add.Tensor", "cuda requires_grad", "cuda", exclude=["Autograd"]))
    assert "local exclude: Autograd" in text


def test_a_bundled_registry_is_opened_by_its_name() -> None:
    assert len(open_registry()) == len(open_registry("torch-2.13-cpu")) == 3598
    assert len(open_registry("torch-2.13")) == 3599


def test_every_public_name_is_listed_in_the_map_of_the_package() -> None:
    assert dispatchlab.__doc__ is not None
    assert [name for name in dispatchlab.__all__ if f"`{name}`" not in dispatchlab.__doc__] == []


def test_dir_of_the_package_lists_the_public_names_alone() -> None:
    assert [name for name in dir(dispatchlab) if not name.startswith("__")] == sorted(dispatchlab.__all__)


def test_every_public_method_of_a_public_class_is_documented() -> None:
    classes = [each for name in dispatchlab.__all__ if isinstance(each := getattr(dispatchlab, name), type)]
    members = [
        (f"{each.__name__}.{name}", member)
        for each in classes
        for name, member in inspect.getmembers_static(each)
        if not name.startswith("_") and isinstance(member, property | classmethod | staticmethod | FunctionType)
        if each.__dict__.get(name) is not None and each.__module__.startswith("dispatchlab.")
    ]
    assert [name for name, member in members if not member.__doc__] == []
    assert len(members) > 70


def examples(package: ModuleType, name: str) -> list[doctest.DocTest]:
    """What the docstring of a public class or function shows; its methods are not looked at."""
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=True)
    return [test for test in finder.find(getattr(package, name), name, globs={}) if test.examples]


WITHOUT_EXAMPLE = {"fallthrough", "watch_exceptions"}
"""A constant, and what changes the process that calls it."""


@pytest.mark.parametrize("name", sorted({*dispatchlab.__all__} - WITHOUT_EXAMPLE))
def test_a_public_name_has_an_example_that_prints_what_it_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (found,) = examples(dispatchlab, name)
    assert run(found) > 0


def run(test: doctest.DocTest) -> int:
    """Run the examples of a docstring; gives their number."""
    printed: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append)
    assert result.failed == 0, "".join(printed)
    return result.attempted


def test_a_check_is_true_if_the_verdict_is_as_expected() -> None:
    foo = parse_name("test::foo")
    two = (Impl(foo, DispatchKey.CPU, debug="a"), Impl(foo, DispatchKey.CPU, debug="b"))
    assert not check_order(two)
    assert check_order(two[:1])
    expected = Scenario("One.", two, (foo,), expect=Expectation.ORDER_DEPENDENT)
    assert check_order(expected)
    assert explore(two, always=lambda operators: True)
    assert not explore(two, always=lambda operators: not operators[0].exists)


def test_a_kernel_without_a_text_is_named_by_its_position() -> None:
    keys = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "Autograd")
    found = str(check_order([Def("t::foo(Tensor x) -> Tensor"), *(Impl("t::foo", key) for key in keys)]))
    assert "the call runs registration 2, because PyTorch does not refresh the slots" in found
    assert "the call runs registration 1 through PyTorch's autograd fallback" in found
    assert "kernel ." not in found


def test_a_version_stands_for_the_names_of_its_registry_and_its_dispatcher() -> None:
    found = diff("2.13", "2.15", operators=["aten::relu"]).report
    assert found.upgrade == diff("torch-2.13", "torch-2.15", operators=["aten::relu"]).report.upgrade
    assert len(open_registry("2.13")) == len(open_registry("torch-2.13"))
    assert Dispatcher("2.4").semantics.name == "torch-2.4"


def test_a_dump_of_a_glob_says_that_dump_needs_one_operator() -> None:
    with pytest.raises(RequestError, match=r"^'aten::a\*' is a glob, but dump needs the name of one operator$"):
        dump("aten::a*", of="torch-2.13")
