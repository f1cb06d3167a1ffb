"""Choose the findings to show: by selected rules, ignored rules, rules ignored for an operator, and comments."""

from __future__ import annotations

import linecache
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.model.names import is_chosen
from dispatchlab.questions.check.configuration import Settings
from dispatchlab.questions.check.findings import kinds
from dispatchlab.questions.lint.checkout import Checkout, checkout_of
from dispatchlab.questions.lint.rule import Finding, Kind, Rule
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.why.cause import causes
from dispatchlab.registries.debug_text import sites_in

GROUPS: Mapping[str, str] = tomllib.loads((files("dispatchlab.questions.why") / "groups.toml").read_text("utf-8"))
"""What fails, by the start of the codes of its causes."""

_COMMENT = re.compile(r"(?:#|//)\s*dispatchlab:\s*ignore(?:\[([^\]]*)\])?")


class UnknownRuleError(DispatchLabError):
    """No rule has this code or name."""

    text: str

    def __str__(self) -> str:
        known = [name for kind in known_kinds().values() for name in (kind.code, kind.name)]
        return f"there is no rule {self.text!r}: expected DL001, WHY306, a name or the start of codes" + did_you_mean(
            self.text, known
        )


class NothingSelectedError(DispatchLabError):
    """Every selected rule is ignored."""

    template = "every rule that is selected is ignored, so nothing would be checked: select others, or ignore fewer"


@cache
def known_kinds() -> Mapping[str, Kind]:
    """Return the rules and the other kinds of findings by their codes."""
    return {rule.code: rule for rule in RULES} | dict(kinds())


def codes_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the codes for these texts.

    Args:
        texts: codes, names, beginnings of codes, or several of these with commas between them.

    Raises:
        UnknownRuleError: one of them is not a rule.
    """
    found = set[str]()
    for text in (
        part.strip() for several in texts for part in (several.strip().removesuffix(",") or several).split(",")
    ):
        meant = {
            kind.code
            for kind in known_kinds().values()
            if text and (text.lower() == kind.name or kind.code.lower().startswith(text.lower()))
        }
        if not meant:
            raise UnknownRuleError(text)
        found |= meant
    return frozenset(found)


def page_of(text: str) -> str:
    """Return the page of a rule or of a cause; for the start of codes, a list of the codes.

    Raises:
        UnknownRuleError: no rule or cause has this code or name.
    """
    known, titles = known_kinds(), {cause.code: cause for cause in causes()}
    for kind in known.values():
        if text.lower() in (kind.code.lower(), kind.name):
            cause = titles.get(kind.code)
            return kind.page if cause is None or not cause.file.is_file() else cause.page
    codes = sorted(codes_of([text]) if text else known)
    parts = [("Rules of check", [f"- {code}: {known[code].name}" for code in codes if code not in titles])]
    for start, title in GROUPS.items():
        parts.append((title, [f"- {code}: {titles[code].title}" for code in codes if code.startswith(start)]))
    return "\n".join(f"## {title}\n\n{chr(10).join(lines)}\n" for title, lines in parts if lines)


@dataclass(frozen=True)
class Selection:
    """The findings that are shown.

    Args:
        select: the codes that are shown; None for all.
        ignore: the codes that are not shown.
        by_operator: for a name or glob of operators, the codes that are not shown about them.
        checkout: the checkout with the commented lines.
        operators: the names and globs of the operators with shown findings; all when there are none.
    """

    select: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    by_operator: Mapping[str, frozenset[str]] = field(default_factory=dict)
    checkout: Checkout | None = None
    operators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty selection.

        Raises:
            NothingSelectedError: every rule is ignored.
        """
        if not (known_kinds().keys() if self.select is None else self.select) - self.ignore:
            raise NothingSelectedError

    @property
    def codes(self) -> frozenset[str]:
        """The codes that are shown."""
        return frozenset(known_kinds() if self.select is None else self.select) - self.ignore

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules with shown findings."""
        return tuple(rule for rule in RULES if rule.code in self.codes)

    def kept(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Return the findings that are shown."""
        return tuple(finding for finding in findings if self._keeps(finding))

    def _keeps(self, finding: Finding) -> bool:
        if finding.code not in self.codes or not is_chosen(finding.operator, self.operators):
            return False
        ignored = [codes for glob, codes in self.by_operator.items() if fnmatchcase(finding.operator, glob)]
        return not any(finding.code in codes for codes in (*ignored, *self._comments(finding)))

    def _comments(self, finding: Finding) -> Iterator[frozenset[str]]:
        """Return the codes that comments at the lines of a finding name."""
        for path, number in (site for debug in finding.owners for site in sites_in(debug)):
            file = None if self.checkout is None else self.checkout.file(path)
            if file is None:
                continue
            linecache.checkcache(str(file))
            if match := _COMMENT.search(linecache.getline(str(file), number)):
                yield frozenset(known_kinds()) if match[1] is None else codes_of([match[1]])


EVERYTHING = Selection()
"""All findings; comments count for files in the checkout alone."""


def selection_of(
    settings: Settings, select: Sequence[str], ignore: Sequence[str], operators: tuple[str, ...] = ()
) -> Selection:
    """Return the findings that options and the settings of a project choose.

    Args:
        settings: the settings of the project.
        select: the selection of the command line, which replaces the settings.
        ignore: the ignored rules of the command line, in addition to the settings.
        operators: the operators with shown findings; all when there are none.

    Raises:
        UnknownRuleError: one of them is not a rule.
        NothingSelectedError: no rule is left.
    """
    chosen = tuple(select) or settings.select
    return Selection(
        codes_of(chosen) if chosen else None,
        codes_of((*settings.ignore, *ignore)),
        {glob: codes_of(texts) for glob, texts in settings.by_operator.items()},
        checkout_of("."),
        operators,
    )


def selected(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Rule, ...]:
    """Return the rules that are selected and not ignored; see `selection_of`, which raises the same errors."""
    return Selection(codes_of(select) if select else frozenset(rule.code for rule in RULES), codes_of(ignore)).rules
