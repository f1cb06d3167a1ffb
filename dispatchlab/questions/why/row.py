"""A row of a cause: its conditions and its texts.

- `pattern`: one or several expressions; a message of the exceptions must match one of them. The pattern of the cause is
  tried before its function.
- `event`: kinds of events; one must have been noted. The row uses the latest event for which `when` holds;
  `{subject}`, `{detail}` and `{event_at}` are its fields.
- `when`: a further condition: `NAME`, `not NAME`, `NAME ~ EXPRESSION`, and several of them with `and` and `or`. In
  an expression, `{name}` also stands for a text.
- `says`, `fix`, `evidence`: the texts. `{1}` and `{name}` are groups of the pattern or of an expression in `when`, or
  facts of the cause's function, or facts of `facts.py`. A text that is only a field stands for each value of the field.

A piece of a sentence, a fix and a line of evidence may begin with `if CONDITION => `, `elif CONDITION => ` or
`else => `.
A fix is a text, or one of

- `needs WHAT: TEXT`, which is not tried;
- `otherwise: TEXT`, which is shown if no other fix worked in a trial;
- `wrap <>.float(): TEXT`, which is put around each tensor of the call;
- `swap OLD -> NEW: TEXT`, which changes the call;
- `again SETUP: TEXT`: the program is run again after SETUP, where `subject` is the event's; shown only if it ends well;
- `code: TEXT`, which is run; `within CONTEXT: TEXT`, which imports a context and enters it; `outer SETUP: TEXT`, which
  is run after SETUP, and repeats the call that led into PyTorch, not the call that failed inside of a
  kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final, TypeAlias

from dispatchlab.model.failure import EventKind, Fix
from dispatchlab.questions.why.facts import Words

_CHOICE: Final = re.compile(r"(if|elif|else)(?: (.+?))? => (.+)", re.DOTALL)
_FIELD: Final = re.compile(r"\{(\w+)\}")
_FIELD_IN_EXPRESSION: Final = re.compile(r"\{([a-z_]+)\}")


Patterns: TypeAlias = Mapping[str, list[str]]
"""Expressions that several causes of a family share, by a name that stands in their place."""


def expressions(given: str | Sequence[str], patterns: Patterns) -> tuple[str, ...]:
    """Return the expressions of a list, or of a single text; they may contain names of shared expressions."""
    texts = (given,) if isinstance(given, str) else given
    return tuple(expression for text in texts for expression in patterns.get(text, [text]))


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation that a cause gives for a failure.

    Args:
        sentence: a sentence about the cause, with the operator, the key and the line.
        fixes: the fixes, the best first.
        evidence: the facts behind it, at most ten lines.
    """

    sentence: str
    fixes: tuple[Fix, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One form of a cause, with its texts."""

    says: tuple[str, ...]
    fix: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    pattern: tuple[str, ...] = ()
    event: tuple[EventKind, ...] = ()
    when: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any], patterns: Patterns) -> Row:
        """Return a row from its entry; a single text counts as a list with one text."""
        lists = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in fields.items()}
        return cls(**{**lists, "pattern": expressions(fields.get("pattern", ()), patterns)})

    def explain(self, known: Words) -> Explanation | None:
        """Return the explanation of the row for a failure, or None if the row does not fit."""
        words = Words(known.failure, known)
        if not words.match(self.pattern):
            return None
        fitting = (each for each in self._with_events(words) if all(_holds(text, each) for text in self.when))
        chosen = next(fitting, None)
        if chosen is None:
            return None
        sentence = re.sub(r"(?:: | \()?``\)?", "", "".join(_said(self.says, chosen, _fill)))
        fixes, evidence = _said(self.fix, chosen, _fix), _said(self.evidence, chosen, _fill)
        return Explanation(sentence, tuple(fixes), tuple(evidence))

    def _with_events(self, words: Words) -> Iterator[Words]:
        """Return the words with each matching event, the latest first; only the words if the row needs no event."""
        if not self.event:
            yield words
        for event in reversed(words.failure.of(*self.event)):
            with_event = Words(words.failure, words)
            with_event |= {"subject": event.subject, "detail": event.detail, "event_at": event.at or "", "event": event}
            yield with_event


def _holds(conditions: str, words: Words) -> bool:
    return any(all(_is(each, words) for each in part.split(" and ")) for part in conditions.split(" or "))


def _is(condition: str, words: Words) -> bool:
    """Return whether a condition holds; the groups of its expression become words."""
    name, _, pattern = condition.removeprefix("not ").partition(" ~ ")
    value = words[name]
    if pattern:
        filled = _FIELD_IN_EXPRESSION.sub(lambda field: re.escape(str(words[field[1]])), pattern)
        value = re.search(filled, str(value), re.DOTALL)
        words |= value.groupdict("") if value else {}
    return bool(value) != condition.startswith("not ")


def _fill(text: str, words: Words) -> str:
    return Formatter().vformat(text, words.groups, words)


def _said(texts: tuple[str, ...], words: Words, make: Callable[[str, Words], Any]) -> Iterator[Any]:
    """Return the result of `make` for each text whose condition holds; for a text that is only a field, its values."""
    chosen = False
    for text in texts:
        choice = _CHOICE.fullmatch(text)
        kind, conditions, rest = choice.groups() if choice is not None else ("", None, text)
        if (kind in ("elif", "else") and chosen) or (conditions and not _holds(conditions, words)):
            chosen = chosen and kind != "if"
            continue
        chosen = True
        field = _FIELD.fullmatch(rest)
        value = words[field[1]] if field is not None and not field[1].isdigit() else None
        yield from value if isinstance(value, tuple) else (make(rest, words),)


def _fix(text: str, words: Words) -> Fix:
    kind, _, rest = text.partition(": ")
    rest = _fill(rest, words)
    if kind.startswith("wrap ") and "<>" in kind:
        return Fix(text=rest, wrap=_fill(kind.removeprefix("wrap "), words).replace("<>", "{}"))
    if swap := re.fullmatch(r"swap (.*) -> (.*)", kind):
        return Fix(text=rest, old=_fill(swap[1], words), new=_fill(swap[2], words))
    if context := re.fullmatch(r"within ([\w.]+)\.(\w+\(.*)", kind):
        imports = f"from {context[1]} import {context[2].partition('(')[0]}\n"
        return Fix(text=f"{imports}with {context[2]}: {rest}", code=f"{imports}(within := {context[2]}).__enter__()")
    if kind == "code":
        return Fix(text=rest, code="import torch\n" + rest.partition("  # ")[0])
    if kind == "otherwise":
        return Fix(text=rest, otherwise=True)
    if setup := re.fullmatch(r"outer (.+)", kind):
        return Fix(text=rest, code=f"import torch\n{_fill(setup[1], words)}\n{rest}", outer=True)
    if setup := re.fullmatch(r"(?s:again (.+))", kind):
        return Fix(text=rest, again=f"subject = {words['subject']!r}\n{setup[1]}")
    if needs := re.fullmatch(r"needs (.+)", kind):
        return Fix(text=rest, needs=needs[1])
    return Fix(text=_fill(text, words))
