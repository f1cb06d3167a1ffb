"""Findings of lint as a document: by cause, the most harmful first."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from dispatchlab.model.registration import SourceLocation
from dispatchlab.questions.lint.checkout import Checkout, checkout_of
from dispatchlab.questions.lint.rule import LEVELS, Finding, FindingGroup, Identity, Level, LintReport, level_counts
from dispatchlab.registries.debug_text import sites_in
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted, first_of

SHOWN = 20
"""How many findings of a source are shown, findings of one cause counted once, unless all are requested."""

OTHERS = 3
"""How many findings of one cause are named, unless all are requested."""

_checkout = lru_cache(maxsize=1)(checkout_of)  # it lists its files once

LEVEL_MOODS: dict[Level, b.Mood] = {Level.ERROR: "bad", Level.WARNING: "warn", Level.INFORMATION: ""}


@as_json.register
def _(value: Identity) -> str:
    return str(value)


@as_json.register
def _(value: Finding) -> dict[str, object]:
    shown = _checkout(os.getcwd()).shown
    places = dict.fromkeys((shown(path), line) for debug in value.owners for path, line in sites_in(debug))
    return fields_of(value, locations=[SourceLocation(*place) for place in places])


def finding_part(title: str, groups: Sequence[FindingGroup], name: Callable[[str], str]) -> tuple[b.Section, ...]:
    """Return the findings, a row for each cause.

    Args:
        title: the title of the part.
        groups: groups of findings with one cause.
        name: returns the name of a kind of findings for its code.
    """
    shared = Counter(site for group in groups for finding in group.findings for site in set(_sites(finding)))
    checkout = _checkout(os.getcwd())
    heads = ("finding", "what was found, and how to fix it", "the same")
    errors = (at for at, group in enumerate(groups) if group.level is Level.ERROR)
    rows = ((_head(group, name), _details(group, checkout), _others(group, shared, checkout)) for group in groups)
    return b.part(title, heads, rows, marked=errors, most=SHOWN)


def _head(group: FindingGroup, name: Callable[[str], str]) -> b.Cell:
    first = group.first
    level = b.mark(str(group.level), LEVEL_MOODS[group.level])
    key = "" if first.key is None else f" {first.key}"
    text = (level, f" {name(group.code)}", b.strong(f" {first.operator}{key}" if first.operator else ""))
    return b.Cell(text, "name", LEVELS.index(group.level))


def _details(group: FindingGroup, checkout: Checkout) -> b.Cell:
    """Return the findings with location and fix; a file of the checkout gets a relative path."""
    first = group.first
    places = dict.fromkeys(site for debug in first.owners for site in list(sites_in(debug))[:1])
    lines: list[b.Inline] = [_placed(first.message, first, checkout)]
    lines += [(b.quiet("at: "), b.source(f"{checkout.shown(path)}:{line}")) for path, line in [*places][:OTHERS]]
    lines += [(b.quiet("to fix it: "), b.Span(first.fix, kind="fix"))] * bool(first.fix)
    return b.Cell(b.Stack(tuple(lines)), "prose")


def _placed(text: str, finding: Finding, checkout: Checkout) -> str:
    """Return a text with the paths of a finding as its locations show them."""
    for path in {path for debug in finding.owners for path, _ in sites_in(debug)}:
        text = checkout.shown(path).join(re.split(rf"(?<![\w./-]){re.escape(path)}(?=:\d)", text))
    return text


def _others(group: FindingGroup, shared: Mapping[tuple[str, int], int], checkout: Checkout) -> b.Cell:
    """Return the operators with the same cause."""
    others = [
        _placed(f"{each.operator or each.message}{_site(each, shared)}", each, checkout) for each in group.findings[1:]
    ]
    same = "the same" if group.first.fix == group.first.fix_of_any else "the same with its own name"
    text = b.Line(f"{same}: {', '.join(others)}")
    return b.Cell(b.Folded(f"{same}: {first_of(others, OTHERS)}", (text,)) if others else "")


def _site(finding: Finding, shared: Mapping[tuple[str, int], int]) -> str:
    """Return the line to show: the first caller that no other finding has."""
    sites = _sites(finding)
    site = next((site for site in sites if shared[site] == 1), next(iter(sites), None))
    return "" if site is None else f" ({site[0]}:{site[1]})"


def _sites(finding: Finding) -> tuple[tuple[str, int], ...]:
    """Return the lines of the first registration in the finding that has lines, its callers first."""
    return next((sites for debug in finding.owners if (sites := tuple(sites_in(debug)))), ())


def summary(report: LintReport) -> str:
    """Return the number of findings, in one line."""
    by_level = level_counts([finding.level for finding in report.findings])
    what = f"{counted(len(report.findings), 'finding')} in {counted(report.operators, 'operator')}"
    return f"{report.source}: {what}{f' ({by_level})' if by_level else ''}"
