"""Where commands write: results to standard output, everything else to standard error; formats, colour, progress.

Whatever is printed leaves through here. See Note [One door out].
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, get_args

import click

from dispatchlab.escape import printable

if TYPE_CHECKING:
    from rich.console import Console

    from dispatchlab.files import FileKind
    from dispatchlab.views.progress import Display
    from dispatchlab.views.view import View

Format: TypeAlias = Literal["rich", "text", "json", "markdown"]

FORMATS: Final[tuple[Format, ...]] = get_args(Format)
"""What a result that is made of blocks can be printed as. See views/blocks.py."""

FOR_READING: Final = ("rich", "text")
"""The formats for one who reads on a terminal, and is shown what matters. The others are whole, for programs."""

QUIET: Final = "dispatchlab.quiet"
"""The place in click's `meta` that says whether `--quiet` was given."""

NO_PAGER: Final = "dispatchlab.no_pager"
"""The place that says whether `--no-pager` was given."""

_FIRST_LINE_S: Final = 2.0
_LINE_S: Final = 10.0
_STAGE_S: Final = 1.0

_display: Display | None = None  # what shows progress, and is cleared before anything else is written


# Note [One door out]
# ~~~~~~~~~~~~~~~~~~~~
# Debug texts, claims, names and paths are a user's or a stranger's, and a terminal obeys what is in them. `out` and
# `warn` spell out every control character, so that no command can forget to. A drawing has control characters of its
# own, its colours: the console of `views.console` spells out those in the texts that it draws.
# JSON is in ASCII (`escape.json_document`), and so is valid whatever the encoding of a stream is.


class OutputClosed(Exception):
    """Standard output has no reader any more."""


class OutputFailed(Exception):
    """Standard output cannot be written, as on a full disk."""


def show_view(asked: Format | None, view: View[Any], *, paged: bool = True) -> None:
    """Print a result in the requested format.

    Args:
        asked: the value of `--format`.
        view: the result.
        paged: through a pager on a terminal, where it is longer than the screen.
    """
    format = chosen_format(asked)
    (out_paged if paged and format in FOR_READING else out)(shown(format, view))


def shown(format: Format, view: View[Any]) -> str:
    """Return a result as it is printed in a format."""
    match format:
        case "rich":
            return rich_text(view.draw)
        case "text":
            return view.text()
        case "json":
            return view.json()
        case "markdown":
            return view.markdown()


def chosen_format(asked: Format | None) -> Format:
    """Return the requested format; else `rich` on a terminal, or where colours are forced, and `text` anywhere else."""
    return asked or ("rich" if sys.stdout.isatty() or _colors_are_forced() else "text")


class Drawn(str):
    """A text with control characters of its own, such as colours; others in its content are spelled out."""

    __slots__ = ()


def rich_text(draw: Callable[[Console], None]) -> Drawn:
    """Return the output of `draw` on the console of standard output, with its colours."""
    from dispatchlab.views.console import console

    terminal = console(sys.stdout, color=use_color(), forced=_colors_are_forced())
    with terminal.capture() as captured:
        draw(terminal)
    return Drawn(captured.get())


def use_color() -> bool:
    """Return whether colours may be used: neither `--no-color` nor NO_COLOR asks for none."""
    return click.get_current_context().obj is not False and not os.environ.get("NO_COLOR")


def _colors_are_forced() -> bool:
    """Return whether FORCE_COLOR asks for colours without a terminal, and no option forbids them."""
    return os.environ.get("FORCE_COLOR", "0") not in ("", "0") and use_color()


