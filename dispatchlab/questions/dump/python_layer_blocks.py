"""The registrations of Python for an operator, as blocks.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.questions.dump.operator_text import NO_LINE, by_registry, python_marks
from dispatchlab.views.as_json import as_json
from dispatchlab.views.blocks import Block, Line, Section, source, warn


def python_screen(rows: Sequence[PythonRegistration], *, name: str | None = None) -> Iterator[Block]:
    """Return the registrations for a terminal, with a title for each registry.

    Args:
        rows: the registrations.
        name: the operator, if no text before names it.
    """
    if name is not None:
        yield Line(name, "strong")
    for registry, title, some in by_registry(rows):
        lines = [Line(registry.applies, "quiet", indent=2, hang=0)]
        for one in some:
            named = f"{one.key}: {one.function} " if one.key else f"{one.function} "
            marks = (warn(f" [{mark}]") for mark in python_marks(one))
            lines.append(Line((named, source(one.site or NO_LINE, "quiet"), *marks), indent=2, hang=4))
        yield Section(title, tuple(lines))


@as_json.register
def _(value: PythonRegistration) -> dict[str, object]:
    fields = {name: each for name, each in value._asdict().items() if name != "operator"}
    return fields | {"title": value.described.title, "applies": value.described.applies}
