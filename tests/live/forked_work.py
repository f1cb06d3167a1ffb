"""Run some work in a process that was forked, and end that."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def end_with(work: Callable[[], int | None]) -> NoReturn:
    """End this forked process with the exit code of some work: what it gives, 0 for nothing, 1 where it raises."""
    code = 1
    try:
        code = work() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
