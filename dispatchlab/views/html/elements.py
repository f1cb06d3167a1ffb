"""Elements of HTML. This module escapes every text, and markup has its own type."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TypeAlias

from dispatchlab.escape import printable

# Note [One place that escapes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Claims, names, debug texts and paths are a user's or a stranger's. A text that is put into an element is escaped,
# control characters spelled out, unless it is `Html`, and only `element` and `trusted` make that. So nothing is escaped
# twice, and nothing can be forgotten: a plain `str` never becomes markup. A template engine would do the same with
# templates that no type checker reads, and would be one more thing to install for `--report` and for notebooks; a
# report is made of typed values, for which functions that compose elements are the plain way. Besides, a report's
# policy (`Content-Security-Policy`) lets no script run but the one that dispatchlab put there.


class Html(str):
    """Markup: texts in it are escaped already."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
"""What an element can hold: markup, a text, a number, nothing, or several of these."""

Attribute: TypeAlias = "str | int | bool | None"

_VOID = frozenset(("br", "input", "link", "meta"))
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return an element.

    Args:
        name: its name.
        children: its content.
        attributes: `class_` is `class` and `data_box` is `data-box`; True is an attribute without a value, and None or
            False none at all.
    """
    assert _NAME.fullmatch(name), name
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if name in _VOID:
        assert not children
        return Html(opening)
    return Html(f"{opening}{joined(children)}</{name}>")


def joined(children: Child) -> Html:
    """Return several parts one after another, texts escaped."""
    match children:
        case Html():
            return children
        case None:
            return Html()
        case str():
            return Html(escape(printable(children)))
        case int():
            return Html(f"{children:,}")
        case _:
            return Html("".join(map(joined, children)))


_BREAKS = re.compile(r"(?<=[\w\]])(/|::|_|\(|,|\.)(?=\w)")


def breakable(text: str) -> Html:
    """Return a text in which long names and paths may break at their separators."""
    return Html(_BREAKS.sub(r"\1<wbr>", joined(text)))


def trusted(markup: str) -> Html:
    """Return markup of another part of dispatchlab, which has escaped its texts."""
    return Html(markup)


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    assert _NAME.fullmatch(name), name
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(printable(str(value)))}"'
