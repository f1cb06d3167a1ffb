"""Sixty pairs of packages whose result depends on the order of their imports, in ten ways: each is shown as different.

`import_pairs.txt` has them: `{a}` and `{b}` are the names of the two packages of a pair.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.model.order_run import OrderRun

TEXT = (Path(__file__).parent / "import_pairs.txt").read_text(encoding="utf-8")
PARTS = [part.partition("\n") for part in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]]
PAIRS = [head.removeprefix("pair ") for head, _, _ in PARTS if head.startswith("pair ")]
NOT_COMPARED = {
    "kernel_private": "a private variable",
    "replaced_impl": "which function a kernel is, where its line is the same",
    "thread_num": "a setting of PyTorch",
}
"""The pairs whose difference is in what docs/packages.md names as not compared."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], OrderRun]:
    """What is there after each order of each pair."""
    folder = tmp_path_factory.mktemp("pairs")
    orders: list[tuple[str, str]] = []
    for at, (head, _, body) in enumerate(PARTS):
        kind, _, name = head.partition(" ")
        if kind == "module":
            (folder / f"{name}.py").write_text(body, encoding="utf-8")
        elif kind == "pair":
            names = (f"pair_{name}_a", f"pair_{name}_b")
            for module, text in zip(names, (body, PARTS[at + 1][2]), strict=True):
                filled = text.replace("{a}", names[0]).replace("{b}", names[1])
                (folder / f"{module}.py").write_text(filled, encoding="utf-8")
            orders += [names, names[::-1]]
    sys.path.insert(0, str(folder))
    try:
        with LiveEngine() as engine:
            found = engine.ask("dispatchlab.live.recording.order_runs:run_orders", orders, 120.0, 2)
    finally:
        sys.path.remove(str(folder))
    return {run.order: run for run in found}


def test_there_are_sixty() -> None:
    assert len(set(PAIRS)) == len(PAIRS) == 60


@pytest.mark.parametrize("pair", PAIRS)
def test_what_the_order_of_two_imports_changes_is_seen(runs: dict[tuple[str, ...], OrderRun], pair: str) -> None:
    names = (f"pair_{pair}_a", f"pair_{pair}_b")
    assert (runs[names].found != runs[names[::-1]].found) == (pair not in NOT_COMPARED)
