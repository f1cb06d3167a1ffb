"""An extension of griffe: examples in docstrings become blocks of code, wherever they stand."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).+)*", re.MULTILINE)


class ExamplesAsCode(Extension):
    """Puts a fence around each example that a docstring has outside of a section for examples."""

    def on_object(self, *, obj: Object, **others: Any) -> None:
        """Change the docstring of an object once it is read."""
        if obj.docstring is not None:
            obj.docstring.value = with_fences(obj.docstring.value)


def with_fences(text: str) -> str:
    """The text with its examples as blocks of code."""
    if re.search(r"^Examples?:$", text, re.MULTILINE):
        return text
    return _EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", text)
