"""`dispatchlab diff --layer python`: what came, went and changed; what is not known is never called removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dispatchlab.cli import main
from dispatchlab.model.python_layer import PYTHON_REGISTRIES, READ_LATER, PythonRegistration
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory, python_layer
from dispatchlab.questions.upgrade.python_changes import laid_over
from dispatchlab.records.file import bundled_names, open_bundled, registry_bytes
from dispatchlab.records.model import RecordedOperator, Registry, name_of, registry_of
from dispatchlab.records.python_compare import Known, PythonDiff, compare_python, python_side

INDUCTOR = "torch._inductor.lowering"


def entry(
    registry: str, operator: str, function: str, site: str = "", key: str = "", **other: str
) -> PythonRegistration:
    return PythonRegistration(registry, operator, key, function, site, **other)  # type: ignore[arg-type]


LATER = tuple(entry(name, "aten::late", "torch.late:f", "torch/late.py:1") for name in sorted(READ_LATER))
BEFORE = (
    entry("decompositions", "aten::gone", "torch._refs:gone", "torch/_refs.py:1", "post_autograd"),
    entry("decompositions", "aten::other", "torch._refs:old", "torch/_refs.py:2", "post_autograd"),
    entry("decompositions", "aten::moved", "torch._refs:moved", "torch/_refs.py:3", "post_autograd"),
    entry("inductor_lowerings", "aten::made", "torch._inductor:make.<locals>.inner", "torch/_inductor.py:4"),
    entry("torch_library", "aten::made_too", "torch._fakes:fake", "torch/_fakes.py:4", "fake"),
)
AFTER = (
    entry("decompositions", "aten::new", "torch._refs:new", "torch/_refs.py:1", "post_autograd"),
    entry("decompositions", "aten::other", "torch._refs:new", "torch/_refs.py:2", "post_autograd"),
    entry("decompositions", "aten::moved", "torch._refs:moved", "functorch/_refs.py:9", "post_autograd"),
    entry("inductor_lowerings", "aten::made", "torch._inductor:make.<locals>.inner", "torch/_inductor.py:8"),
    entry("torch_library", "aten::made_too", "torch._fakes:fake", "mine/a.py:8", "fake"),
)


def layer(*entries: PythonRegistration, read: bool = True, **other: tuple[str, ...]) -> PythonLayerInMemory:
    return python_layer("2.13.0", (*entries, *(LATER if read else ())), **other)


def compared(before: PythonLayerInMemory, after: PythonLayerInMemory) -> PythonDiff:
    return compare_python(python_side(before), python_side(after))


def shown(found: PythonDiff) -> list[tuple[str, str]]:
    return [(str(one.kind), one.operator) for one in found.changes]


def test_entries_that_came_went_and_changed_are_told_from_those_that_moved() -> None:
    found = compared(layer(*BEFORE), layer(*AFTER))
    assert shown(found) == [
        ("removed", "aten::gone"), ("added", "aten::new"), ("changed", "aten::other"), ("changed", "aten::made_too"),
    ]  # fmt: skip
    counts = {one.registry: (one.removed, one.added, one.changed, one.moved) for one in found.registries}
    assert counts.pop("decompositions") == (1, 1, 1, 1)
    assert counts.pop("inductor_lowerings") == (0, 0, 0, 1)
    assert counts.pop("torch_library") == (0, 0, 1, 0)
    assert {*counts.values()} == {(0, 0, 0, 0)}
    assert not found.is_empty


def test_a_layer_and_itself_differ_in_nothing() -> None:
    for some in (layer(*BEFORE), layer(*AFTER, read=False), layer(not_imported=(INDUCTOR,))):
        assert compared(some, some).changes == ()


def test_an_overridden_entry_is_not_in_force() -> None:
    old = entry("torch_library", "mine::f", "mine:old", "mine/a.py:1", "fake")
    new = entry("torch_library", "mine::f", "mine:new", "mine/a.py:9", "fake")
    assert compared(layer(old._replace(active=False), new), layer(new)).is_empty
    assert shown(compared(layer(old._replace(active=False), new), layer(old))) == [("changed", "mine::f")]


@pytest.mark.parametrize("registry", [one.name for one in PYTHON_REGISTRIES])
@pytest.mark.parametrize("why", list(Known)[1:])
def test_what_one_side_cannot_know_is_neither_removed_nor_added(registry: str, why: Known) -> None:
    described = next(one for one in PYTHON_REGISTRIES if one.name == registry)
    has = layer(entry(registry, "aten::here", "torch:f", "torch/a.py:1"))
    match why:
        case Known.NOT_RECORDED if registry in READ_LATER:
            lacks = python_layer("2.12.0", [one for one in LATER if one.registry != registry])
        case Known.NOT_FOUND:
            lacks = layer(missing=(registry,))
        case Known.NOT_IMPORTED if described.needs:
            lacks = layer(not_imported=(described.needs,))
        case _:
            return
    for first, second in ((has, lacks), (lacks, has)):
        found = compared(first, second)
        row = next(one for one in found.registries if one.registry == registry)
        assert (found.changes, {row.before, row.after}) == ((), {Known.READ, why})
        assert row.not_compared == 1 + (registry in READ_LATER)


def test_what_a_module_brings_elsewhere_is_not_removed_where_nobody_imported_it() -> None:
    brought = entry("mode_rules", "aten::f", "torch:rule", "torch/a.py:1", "FakeTensorMode", needs=INDUCTOR)
    lacks = layer(not_imported=(INDUCTOR,))
    (row,) = (one for one in compared(layer(brought), lacks).registries if one.registry == "mode_rules")
    assert (row.before, row.after, row.removed, row.not_compared) == (Known.READ, Known.READ, 0, 1)
    own = brought._replace(needs="")
    assert shown(compared(layer(own), lacks)) == [("removed", "aten::f")]


def test_the_bundled_layers_have_the_registries_that_came_later() -> None:
    in_all = ("aten::bernoulli.p", "aten::_softmax.*", "aten::addmm.*", "python::torch.Tensor.clone")
    for name in bundled_names():
        layer = open_bundled(name).python
        assert layer is not None
        assert {one.registry for operator in in_all for one in layer.of(operator)} >= READ_LATER, name


def test_a_record_is_laid_over_its_registry_in_order() -> None:
    base = layer(*BEFORE)
    mine = entry("decompositions", "aten::other", "mine:f", "mine/a.py:1", "post_autograd", call="assignment")
    refused = mine._replace(function="mine:late", effect="refused")
    gone = entry("decompositions", "aten::gone", key="post_autograd", function="", effect="removed")
    lowering = entry("inductor_lowerings", "aten::made", "mine:lower", "mine/a.py:3")
    found = compared(base, laid_over(base, (), [mine, refused, gone, lowering]))
    assert shown(found) == [("removed", "aten::gone"), ("changed", "aten::other"), ("changed", "aten::made")]
    assert [one.after.function for one in found.changes if one.after] == ["mine:f", "mine:lower"]
    by_rule = mine._replace(call="register_decomposition")
    assert compared(base, laid_over(base, [by_rule])).is_empty  # PyTorch refuses it
    fallback = entry("inductor_fallbacks", "aten::made", "mine:f", "mine/a.py:4")
    assert len(compared(base, laid_over(base, [fallback, fallback])).changes) == 1


# -- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    operators = [RecordedOperator(name_of("aten::other"), "aten::other(Tensor x) -> Tensor")]
    for name, python in (
        ("a", layer(*BEFORE)),
        ("b", layer(*AFTER)),
        ("old", layer(*BEFORE, read=False)),
        ("no", None),
    ):
        registry = registry_of("2.13.0", operators)
        Path(f"{name}.dlreg").write_bytes(registry_bytes(Registry(registry.torch, registry.operators, python=python)))
    return tmp_path


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["diff", *arguments])


@pytest.mark.usefixtures("folder")
def test_the_default_compares_what_it_did() -> None:
    plain = diff("a.dlreg", "b.dlreg", "--exit-code", "--format", "text")
    assert (plain.exit_code, "Python" in plain.stdout) == (0, False)
    assert plain.stdout == diff("no.dlreg", "no.dlreg", "--format", "text").stdout.replace(
        "no.dlreg -> no", "a.dlreg -> b"
    )
    both = diff("a.dlreg", "b.dlreg", "--layer", "all", "--exit-code", "--format", "text")
    assert both.exit_code == 1
    assert "no difference, 1 operator compared\n" in both.stdout
    assert "4 entries differ in " in both.stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("style", ["text", "rich"])
def test_text_has_the_counts_of_each_registry_and_then_the_entries(style: str) -> None:
    shown = " ".join(diff("a.dlreg", "b.dlreg", "--layer", "python", "--format", style).stdout.split())
    for part in (
        "Registries of Python",
        "decompositions 1 removed, 1 added, 1 changed, 1 moved",
        "aten::gone post_autograd decompositions removed",
        "before: torch._refs:old at torch/_refs.py:2",
        "after: torch._refs:new at torch/_refs.py:2",
    ):
        assert part in shown
    assert "aten::moved" not in shown


@pytest.mark.usefixtures("folder")
def test_a_registry_that_a_recording_has_not_read_is_not_in_it() -> None:
    done = diff("a.dlreg", "old.dlreg", "--layer", "python", "--exit-code", "--format", "text")
    assert done.exit_code == 0
    assert "not compared: not in this recording after\n" in done.stdout
    assert "1 not compared: not in this recording after\n" in done.stdout
    (python,) = (json.loads(diff("a.dlreg", "old.dlreg", "--layer", "python", "--format", "json").stdout)["python"],)
    unread = {one["registry"] for one in python["registries"] if one["after"] == "not in this recording"}
    assert (unread, python["changes"]) == (set(READ_LATER), [])


@pytest.mark.usefixtures("folder")
def test_a_recording_without_the_layer_says_so() -> None:
    sentence = "no.dlreg has no record of what Python registers"
    refused = diff("a.dlreg", "no.dlreg", "--layer", "python")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr
    both = diff("a.dlreg", "no.dlreg", "--layer", "all", "--exit-code", "--format", "text")
    assert both.exit_code == 0
    assert f"{sentence}, so nothing of it is compared" in " ".join(both.stdout.split())


@pytest.mark.usefixtures("folder")
def test_operators_that_python_alone_knows_can_be_named() -> None:
    one = json.loads(
        diff("a.dlreg", "b.dlreg", "--layer", "all", "--operator", "aten::gone", "--format", "json").stdout
    )
    assert [each["operator"] for each in one["python"]["changes"]] == ["aten::gone"]
    assert one["upgrade"]["compared"] == 0
    unknown = diff("a.dlreg", "b.dlreg", "--layer", "python", "--operator", "aten::nowhere")
    assert (unknown.exit_code, unknown.stdout) == (2, "")


@pytest.mark.usefixtures("folder")
def test_a_page_has_the_entries() -> None:
    assert diff("a.dlreg", "b.dlreg", "--layer", "all", "--report", "page.html").exit_code == 0
    page = Path("page.html").read_text().replace("<wbr>", "")
    assert "Registries of Python" in page
    assert "torch._refs:gone" in page


@pytest.mark.usefixtures("folder")
def test_the_counts_of_an_older_recording_say_what_it_has_not_read() -> None:
    def counts(*more: str) -> str:
        return CliRunner().invoke(main, ["dump", "--counts", "--layer", "python", *more]).stdout

    lines = dict(line.split(None, 1) for line in counts("--from", "old.dlreg", "--format", "text").splitlines())
    assert {name for name, text in lines.items() if text.startswith("not in this recording")} == READ_LATER
    assert lines["jagged"] == "0 operators, 0 registrations"
    registries = json.loads(counts("--from", "old.dlreg", "--format", "json"))["registries"]
    assert {one["name"] for one in registries if not one["recorded"]} == READ_LATER
