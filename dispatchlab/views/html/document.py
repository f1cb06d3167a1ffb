"""A report as one document: its frame, its looks and its behaviour, all in the file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from dispatchlab._version import __version__
from dispatchlab.views.html.elements import Html, element, joined, trusted

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report with a heading of its own.

    Args:
        anchor: what a link to it ends in; letters, digits and hyphens.
        title: the heading.
        body: what it holds.
    """

    anchor: str
    title: str
    body: Html


def page(command: str, title: str, lead: Html, sections: Sequence[Section]) -> str:
    """A report.

    Args:
        command: the command that found it.
        title: what the report is about.
        lead: the result in short.
        sections: the parts, in the order in which a reader wants them.
    """
    css, script = _file("page.css"), _file("page.js")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(css)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"dispatchlab {__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{title} \u2013 dispatchlab {command}"),
        element("style", trusted(css)),
    )
    body = element(
        "body",
        element("a", "Skip to the findings", class_="skip", href="#findings"),
        element(
            "header",
            element("p", f"dispatchlab {command}", class_="command"),
            element("h1", title),
            lead,
        ),
        element(
            "nav",
            element("ul", (element("li", element("a", each.title, href=f"#{each.anchor}")) for each in sections)),
            aria_label="Parts of this report",
        )
        if len(sections) > 1
        else None,
        element("main", map(_section, sections), id="findings"),
        element("footer", element("p", f"Written by dispatchlab {__version__}.")),
        element("script", trusted(script)),
    )
    return f"<!DOCTYPE html>\n{element('html', chr(10), head, chr(10), body, lang='en')}\n"


def _section(section: Section) -> Html:
    return joined(("\n", element("section", element("h2", section.title), section.body, id=section.anchor)))


@cache
def _file(name: str) -> str:
    text = (_HERE / name).read_text(encoding="utf-8")
    assert "</" not in text
    return text


def _digest(text: str) -> str:
    """How a policy names a text that it allows."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
