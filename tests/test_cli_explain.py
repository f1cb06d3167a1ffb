"""`dispatchlab explain`: sources, formats, and what is refused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from dispatchlab.questions.setup.demo import demo_scenario
from tests.registry_cases import save_registry
from tests.scenario_texts import STAYS

GOLDENS = Path(__file__).parent / "data" / "walkthrough"
THE_INSTALLED = "the registry of the installed PyTorch 2.13.0+cpu"
BARE = "strict starts without PyTorch's backend fallbacks: --semantics torch-2.13 has them\n"


def explain(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["explain", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("explain_add_two_cuda", ["aten::add.Tensor", "cuda", "cuda"]),
        ("explain_add_below_autograd", ["add.Tensor", "cuda", "cuda", "--exclude", "Autograd"]),
        ("explain_randn_cuda", ["aten::randn", "device=cuda"]),
        ("explain_normal_cuda", ["aten::normal_", "cuda requires_grad"]),
    ],
)
def test_the_examples_of_the_walkthrough_on_the_registry_of_pytorch(name: str, arguments: list[str]) -> None:
    code, stdout, stderr = explain(*arguments, "--format", "text")
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("EXPECTTEST_ACCEPT"):
        path.write_text(stdout, encoding="utf-8")
    reason = "torch-2.13 answers: the installed PyTorch 2.13.0+cpu has no kernels for CUDA"
    assert (code, stderr) == (0, f"note: {reason}\n")
    assert path.read_text(encoding="utf-8") == stdout


@pytest.mark.parametrize("version", ["2.4", "2.5", "2.7"])
def test_a_registry_is_explained_with_the_rules_of_a_version_that_lacks_some_of_its_keys(version: str) -> None:
    asked = ("aten::add.Tensor", "cpu", "cpu", "--from", "torch-2.13-cpu", "--format", "json")
    code, stdout, stderr = explain(*asked, "--semantics", f"torch-{version}")
    found = json.loads(stdout)
    assert (code, found["no_answer"], found["semantics"]) == (0, None, f"torch-{version}"), stderr
    assert [hop["key"] for hop in found["hops"]] == ["AutogradCPU", "CPU"]


def test_a_question_about_cuda_is_answered_by_the_registry_that_has_its_kernels() -> None:
    code, stdout, _ = explain("aten::mm", "cuda:0", "cuda:0", "--format", "json")
    found = json.loads(stdout)
    assert (code, found["source"], found["no_answer"]) == (0, "torch-2.13", None)
    assert [(hop["key"], hop["refusal"]) for hop in found["hops"]] == [("AutogradCUDA", None), ("CUDA", None)]
    assert "/RegisterCUDA_0.cpp:" in found["hops"][1]["kernel"]["debug"]


@pytest.mark.parametrize(
    ("arguments", "backend", "instead"),
    [
        (["cuda", "cuda", "--from", "torch-2.13-cpu"], "CUDA", "torch-2.13 has them"),
        (["mps", "mps"], "MPS", "name `live` as the source on a PyTorch that has them"),
        (["PrivateUse1", "PrivateUse1"], "PrivateUse1", "name the package with --from"),
    ],
)
def test_an_answer_that_is_none_says_so_first(arguments: list[str], backend: str, instead: str) -> None:
    first = f"no answer for {backend}: torch-2.13-cpu is of PyTorch 2.13.0+cpu, which has no kernels for it; {instead}"
    for format in ("text", "rich", "json"):
        code, stdout, stderr = explain("aten::mm", *arguments, "--format", format)
        note = "" if "--from" in arguments else f"note: torch-2.13-cpu answers, {THE_INSTALLED}\n"
        assert (code, stderr) == (0, note)
        if format == "json":
            assert json.loads(stdout)["no_answer"].startswith(first)
            assert json.loads(stdout)["end"].startswith("in torch-2.13-cpu: ")
        else:
            assert " ".join(stdout.split()).startswith(first)


def test_a_kernel_for_the_backend_itself_is_an_answer_on_any_build(tmp_path: Path) -> None:
    path = tmp_path / "record.yaml"
    path.write_text(
        "claim: c\nregistry: torch-2.13-cpu\nregistrations:\n  - def: my::op(Tensor x) -> Tensor\n"
        "  - impl: my::op\n    dispatch: PrivateUse1\n"
    )
    code, stdout, _ = explain("my::op", "PrivateUse1", "--from", str(path), "--format", "json")
    found = json.loads(stdout)
    assert (code, found["no_answer"]) == (0, None)
    assert [hop["key"] for hop in found["hops"]] == ["AutogradPrivateUse1", "PrivateUse1"]


def test_what_comes_after_a_kernel_that_nobody_knows_is_not_known_in_every_format(tmp_path: Path) -> None:
    path = tmp_path / "foreign.yaml"
    path.write_text(
        "claim: c\nregistry: torch-2.13-cpu\nregistrations:\n  - def: my::op(Tensor x) -> Tensor\n"
        "  - impl: my::op\n    dispatch: Autograd\n    debug: registered at /build/my/csrc/autograd.cpp:12\n"
        "  - impl: my::op\n    dispatch: CPU\n    debug: registered at /build/my/csrc/cpu.cpp:12\n"
    )
    for format in ("text", "rich", "json"):
        code, stdout, _ = explain("my::op", "cpu requires_grad", "--from", str(path), "--format", format)
        assert code == 0
        assert "what comes next is not known:" in " ".join(stdout.split())
        assert "csrc/cpu.cpp" not in stdout
        if format == "json":
            assert json.loads(stdout)["known"] is False


def test_json_has_every_set_and_every_candidate() -> None:
    code, stdout, _ = explain("aten::add.Tensor", "cpu", "meta", "--format", "json")
    explanation = json.loads(stdout)
    assert code == 0
    assert (explanation["version"], explanation["engine"], explanation["source"], explanation["semantics"]) == (
        5,
        "lab",
        "torch-2.13-cpu",
        "strict",
    )
    assert [hop["key"] for hop in explanation["hops"]] == ["AutogradMeta", "Meta"]
    assert explanation["hops"][0]["keys"]["keys"] == ["AutogradMeta", "AutogradCPU", "Meta", "CPU"]
    assert {left["key"] for left in explanation["hops"][0]["left_out"]} == {
        *("AutocastCPU", "ADInplaceOrView", "BackendSelect")
    }
    assert [lost["source"] for lost in explanation["hops"][1]["kernel"]["beaten"]] == [
        *("Meta", "CompositeExplicitAutogradNonFunctional", "Meta")
    ]


def test_rich_says_what_text_says() -> None:
    arguments = ("aten::add_.Tensor", "cpu requires_grad", "cpu", "--exclude", "AutogradCPU")
    _, text, _ = explain(*arguments, "--format", "text")
    code, rich, _ = explain(*arguments, "--format", "rich")
    said = set(re.findall(r"[\w.&*]+", rich))
    wanted = re.sub(r"registered at \S*/|registered at |\(empty\)|[0-9]\. ", "", text)
    missing = set(re.findall(r"[\w.&*]+", wanted)) - said
    assert code == 0
    assert missing == set()
    assert len(wanted.splitlines()) > 15


def test_markdown_has_a_heading_for_each_hop() -> None:
    arguments = ("aten::add.Tensor", "cpu requires_grad", "--from", "torch-2.13-cpu")
    code, markdown, _ = explain(*arguments, "--format", "markdown")
    assert code == 0
    headings = re.findall(r"^### (.*)$", markdown, re.MULTILINE)
    assert headings == ["arguments", "the thread", r"1\. call -> AutogradCPU", r"2\. redispatch -> CPU"]
    assert re.search(r"^  kernel: \S.*/VariableType_\d+\.cpp:\d+ ", markdown, re.MULTILINE)


def test_a_scenario_is_explained_with_the_stale_slots_of_its_semantics(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(STAYS)
    first_hops = {}
    for semantics in ("strict", "torch-2.13"):
        code, stdout, stderr = explain(
            "foo",
            "--from",
            str(path),
            "--semantics",
            semantics,
            "--exclude",
            "ADInplaceOrView",
            "--exclude",
            "BackendSelect",
            "--format",
            "json",
        )
        assert (code, stderr) == (0, BARE if semantics == "strict" else "")
        first_hops[semantics] = json.loads(stdout)["hops"][0]
    assert first_hops["strict"]["key"] == first_hops["torch-2.13"]["key"] == "AutogradCPU"
    assert first_hops["strict"]["kernel"] is None
    assert first_hops["strict"]["refusal"] == "missing_kernel"
    stale = first_hops["torch-2.13"]["kernel"]
    assert (stale["debug"], stale["reason"]) == ("fn_implicit", "math kernel")
    assert stale["stale"].endswith("[backend fallback]")


MADE = """claim: c.
registry: torch-2.13-cpu
packages: [mine]
registrations:
  - def: mine::f(Tensor x) -> Tensor
  - impl: mine::f
    dispatch: CPU
    debug: registered at mine/ops.py:5
  - library: mine
    kind: FRAGMENT
    made_by: {call: CALL, operator: f}
    debug: registered at mine/ops.py:9
    registrations:
      - impl: f
        dispatch: Autograd
