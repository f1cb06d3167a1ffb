"""Run many programs, each in a fork of this process, which has imported PyTorch: on the device, or on its stand-in.

Imports the modules that its arguments name. Reads a task a line on standard input and answers a line on standard
output. A task is JSON: `what` (`run`, `predict` or `cpu`), `program` (a path), `kernels` (operators without `aten::`),
`fallback`, `without`, `folder` (for files).
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.optim
import torch.utils.checkpoint

from dispatchlab.model.program_run import AUTOCAST
from dispatchlab.pytorch.introspection.stand_in_device import run_on_stand_in
from tests.live.forked_work import end_with


def _run(task: dict[str, Any], folder: Path) -> None:
    if task["what"] == "predict":
        calls: list[tuple[str, str]] = []
        kernels = [name if name == AUTOCAST else f"aten::{name}" for name in task["kernels"]]
        found = run_on_stand_in(
            task["program"],
            (),
            "npu",
            kernels,
            ("fallback",) if task["fallback"] else (),
            lambda name, what: calls.append((name, what)),
        )
        (folder / "predicted.json").write_text(json.dumps([calls, found.error, found.unserved]), encoding="utf-8")
        return
    if task["what"] == "run":
        (folder / "kernels.txt").write_text("".join(f"{name}\n" for name in task["kernels"]), encoding="utf-8")
        os.environ.update(
            NPU_KERNELS=str(folder / "kernels.txt"),
            NPU_FALLBACK="1" if task["fallback"] else "0",
            NPU_WITHOUT=task["without"],
            NPU_LOG=str(folder / "calls.txt"),
        )
        __import__("npu_device")
    runpy.run_path(task["program"], run_name="__main__")


def _answer(task: dict[str, Any]) -> dict[str, Any]:
    folder = Path(task["folder"])
    for name in ("predicted.json", "calls.txt", "out.txt", "error.txt"):
        (folder / name).unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        for at, name in ((1, "out.txt"), (2, "error.txt")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), at)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        end_with(partial(_run, task, folder))
    _, status = os.waitpid(child, 0)
    texts = {name: _text(folder / f"{name}.txt") for name in ("out", "error", "calls")}
    predicted = _text(folder / "predicted.json")
    calls = [line.partition(" ")[::2] for line in texts["calls"].splitlines()]
    return {
        "code": os.waitstatus_to_exitcode(status),
        "output": texts["out"],
        "error": texts["error"],
        "calls": [(name, what) for what, name in calls],
        "predicted": json.loads(predicted) if predicted else None,
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(_answer(json.loads(line)))}\n")
        sys.stdout.flush()
