"""One call on several bundled versions of PyTorch, part by part: what it does on each, what changed, and since when."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.profile import CALLS
from dispatchlab.questions.dump.across_versions import History, eras, public_versions, ranges
from dispatchlab.questions.explain.blocks import (
    argument_text,
    explanation_notes,
    hop_lines,
    path_text,
    thread_sets,
)
from dispatchlab.views import blocks as b
from dispatchlab.views.source_locations import short_debug
from dispatchlab.views.text import plain
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.questions.explain.explain_operator import ExplainedOperator


class UnknownVersionError(DispatchLabError):
    """A version is asked for that is not bundled."""

    version: str
    bundled: tuple[str, ...]

    def __str__(self) -> str:
        first, *_, last = self.bundled
        return f"no registry of PyTorch {self.version} is bundled: choose from {first} to {last}, such as {last}"


@dataclass(frozen=True, slots=True)
class PartChange:
    """A part of a call that is another on a later version.

    Args:
        part: its name.
        since: the first version from which on it is as on the later one.
        before: what it was on the earlier version; None where there was no such part.
        after: what it is on the later one.
    """

    part: str
    since: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class CallAcross:
    """A call on several versions.

    Args:
        operator: the operator or the name that is called.
        versions: the versions that were asked for, oldest first.
        changes: what differs between one of them and the next.
        parts: what the call consists of, and what each part is on each version; a source location is a file, without
            its line and without the folder of a build; of a version that cannot answer, what it `runs` says why.
        note: what a reader should know about these versions; empty for nothing.
    """

    operator: str
    versions: tuple[str, ...]
    changes: tuple[PartChange, ...]
    parts: tuple[tuple[str, History], ...]
    note: str = ""


Explain: TypeAlias = "Callable[[str, str], ExplainedOperator]"
_RUNS = "runs"


def call_across(operator: str, asked: Sequence[str], explain: Explain) -> CallAcross:
    """Explain a call on several versions; of a name without overload, the overload that it goes to on the newest.

    Args:
        operator: what is called.
        asked: versions, such as `2.12`; all that are bundled when there is none.
        explain: explains a call of an operator on a bundled registry.

    Raises:
        UnknownVersionError: one of them is not bundled.
        DispatchLabError: the call cannot be explained on any of the versions; this is why on the newest.
    """
    bundled = _bundled()
    wanted = {version.removeprefix("torch-") for version in asked} or {*bundled}
    for version in sorted(wanted.difference(bundled)):
        raise UnknownVersionError(version, bundled)
    versions = tuple(version for version in bundled if version in wanted)
    known = bundled[bundled.index(versions[0]) : bundled.index(versions[-1]) + 1]
    operator = _overload(operator, known, explain)
    calls: dict[str, dict[str, str]] = {}
    others = []
    refusals = []
    for version in known:
        try:
            explained = explain(operator, f"torch-{version}")
        except DispatchLabError as error:
            text = str(error).splitlines()[0].replace(f"torch-{version}", "this version")
            calls[version] = {_RUNS: f"no answer: {text}"}
            refusals.append(error)
        else:
            calls[version] = dict(_parts(explained))
            others += [version] * any(explanation_notes(explained))
    if len(refusals) == len(calls):
        raise refusals[-1]
    answered = [version for version in versions if len(calls[version]) > 1]
    names = _in_order([tuple(call) for call in calls.values()])
    return CallAcross(
        operator,
        versions,
        tuple(_changes(names, versions, calls)),
        tuple(
            (name, eras(some, {version: calls[version].get(name) for version in some}))
            for name in names
            if (some := versions if name == _RUNS else answered)
        ),
        _note(others) if others else "",
    )


def _note(others: Sequence[str]) -> str:
    sets = f"key sets are those of {CALLS}; in {_listed(others)} some keys are others, or stand elsewhere"
    return f"{sets}: explain --from torch-{others[0]} says which"


def _bundled() -> tuple[str, ...]:
    return tuple(name.removeprefix("torch-") for name in public_versions())


def _overload(operator: str, versions: Sequence[str], explain: Explain) -> str:
    """What a call of a name goes to, on the newest version that says so."""
    for version in reversed(versions):
        with suppress(DispatchLabError):
            return str(explain(operator, f"torch-{version}").inspection.snapshots[0].operator)
    return operator


def _in_order(lists: Sequence[Sequence[str]]) -> list[str]:
    """The names of all lists, each behind the one that it follows in its own."""
    names: list[str] = []
    for some in lists:
        at = 0
        for name in some:
            if name in names:
                at = names.index(name) + 1
            else:
                names.insert(at, name)
                at += 1
    return names


def _changes(names: Sequence[str], versions: Sequence[str], calls: dict[str, dict[str, str]]) -> Iterator[PartChange]:
    known = list(calls)
    for old, new in pairwise(versions):
        answered = all(len(calls[version]) > 1 for version in (old, new))
        for name in names if answered else (_RUNS,):
            before, after = (calls[version].get(name) for version in (old, new))
            if before != after:
                at = known.index(new)
                while calls[known[at - 1]].get(name) == after:
                    at -= 1
                yield PartChange(name, known[at], before, after)


_UNKNOWN = re.compile(r"/dev/null:\d+")  # what Python registers, before PyTorch 2.9
_LINE = re.compile(r"(?:\bbuild/)?(\S+\.\w+):\d+\b")
_SHARD = re.compile(r"_(?:\d+|Everything)(?=\.(?:cpp|cu)\b)")


def _steady(text: str) -> str:
    """A text without what every build of PyTorch moves: folders, lines, and the numbers of generated files."""
    shown = _UNKNOWN.sub("a file that was not recorded", short_debug(text))
    return _SHARD.sub("", _LINE.sub(r"\1", shown))


def _parts(explained: ExplainedOperator) -> Iterator[tuple[str, str]]:
    """The parts of a call, each with its name: a hop is named by its key."""
    call = explained.explanation
    yield "schema", call.schema
    yield _RUNS, path_text(call)
    if explained.no_answer:
        yield "no answer", explained.no_answer
    for argument in call.arguments:
        yield f"argument {argument.name}", argument_text(argument).partition(" ")[2]
    for title, keys, text in thread_sets(call.thread):
        if keys:
            yield f"{title} of the thread", text
    seen: list[str] = []
    for hop in call.hops:
        seen.append(name := f"{hop.kind} to {hop.key}")
        again = f" ({seen.count(name)})" if name in seen[:-1] else ""
        yield f"{name}{again}", "\n".join(_steady(plain(line)) for line in hop_lines(hop))
    yield "end", _steady(call.end)


# -- how it is shown


def across_view(found: CallAcross) -> View[CallAcross]:
    """How a call is shown on several versions."""
    return View(found, document=_document, indent=1)


def _document(found: CallAcross) -> b.Document:
    blocks: list[b.Block] = [] if found.changes else [b.Line("nothing changed", "good")]
    for change in found.changes:
        before, after = (_content(text).split("\n") for text in (change.before, change.after))
        rows = [f"-{line}" for line in before if line not in after]
        rows += [f"+{line}" for line in after if line not in before]
        blocks += [b.Line((b.warn(f"since {change.since}: "), b.strong(change.part)))]
        blocks += [b.Difference("\n".join(rows), indent=2, is_step=True)]
    rows_of_parts = (
        (name, b.Cell(b.Stack(tuple(_eras(history, found.versions))), "code")) for name, history in found.parts
    )
    blocks += b.part("The call on each version", ("part", "what it is"), rows_of_parts)
    return b.Document("explain", f"{found.operator} on PyTorch {_listed(found.versions)}", tuple(blocks))


def _eras(history: History, versions: Sequence[str]) -> Iterator[str]:
    for era in history:
        if era.versions != tuple(versions):
            yield f"{_listed(era.versions)}:"
        yield from _content(era.content).split("\n")


def _content(text: str | None) -> str:
    return "none" if text is None else text


def _listed(some: Sequence[str]) -> str:
    pairs = ranges(some, _bundled())
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in pairs)
