"""What `explain`, `dump`, `trace`, `coverage` and `check` show of a package is what its calls run, stale slots too."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("torch")

from dispatchlab.live.introspection import held_kernels
from dispatchlab.live.introspection.registry_reader import RegistryMoments, record_registry
from dispatchlab.live.registry import live_registry
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.questions.check.check_packages import check_packages
from dispatchlab.questions.check.report import Question
from dispatchlab.questions.coverage.coverage_on_lab import coverage_report
from dispatchlab.questions.dump.inspect_operators import inspect_operators
from dispatchlab.questions.dump.inspect_scenario import InspectOptions
from dispatchlab.questions.dump.operator_text import stale_text
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.lint.run import lint_source
from dispatchlab.questions.sources.engines import EngineName
from dispatchlab.questions.sources.find_sources import chosen
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.model import SLOTS_UNREADABLE, Registry, registry_of

ROOT = Path(__file__).parents[2]
OPERATORS = 500
KEYS = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "QuantizedCPU",
    "NestedTensorCPU",
    "CompositeExplicitAutogradNonFunctional",
    "CPU",
    "Autograd",
    "AutogradCPU",
)
HEAD = """\
import torch

RAN = []
LIB = torch.library.Library("naming", "DEF")
GONE = [torch.library.Library("naming", "FRAGMENT") for _ in range(2)]


def kernel(line):
    def run(x):
        RAN.append(line)
        return x + 1

    return run


"""


def package_text(seed: int) -> str:
    """Return a package of operators with one to four kernels, in any order; some are released again."""
    chance, lines = random.Random(seed), HEAD.splitlines()
    for number in range(OPERATORS):
        lines.append(f'LIB.define("op{number}(Tensor x) -> Tensor")')
        keys, libraries = chance.sample(KEYS, chance.randint(1, 4)), ["LIB", "LIB", "LIB", "GONE[0]", "GONE[1]"]
        if number % 2:  # a composite kernel that comes first stays in slots that are not refreshed
            keys, libraries = [KEYS[0], chance.choice(KEYS[1:4]), *chance.sample(KEYS[4:], 1)], ["LIB"]
        for key in keys:
            library = chance.choice(libraries)
            lines.append(f'{library}.impl("op{number}", kernel({len(lines) + 1}), "{key}")')
    return "\n".join([*lines, "GONE[1]._destroy()", "GONE[0]._destroy()", ""])


CALLS = """
import json
import torch
from dispatchlab import trace
from dispatchlab.live.bridge.running_keys import running_keys

with trace(engine="torch"):
    import naming

KINDS = {
    "cpu": torch.ones(2),
    "cpu requires_grad": torch.ones(2, requires_grad=True),
    "cpu quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "cpu nested": torch.nested.nested_tensor([torch.ones(2)]),
}
SLOTS = {key: torch._C.DispatchKeySet(torch._C.DispatchKey(running_keys().numbers[key])) for key in %r}


def ran(function, *arguments):
    naming.RAN.clear()
    try:
        function(*arguments)
    except Exception:
        pass
    return naming.RAN[:1]


def calls():
    return {
        f"naming::op{number} {kind}": ran(getattr(torch.ops.naming, f"op{number}"), x)
        for number in range(%d)
        for kind, x in KINDS.items()
    }


def named(step):
    while step is not None:
        if step.kernel is not None and "naming.py" in step.kernel.debug:
            return [int(step.kernel.debug.rpartition(":")[2])]
        step = next((one for one in step.steps if one.operator == step.operator), None)
    return []


found = calls()
slots = {
    f"naming::op{number} {key}": ran(getattr(torch.ops.naming, f"op{number}").default.redispatch, keys, KINDS["cpu"])
    for number in range(%d)
    for key, keys in SLOTS.items()
}
with trace(engine="torch") as seen:
    assert calls() == found