def progress_display() -> Display:
    """Return bars on a terminal; elsewhere a line now and then for long work; nothing with `--quiet`."""
    from dispatchlab.views.progress import BarDisplay, Display, LineDisplay

    global _display
    if is_quiet():
        _display = Display()
    elif sys.stderr.isatty():
        _display = BarDisplay(sys.stderr, color=use_color())
    else:
        _display = LineDisplay(sys.stderr, after_s=_FIRST_LINE_S, every_s=_LINE_S)
    return _display


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show the current work and how long it takes, where nothing is counted.

    Args:
        text: what is being done.

    Returns:
        A function that is called with what is being done from then on.
    """
    began, ended, stage = monotonic(), Event(), [text]

    def show_stage() -> None:
        while True:
            elapsed = monotonic() - began
            display.stage("live", stage[0] if elapsed < _FIRST_LINE_S else f"{stage[0]}, {elapsed:,.0f} s")
            if ended.wait(_STAGE_S):
                return

    with progress_display() as display:
        thread = Thread(target=show_stage, daemon=True)
        thread.start()
        try:
            yield lambda text: stage.__setitem__(0, text)
        finally:
            ended.set()
            thread.join()


@contextmanager
def reading(sources: Sequence[str], imports: Sequence[str]) -> Iterator[None]:
    """Show that the running PyTorch is read, which takes seconds; nothing for other sources."""
    if "live" not in sources:
        yield
        return
    packages = f", importing {' and '.join(imports)}" if imports else ""
    with working(f"starting PyTorch{packages} and reading its registry"):
        yield


def exit_with(code: int) -> NoReturn:
    """End the command with an exit code."""
    click.get_current_context().exit(code)


def out(text: str) -> None:
    """Write to standard output at once; spell out control characters, except those of a drawing.

    Raises:
        OutputClosed: its reader has gone; standard output leads nowhere from now on.
        OutputFailed: it cannot be written.
    """
    if _display is not None:
        _display.clear()
    try:
        sys.stdout.write(text if isinstance(text, Drawn) else printable(text))
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        raise OutputClosed from None
    except OSError as error:
        abandon_stdout()
        raise OutputFailed(f"the output could not be written: {error.strerror or error}") from None


def out_paged(text: str) -> None:
    """Write to standard output as `out` does; through a pager on a terminal, where the text is longer than the screen.

    Raises:
        OutputClosed: see `out`.
        OutputFailed: see `out`.
    """
    context = click.get_current_context(silent=True)
    refused = context is not None and bool(context.meta.get(NO_PAGER))
    shown = text if isinstance(text, Drawn) else printable(text)
    if sys.stdout.isatty() and not refused and shown.count("\n") >= shutil.get_terminal_size().lines:
        os.environ.setdefault("LESS", "FRX")
        click.echo_via_pager(shown, color=use_color())
        return
    out(text)


def save(path: str, content: str | bytes, kind: FileKind) -> None:
    """Write a file that a user asked for, and say so on standard error.

    Args:
        path: the file.
        content: its content.
        kind: its kind; a text that a user could have written is marked.

    Raises:
        OverwriteError: the file has content that no command writes there.
        WriteError: it could not be written.
    """
    from dispatchlab.files import check_overwrite, marked, write_file

    check_overwrite(path, kind)
    write_file(path, marked(content, kind) if isinstance(content, str) else content)
    note(f"wrote {path}: {kind.label}")


def show_and_keep(
    asked: Any, view: View[Any], page: str | None, *, others: Mapping[str, Callable[[], str]] | None = None
) -> None:
    """Print a result in the requested format, and write a report if one was asked for.

    Args:
        asked: the value of `--format`.
        view: the result.
        page: the value of `--report`.
        others: the formats that this result has besides those of every view.
    """
    from dispatchlab.files import FileKind

    if others and asked in others:
        out(others[asked]())
    else:
        show_view(asked, view)
    if page is not None:
        save(page, view.html(), FileKind.PAGE)


def abandon_stdout() -> None:
    """Send standard output nowhere, so that Python does not fail on it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  lives as long as the process
    finally:
        os.close(nowhere)


def is_quiet() -> bool:
    """Return whether `--quiet` was given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def note(text: str) -> None:
    """Write a line to standard error that `--quiet` leaves out; nothing happens when that is closed."""
    if not is_quiet():
        warn(text)


def note_passed_on(program: str, arguments: Sequence[str], *options: str) -> None:
    """Name the arguments of a program that look like options of dispatchlab."""
    if ours := sorted({*options} & {argument.partition("=")[0] for argument in arguments}):
        note(f"note: {' and '.join(ours)} after {program} went to it: an option of dispatchlab stands before it")


def warn(text: str) -> None:
    """Write a line to standard error, control characters spelled out; nothing happens when that is closed."""
    if _display is not None:
        _display.clear()
    try:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()
    except OSError:
        pass


def tolerate_encodings() -> None:
    """Let a stream spell out characters that it cannot encode, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
