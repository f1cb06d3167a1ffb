"""`dispatchlab dump`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from expecttest import assert_expected_inline

from dispatchlab.cli import main
from tests.scenario_texts import COMPOSITES, FIVE, OVERLOADS, TWICE, TWO_DEFS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scenarios, which is the current one."""
    texts = {"five": FIVE, "composites": COMPOSITES, "two_defs": TWO_DEFS, "overloads": OVERLOADS, "twice": TWICE}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dump(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["dump", *arguments])


@pytest.mark.usefixtures("folder")
def test_text_with_keys_is_the_name_and_their_rows() -> None:
    result = dump("test::foo", "--from", "five.yaml", "--key", "CPU", "--key", "AutogradCUDA")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_expected_inline(
        result.stdout,
        """\
name: test::foo

CPU: fn_cpu [kernel]
AutogradCUDA: fn_math [math kernel]
""",
    )


@pytest.mark.usefixtures("folder")
def test_text_is_the_dump_an_empty_line_and_the_table() -> None:
    text, table = dump("test::foo", "--from", "five.yaml", "--format", "text").stdout.split("\n\n")
    assert_expected_inline(
        f"{text}\n",
        """\
name: test::foo
schema: test::foo(Tensor x) -> Tensor
debug: registered at /dev/null:0
alias analysis kind: FROM_SCHEMA
CPU: fn_cpu :: (none) [ boxed ]
AutogradCPU: fn_autograd_cpu :: (none) [ boxed ]
Autograd[alias]: fn_autograd :: (none) [ boxed ]
CompositeImplicitAutograd[alias]: fn_math :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
""",
    )
    assert {"CPU: fn_cpu [kernel]", "AutogradCUDA: fn_math [math kernel]"} <= {*table.splitlines()}


def test_a_stale_row_without_a_kernel_says_so(tmp_path: Path) -> None:
    (tmp_path / "alias.yaml").write_text(
        "claim: One operator.\nsemantics: torch-2.13\nregistrations:\n  - def: baz(Tensor x) -> Tensor\n"
        "  - {impl: baz, dispatch: CompositeExplicitAutograd, debug: explicit}\n"
        "  - {impl: baz, dispatch: CompositeImplicitAutograd, debug: implicit}\n"
    )
    about = ("test::baz", "--from", str(tmp_path / "alias.yaml"), "--key", "NestedTensorCPU")
    assert dump(*about, "--after", "+0 +2 +1").stdout == (
        "name: test::baz\n\nNestedTensorCPU: no kernel  (STALE: calls run implicit)\n"
    )
    assert dump(*about).stdout == "name: test::baz\n\nNestedTensorCPU: no kernel\n"


def test_a_stale_row_says_so() -> None:
    source = Path(__file__).parents[1] / "scenarios/defects/stale_sparse_torch.yaml"
    result = dump("test::foo", "--from", str(source), "--key", "AutogradOther", "--key", "AutogradCPU")
    assert_expected_inline(
        result.stdout,
        """\
name: test::foo

AutogradOther: ambiguous_autogradother [ambiguous autogradother]  (STALE: calls run fn_math)
AutogradCPU: fn_math [math kernel]
""",
    )


def test_a_key_without_a_kernel_is_named() -> None:
    source = Path(__file__).parents[1] / "scenarios/order/the_newest_kernel_wins.yaml"
    result = dump("test::foo", "--from", str(source), "--key", "CUDA", "--key", "CPU")
    assert result.stdout.splitlines()[-1] == "CUDA: no kernel"


@pytest.mark.usefixtures("folder")
def test_all_rows_are_shown_when_no_key_is_named() -> None:
    result = dump("foo", "--from", "five.yaml", "--format", "text")
    _, table = result.stdout.split("\n\n")
    assert len(table.splitlines()) == 104
    assert table.splitlines()[0] == "Undefined: fn_math [math kernel]"


@pytest.mark.usefixtures("folder")
def test_a_sequence_says_what_is_in_force() -> None:
    result = dump("foo", "--from", "twice.yaml", "--after", "+1 +0 -1")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "CPU: fn_a [kernel]")
    both = dump("foo", "--from", "twice.yaml", "--after", "+1 +0", "--key", "CPU")
    assert both.stdout.splitlines()[-1] == "CPU: fn_a [kernel]"
    assert both.stderr.startswith("note: the CPU kernel of test::foo is overridden: fn_a replaces fn_b")


