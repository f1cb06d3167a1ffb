"""Upgrades as lines: a summary first, details by operator below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.python_layer import REGISTRY_NAMED
from dispatchlab.questions.upgrade.compare_sources import UpgradeReport
from dispatchlab.questions.upgrade.operator_changes import (
    Cause,
    Composite,
    Find,
    OneSided,
    OperatorChange,
    Reason,
    Replaced,
    SchemaChange,
    SharedChange,
    SlotChange,
    Upgrade,
    is_autograd,
    language_of,
)
from dispatchlab.records.backend_coverage import Way
from dispatchlab.records.python_compare import Known, PythonChange, PythonChangeKind, PythonDiff, RegistryDifference
from dispatchlab.views.blocks import Block, Frame, Line, Mood
from dispatchlab.views.formatting import counted
from dispatchlab.views.source_locations import without_build
from dispatchlab.views.text import plain

if TYPE_CHECKING:
    from dispatchlab.questions.upgrade.backend_changes import BackendUpgrade
    from dispatchlab.questions.upgrade.package_changes import Held, OtherKernel, PackageUpgrade

SCREEN = 24
"""How many rows the summary has at most."""

_MOST_KEYS = 4
_SHOWN = 10  # entries of a part, unless everything is asked for


def summary_rows(lines: Iterable[Line]) -> tuple[tuple[str, str], ...]:
    """What each row of a summary is about, and its text."""
    return tuple((plain(line.label), plain(line.content)) for line in lines)


def change_texts(change: OperatorChange) -> tuple[str, ...]:
    """What changes in one operator besides its schema and its lines, a phrase each."""
    return tuple(plain(line.content) for line in _change(change))


def upgrade_lines(report: UpgradeReport, *, everything: bool) -> Iterator[Block]:
    """The summary, which fits on a screen, and the details.

    Args:
        report: what was found.
        everything: all details instead of the first of each part.
    """
    before, after = report.before, report.after
    torch = before.torch if before.torch == after.torch else f"{before.torch} -> {after.torch}"
    lines = [
        Line(f"{before.source} -> {after.source}", "strong", hang=0),
        Line(f"PyTorch {torch}, {before.operators:,} -> {after.operators:,} operators", hang=0),
    ]
    if report.package is not None:
        lines += _package(report.package, everything=everything)
    if report.backend is not None:
        lines += _backend(report.backend, everything=everything)
    if report.package is None and report.backend is None:
        if report.layer != "python":
            lines += cxx_summary(report.upgrade)
        if report.python is not None:
            lines += python_summary(report.python)
        if report.layer != "python":
            lines += _details(report.upgrade, everything=everything)
        if report.python is not None:
            lines += _python_details(report.python, everything=everything)
    head = next((at for at, line in enumerate(lines) if not line.content), len(lines))
    is_bad = any(line.mood == "bad" for line in lines[:head])
    yield Frame(tuple(lines[:head]), "bad" if is_bad else "quiet", most=SCREEN)
    for line in lines[head:]:
        yield replace(line, content=without_build(line.content)) if isinstance(line.content, str) else line


# -- the summary


def _row(label: str, text: str, mood: Mood = "") -> Line:
    return Line(text, mood, indent=2, label=label, width=11)


def cxx_summary(upgrade: Upgrade) -> Iterator[Line]:
    """At most a screen."""
    if upgrade.is_empty:
        yield Line(f"no difference ({counted(upgrade.compared, 'operator')} compared)", hang=0)
    for side, verb in ((upgrade.removed, "removed"), (upgrade.added, "added")):
        if side:
            spaces = Counter(entry.operator.partition("::")[0] for entry in side)
            overloads = sum(entry.is_overload for entry in side)
            among = f" ({overloads:,} overloads of ones that both have)" if overloads else ""
            text = f"{len(side):,} {verb}{among}: {_counts(spaces)}"
            yield _row("operators", text, "bad" if verb == "removed" else "good")
    if upgrade.schemas:
        broken = [name for name, schema in upgrade.schemas if not schema.is_compatible]
        text = f"{len(upgrade.schemas):,} changed, {len(broken):,} of them break{'s' * (len(broken) == 1)} callers"
        yield _row("schemas", f"{text}{_such_as(broken)}", "bad" if broken else "")
    yield from _kernel_rows(upgrade)
    yield from _shared_rows(upgrade)
    lost = [change.operator for change in upgrade.changed if _loses(change)]
    if lost:
        text = f"{counted(len(lost), 'operator')} found a kernel somewhere and {_s(lost, 'finds', 'find')} none now"
        yield _row("calls", f"{text}{_such_as(lost)}", "bad")
    other_tags = [change.operator for change in upgrade.changed if change.tags_gained or change.tags_lost]
    tags = [f"{tag} is new, on {counted(number, 'operator')}" for tag, number in upgrade.new_tags.items()]
    tags += [f"{tag} is gone, from {counted(number, 'operator')}" for tag, number in upgrade.gone_tags.items()]
    tags += [f"other tags on {counted(len(other_tags), 'operator')}"] * bool(other_tags)
    if tags:
        yield _row("tags", "; ".join(tags))
    if upgrade.builds:
        lacking = ", ".join(f"{backend} ({counted(number, 'kernel')})" for backend, number in upgrade.builds.items())
        yield _row("builds", f"left out, since one of the builds is without it: {lacking}", "quiet")
    if upgrade.left_out:
        text = f"{counted(len(upgrade.left_out), 'operator')} that PyTorch registers on first use of a part: see --all"
        yield _row("left out", text, "quiet")
    if upgrade.moved:
        shown = "" if upgrade.has_lines else ": see --lines"
        yield _row("lines", f"{counted(upgrade.moved, 'registration')} moved to another line{shown}", "quiet")


def _kernel_rows(upgrade: Upgrade) -> Iterator[Line]:
    composites = Counter(change.composite for change in upgrade.changed if change.composite is not None)
    if composites:
        shown = [f"{number:,} {_transition(old, new)}" for (old, new), number in composites.most_common()]
        yield _row("composite", "; ".join(shown))
    for label, wanted in (("kernels", False), ("autograd", True)):
        texts = []
        for verb in ("gained", "lost"):
            keys = [
                (change.operator, key)
                for change in upgrade.changed
                for key in (change.gained if verb == "gained" else change.lost)
                if is_autograd(key) is wanted
            ]
            if keys:
                texts.append(f"{len(keys):,} {verb} ({_counts(Counter(key.name for _, key in keys))})")
        if not wanted:
            reasons = Counter(kernel.reason for change in upgrade.changed for kernel in change.replaced)
            texts += [f"{number:,} {_REASONS[reason]}" for reason, number in reasons.most_common()]
        if texts:
            yield _row(label, "; ".join(texts))


_REASONS = {
    Reason.FALLTHROUGH: "fall through now, or no longer",
    Reason.OWNER: "from another owner",
    Reason.FILE: "of another file",
    Reason.LANGUAGE: "in another language",
    Reason.TYPE: "of another type",
    Reason.OVERRIDES: "overriding more or fewer kernels",
}


def _shared_rows(upgrade: Upgrade) -> Iterator[Line]:
    """What holds for many operators at once."""
    texts = []
    for known, verb in ((upgrade.keys_gone, "gone"), (upgrade.keys_new, "new")):
        for key, number in known.items():
            had = f", with kernels of {counted(number, 'operator')}" if number else ""
            texts.append(f"{key.name} is {verb}{had}")
    if texts:
        yield _row("keys", "; ".join(_cut(texts, 6, "key")))
    if upgrade.fallbacks:
        shown = [
            f"{each.key.name} {each.before or 'nothing'} -> {each.after or 'nothing'}" for each in upgrade.fallbacks
        ]
        yield _row("fallbacks", "; ".join(_cut(shown, 6, "fallback")))
    if upgrade.shared:
        operators = {name for each in upgrade.shared for name in each.operators}
        keys: Counter[str] = Counter()
        for each in upgrade.shared:
            keys.update(dict.fromkeys((key.name for key in each.keys), len(each.operators)))
        text = f"other rules or fallbacks change slots of {counted(len(operators), 'operator')}"
        yield _row("dispatcher", f"{text} ({_counts(keys)})")


def _transition(old: Composite, new: Composite) -> str:
    if new is Composite.NONE:
        return f"no longer composite ({old} before)"
    return f"became {new}{'' if old is Composite.NONE else f' ({old} before)'}"


def _loses(change: OperatorChange) -> bool:
    return any(slot.after.way in (Way.MISSING, Way.AMBIGUOUS) for slot in change.own_slots)


# -- the details


def _details(upgrade: Upgrade, *, everything: bool) -> Iterator[Line]:
    yield from _one_sided("Removed", upgrade.removed, everything=everything)
    yield from _one_sided("Added", upgrade.added, everything=everything)
    if upgrade.schemas:
        yield from _part("Schemas", len(upgrade.schemas))
        yield from _entries(
            [list(_schema(name, one)) for name, one in upgrade.schemas], "schema", everything=everything
        )
    groups = _alike(upgrade.changed)
    if groups:
        yield from _part("Operators with other kernels or tags", sum(len(names) for names in groups.values()))
        entries = [[*_names(names, everything=everything), *lines] for lines, names in groups.items()]
        yield from _entries(entries, "change", everything=everything)
    if upgrade.shared:
        yield from _part("Slots of many operators", len({name for each in upgrade.shared for name in each.operators}))
        yield from _entries(
            [list(_shared(each, everything=everything)) for each in upgrade.shared], "change", everything=everything
        )
    if upgrade.has_lines:
        moved = [change for change in upgrade.changed if change.lines]
        yield from _part("Moved lines", len(moved))
        entries = [
            [
                Line(change.operator, indent=2),
                *(
                    Line(f"{'def' if one.key is None else one.key.name}: {one.before} -> {one.after}", indent=4)
                    for one in change.lines
                ),
            ]
            for change in moved
        ]
        yield from _entries(entries, "operator", everything=everything)


def _part(title: str, number: int) -> Iterator[Line]:
    yield Line()
    yield Line(f"{title} ({number:,})", "strong", hang=0)


def _entries(entries: Sequence[Sequence[Line]], noun: str, *, everything: bool) -> Iterator[Line]:
    shown = entries if everything else entries[:_SHOWN]
    for entry in shown:
        yield from entry
    left = len(entries) - len(shown)
    if left:
        yield Line(f"... and {_more(left, noun)}: see --all", "quiet", indent=2, hang=0)


def _one_sided(title: str, side: Sequence[OneSided], *, everything: bool) -> Iterator[Line]:
    """With everything a schema each; else the overloads of one name together."""
    if not side:
        return
    yield from _part(title, len(side))
    mood: Mood = "bad" if title == "Removed" else "good"
    if everything or len(side) <= _SHOWN:
        for each in side:
            yield Line(each.schema or f"{each.operator}, without a def", mood, indent=2, hang=4)
            build = f", with {each.of_build}" if each.of_build else ""
            yield Line(f"{each.debug or '(no debug text)'}{build}", "quiet", indent=6, hang=0)
        return
    names: dict[str, list[str]] = {}
    for each in side:
        names.setdefault(each.name, []).append(each.operator.removeprefix(each.name) or "(default)")
    texts = [
        f"{name}{overloads[0] if overloads[0] != '(default)' else ''}"
        if len(overloads) == 1
        else f"{name} {' '.join(overloads)}"
        for name, overloads in names.items()
    ]
    yield Line(", ".join(_cut(texts, 2 * _SHOWN, "name")), mood, indent=2, hang=0)
    yield Line("their schemas: see --all", "quiet", indent=2, hang=0)


def _schema(name: str, change: SchemaChange) -> Iterator[Line]:
    verdict = "compatible" if change.is_compatible else f"breaks callers: {change.backward}"
    yield Line(f"{name}  {verdict}", "" if change.is_compatible else "bad", indent=2, hang=4)
    for text in change.changes:
        yield Line(text, "quiet", indent=6)


def _alike(changes: Sequence[OperatorChange]) -> dict[tuple[Line, ...], list[str]]:
    """The operators by what changes in them besides their schema; what takes kernels away comes first."""
    groups: dict[tuple[Line, ...], list[str]] = {}
    for change in changes:
        lines = tuple(_change(change))
        if lines:
            groups.setdefault(lines, []).append(change.operator)
    return dict(sorted(groups.items(), key=lambda item: (not any(line.mood == "bad" for line in item[0]), item[1][0])))


def _change(change: OperatorChange) -> Iterator[Line]:
    """What changes in one operator besides its schema and its lines."""

    def line(text: str, mood: Mood = "") -> Line:
        return Line(text, mood, indent=6)

    if change.alias is not None:
        yield line(f"alias kind: {change.alias[0]} -> {change.alias[1]}")
    if change.composite is not None:
        yield line(f"composite: {change.composite[0]} -> {change.composite[1]}")
    for verb, keys in (("lost", change.lost), ("gained", change.gained)):
        aliases = [key for key in keys if key.is_alias]
        if aliases:
            yield line(f"{verb} kernels at {_keys(aliases)}", "bad" if verb == "lost" else "good")
    lost, gained = frozenset(change.lost), frozenset(change.gained)
    for each in change.own_slots:
        own = [key for key in each.keys if key in lost or key in gained]
        for some in (own, [key for key in each.keys if key not in own]):
            if some:
                yield line(f"{_keys(some)}: {find_text(each.before)} -> {find_text(each.after)}", _mood(each))
    unseen = [
        key for key in (*change.lost, *change.gained) if not key.is_alias and not _in_slots(key, change.own_slots)
    ]
    for key in unseen:
        yield line(f"{key.name}: {'lost' if key in lost else 'gained'} a kernel")
    for key, debug in change.foreign.items():
        yield line(f"{key.name}: {debug}", "quiet")
    for one in change.replaced:
        yield line(_replaced(one))
    tags = [*(f"+{tag}" for tag in change.tags_gained), *(f"-{tag}" for tag in change.tags_lost)]
    if tags:
        yield line(f"tags: {' '.join(tags)}")


def _in_slots(key: DispatchKey, slots: Iterable[SlotChange]) -> bool:
    return any(key in each.keys for each in slots)


def _mood(change: SlotChange) -> Mood:
    return "bad" if change.after.way in (Way.MISSING, Way.AMBIGUOUS) else ""


def _replaced(kernel: Replaced) -> str:
    before, after = kernel.before or "(no debug text)", kernel.after or "(no debug text)"
    match kernel.reason:
        case Reason.LANGUAGE:
            return f"{kernel.key.name}: a kernel in {language_of(before)} -> one in {language_of(after)}"
        case Reason.OWNER:
            return f"{kernel.key.name}: registered from another place: {before} -> {after}"
        case Reason.FILE | Reason.FALLTHROUGH:
            return f"{kernel.key.name}: {before} -> {after}"
        case Reason.OVERRIDES:
            return f"{kernel.key.name}: {before} -> {after}, one over the other"
        case Reason.TYPE:
            return f"{kernel.key.name}: its type: {before} -> {after}"


def _shared(change: SharedChange, *, everything: bool) -> Iterator[Line]:
    why = {Cause.DISPATCHER: "by the rules of the dispatcher", Cause.FALLBACKS: "by the fallback"}
    because = f" {why[change.cause]}" if change.cause in why else ""
    text = f"{_keys(change.keys)}: {find_text(change.before)} -> {find_text(change.after)}{because}"
    yield Line(f"{text}, {counted(len(change.operators), 'operator')}", indent=2, hang=4)
    yield from _names(change.operators, everything=everything, indent=6, mood="quiet")


def _names(names: Sequence[str], *, everything: bool, indent: int = 2, mood: Mood = "") -> Iterator[Line]:
    shown = names if everything else _cut(list(names), 6, "operator")
    yield Line(", ".join(shown), mood, indent=indent)


# -- what Python registers


def python_summary(diff: PythonDiff) -> Iterator[Line]:
    """A row or two: how much differs, and what is not compared."""
    if diff.registries:
        compared = sum(registry.is_compared for registry in diff.registries)
        if diff.is_empty:
            yield _row("Python", f"no difference ({counted(compared, 'registry', 'registries')} compared)")
        else:
            texts = [
                f"{number:,} {PYTHON_KINDS[kind].several}"
                for kind in (PythonChangeKind.REMOVED, PythonChangeKind.ADDED, PythonChangeKind.CHANGED)
                if (number := sum(_of_kind(registry, kind) for registry in diff.registries))
            ]
            differing = sum(any((registry.removed, registry.added, registry.changed)) for registry in diff.registries)
            mood: Mood = "bad" if any(registry.removed for registry in diff.registries) else ""
            where = counted(differing, "registry", "registries")
            yield _row("Python", f"{'; '.join(texts)}, in {where} of {compared:,}", mood)
        if moved := sum(registry.moved for registry in diff.registries):
            shown = "" if diff.has_lines else ": see --lines"
            yield _row("", f"{counted(moved, 'entry', 'entries')} moved to another line{shown}", "quiet")
        if len(diff.registries) > compared:
            more = counted(len(diff.registries) - compared, "registry", "registries")
            yield _row("", f"{more} not compared: see below", "quiet")
    for note in diff.notes:
        yield _row("Python" if not diff.registries else "", note, "quiet")


class _Shown(NamedTuple):
    """How a kind of changes is shown: one of them, several in a row of their registry, and several at large."""

    one: str
    in_row: str
    several: str
    mood: Mood = ""


PYTHON_KINDS = {
    PythonChangeKind.REMOVED: _Shown("only before", "only before", "entries only before", "bad"),
    PythonChangeKind.ADDED: _Shown("only after", "only after", "entries only after", "good"),
    PythonChangeKind.CHANGED: _Shown(
        "another function in force", "with another function", "with another function in force"
    ),
    PythonChangeKind.MOVED: _Shown("moved", "moved", "moved to another line"),
}


def _of_kind(difference: RegistryDifference, kind: PythonChangeKind) -> int:
    number: int = getattr(difference, kind.value)
    return number


def _python_details(diff: PythonDiff, *, everything: bool) -> Iterator[Line]:
    """The counts of each registry, then what differs in each."""
    rows = [(one.registry, text) for one in diff.registries if one.is_compared and (text := python_row_text(one))]
    uncompared: dict[str, list[str]] = {}
    for one in diff.registries:
        if not one.is_compared:
            has = f" ({counted(one.not_compared, 'entry', 'entries')})" if one.not_compared else ""
            uncompared.setdefault(_why_not_compared(one), []).append(f"{one.registry}{has}")
    if rows or uncompared:
        yield Line()
        yield Line("Registries of Python", "strong", hang=0)
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        yield Line(text, indent=2, label=name, width=width + 2)
    for why, names in uncompared.items():
        yield Line(f"not compared, since {why}: {', '.join(names)}", "quiet", indent=2, hang=4)
    for registry, some in groupby(diff.changes, key=lambda one: one.registry):
        changes = list(some)
        title = REGISTRY_NAMED[registry].title
        yield from _part(registry if registry == title else f"{registry}: {title}", len(changes))
        if everything or len(changes) <= _FEW_ENTRIES:
            for change in changes:
                yield from _python_change(change)
            continue
        for kind in PythonChangeKind:
            names = list(dict.fromkeys(one.operator for one in changes if one.kind is kind))
            if names:
                text = f"{PYTHON_KINDS[kind].several}: {', '.join(_cut(names, 6, 'operator'))}"
                yield Line(text, PYTHON_KINDS[kind].mood, indent=2, hang=4)
        yield Line("their functions: see --all, or name one with --operator", "quiet", indent=2, hang=0)


_FEW_ENTRIES = 5  # so that a summary of many registries is no wall


def _python_change(change: PythonChange) -> Iterator[Line]:
    name = f"{change.operator} {change.key}".rstrip()
    shown = PYTHON_KINDS[change.kind]
    yield Line(f"{name}  {shown.one}", shown.mood, indent=2, hang=4)
    for text in python_function_texts(change):
        yield Line(text, "quiet", indent=6)


def python_function_texts(change: PythonChange) -> tuple[str, ...]:
    """What is in force, before and after, with its line."""
    sides = (("before", change.before), ("after", change.after))
    both = change.before is not None and change.after is not None
    return tuple(
        f"{f'{side}: ' if both else ''}{one.function} at {one.site or '(no line known)'}"
        for side, one in sides
        if one is not None
    )


def python_row_text(difference: RegistryDifference) -> str:
    """How two layers differ in a registry, or why it is not compared; empty when it is the same."""
    if not difference.is_compared:
        has = (
            f"; the other has {counted(difference.not_compared, 'entry', 'entries')}" if difference.not_compared else ""
        )
        return f"not compared, since {_why_not_compared(difference)}{has}"
    texts = [f"{n:,} {shown.in_row}" for kind, shown in PYTHON_KINDS.items() if (n := _of_kind(difference, kind))]
    if difference.not_compared:
        texts.append(f"{difference.not_compared:,} not compared, of a module that the other has not imported")
    return ", ".join(texts)


def _why_not_compared(difference: RegistryDifference) -> str:
    if difference.before is difference.after:
        return {
            Known.READ: "",
            Known.NOT_RECORDED: "neither recording has read it",
            Known.NOT_FOUND: "it is not found in either PyTorch",
            Known.NOT_IMPORTED: "its module was imported in neither",
        }[difference.before]
    sides = (("first", difference.before), ("second", difference.after))
    return " and ".join(f"{_KNOWN[known]} the {side}" for side, known in sides if known is not Known.READ)


_KNOWN = {
    Known.NOT_RECORDED: "it is not in this recording,",
    Known.NOT_FOUND: "it is not found in the PyTorch of",
    Known.NOT_IMPORTED: "its module is not imported in",
}


# -- one backend


_FOUND_NOW: tuple[tuple[str, Way, tuple[str, str], Mood], ...] = (
    ("missing", Way.MISSING, ("finds nothing now", "find nothing now"), "bad"),
    ("ambiguous", Way.AMBIGUOUS, ("is ambiguous now", "are ambiguous now"), "bad"),
    ("fallback", Way.FALLBACK, ("falls back now", "fall back now"), ""),
    ("composite", Way.COMPOSITE, ("finds a composite now", "find a composite now"), ""),
    ("direct", Way.DIRECT, ("finds a kernel of its own now", "find kernels of their own now"), "good"),
)


def _backend(upgrade: BackendUpgrade, *, everything: bool) -> Iterator[Line]:
    for note in upgrade.notes:
        yield Line(note, "bad", hang=0)
    yield Line(f"for {upgrade.key.name}: {_keys(upgrade.keys, most=8)}", hang=0)
    if upgrade.is_empty:
        yield Line("no call with these keys finds anything else", hang=0)
        return
    plain = [change for change in upgrade.changes if upgrade.key in change.keys]
    for label, way, what, mood in _FOUND_NOW:
        # NB: an ambiguous slot is reported at whichever key it is
        changes = upgrade.changes if way is Way.AMBIGUOUS else plain
        names = [name for change in changes if change.after.way is way for name in change.operators]
        if names:
            yield _row(label, f"{counted(len(names), 'operator')} {_s(names, *what)}", mood)
    others = {name for change in upgrade.changes if upgrade.key not in change.keys for name in change.operators}
    if others:
        text = f"{counted(len(others), 'operator')} {_s([*others], 'finds', 'find')} another kernel at its other keys"
        yield _row("other keys", text)
    for label, side in (("removed", upgrade.removed), ("added", upgrade.added)):
        if side:
            missing = sum(find.way in (Way.MISSING, Way.FALLBACK) for _, find in side)
            had = "had" if label == "removed" else "have"
            text = f"{counted(len(side), 'operator')}, of which {missing:,} {had} no kernel for {upgrade.key.name}"
            yield _row(label, text)
    if upgrade.schemas:
        yield _row(
            "schemas", f"{counted(len(upgrade.schemas), 'schema')} break callers{_such_as(upgrade.schemas)}", "bad"
        )
    if upgrade.changes:
        yield from _part("What calls find", len({name for each in upgrade.changes for name in each.operators}))
        yield from _entries(
            [list(_shared(each, everything=everything)) for each in upgrade.changes], "change", everything=everything
        )
    wanted = [name for name, find in upgrade.added if find.way in (Way.MISSING, Way.FALLBACK)]
    if wanted:
        yield from _part("New operators without a kernel for it", len(wanted))
        yield from _names(wanted if everything else _cut(wanted, 3 * _SHOWN, "operator"), everything=True)


# -- one package


def _package(upgrade: PackageUpgrade, *, everything: bool) -> Iterator[Line]:
    total = f"{counted(upgrade.registrations, 'registration')} of {counted(upgrade.operators, 'operator')}"
    yield Line(f"for {upgrade.source}: {total}", hang=0)
    if not upgrade.is_affected:
        yield Line(
            "nothing changes for it: the same registrations are accepted, and its kernels run where they ran", hang=0
        )
    refused = upgrade.newly_refused
    accepted = [one for one in upgrade.refused if one.after is None]
    both = len(upgrade.refused) - len(refused) - len(accepted)
    lost = [each for each in upgrade.kernels if each.before.is_packages and not each.after.is_packages]
    won = [each for each in upgrade.kernels if each.after.is_packages and not each.before.is_packages]
    moved = [each for each in upgrade.kernels if each.after.is_packages and each.before.is_packages]
    rows: tuple[tuple[str, str, int, Mood], ...] = (
        ("refused", f"{counted(len(refused), 'registration')} refused now", len(refused), "bad"),
        ("accepted", f"{counted(len(accepted), 'registration')} no longer refused", len(accepted), "good"),
        ("", f"{counted(both, 'registration')} refused by both", both, "quiet"),
        (
            "dangling",
            f"{counted(len(upgrade.dangling), 'operator')} with kernels and no def",
            len(upgrade.dangling),
            "bad",
        ),
        (
            "schemas",
            f"{counted(len(upgrade.schemas), 'schema')} changed of operators that it implements",
            len(upgrade.schemas),
            "",
        ),
        ("kernels", f"calls of {_operators(lost)} no longer run its kernel", len(lost), "bad"),
        ("", f"calls of {_operators(won)} run its kernel now and did not", len(won), ""),
        ("", f"calls of {_operators(moved)} run another kernel of it", len(moved), ""),
        (
            "PyTorch",
            f"calls of {_operators(upgrade.others)} run another kernel of PyTorch's",
            len(upgrade.others),
            "quiet",
        ),
    )
    for label, text, number, mood in rows:
        if number:
            yield _row(label, text, mood)
    if refused or accepted:
        yield from _part("Refused on one side", len(refused) + len(accepted))
        entries = [
            [
                Line(one.registration, indent=2, hang=4),
                Line(
                    f"refused now: {one.after}" if one.before is None else f"was refused: {one.before}",
                    "bad" if one.before is None else "good",
                    indent=6,
                    hang=0,
                ),
            ]
            for one in (*refused, *accepted)
        ]
        yield from _entries(entries, "registration", everything=everything)
    if upgrade.dangling:
        yield from _part("Dangling", len(upgrade.dangling))
        yield from _names(upgrade.dangling, everything=everything, mood="bad")
    if upgrade.schemas:
        yield from _part("Schemas of operators that it implements", len(upgrade.schemas))
        yield from _entries(
            [list(_schema(name, one)) for name, one in upgrade.schemas], "schema", everything=everything
        )
    for title, changes in (("Calls", upgrade.kernels), ("Calls that run PyTorch's kernels", upgrade.others)):
        if changes:
            yield from _part(title, len({each.operator for each in changes}))
            entries = [list(_other(*group, everything=everything)) for group in _same(changes)]
            yield from _entries(entries, "change", everything=everything)


def _operators(changes: Iterable[OtherKernel]) -> str:
    return counted(len({each.operator for each in changes}), "operator")


def _same(changes: Iterable[OtherKernel]) -> Iterator[tuple[OtherKernel, list[str]]]:
    """The operators whose calls change in one way, and one of them for the way."""
    groups: dict[object, tuple[OtherKernel, list[str]]] = {}
    for each in changes:
        way = each.keys, each.before.find, each.before.is_packages, each.after.find, each.after.is_packages
        groups.setdefault(way, (each, []))[1].append(each.operator)
    yield from groups.values()


def _other(change: OtherKernel, names: list[str], *, everything: bool) -> Iterator[Line]:
    mood: Mood = "bad" if change.before.is_packages and not change.after.is_packages else ""
    debug = len(names) == 1
    before, after = held_text(change.before, debug=debug), held_text(change.after, debug=debug)
    yield Line(f"{_keys(change.keys)}: {before} -> {after}", mood, indent=2, hang=4)
    yield from _names(names, everything=everything, indent=6, mood="quiet")


def held_text(held: Held, *, debug: bool = True) -> str:
    """What runs in a slot, and whose it is."""
    whose = "the package's" if held.is_packages else "PyTorch's" if held.debug else ""
    find = find_text(held.find).removeprefix("its ").removeprefix("the ")
    shown = f" ({held.debug})" if held.debug and debug else ""
    return f"{whose}{' ' if whose else ''}{find}{shown}"


# -- words


def find_text(find: Find) -> str:
    """What a call finds: `its own kernel`, `CompositeImplicitAutograd`, `nothing`."""
    match find.way:
        case Way.DIRECT:
            return "its own kernel"
        case Way.COMPOSITE:
            return str(find.source)
        case Way.FALLBACK:
            return "the fallback"
        case Way.AMBIGUOUS:
            return "ambiguous"
        case Way.MISSING:
            return "nothing"


def _keys(keys: Sequence[DispatchKey], *, most: int = _MOST_KEYS) -> str:
    names = [key.name for key in keys]
    if len(names) <= most + 1:
        return " ".join(names)
    return f"{' '.join(names[:most])} and {len(names) - most} more keys"


def _counts(counts: Mapping[str, int]) -> str:
    """The four largest."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} {number:,}" for name, number in ranked[:_MOST_KEYS]]
    rest = sum(number for _, number in ranked[_MOST_KEYS:])
    return ", ".join([*shown, *([f"others {rest:,}"] if rest else [])])


def _such_as(names: Sequence[str]) -> str:
    return f", such as {names[0]}" if names else ""


def _cut(texts: list[str], most: int, noun: str) -> list[str]:
    if len(texts) <= most:
        return texts
    return [*texts[:most], f"and {_more(len(texts) - most, noun)}"]


def _more(number: int, noun: str) -> str:
    return f"{number:,} more {noun}{'' if number == 1 else 's'}"


def _s(things: Sequence[object], one: str, several: str) -> str:
    return one if len(things) == 1 else several