"""


@pytest.mark.parametrize("registry", ["registry: torch-2.13-cpu\n", ""])
@pytest.mark.parametrize(("call", "known"), [("register_autograd", True), ("impl", False)])
def test_a_record_knows_that_kernels_of_register_autograd_redispatch(
    tmp_path: Path, registry: str, call: str, *, known: bool
) -> None:
    path = tmp_path / "mine.yaml"
    text = MADE.replace("registry: torch-2.13-cpu\n", registry).replace("CALL", call)
    path.write_text(text if known else text.replace("    made_by: {call: impl, operator: f}\n", ""))
    arguments = ["mine::f", "--from", str(path), "--semantics", "torch-2.13", "--format", "json"]
    value = json.loads(explain(*arguments)[1])
    assert [hop["key"] for hop in value["hops"]] == (["AutogradCPU", "CPU"] if known else ["AutogradCPU"])
    assert value["known"] is known


def test_a_call_without_a_kernel_says_where_the_operator_has_some(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MADE.partition("  - library")[0])
    shown = explain("mine::f", "cuda", "--from", str(path))[1]
    first, *others = shown.splitlines()
    fix = 'register one with lib.impl("f", kernel, "CUDA")'
    assert first == f"mine::f has no kernel for CUDA, so the call fails; {fix}"
    assert "the call fails: missing_kernel, as mine::f has no kernel for CUDA; it has kernels for CPU" in others


def test_a_recorded_registry_is_explained(tmp_path: Path) -> None:
    from dispatchlab.questions.sources.find_sources import recorded_from

    path = tmp_path / "some.dlreg"
    recorded = recorded_from("torch-2.13")
    from dispatchlab.registries.model import registry_of

    some = [one for name in ("aten::relu", "aten::sin") if (one := recorded.operator(name)) is not None]
    save_registry(registry_of("here", some, recorded.fallbacks), path)
    code, stdout, stderr = explain("relu", "cpu", "--from", str(path), "--format", "json")
    assert (code, stderr) == (0, "")
    assert [hop["key"] for hop in json.loads(stdout)["hops"]] == ["AutogradCPU", "CPU"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["aten::add"], "aten::add has 2 overloads: name one of aten::add.Tensor, aten::add.Scalar"),
        (["aten::ad*"], "'aten::ad*' is a glob, but explain needs the name of one operator"),
        (["aten::reluu"], "there is no operator aten::reluu in torch-2.13-cpu; did you mean aten::relu"),
        (["cpu", "aten::relu"], "OP comes first, and then its arguments: dispatchlab explain aten::relu cpu"),
        (["cpu", "cuda", "aten::mm"], "OP comes first, and then its arguments: dispatchlab explain aten::mm cpu cuda"),
        (["my::op", "--mode", "vmap", "--from", "my_package"], "my_package is no package that can be imported into"),
        (["aten::relu", "--mode", "vmap", "--from", "torch-2.6"], "torch-2.6 is no package that can be imported into"),
        (["aten::relu", "cude"], "'cude' does not describe a tensor; did you mean cuda?"),
        (["aten::relu", "cpu+gard"], "'gard' does not describe a tensor; did you mean grad?"),
        (["aten::relu", "--exclude", "AutogradCPV"], "'AutogradCPV' is not a dispatch key; did you mean AutogradCPU?"),
        (
            ["aten::relu", "--engine", "torch", "--from", "torch-2.13"],
            "torch-2.13 is a recording, which --engine torch cannot run",
        ),
        (["aten::relu", "--from", "nothing.yaml"], "nothing.yaml"),
    ],
)
def test_what_cannot_be_explained_is_bad_input(arguments: list[str], message: str) -> None:
    code, stdout, stderr = explain(*arguments)
    assert (code, stdout) == (2, "")
    if "overloads" in message:
        assert "aten::add has " in stderr
        assert "aten::add.Tensor" in stderr
    else:
        assert message in stderr


def tried(*arguments: str) -> tuple[str, list[str]]:
    """The operator that a call goes to, and why each overload before did not take it."""
    code, stdout, stderr = explain(*arguments, "--format", "json")
    assert code == 0, stderr
    found = json.loads(stdout)
    *before, last = found["packet_call"]["tried"]
    assert (last["takes"], last["name"]) == (True, found["operator"])
    assert not any(one["takes"] for one in before)
    return last["name"], [one["reason"].partition("()")[2].lstrip(": ") for one in before]


def test_a_call_of_a_name_goes_to_the_first_overload_that_takes_it() -> None:
    pytorch = ("--from", "torch-2.13")
    assert tried("aten::add", "cpu", "1", *pytorch) == ("aten::add.Tensor", [])
    assert tried("aten::add", "cpu", "1", "1", *pytorch) == (
        "aten::add.Scalar",
        ["takes 2 positional arguments but 3 were given"],
    )
    assert tried("aten::mean", "cpu", "dim=[0]", *pytorch)[0] == "aten::mean.dim"
    assert "aten::mean(Tensor self" in explain("aten::mean", "cpu", "dtype=float32", *pytorch)[1]
    assert tried("aten::index_reduce", "cpu", "0", "cpu", "cpu", '"prod"', *pytorch)[0] == "aten::index_reduce"
    assert tried("aten::index", "cpu", "list:cuda, none", *pytorch)[0] == "aten::index.Tensor"
    code, stdout, _ = explain("aten::add", "cuda requires_grad", "1", *pytorch)
    assert code == 0
    assert stdout.endswith("\n\naten::add(cuda requires_grad, 1) tried\n  aten::add.Tensor: takes it\n")
    assert "other (Tensor), 1: AutocastCPU, AutogradCPU, ADInplaceOrView, CPU (a number becomes a tensor on" in stdout


def test_a_scenario_decides_which_overload_is_tried_first(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        "claim: two\nregistrations:\n  - def: t::foo.a(Tensor x, int n=0) -> Tensor\n"
        "  - def: t::foo.b(Tensor x, float s=0.) -> Tensor\n"
    )
    assert tried("t::foo", "cpu", "--from", str(path))[0] == "t::foo.a"
    assert tried("t::foo", "cpu", "2.5", "--from", str(path)) == (
        "t::foo.b",
        ["argument 'n' (position 2) must be int, not float"],
    )
    assert tried("t::foo", "cpu", "s=1", "--from", str(path))[0] == "t::foo.b"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["aten::add", "cpu", "[1]"],
            "no overload of aten::add takes (cpu, [1]):\n  aten::add.",
        ),
        (["aten::relu", "cpu", "1"], "aten::relu(Tensor self) -> Tensor: takes 1 positional argument but 2 were given"),
        (
            ["aten::relu", "npu"],
            "tensor: if a package gives its backend this name, add --from PACKAGE, or write privateuse1",
        ),
        (
            ["aten::relu", "cpu+autocast"],
            "'autocast' does not describe a tensor, it is a mode of the call; to make the call under it: "
            "--mode autocast",
        ),
        (["aten::add.Scalar", "cpu", "cpu"], "'cpu' is one argument too many"),
        (["aten::add", "cpu", "1", "--from", "torch-2.15"], "may go to aten::add.Scalar or aten::add.Tensor, and"),
        (["aten::add", "cpu", "1x"], "1x is no value: expected one that Python reads, such as 1, 2.5, "),
        (["aten::add", "cpv", "1"], "'cpv' does not describe a tensor; did you mean cpu"),
        (["aten::add", "self=cpu", "1"], "1 comes after self=, and is given by position: name it as well"),
        (["aten::add", "self=cpu", "self=cpu"], "self was given twice"),
    ],
)
def test_a_call_that_goes_nowhere_says_why(arguments: list[str], message: str) -> None:
    code, stdout, stderr = explain(*arguments)
    assert (code, stdout) == (2, "")
    assert message in stderr


@pytest.mark.parametrize("argument", ["PrivateUse1", "cuda sparse", "device=cuda", "cpu+xla"])
def test_a_call_under_a_mode_refuses_an_argument_that_it_cannot_make(argument: str) -> None:
    code, stdout, stderr = explain("aten::relu", argument, "--mode", "grad")
    assert (code, stdout) == (2, "")
    wanted = "expected a value, or some of cpu, cuda, meta, requires_grad, grad"
    assert f"it cannot use the argument {argument!r}: {wanted}" in " ".join(stderr.split())


@pytest.mark.parametrize(
    "options", [["--exclude", "Autograd"], ["--include", "CPU"], ["--inference-mode"], ["--semantics", "torch-2.13"]]
)
def test_a_call_under_a_mode_refuses_options_of_an_explanation(options: list[str]) -> None:
    code, stdout, stderr = explain("aten::relu", "cpu", "--mode", "grad", *options)
    assert (code, stdout) == (2, "")
    assert f"{options[0]} cannot be combined with --mode: leave one of them out" in stderr


def test_a_call_is_explained_after_the_steps_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(demo_scenario(), encoding="utf-8")
    command = ("demo::scale", "cpu", "--from", str(path), "--format", "text", "--after")
    ends = {}
    for steps in ("+0 +1", "+0 +2", "+0 +1 -1"):
        code, stdout, _ = explain(*command, steps)
        ends[steps] = (code, next(line for line in stdout.splitlines() if line.startswith("runs: ")))
    assert ends == {
        "+0 +1": (0, "runs: AutogradCPU"),
        "+0 +2": (0, "runs: AutogradCPU -> CPU"),
        "+0 +1 -1": (0, "runs: AutogradCPU -> CPU (no kernel runs)"),
    }
    code, _, stderr = explain("aten::add", "cpu", "1", "--after", "+0")
    needs = "--after +0 needs the registrations of a scenario: name the scenario with --from SCENARIO\n"
    assert (code, stderr) == (2, needs)
    code, _, stderr = explain(*command, "+0", "--mode", "vmap")
    assert (code, "--after cannot be combined with --mode" in stderr) == (2, True)


def test_a_fallthrough_at_the_key_of_a_backend_leaves_a_redispatch_without_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "claim: A fallthrough.\nsemantics: torch-2.13\nregistry: torch-2.13-cpu\nregistrations:\n"
        "  - {fallback: fallthrough, dispatch: PrivateUse1}\n"
        "  - def: my::f(Tensor x) -> Tensor\n  - {impl: 'my::f', dispatch: Autograd}\n",
        encoding="utf-8",
    )
    device = "privateuse1"
    _, of_pytorch, _ = explain("aten::sin.out", device, device, "--from", str(path))
    assert of_pytorch.splitlines()[1:3] == [
        "runs: AutogradPrivateUse1 -> ADInplaceOrView -> Undefined (no kernel runs)",
        "the call fails: no_tensor_arguments, as each key of the arguments falls through",
    ]
    _, unknown, _ = explain("my::f", device, "--from", str(path))
    assert unknown.splitlines()[1:3] == [
        "runs: AutogradPrivateUse1",
        "nothing is left below AutogradPrivateUse1: its kernel does the work, and cannot redispatch",
    ]
