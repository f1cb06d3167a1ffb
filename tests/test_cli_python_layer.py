"""`dispatchlab dump`: what Python registers, of a recording, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from expecttest import assert_expected_inline

from dispatchlab.cli import main
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.python_layer import PYTHON_REGISTRIES, PythonRegistration
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory, python_layer
from dispatchlab.records.file import bundled_names, open_bundled, python_layer_of, registry_bytes
from dispatchlab.records.model import RecordedKernel, RecordedOperator, Registry, name_of, registry_of

NAME = "mine::f"
FOUND = (
    PythonRegistration("torch_library", NAME, "fake", "mine:old", "mine/a.py:1", active=False),
    PythonRegistration("torch_library", NAME, "fake", "mine:fake", "mine/a.py:9"),
    PythonRegistration("py_kernels", NAME, "Meta", "mine:meta", "mine/a.py:20"),
    PythonRegistration("py_kernels", NAME, "CPU", "mine:cpu", ""),
    PythonRegistration("decompositions", NAME, "post_autograd", "mine:pieces", "mine/a.py:30"),
    PythonRegistration("inductor_decompositions", NAME, "", "mine:own", "mine/b.py:3", "torch._inductor.decomposition"),
    PythonRegistration("inductor_lowerings", NAME, "", "mine:lower", "mine/b.py:8", "torch._inductor.lowering"),
    PythonRegistration("higher_order", "higher_order::while", "Autograd", "mine:while_autograd", "mine/c.py:2"),
)


def _registry(layer: PythonLayerInMemory | None) -> bytes:
    kernels = (RecordedKernel(DispatchKey.Meta, "registered at mine.cpp:7"),)
    other = RecordedOperator(name_of("mine::other"), "mine::other(Tensor x) -> Tensor")
    operator = RecordedOperator(name_of(NAME), f"{NAME}(Tensor x) -> Tensor", "mine.cpp:3", kernels=kernels)
    found = registry_of("2.13.0", [operator, other])
    return registry_bytes(Registry(found.torch, found.operators, python=layer))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with recordings, which is the current one."""
    (tmp_path / "with.dlreg").write_bytes(_registry(python_layer("2.13.0", FOUND, ["mode_rules"], ["torch.nested"])))
    (tmp_path / "without.dlreg").write_bytes(_registry(None))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dump(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["dump", *arguments])


@pytest.mark.usefixtures("folder")
def test_what_python_registers_follows_the_table() -> None:
    result = dump(NAME, "--from", "with.dlreg", "--format", "text")
    assert (result.exit_code, result.stderr) == (0, "")
    head, table, python = result.stdout.split("\n\n")
    assert "Meta: registered at mine.cpp:7 [kernel]" in table
    assert_expected_inline(
        f"{head}\n\n{python}",
        """\
name: mine::f
schema: mine::f(Tensor x) -> Tensor
debug: mine.cpp:3
alias analysis kind: CONSERVATIVE (default)
Meta: registered at mine.cpp:7 :: (none) [ boxed ]

Python kernels, when the Python dispatcher is on, as under torch.compile, torch.export and make_fx with symbolic sizes: in place of the C++ kernel of the slot
  CPU: mine:cpu at (no line known)
  Meta: mine:meta at mine/a.py:20; in place of the kernel at Meta registered at mine.cpp:7
decompositions, when a graph is traced with a table of decompositions (make_fx, AOTAutograd, torch.export): in place of the operator, after autograd or before it
  post_autograd: mine:pieces at mine/a.py:30
registrations of torch.library, a fake implementation on meta and fake tensors; a torch_dispatch rule under its mode or for its class; an effect when a graph is traced
  fake: mine:old at mine/a.py:1 [overridden]
  fake: mine:fake at mine/a.py:9; in place of an older one mine/a.py:1
decompositions of Inductor (import torch._inductor.decomposition), under torch.compile with Inductor: in place of the operator, before the lowerings
  mine:own at mine/b.py:3; in place of the decomposition mine/a.py:30
Inductor lowerings (import torch._inductor.lowering), under torch.compile with Inductor, for what is left in the graph after its decompositions
  mine:lower at mine/b.py:8
""",  # noqa: E501
    )


@pytest.mark.usefixtures("folder")
def test_a_key_chooses_what_python_registers_at_it() -> None:
    result = dump(NAME, "--from", "with.dlreg", "--key", "Meta", "--layer", "python", "--format", "text")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["Python", "Meta:"]


@pytest.mark.usefixtures("folder")
def test_each_layer_is_shown_alone() -> None:
    both = dump(NAME, "--from", "with.dlreg", "--format", "text").stdout
    cxx = dump(NAME, "--from", "with.dlreg", "--layer", "cxx", "--format", "text").stdout
    python = dump(NAME, "--from", "with.dlreg", "--layer", "python", "--format", "text").stdout
    assert both == f"{cxx}\n{python}"
    assert cxx == dump(NAME, "--from", "without.dlreg", "--format", "text").stdout


@pytest.mark.usefixtures("folder")
def test_an_operator_that_python_alone_knows_is_shown() -> None:
    result = dump("higher_order::while", "--from", "with.dlreg", "--format", "text")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1] == "  Autograd: mine:while_autograd at mine/c.py:2"


@pytest.mark.usefixtures("folder")
def test_a_recording_without_a_python_layer_says_so_when_it_is_asked_for() -> None:
    line = "note: without.dlreg has no record of what Python registers: --layer python shows nothing of it\n"
    result = dump(NAME, "--from", "without.dlreg", "--layer", "python", "--format", "text")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", line)
    assert dump(NAME, "--from", "without.dlreg", "--format", "text").stderr == ""
    refused = dump("--counts", "--layer", "python", "--from", "without.dlreg")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "without.dlreg has no record of what Python registers: record it again" in refused.stderr


