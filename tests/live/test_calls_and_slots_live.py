"""What `explain` and `dump` show of a package is what its calls run, stale slots included."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.model.operator_view import OperatorView
from dispatchlab.questions.dump.inspect_operators import inspect_operators
from dispatchlab.questions.dump.inspect_scenario import InspectOptions
from dispatchlab.questions.dump.operator_text import stale_text
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys

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
import json, sys
import torch
import naming

found = {}
for number in range(%d):
    for grad in (False, True):
        naming.RAN.clear()
        try:
            getattr(torch.ops.naming, f"op{number}")(torch.ones(2, requires_grad=grad))
        except Exception:
            pass
        found[f"naming::op{number} {grad}"] = naming.RAN[:1]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("naming")
    (path / "naming.py").write_text(package_text(7))
    return path


def test_what_is_shown_is_what_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", CALLS % OPERATORS]
    ran = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    for engine in ("torch", "lab"):
        options = InspectOptions(engine=engine, imports=("naming",), reasons=True)
        found = inspect_operators("naming::*", source="live", options=options)
        assert len(found.snapshots) == OPERATORS
        assert sum(1 for snapshot in found.snapshots if stale_text(snapshot)) >= 100
        for snapshot in found.snapshots:
            view = found.view(snapshot.operator)
            for grad in (False, True):
                assert runs(view, grad=grad) == ran[f"{snapshot.operator} {grad}"], (engine, snapshot.operator, grad)


def runs(view: OperatorView, *, grad: bool) -> list[int]:
    """Return the line of the first kernel of the package that an explanation says a call runs."""
    described = describe_arguments(schema_of(view), ["cpu requires_grad" if grad else "cpu"], privateuse1="")
    call = explain(view, described, thread_keys((), (), inference=False))
    kernels = [hop.kernel for hop in call.hops if hop.kernel is not None]
    lines = [int(one.debug.rpartition(":")[2]) for one in kernels if "naming.py" in one.debug]
    return lines[:1]
