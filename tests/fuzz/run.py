"""Run cases of a target with bounds on time and memory, and count how they end.

A case is its target, its seed and its number.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.fuzz.targets import TARGETS

if sys.platform != "win32":
    import resource

SECONDS = 2.0
"""How much time of the processor a case may take; a command that finds something to do may take ten times as much."""

_GIVEN_UP = 10 * SECONDS
_KEPT_AT_ONCE = 1_000


@dataclass
class Result:
    """What became of the cases of one target."""

    target: str
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    slowest: float = 0.0
    slowest_case: str = ""

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        slowest = f"slowest {self.slowest:.2f} s ({self.slowest_case})"
        return f"{self.target}: {self.outcomes.total():,} cases: {ends}; {slowest}{_memory()}"


class _TooSlow(BaseException):
    """A case was given up."""


def run(target: str, seed: int, numbers: Iterable[int]) -> Result:
    """Run cases; whatever is no documented end of one is a finding."""
    case, _ = TARGETS[target]
    result = Result(target)
    with _alarm() as set_alarm:
        for number in numbers:
            name = f"{target} {seed} {number}"
            start = time.process_time()
            set_alarm(_GIVEN_UP)
            try:
                outcome = case(random.Random(name))
            except _TooSlow:
                outcome = "given up"
                result.findings.append(f"{name}: given up after {_GIVEN_UP:g} s")
            except Exception as error:
                outcome = "finding"
                result.findings.append(f"{name}: {type(error).__name__}: {error!s:.600}")
            finally:
                set_alarm(0)
            took = time.process_time() - start
            result.outcomes[outcome] += 1
            if took > result.slowest:
                result.slowest, result.slowest_case = took, name
            if took > SECONDS and outcome in ("read", "refused", "exit 2"):
                result.findings.append(f"{name}: {outcome} after {took:.1f} s")
    return result


def run_kept(target: str, seed: int, numbers: range, log: Path) -> Result:
    """Run cases and keep in a file, a thousand at a time, what became of them; those that it has are not run again."""
    known: dict[tuple[str, int, int, int], Result] = {}
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # half a line, where a run was killed
                key, value = json.loads(line)
                known[tuple(key)] = Result(**{**value, "outcomes": Counter(value["outcomes"])})
    whole = Result(target)
    for first in range(numbers.start, numbers.stop, _KEPT_AT_ONCE):
        some = range(first, min(first + _KEPT_AT_ONCE, numbers.stop))
        part = known.get((target, seed, some.start, some.stop))
        if part is None:
            part = run(target, seed, some)
            with log.open("a", encoding="utf-8") as stream:
                stream.write(f"\n{json.dumps([[target, seed, some.start, some.stop], vars(part)])}")
        whole.outcomes += part.outcomes
        whole.findings += part.findings
        if part.slowest > whole.slowest:
            whole.slowest, whole.slowest_case = part.slowest, part.slowest_case
    return whole


def limit_memory(size: int = 1 << 30) -> None:
    """Let this process have no more memory than this, where the system can hold it to that."""
    if sys.platform != "win32":
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size, most))


def _memory() -> str:
    if sys.platform == "win32":
        return ""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return f"; {size // (2**20 if sys.platform == 'darwin' else 2**10)} MiB at most"


@contextmanager
def _alarm() -> Iterator[Callable[[float], object]]:
    """What raises in a case after so many seconds of the processor; on Windows, which has no such alarm, nothing."""
    if sys.platform == "win32":
        yield lambda seconds: None
        return

    def give_up(number: int, frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGPROF, give_up)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_PROF, seconds)
    finally:
        signal.signal(signal.SIGPROF, before)
