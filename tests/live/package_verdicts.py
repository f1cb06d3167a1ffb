"""What dispatchlab says of modules, without a start of PyTorch for each group: recorded in a forked process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.live.import_truth import forked

_LIMIT_S = 1_800.0
"""The bounds end what hangs, and are far from what a slow machine needs."""


def verdict_in_fork(folder: Path, modules: Sequence[str]) -> Mapping[str, Any]:
    """What `dispatchlab record` and `dispatchlab permute` say of modules, in a process that has imported PyTorch.

    Args:
        folder: the sources are there.
        modules: their names, in the order in which they are recorded.

    Returns:
        The verdict, what differs between orders of imports, and what could not be compared; `not recorded` and why
        where there is no record.
    """
    _warm()
    answer = forked(lambda: _recorded(str(folder), tuple(modules)), timeout=_LIMIT_S)
    return {"verdict": "not recorded", "why": answer} if isinstance(answer, str) else _said(answer["text"])


@lru_cache
def _warm() -> None:
    """Read before a fork what every record reads, which is kept."""
    from dispatchlab.pytorch.bridge.torch import torch
    from dispatchlab.pytorch.introspection.package_paths import package_roots
    from dispatchlab.pytorch.introspection.registry_reader import DumpsBefore
    from dispatchlab.pytorch.recording import record_package
    from dispatchlab.pytorch.recording.module_watch import ModuleWatch
    from dispatchlab.pytorch.recording.order_runs import state_before
    from dispatchlab.pytorch.recording.python_watch import _own_layers
    from dispatchlab.questions.order import run_scenario as run_scenario

    ModuleWatch([""], package_roots())
    _own_layers(str(torch().__version__))
    dumps = DumpsBefore()
    vars(record_package)["DumpsBefore"] = lambda: dumps
    state_before(dumps)  # which every order of every group is compared with
    gc.collect()
    gc.freeze()


def _recorded(folder: str, modules: tuple[str, ...]) -> dict[str, str] | str:
    """The text of a record, or why there is none; in a process of its own."""
    from dispatchlab.pytorch.recording.record_package import OrderBudget, record_packages

    sys.path.insert(0, folder)
    os.chdir(folder)
    try:
        return {"text": record_packages(modules, OrderBudget(24, 300.0, 1)).text}
    except Exception as error:  # of modules that break what they are recorded with, too
        return f"{type(error).__name__}: {error}"


def _said(text: str) -> dict[str, Any]:
    from dispatchlab.errors import DispatchLabError
    from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
    from dispatchlab.scenario import parse_scenario

    try:
        report = run_scenario(parse_scenario(text, file="record.yaml"), RunOptions()).report
    except DispatchLabError as error:
        return {"verdict": "not recorded", "why": str(error)}
    imports = report.imports
    assert imports is not None
    return {
        "verdict": str(report.exploration.verdict),
        "text": report.verdict_text,
        "why": [f"{one.what}: {one.before} | {one.after}" for one in imports.findings],
        "open": list(imports.open),
        "notes": list(report.exploration.notes),
    }