@pytest.mark.usefixtures("folder")
def test_an_operator_without_python_registrations_says_so_when_they_are_asked_for() -> None:
    result = dump("mine::other", "--from", "with.dlreg", "--layer", "python", "--format", "text")
    assert (result.stdout, result.stderr) == ("", "note: Python registers nothing for mine::other\n")


@pytest.mark.usefixtures("folder")
def test_json_has_each_registration_with_what_is_known_of_its_registry() -> None:
    (operator,) = json.loads(dump(NAME, "--from", "with.dlreg", "--format", "json").stdout)["operators"]
    assert [one["registry"] for one in operator["python"]] == [
        "py_kernels", "py_kernels", "decompositions", "torch_library", "torch_library", "inductor_decompositions",
        "inductor_lowerings",
    ]  # fmt: skip
    assert operator["python"][1] == {
        "registry": "py_kernels",
        "title": "Python kernels",
        "applies": PYTHON_REGISTRIES[0].applies,
        "key": "Meta",
        "function": "mine:meta",
        "site": "mine/a.py:20",
        "needs": "",
        "active": True,
        "overrides": [{"what": "the kernel at Meta", "site": "registered at mine.cpp:7"}],
    }
    for arguments in (("--from", "with.dlreg", "--layer", "cxx"), ("--from", "without.dlreg")):
        (operator,) = json.loads(dump(NAME, *arguments, "--format", "json").stdout)["operators"]
        assert operator["python"] is None


@pytest.mark.usefixtures("folder")
def test_a_terminal_shows_the_same() -> None:
    shown = dump(NAME, "--from", "with.dlreg", "--format", "rich").stdout
    for part in ("Inductor lowerings", "mine:pieces mine/a.py:30", "in place of the kernel at Meta mine.cpp:7"):
        assert part in shown, shown
    assert "Inductor" not in dump(NAME, "--from", "with.dlreg", "--layer", "cxx", "--format", "rich").stdout


@pytest.mark.usefixtures("folder")
def test_counts_name_what_is_not_there() -> None:
    lines = dump("--counts", "--layer", "python", "--from", "with.dlreg").stdout.splitlines()
    assert lines[0].split() == ["py_kernels", "1", "operator,", "2", "registrations"]
    assert lines[1].endswith("not found here, looked for at torch._ops:OpOverload.python_key_table")
    assert len(lines) == len(PYTHON_REGISTRIES)
    counts = json.loads(dump("--counts", "--layer", "python", "--from", "with.dlreg", "--format", "json").stdout)
    assert [one["registrations"] for one in counts["registries"] if one["registrations"]] == [2, 1, 2, 1, 1, 1]
    assert [one["name"] for one in counts["registries"] if not one["found"]] == ["mode_rules"]
    wrapped = dump("--counts", "--layer", "python", "--from", "with.dlreg", "--format", "rich").stdout
    assert max(map(len, wrapped.splitlines())) <= 80
    assert wrapped.split() == " ".join(lines).split()
    rules = {one["name"]: one["rule"] for one in counts["registries"]}
    refused = {"second": "refused", "by_object": True, "refusal": "Trying to override a python impl", "beside": ""}
    assert rules["py_kernels"] == refused
    assert rules["inductor_lowerings"]["second"] == "replaces"
    assert rules["fake_checks"] is None


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((NAME, "--counts", "--layer", "python"), "name no operator"),
        (("--counts", "--layer", "python", "--key", "CPU"), "--key is for operators"),
        (("--list", "--layer", "python"), "--layer is for the table of an operator"),
        ((NAME, "--across", "--layer", "cxx"), "--layer is for one version"),
    ],
)
def test_options_that_have_no_effect_are_refused(arguments: tuple[str, ...], sentence: str) -> None:
    source = () if "--across" in arguments else ("--from", "with.dlreg")
    result = dump(*arguments, *source)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr


def test_the_counts_of_the_bundled_pytorch_2_13() -> None:
    """The figures of one process, as `import torch` and then DTensor and Inductor fill the registries."""
    layer = python_layer_of(open_bundled("torch-2.13-cpu"))
    assert layer is not None
    found = list(layer)

    def operators(registry: str, key: str | None = None) -> int:
        return len(
            {
                one.operator
                for one in found
                if one.registry == registry and not one.needs and (key is None or one.key == key)
            }
        )

    assert [operators(name) for name in ("py_kernels", "decompositions", "meta_functions", "fake_rules")] == [
        1497, 1097, 533, 95,
    ]  # fmt: skip
    assert [operators("py_kernels", key) for key in ("Meta", "CompositeImplicitAutograd", "Autograd")] == [1488, 39, 36]
    assert [operators("torch_library"), operators("higher_order")] == [121, 41]
    brought = [(one.registry, one.needs) for one in found]
    assert brought.count(("dtensor_rules", "torch.distributed.tensor")) == 1178
    assert brought.count(("inductor_lowerings", "torch._inductor.lowering")) == 1767


def test_every_bundled_registry_has_a_python_layer() -> None:
    assert len(bundled_names()) >= 13
    for name in bundled_names():
        layer = python_layer_of(open_bundled(name))
        assert layer is not None
        assert layer.torch == open_bundled(name).torch
        assert layer.of("aten::add.Tensor")
        assert not layer.not_imported
        newer = [one.name for one in PYTHON_REGISTRIES if _version(one.since) > _version(name)]
        assert [*layer.missing] == newer, name


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.removeprefix("torch-").removesuffix("-cpu").split(".")))
