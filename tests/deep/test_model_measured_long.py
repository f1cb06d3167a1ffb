"""The long tests of tests/test_model_measured.py, which the quick tier leaves out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dispatchlab.files import atomic_write
from dispatchlab.model import measured
from dispatchlab.model.measured import measured_profile
from tests.test_model_measured import PROFILE, TEXT, UNKNOWN, Measures, ends, kept
from tests.test_model_measured import measures as measures


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted() -> None:
    raise KeyboardInterrupt


def at_line(number: int, stop: Callable[[], None]) -> None:
    """Measure, and stop before the line of this number that is run where files are looked for, locked and written."""
    left = number

    def step(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        left -= event == "line"
        if not left:
            sys.settrace(None)
            stop()
        return step

    def entered(frame: FrameType, event: str, argument: object) -> Any:
        return step if frame.f_code.co_filename in (measured.__file__, atomic_write.__file__) else None

    sys.settrace(entered)
    measured_profile(UNKNOWN)


@pytest.mark.parametrize("stop", [killed, interrupted])
def test_wherever_measuring_is_stopped_there_is_nothing_or_the_whole(
    stop: Callable[[], None], measures: Measures, tmp_path: Path
) -> None:
    assert measured_profile(UNKNOWN) == PROFILE
    (name,) = kept(tmp_path)
    path, states, number = tmp_path / "cache" / name, set(), 0
    while True:
        number += 1
        path.unlink()
        measured._kept.cache_clear()
        if ends(partial(at_line, number, stop)):
            break
        left = {each.name for each in path.parent.iterdir() if each.suffix != ".lock"}
        states.add((name in left, len(left - {name})))
        assert name not in left or path.read_bytes() == TEXT
        measured._kept.cache_clear()
        assert measured_profile(UNKNOWN) == PROFILE
        assert [each.name for each in path.parent.iterdir() if each.suffix != ".lock"] == [name]
    assert number > 100
    assert states == ({(False, 0), (False, 1), (True, 0)} if stop is killed else {(False, 0), (True, 0)})
    assert path.read_bytes() == TEXT
