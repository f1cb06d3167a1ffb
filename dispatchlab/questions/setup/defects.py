"""Known defects of PyTorch: a program for each shows whether the installed PyTorch has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from dispatchlab.errors import RequestError, nearest
from dispatchlab.processes import check_fork
from dispatchlab.views.blocks import Code, Line
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View

_SITE = "https://dispatchlab.github.io/dispatchlab/"
_FOUND = "SystemExit: defect: "
TIMEOUT_S = 300.0
"""How long one program may take; importing Inductor on a busy machine is the longest part."""


@dataclass(frozen=True, slots=True)
class KnownDefect:
    """A known defect of PyTorch.

    Args:
        name: its name.
        what: a line that describes it.
        page: the address of the page that describes it.
        program: a PyTorch program that exits with 1 if PyTorch has the defect.
        found: whether the installed PyTorch has it; None if its program did not run.
        said: the result of the program, or why it could not be run; empty if PyTorch does not have the defect.
    """

    name: str
    what: str
    page: str
    program: str
    found: bool | None = None
    said: str = ""


def known_defects(names: Sequence[str] = ()) -> tuple[KnownDefect, ...]:
    """Return the known defects, or those with these names.

    Raises:
        RequestError: no defect has one of the names.
    """
    text = files("dispatchlab.questions.setup").joinpath("defects.json").read_text(encoding="utf-8")
    pages: dict[str, list[list[str]]] = json.loads(text)
    known = {
        name: KnownDefect(name, what, f"{_SITE}{page}.html#{name}", program)
        for page, defects in pages.items()
        for name, what, program in defects
    }
    for name in names:
        if name not in known:
            near = nearest(name, known)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise RequestError(f"there is no defect {name}{meant}; dispatchlab doctor --defects lists them")
    return tuple(known[name] for name in names or known)


def run_defects() -> tuple[str, tuple[KnownDefect, ...]]:
    """Run the program of each known defect on the installed PyTorch.

    Returns:
        The version of PyTorch, and each defect with the result of its program.

    Raises:
        NoForkError: this system cannot copy a process.
        RequestError: none of the programs could be run.
        DispatchLabError: PyTorch cannot be imported.
    """
    from dispatchlab.live.worker.engine import LiveEngine

    check_fork()
    known = known_defects()
    ask = "dispatchlab.live.introspection.process_copies:run_programs"
    with LiveEngine() as engine:
        version, raised = engine.ask(ask, [defect.program for defect in known], TIMEOUT_S)
    return version, defects_found(version, raised)


def defects_found(version: str, raised: Sequence[str]) -> tuple[KnownDefect, ...]:
    """Return the known defects with the errors of their programs, in the order of `known_defects`.

    Raises:
        RequestError: none of the programs could be run.
    """
    found = tuple(_with(defect, error) for defect, error in zip(known_defects(), raised, strict=True))
    if all(defect.found is None for defect in found):
        first = f"{found[0].name}: {found[0].said}"
        raise RequestError(f"no program of a known defect could be run on PyTorch {version}, such as: {first}")
    return found


def _with(defect: KnownDefect, error: str) -> KnownDefect:
    found = error.startswith(_FOUND) if not error or error.startswith(_FOUND) else None
    return replace(defect, found=found, said=error.removeprefix(_FOUND).partition("\n")[0])


def defects_view(version: str, found: Sequence[KnownDefect]) -> View[object]:
    """Return the view of PyTorch's defects, then of those whose programs did not run."""
    return View(_value(version, found), lines=lambda _: _lines(version, found))


def _value(version: str, found: Sequence[KnownDefect]) -> dict[str, object]:
    return {"ok": not any(defect.found for defect in found), "torch": version or None, "defects": found}


def _lines(version: str, found: Sequence[KnownDefect]) -> Iterator[Line]:
    yield Line(
        f"PyTorch {version} has {sum(bool(one.found) for one in found)} of {counted(len(found), 'known defect')}"
    )
    width = 2 + max(len(one.name) for one in found)
    yield from (Line(one.what, indent=2, label=one.name, width=width) for one in found if one.found)
    yield from (Line(f"not tried: {one.name}: {one.said}") for one in found if one.found is None)
    yield Line("dispatchlab doctor --defects NAME prints the program of one, and where it is described")


def program_view(defect: KnownDefect) -> View[object]:
    """Return the view of the program of a defect, with a description."""
    text = f"# {defect.what}\n# {defect.page}\n{defect.program}"
    return View(_value("", (defect,)), lines=lambda _: (Code(text),))