@pytest.mark.usefixtures("folder")
def test_an_operator_that_is_gone_is_reported_on_standard_error_alone() -> None:
    result = dump("foo", "--from", "twice.yaml", "--after", "+1 -1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "nothing is registered for test::foo after +1 -1\n"
    assert dump("foo", "--from", "twice.yaml", "--after", "(nothing)").exit_code == 0


@pytest.mark.usefixtures("folder")
def test_a_refused_step_is_reported_and_the_remaining_steps_run() -> None:
    result = dump("foo", "--from", "two_defs.yaml")
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "+1 def test::foo(Tensor x, Tensor y) -> Tensor (def_b) was refused: duplicate_def: "
    )
    assert result.stdout.splitlines()[1:3] == ["schema: test::foo(Tensor x) -> Tensor", "debug: def_a"]
    assert "CPU: fn_cpu" in result.stdout


@pytest.mark.usefixtures("folder")
def test_a_release_of_what_was_refused_is_bad_input() -> None:
    result = dump("foo", "--from", "two_defs.yaml", "--after", "+0 +1 -1")
    assert result.exit_code == 2
    assert "step -1 cannot be run: after +0 +1, 1 is not registered" in result.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("test::foo", ["test::foo"]),
        ("foo.out", ["test::foo.out"]),
        ("bar", ["test::bar.one"]),
        ("foo*", ["test::foo", "test::foo.out"]),
        ("test::ba?.one", ["test::bar.one", "test::baz.one"]),
        ("*::*.two", ["test::baz.two"]),
    ],
)
def test_an_operator_is_a_name_a_unique_name_without_overload_or_a_glob(asked: str, names: list[str]) -> None:
    result = dump(asked, "--from", "overloads.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = [line.removeprefix("name: ") for line in result.stdout.splitlines() if line.startswith("name: ")]
    assert shown == names


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fop", "--from", "five.yaml"], "there is no operator test::fop in five.yaml; did you mean test::foo?"),
        (["qqqqq::z*", "--from", "five.yaml"], "no operator in five.yaml matches qqqqq::z*; it has test::foo"),
        (["foo", "--from", "five.yaml", "--key", "AutogradCPUU"], "'AutogradCPUU' is not a dispatch key; did you mean"),
        (
            ["foo", "--from", "five.yaml", "--key", "Autograd"],
            "; Autograd is an alias key, which stands for AutogradOther, AutogradCPU, AutogradCUDA, AutogradHIP, ",
        ),
        (
            ["foo", "--from", "five.yaml", "--key", "CompositeExplicitAutograd"],
            "PrivateUse3, Meta, FPGA, Vulkan, Metal, QuantizedCPU and 49 more keys",
        ),
        (["foo", "--from", "five.yaml", "--after", "+5"], "expected a registration from 0 to 4 but found '+5'"),
        (["foo", "--from", "five.yaml", "--after", "-0"], "expected the release of something registered here"),
        (["foo", "--from", "fife.yaml"], "fife.yaml: there is no such file; did you mean five.yaml?"),
        (["foo", "--from", "."], "expected a file but found a folder"),
        (["foo", "--from", "five.yaml", "--semantics", "stric"], "unknown semantics 'stric'"),
        (["foo"], "there is no operator foo in torch-2.13-cpu; did you mean aten::floor or "),
        (["qxqxq"], "there is no operator qxqxq in torch-2.13-cpu; it has "),
        (["aten::ad"], "there is no operator aten::ad in torch-2.13-cpu; did you mean aten::add or "),
        (["attn::*"], "no operator in torch-2.13-cpu matches attn::*; did you mean 'aten::*'?"),
        (
            ["aten::zz*"],
            "no operator in torch-2.13-cpu matches aten::zz*; the namespace aten has 3,110 operators, which ",
        ),
        (
            ["zq::*"],
            "no operator in torch-2.13-cpu matches zq::*; its namespaces are aten, quantized, prims and 22 more",
        ),
        ([], "no operator was named: name one, or a glob"),
        (["foo", "--from", "torch-2.31"], "there is no registry 'torch-2.31'"),
        (["aten::add.Tensor", "--after", "+0"], "--after +0 needs the registrations of a scenario"),
        (["aten::add.Tensor", "--from", "torch-2.13", "--engine", "torch"], "leave one of the two out"),
        (["foo", "--from", "five.yaml", "--list"], "--list works with registries, but five.yaml is a scenario"),
        (["foo", "--from", "five.yaml", "--engine", "torch", "--semantics", "strict"], "leave one of the two out"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_to_do(arguments: list[str], message: str) -> None:
    result = dump(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("folder")
def test_semantics_are_those_of_the_option_else_of_the_scenario() -> None:
    own = dump("foo", "--from", "composites.yaml", "--format", "json")
    asked = dump("foo", "--from", "composites.yaml", "--format", "json", "--semantics", "strict")
    five = dump("foo", "--from", "five.yaml", "--format", "json")
    values = [json.loads(result.stdout) for result in (own, asked, five)]
    assert [value["semantics"] for value in values] == ["torch-2.13", "strict", "strict"]
    stale_slots = [sum(row["stale"] is not None for row in value["operators"][0]["table"]) for value in values]
    assert stale_slots == [34, 0, 0]


@pytest.mark.usefixtures("folder")
def test_a_pipe_gets_neither_colours_nor_box_characters_in_any_format() -> None:
    for name in ("rich", "text", "json"):
        result = dump("foo", "--from", "five.yaml", "--format", name)
        assert result.exit_code == 0
        assert not {*"\x1b│─╭╮╰╯━"} & set(result.stdout)


def test_a_file_from_a_stranger_runs_nothing(folder: Path) -> None:
    (folder / "stranger.yaml").write_text(
        "claim: c\nregistrations:\n  - impl: foo\n    dispatch: CPU\n    kernel: stranger:run\n"
    )
    (folder / "stranger.py").write_text("raise SystemExit('it ran')\n")
    result = dump("foo", "--from", "stranger.yaml")
    assert result.exit_code == 2
    assert "--allow-import" in result.stderr
    assert "it ran" not in result.output


def _tried(*arguments: str) -> tuple[list[str], str]:
    """The overloads that a name tries, and why their order is not known."""
    packet = json.loads(dump(*arguments, "--format", "json").stdout)["packet"]
    return [one["name"] for one in packet["overloads"]], packet["unknown"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("after", "tried"),
    [
        ("+3 +4", ["test::baz.one", "test::baz.two"]),
        ("+4 +3", ["test::baz.two", "test::baz.one"]),
        ("+3 +4 -3 +3", ["test::baz.two", "test::baz.one"]),
        ("+3 +4 -3", ["test::baz.two"]),
    ],
)
def test_a_name_of_several_overloads_shows_how_a_call_tries_them(after: str, tried: list[str]) -> None:
    assert _tried("baz", "--from", "overloads.yaml", "--after", after) == (tried, "")
    text = dump("baz", "--from", "overloads.yaml", "--after", after).stdout
    counted = "2 overloads" if len(tried) == 2 else "1 overload"
    assert text.splitlines()[0] == f"test::baz has {counted}; a call tries them in this order:"
    assert [line.partition("(")[0].strip() for line in text.splitlines()[1:]] == tried


@pytest.mark.usefixtures("folder")
def test_the_default_overload_keeps_its_table_above_the_list() -> None:
    arguments = ("foo", "--from", "overloads.yaml", "--format", "text")
    text = dump(*arguments).stdout
    assert text.startswith("name: test::foo\n")
    assert "overloads" not in dump(*arguments, "--key", "CPU").stdout
    listed = text.splitlines()[-3:]
    assert listed[0] == "test::foo has 2 overloads; a call tries them in this order:"


def test_a_registry_says_it_where_that_was_recorded() -> None:
    assert _tried("aten::add", "--from", "torch-2.13")[0] == [
        *("aten::add.Tensor", "aten::add.Scalar", "aten::add.out", "aten::add.Scalar_out"),
    ]
    names, unknown = _tried("aten::add", "--from", "torch-2.15")
    assert (sorted(names), unknown) == (names, "torch-2.15 does not say in which order a call tries them")


def test_overloads_of_a_record_come_after_those_of_the_registry_beneath(tmp_path: Path) -> None:
    path = tmp_path / "record.yaml"
    path.write_text(
        "claim: two more overloads\nregistry: torch-2.13\nnamespace: aten\nregistrations:\n"
        "  - def: add.b(Tensor self, str how) -> Tensor\n  - def: add.a(Tensor self, str why) -> Tensor\n"
    )
    names, unknown = _tried("aten::add", "--from", str(path))
    assert (names[0], names[-2:], unknown) == ("aten::add.Tensor", ["aten::add.b", "aten::add.a"], "")


@pytest.mark.usefixtures("folder")
def test_a_key_in_other_letters_is_taken_with_a_note() -> None:
    exact = dump("test::foo", "--from", "five.yaml", "--key", "AutogradCPU")
    found = dump("test::foo", "--from", "five.yaml", "--key", "autogradcpu")
    assert (found.exit_code, found.stdout) == (0, exact.stdout)
    assert found.stderr == "note: autogradcpu is taken as AutogradCPU\n"


def test_the_function_of_an_operator_can_call_other_operators_first() -> None:
    found = dump("torch.ones_like", "--from", "torch-2.13", "--key", "CPU")
    assert found.stderr.splitlines()[0] == (
        "note: torch.ones_like is taken as aten::ones_like; the function can call other operators first: "
        "`dispatchlab trace` shows the calls of a program"
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_named_pipe_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = dump("aten::relu", "--from", str(pipe))
    assert result.exit_code == 2
    assert f"{pipe}: it is a named pipe, which may have no writer" in result.stderr
