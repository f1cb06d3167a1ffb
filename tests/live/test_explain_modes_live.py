"""`explain --mode` makes the call: what it shows is what PyTorch did."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.commands.explain import MODES
from dispatchlab.live.trials.under_mode import _MODES
from tests.live.packages import dispatchlab_started

BOXES = """
import torch


@torch.library.custom_op("boxes::grow", mutates_args=())
def grow(x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
    return x + by


@torch.library.custom_op("boxes::shrink", mutates_args=())
def shrink(x: torch.Tensor) -> torch.Tensor:
    return x - 1


shrink.register_fake(lambda x: torch.empty_like(x))
shrink.register_autograd(lambda ctx, grad: grad)
"""


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("fake", "reached below the fake mode"),
        ("make_fx", "in the graph\n  boxes.shrink.default\n"),
        ("aot", "in the forward graph\n  boxes.shrink.default\n"),
        ("compile", "boxes.shrink.default: no lowering, so a fallback is made"),
        ("export", "after run_decompositions()\n  boxes.shrink.default\n"),
        ("functionalize", "in the graph\n  boxes.shrink.default\n"),
        ("vmap", "  boxes.shrink.default(float32[3, 4])\n"),
        ("grad", "recorded\n  GeneratedBackwardFor_boxes_shrink_defaultBackward"),
        ("autocast", "reached below autocast\n  boxes.shrink.default(float32[3, 4])\n"),
    ],
)
def test_a_call_that_a_mode_takes_shows_what_it_reached(tmp_path: Path, mode: str, shown: str) -> None:
    (tmp_path / "boxes.py").write_text(BOXES)
    ended = dispatchlab_started(tmp_path, "explain", "boxes::shrink", "--mode", mode, "--from", "boxes")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"boxes::shrink(float32[3, 4]) under {mode}: gives (float32[")
    assert shown in ended.stdout


@pytest.mark.parametrize("mode", ["fake", "compile", "dtensor"])
def test_a_call_that_raises_shows_the_cause(tmp_path: Path, mode: str) -> None:
    (tmp_path / "boxes.py").write_text(BOXES)
    ended = dispatchlab_started(tmp_path, "explain", "boxes::grow", "cpu", "2.0", "--mode", mode, "--from", "boxes")
    assert ended.returncode == 1
    assert ended.stdout.startswith(f"boxes::grow(float32[3, 4], 2.0) under {mode}: raises ")
    assert "\ncause: boxes::grow has no fake kernel" in ended.stdout


def test_every_mode_of_the_command_is_there() -> None:
    assert tuple(_MODES) == MODES
