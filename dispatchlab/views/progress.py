"""Progress of explorations while they run: bars on a terminal, a line a second elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Self, TextIO

from dispatchlab.escape import printable
from dispatchlab.prover.limits import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

_LINE_EVERY_S = 1.0


def progress_text(progress: Progress) -> str:
    """Return `12,345 sets, 456,789 of 1,048,576 edges (43 %), 123,456 edges/s, 5 s left`."""
    rate = progress.edges / progress.elapsed_s if progress.elapsed_s else 0.0
    total = progress.total_edges
    known = total is not None and total >= progress.edges
    edges = f"{progress.edges:,} edges"
    if known and total:
        edges = f"{progress.edges:,} of {total:,} edges ({100 * progress.edges // total} %)"
    parts = [f"{progress.sets:,} sets", edges, f"{rate:,.0f} edges/s"]
    if known and total and rate and 100 * progress.edges >= total:  # before, the guess would be wild
        parts.append(f"{(total - progress.edges) / rate:,.0f} s left")
    return ", ".join(parts)


class Display:
    """A display of the progress of scenarios; this base class shows nothing."""

    def update(self, scenario: str, progress: Progress, /) -> None:
        """Show the progress of a scenario."""

    def stage(self, scenario: str, text: str, /) -> None:
        """Show the current work, if nothing is counted."""

    def finish(self, scenario: str, /) -> None:
        """Remove a scenario from the display."""

    def clear(self) -> None:
        """Make room for other lines; the next update shows everything again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()


class LineDisplay(Display):
    """Writes a line for each scenario now and then.

    Args:
        stream: where to.
        after_s: seconds from the first update of a scenario to its first line.
        every_s: the seconds between two lines.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        after_s: float = 0.0,
        every_s: float = _LINE_EVERY_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._stream = stream
        self._after_s, self._every_s = after_s, every_s
        self._clock = clock
        self._next: dict[str, float] = {}

    def update(self, scenario: str, progress: Progress, /) -> None:
        """Write a line if it is time for one."""
        self._line(scenario, lambda: progress_text(progress))

    def stage(self, scenario: str, text: str, /) -> None:
        """Write a line if it is time for one."""
        self._line(scenario, lambda: text)

    def _line(self, scenario: str, text: Callable[[], str]) -> None:
        now = self._clock()
        if now < self._next.setdefault(scenario, now + self._after_s):
            return
        self._next[scenario] = now + self._every_s
        with suppress(OSError, ValueError):  # standard error may be closed
            self._stream.write(printable(f"{scenario}: {text()}\n"))
            self._stream.flush()


class BarDisplay(Display):
    """Bars on a terminal; rich is imported when there is something to show, so that short runs do not wait for it.

    Args:
        stream: the terminal.
        color: whether it may be coloured.
    """

    def __init__(self, stream: TextIO, *, color: bool = True) -> None:
        self._stream = stream
        self._color = color
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def update(self, scenario: str, progress: Progress, /) -> None:
        """Draw the bar again."""
        known = progress.total_edges is not None and progress.total_edges >= progress.edges
        self._draw(scenario, progress_text(progress), progress.total_edges if known else None, progress.edges)

    def stage(self, scenario: str, text: str, /) -> None:
        """Draw the bar again, without a length."""
        self._draw(scenario, printable(text), None, 0)

    def _draw(self, scenario: str, text: str, total: int | None, completed: int) -> None:
        bars = self._bars or self._start()
        if scenario not in self._tasks:
            self._tasks[scenario] = bars.add_task(printable(scenario), text="")
        bars.update(self._tasks[scenario], total=total, completed=completed, text=text)
        bars.refresh()

    def finish(self, scenario: str, /) -> None:
        """Remove the bar."""
        task = self._tasks.pop(scenario, None)
        if task is not None and self._bars is not None:
            self._bars.remove_task(task)
            if not self._tasks:
                self.clear()

    def clear(self) -> None:
        """Remove all bars that were drawn."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._tasks.clear()

    def _start(self) -> Bars:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars
        from rich.table import Column

        from dispatchlab.views.console import console

        self._bars = Bars(
            BarColumn(bar_width=16),
            TextColumn(
                "{task.description}: {task.fields[text]}",
                markup=False,
                table_column=Column(overflow="fold", no_wrap=False, ratio=1),
            ),
            console=console(self._stream, color=self._color),
            auto_refresh=False,
            transient=True,
            expand=True,
        )
        self._bars.start()
        return self._bars