steps = [step for step in seen.threads[0].steps if step.operator.startswith("naming::")]
traced = {name: named(step) for name, step in zip(found, steps, strict=True)}
stale = sum("stale slot" in call.note for call in seen.calls)
print(json.dumps([found, slots, traced, stale]))
"""
SLOTS = ("CPU", "QuantizedCPU", "NestedTensorCPU", "SparseCPU", "AutogradCPU", "AutogradNestedTensor")


class Ran(NamedTuple):
    """The lines of the kernels that ran: in a call, in each slot, and as a trace names them."""

    calls: dict[str, list[int]]
    slots: dict[str, list[int]]
    traced: dict[str, list[int]]
    stale: int


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("naming")
    (path / "naming.py").write_text(package_text(7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(path))
        patch.syspath_prepend(str(path))
        yield path


@pytest.fixture(scope="module")
def ran(folder: Path) -> Ran:
    command = [sys.executable, "-c", CALLS % (SLOTS, OPERATORS, OPERATORS)]
    paths = os.pathsep.join((str(folder), str(ROOT)))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=True, capture_output=True)
    return Ran(*json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("engine", ["torch", "lab"])
def test_what_explain_and_dump_show_is_what_runs(ran: Ran, engine: EngineName) -> None:
    options = InspectOptions(engine=engine, imports=("naming",), reasons=True)
    found = inspect_operators("naming::*", source="live", options=options)
    assert len(found.snapshots) == OPERATORS
    assert sum(1 for snapshot in found.snapshots if stale_text(snapshot)) >= 100
    for snapshot in found.snapshots:
        view = found.view(snapshot.operator)
        for kind in KINDS:
            assert runs(view, kind) == ran.calls[f"{snapshot.operator} {kind}"], (snapshot.operator, kind)


KINDS = ("cpu", "cpu requires_grad", "cpu quantized", "cpu nested")


def runs(view: OperatorView, kind: str) -> list[int]:
    """Return the line of the first kernel of the package that an explanation says a call runs."""
    described = describe_arguments(schema_of(view), [kind], privateuse1="")
    call = explain(view, described, thread_keys((), (), inference=False))
    kernels = [hop.kernel for hop in call.hops if hop.kernel is not None]
    lines = [int(one.debug.rpartition(":")[2]) for one in kernels if "naming.py" in one.debug]
    return lines[:1]


def test_what_a_trace_names_is_what_runs(ran: Ran) -> None:
    assert ran.traced == ran.calls
    assert ran.stale >= 100


def test_what_coverage_lists_is_what_runs(ran: Ran, recorded: Registry) -> None:
    stale = 0
    operators = tuple(chosen(recorded, ["naming::*"]))
    for key in SLOTS:
        report = coverage_report(recorded, DispatchKey[key], name="naming", operators=operators)
        for one in report.coverage.operators:
            if one.filled.way is Way.FALLBACK and key.startswith("Autograd"):
                continue  # it hands the call on
            line = [int(one.debug.rpartition(":")[2])] if "naming.py" in one.debug else []
            assert line == ran.slots[f"{one.operator} {key}"], (one, key)
        stale += report.coverage.stale
    assert stale >= 100


OTHERS = r"\S*VariableFallback\S+|ambiguous_autogradother"


def test_what_check_and_lint_say_of_stale_slots_is_what_runs(ran: Ran, recorded: Registry) -> None:
    moments = RegistryMoments(registry_of(recorded.torch, ()), recorded, recorded, {})
    rules = [one for one in RULES if one.code == "DL009"]
    found = lint_source("live", rules, imports=("naming",), moments=moments)
    held = [one for one in found.findings if "stale slot" in one.message]
    assert len({one.operator for one in held}) >= 100
    compared = 0
    for one in held:
        shown = re.match(rf"calls at (\w+) run (?:naming\.py:(\d+)|no kernel|{OTHERS}) where", one.message)
        assert shown is not None, one.message
        if shown[1] in SLOTS and not re.search(OTHERS, shown[0]):  # which hands the call on
            assert ([int(shown[2])] if shown[2] else []) == ran.slots[f"{one.operator} {shown[1]}"], one
            compared += 1
    assert compared >= 100


def test_what_check_says_of_stale_slots_is_what_runs(ran: Ran, folder: Path) -> None:
    report = check_packages(["naming"], questions=(Question.LINT,))
    held = [one for one in report.findings if "stale slot" in one.message]
    assert len({one.operator for one in held}) >= 100
    compared = set()
    for one in held:
        shown = re.match(rf"calls at (\w+) run (?:naming\.py:(\d+)|no kernel|{OTHERS}) where", one.message)
        assert shown is not None, one.message
        if shown[1] in SLOTS and not re.search(OTHERS, shown[0]):
            assert ([int(shown[2])] if shown[2] else []) == ran.slots[f"{one.operator} {shown[1]}"], one
            compared.add(one.operator)
    assert len(compared) >= 100


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Registry:
    return live_registry(("naming",))


def test_it_is_said_where_slots_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_kernels, "memory_layout", lambda: None)
    held_kernels._kernel_map.cache_clear()
    try:
        assert SLOTS_UNREADABLE in record_registry(only=("aten::sin",)).unreadable
    finally:
        held_kernels._kernel_map.cache_clear()
