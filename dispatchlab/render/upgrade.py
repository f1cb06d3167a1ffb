"""Upgrades as text, for a terminal and as JSON: a summary first, details by operator below it.

As JSON, one object on one line; a field is never renamed or dropped within a version:

    version           see JSON_VERSION
    before, after     {source, torch, operators, model}: model is the dispatcher that slots are computed by
    compared          how many operators either has
    left_out          the operators of which some or all is left out: what PyTorch registers when it is first used
    removed, added    [{operator, schema, debug, keys, is_overload, of_build}]
    changed           [{operator, schema, alias, tags_gained, tags_lost, gained, lost, replaced, composite, slots,
                      lines, foreign}]
                      schema: {before, after, backward, forward, changes}; backward: why callers of the old schema
                      break, null when they do not
                      replaced: [{key, reason, before, after}]; slots: [{cause, keys, before, after}]
                      lines: [{key, before, after}], with --lines
    fallbacks         [{key, before, after, debug}]
    shared            [{keys, cause, before, after, operators}]: slots that differ for no operator's own reason
    keys_gone, keys_new, builds, new_tags, gone_tags, moved
                      how many operators, kernels and lines it is that are counted and not listed
    backend           with --key: {key, keys, changes, removed, added, schemas, notes}
    package           with --for: {source, registrations, operators, refused, dangling, schemas, kernels, others}
    layer             cxx | python | all: what was compared; with `python` nothing of C++ was
    python            null without --layer python or all; else {before, after, registries, changes, notes}; before,
                      after: whether a source has a record of what Python registers
                      registries: [{registry, before, after, removed, added, changed, moved, not_compared}]; before,
                      after: read | not in this recording | not found | not imported
                      changes: [{kind, registry, operator, key, before: {function, site}, after}]; kind: removed |
                      added | changed | moved, the last with --lines alone
    tables            null
    namespaces        {namespace: counts of `changes`}
    changes           [{subject, kind, operator, key, before, after, debug}], the same in a flat list, without slots;
                      subject: operator | schema | def | alias kind | tags | kernel | fallback; kind: came | went |
                      changed; null where there is nothing to say; debug: where an operator that came or went was
                      registered; with --lines also what was only moved
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.analysis.upgrade import Side, UpgradeReport
from dispatchlab.escape import printable
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.python_layer import REGISTRY_NAMED
from dispatchlab.registry.compare import by_namespace, counts
from dispatchlab.registry.coverage import Way
from dispatchlab.registry.python_compare import Known, PythonChange, PythonChangeKind, PythonDiff, RegistryDifference
from dispatchlab.registry.upgrade import (
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
from dispatchlab.render.as_json import as_json, fields_of, json_text

if TYPE_CHECKING:
    from rich.console import Console

    from dispatchlab.analysis.upgrade_backend import BackendUpgrade
    from dispatchlab.analysis.upgrade_package import Held, OtherKernel, PackageUpgrade

WIDTH = 100
"""How wide the text is where nobody says."""

SCREEN = 24
"""How many rows the summary has at most."""

_CUT = " ..."
_MOST_KEYS = 4
_SHOWN = 10  # entries of a part, unless everything is asked for
_STYLES = {"head": "bold", "bad": "red", "good": "green", "part": "bold", "quiet": "dim"}


class _Line(NamedTuple):
    """A line before it is wrapped: what it begins with, and what its other rows are indented by."""

    text: str
    style: str = ""
    first: str = ""
    rest: str = ""


def upgrade_text(report: UpgradeReport, *, everything: bool = False, width: int = WIDTH) -> str:
    """The summary and the details.

    Args:
        report: what was found.
        everything: all details instead of the first of each part.
        width: how wide lines may be.
    """
    return "".join(f"{text}\n" for text, _ in _wrapped(report, everything=everything, width=width))


def print_upgrade(console: Console, report: UpgradeReport, *, everything: bool = False) -> None:
    """Print the same on a terminal, in colour and as wide as it is; no word and no path is broken."""
    from rich.text import Text

    from dispatchlab.render.page import Page

    page = Page(console, torch=report.after.torch, whole=everything)
    lines = list(_lines(report, everything=everything))
    head = next((at for at, line in enumerate(lines) if not line.text), len(lines))
    with page.framed(_STYLES["bad" if any(line.style == "bad" for line in lines[:head]) else "quiet"]):
        summary = _fitting([_rows(line, page.width, broken=False) for line in lines[:head]], page.width)
        for line, rows in zip(lines[:head], summary, strict=True):
            for row in rows:
                page.exact(Text(row, _STYLES.get(line.style, "")))
    for line in lines[head:]:
        style = _STYLES.get(line.style, "")
        if not line.text:
            page.blank()
        else:
            page.flow(page.words(line.text, style), indent=len(line.rest), first=Text(line.first))


def summary_rows(found: Upgrade) -> tuple[tuple[str, str], ...]:
    """The summary of an upgrade: what each row is about, and its text."""
    return tuple((line.first.strip(), line.text) for line in _summary(found))


def python_summary_rows(report: UpgradeReport) -> tuple[tuple[str, str], ...]:
    """The same of what Python registers; nothing when that was not compared."""
    if report.python is None:
        return ()
    return tuple((line.first.strip(), line.text) for line in _python_summary(report.python))


def change_texts(change: OperatorChange) -> tuple[str, ...]:
    """What changes in one operator besides its schema and its lines, a phrase each."""
    return tuple(line.text for line in _change(change))


def find_text(find: Find) -> str:
    """What a call finds: `its own kernel`, `CompositeImplicitAutograd`, `nothing`."""
    return _find(find)


def held_text(held: Held) -> str:
    """What runs in a slot, and whose it is."""
    return _held(held, debug=True)


def upgrade_json(report: UpgradeReport) -> str:
    """All of it, one line."""
    value: dict[str, object] = {
        "before": report.before,
        "after": report.after,
        **fields_of(report.upgrade),
        "backend": report.backend,
        "package": report.package,
        "layer": report.layer,
        "python": report.python,
    }
    if report.flat is not None:
        value |= {
            "tables": report.flat.tables,
            "namespaces": {name: counts(part) for name, part in by_namespace(report.flat).items()},
            "changes": report.flat.changes,
        }
    return json_text(value)


@as_json.register
def _(value: Side) -> dict[str, object]:
    return fields_of(value, model=value.model.name)


def _wrapped(report: UpgradeReport, *, everything: bool, width: int) -> Iterator[tuple[str, str]]:
    """The rows of all lines, with their styles; those in front of the first empty one fit on a screen."""
    lines = list(_lines(report, everything=everything))
    head = next((at for at, line in enumerate(lines) if not line.text), len(lines))
    wrapped = [_rows(line, width) for line in lines]
    for line, rows in zip(lines, (*_fitting(wrapped[:head], width), *wrapped[head:]), strict=True):
        yield from ((row, line.style) for row in rows)


def _rows(line: _Line, width: int, *, broken: bool = True) -> list[str]:
    rows = wrap(
        printable(line.text),
        max(width, len(line.rest) + 24),
        initial_indent=line.first,
        subsequent_indent=line.rest,
        break_on_hyphens=False,
        break_long_words=broken,
    )
    return rows or [""]


def _fitting(head: list[list[str]], width: int) -> list[list[str]]:
    """The lines of a summary, the longest of them cut as far as it has to be."""
    while sum(map(len, head)) > SCREEN and max(map(len, head)) > 1:
        at = max(range(len(head)), key=lambda at: (len(head[at]), at))
        rows = head[at][:-1]
        kept = rows[-1].removesuffix(_CUT)[: width - len(_CUT)].rstrip(" ,;")
        head[at] = [*rows[:-1], f"{kept}{_CUT}"]
    return head


def _lines(report: UpgradeReport, *, everything: bool) -> Iterator[_Line]:
    before, after = report.before, report.after
    yield _Line(f"{before.source} -> {after.source}", "head")
    torch = before.torch if before.torch == after.torch else f"{before.torch} -> {after.torch}"
    yield _Line(f"PyTorch {torch}, {before.operators:,} -> {after.operators:,} operators")
    if report.package is not None:
        yield from _package(report.package, everything=everything)
    if report.backend is not None:
        yield from _backend(report.backend, everything=everything)
    if report.package is None and report.backend is None:
        if report.layer != "python":
            yield from _summary(report.upgrade)
        if report.python is not None:
            yield from _python_summary(report.python)
        if report.layer != "python":
            yield from _details(report.upgrade, everything=everything)
        if report.python is not None:
            yield from _python_details(report.python, everything=everything)


# -- the summary


def _row(label: str, text: str, style: str = "") -> _Line:
    return _Line(text, style, f"  {label:<11}", " " * 13)


def _summary(found: Upgrade) -> Iterator[_Line]:
    """At most a screen."""
    if found.is_empty:
        yield _Line(f"no difference ({_count(found.compared, 'operator')} compared)")
    for side, verb in ((found.removed, "removed"), (found.added, "added")):
        if side:
            spaces = Counter(each.operator.partition("::")[0] for each in side)
            overloads = sum(each.is_overload for each in side)
            among = f" ({overloads:,} overloads of ones that both have)" if overloads else ""
            text = f"{len(side):,} {verb}{among}: {_counts(spaces)}"
            yield _row("operators", text, "bad" if verb == "removed" else "good")
    if found.schemas:
        broken = [name for name, schema in found.schemas if not schema.is_compatible]
        text = f"{len(found.schemas):,} changed, {len(broken):,} of them break{'s' * (len(broken) == 1)} callers"
        yield _row("schemas", f"{text}{_such_as(broken)}", "bad" if broken else "")
    yield from _kernel_rows(found)
    yield from _shared_rows(found)
    lost = [change.operator for change in found.changed if _loses(change)]
    if lost:
        text = f"{_count(len(lost), 'operator')} found a kernel somewhere and {_s(lost, 'finds', 'find')} none now"
        yield _row("calls", f"{text}{_such_as(lost)}", "bad")
    other_tags = [change.operator for change in found.changed if change.tags_gained or change.tags_lost]
    tags = [f"{tag} is new, on {_count(number, 'operator')}" for tag, number in found.new_tags.items()]
    tags += [f"{tag} is gone, from {_count(number, 'operator')}" for tag, number in found.gone_tags.items()]
    tags += [f"other tags on {_count(len(other_tags), 'operator')}"] * bool(other_tags)
    if tags:
        yield _row("tags", "; ".join(tags))
    if found.builds:
        lacking = ", ".join(f"{backend} ({_count(number, 'kernel')})" for backend, number in found.builds.items())
        yield _row("builds", f"left out, since one of the builds is without it: {lacking}", "quiet")
    if found.left_out:
        text = f"{_count(len(found.left_out), 'operator')} that PyTorch registers on first use of a part: see --all"
        yield _row("left out", text, "quiet")
    if found.moved:
        shown = "" if found.has_lines else ": see --lines"
        yield _row("lines", f"{_count(found.moved, 'registration')} moved to another line{shown}", "quiet")


def _kernel_rows(found: Upgrade) -> Iterator[_Line]:
    composites = Counter(change.composite for change in found.changed if change.composite is not None)
    if composites:
        shown = [f"{number:,} {_transition(old, new)}" for (old, new), number in composites.most_common()]
        yield _row("composite", "; ".join(shown))
    for label, wanted in (("kernels", False), ("autograd", True)):
        texts = []
        for verb in ("gained", "lost"):
            keys = [
                (change.operator, key)
                for change in found.changed
                for key in (change.gained if verb == "gained" else change.lost)
                if is_autograd(key) is wanted
            ]
            if keys:
                texts.append(f"{len(keys):,} {verb} ({_counts(Counter(key.name for _, key in keys))})")
        if not wanted:
            reasons = Counter(one.reason for change in found.changed for one in change.replaced)
            texts += [f"{number:,} {_REASONS[reason]}" for reason, number in reasons.most_common()]
        if texts:
            yield _row(label, "; ".join(texts))


_REASONS = {
    Reason.FALLTHROUGH: "fall through now, or no longer",
    Reason.OWNER: "by somebody else",
    Reason.FILE: "of another file",
    Reason.LANGUAGE: "in another language",
    Reason.TYPE: "of another type",
    Reason.OVERRIDES: "with more or fewer beneath",
}


def _shared_rows(found: Upgrade) -> Iterator[_Line]:
    """What holds for many operators at once."""
    texts = []
    for known, verb in ((found.keys_gone, "gone"), (found.keys_new, "new")):
        for key, number in known.items():
            had = f", with kernels of {_count(number, 'operator')}" if number else ""
            texts.append(f"{key.name} is {verb}{had}")
    if texts:
        yield _row("keys", "; ".join(_cut(texts, 6, "key")))
    if found.fallbacks:
        shown = [f"{each.key.name} {each.before or 'nothing'} -> {each.after or 'nothing'}" for each in found.fallbacks]
        yield _row("fallbacks", "; ".join(_cut(shown, 6, "fallback")))
    if found.shared:
        operators = {name for each in found.shared for name in each.operators}
        keys: Counter[str] = Counter()
        for each in found.shared:
            keys.update(dict.fromkeys((key.name for key in each.keys), len(each.operators)))
        text = f"other rules or fallbacks change slots of {_count(len(operators), 'operator')}"
        yield _row("dispatcher", f"{text} ({_counts(keys)})")


def _transition(old: Composite, new: Composite) -> str:
    if new is Composite.NONE:
        return f"no longer composite ({old} before)"
    return f"became {new}{'' if old is Composite.NONE else f' ({old} before)'}"


def _loses(change: OperatorChange) -> bool:
    return any(each.after.way in (Way.MISSING, Way.AMBIGUOUS) for each in change.own_slots)


# -- the details


def _details(found: Upgrade, *, everything: bool) -> Iterator[_Line]:
    yield from _one_sided("Removed", found.removed, everything=everything)
    yield from _one_sided("Added", found.added, everything=everything)
    if found.schemas:
        yield from _part("Schemas", len(found.schemas))
        yield from _entries([list(_schema(name, one)) for name, one in found.schemas], "schema", everything=everything)
    groups = _alike(found.changed)
    if groups:
        yield from _part("Operators with other kernels or tags", sum(len(names) for names in groups.values()))
        entries = [[*_names(names, everything=everything), *lines] for lines, names in groups.items()]
        yield from _entries(entries, "change", everything=everything)
    if found.shared:
        yield from _part("Slots of many operators", len({name for each in found.shared for name in each.operators}))
        yield from _entries(
            [list(_shared(each, everything=everything)) for each in found.shared], "change", everything=everything
        )
    if found.has_lines:
        moved = [change for change in found.changed if change.lines]
        yield from _part("Moved lines", len(moved))
        entries = [
            [
                _Line(change.operator, "", "  ", "    "),
                *(
                    _Line(
                        f"{'def' if one.key is None else one.key.name}: {one.before} -> {one.after}",
                        "",
                        "    ",
                        "      ",
                    )
                    for one in change.lines
                ),
            ]
            for change in moved
        ]
        yield from _entries(entries, "operator", everything=everything)


def _part(title: str, number: int) -> Iterator[_Line]:
    yield _Line("")
    yield _Line(f"{title} ({number:,})", "part")


def _entries(entries: Sequence[Sequence[_Line]], noun: str, *, everything: bool) -> Iterator[_Line]:
    shown = entries if everything else entries[:_SHOWN]
    for entry in shown:
        yield from entry
    left = len(entries) - len(shown)
    if left:
        yield _Line(f"... and {_more(left, noun)}: see --all", "quiet", "  ", "  ")


def _one_sided(title: str, side: Sequence[OneSided], *, everything: bool) -> Iterator[_Line]:
    """With everything a schema each; else the overloads of one name together."""
    if not side:
        return
    yield from _part(title, len(side))
    style = "bad" if title == "Removed" else "good"
    if everything or len(side) <= _SHOWN:
        for each in side:
            yield _Line(each.schema or f"{each.operator}, without a def", style, "  ", "      ")
            build = f", with {each.of_build}" if each.of_build else ""
            yield _Line(f"{each.debug or '(no debug text)'}{build}", "quiet", "      ", "      ")
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
    yield _Line(", ".join(_cut(texts, 2 * _SHOWN, "name")), style, "  ", "  ")
    yield _Line("their schemas: see --all", "quiet", "  ", "  ")


def _schema(name: str, change: SchemaChange) -> Iterator[_Line]:
    verdict = "compatible" if change.is_compatible else f"breaks callers: {change.backward}"
    yield _Line(f"{name}  {verdict}", "" if change.is_compatible else "bad", "  ", "      ")
    for text in change.changes:
        yield _Line(text, "quiet", "      ", "        ")


def _alike(changes: Sequence[OperatorChange]) -> dict[tuple[_Line, ...], list[str]]:
    """The operators by what changes in them besides their schema; what takes kernels away comes first."""
    groups: dict[tuple[_Line, ...], list[str]] = {}
    for change in changes:
        lines = tuple(_change(change))
        if lines:
            groups.setdefault(lines, []).append(change.operator)
    return dict(sorted(groups.items(), key=lambda item: (not any(line.style == "bad" for line in item[0]), item[1][0])))


def _change(change: OperatorChange) -> Iterator[_Line]:
    """What changes in one operator besides its schema and its lines."""

    def line(text: str, style: str = "") -> _Line:
        return _Line(text, style, "      ", "        ")

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
                yield line(f"{_keys(some)}: {_find(each.before)} -> {_find(each.after)}", _style(each))
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


def _style(change: SlotChange) -> str:
    return "bad" if change.after.way in (Way.MISSING, Way.AMBIGUOUS) else ""


def _replaced(one: Replaced) -> str:
    before, after = one.before or "(no debug text)", one.after or "(no debug text)"
    match one.reason:
        case Reason.LANGUAGE:
            return f"{one.key.name}: a kernel in {language_of(before)} -> one in {language_of(after)}"
        case Reason.OWNER:
            return f"{one.key.name}: registered by somebody else: {before} -> {after}"
        case Reason.FILE | Reason.FALLTHROUGH:
            return f"{one.key.name}: {before} -> {after}"
        case Reason.OVERRIDES:
            return f"{one.key.name}: {before} -> {after}, one over the other"
        case Reason.TYPE:
            return f"{one.key.name}: its type: {before} -> {after}"


def _shared(change: SharedChange, *, everything: bool) -> Iterator[_Line]:
    why = {Cause.DISPATCHER: "by the rules of the dispatcher", Cause.FALLBACKS: "by the fallback"}
    because = f" {why[change.cause]}" if change.cause in why else ""
    text = f"{_keys(change.keys)}: {_find(change.before)} -> {_find(change.after)}{because}"
    yield _Line(f"{text}, {_count(len(change.operators), 'operator')}", "", "  ", "      ")
    yield from _names(change.operators, everything=everything, indent="      ", style="quiet")


def _names(names: Sequence[str], *, everything: bool, indent: str = "  ", style: str = "") -> Iterator[_Line]:
    shown = names if everything else _cut(list(names), 6, "operator")
    yield _Line(", ".join(shown), style, indent, f"{indent}  ")


# -- what Python registers


def _python_summary(found: PythonDiff) -> Iterator[_Line]:
    """A row or two: how much differs, and what is not compared."""
    if found.registries:
        compared = sum(one.is_compared for one in found.registries)
        if found.is_empty:
            yield _row("Python", f"no difference ({_count_of(compared, 'registry', 'registries')} compared)")
        else:
            texts = [
                f"{number:,} {_PYTHON_KINDS[kind]}"
                for kind in (PythonChangeKind.REMOVED, PythonChangeKind.ADDED, PythonChangeKind.CHANGED)
                if (number := sum(_of_kind(one, kind) for one in found.registries))
            ]
            differing = sum(any((one.removed, one.added, one.changed)) for one in found.registries)
            style = "bad" if any(one.removed for one in found.registries) else ""
            where = _count_of(differing, "registry", "registries")
            yield _row("Python", f"{'; '.join(texts)}, in {where} of {compared:,}", style)
        if moved := sum(one.moved for one in found.registries):
            shown = "" if found.has_lines else ": see --lines"
            yield _row("", f"{_count_of(moved, 'entry', 'entries')} moved to another line{shown}", "quiet")
        if len(found.registries) > compared:
            more = _count_of(len(found.registries) - compared, "registry", "registries")
            yield _row("", f"{more} not compared: see below", "quiet")
    for note in found.notes:
        yield _row("Python" if not found.registries else "", note, "quiet")


_PYTHON_KINDS = {
    PythonChangeKind.REMOVED: "entries only before",
    PythonChangeKind.ADDED: "entries only after",
    PythonChangeKind.CHANGED: "with another function in force",
    PythonChangeKind.MOVED: "moved to another line",
}


def _python_details(found: PythonDiff, *, everything: bool) -> Iterator[_Line]:
    """The counts of each registry, then what differs in each."""
    rows = [(one.registry, text) for one in found.registries if one.is_compared and (text := python_row_text(one))]
    uncompared: dict[str, list[str]] = {}
    for one in found.registries:
        if not one.is_compared:
            has = f" ({_count_of(one.not_compared, 'entry', 'entries')})" if one.not_compared else ""
            uncompared.setdefault(_why_not_compared(one), []).append(f"{one.registry}{has}")
    if rows or uncompared:
        yield _Line("")
        yield _Line("Registries of Python", "part")
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        yield _Line(text, "", f"  {name:<{width}}  ", " " * (width + 4))
    for why, names in uncompared.items():
        yield _Line(f"not compared, since {why}: {', '.join(names)}", "quiet", "  ", "      ")
    for registry, some in groupby(found.changes, key=lambda one: one.registry):
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
                style = _PYTHON_STYLES.get(kind, "")
                yield _Line(f"{_PYTHON_KINDS[kind]}: {', '.join(_cut(names, 6, 'operator'))}", style, "  ", "      ")
        yield _Line("their functions: see --all, or name one with --operator", "quiet", "  ", "  ")


_FEW_ENTRIES = 5  # so that a summary of many registries is no wall
_PYTHON_STYLES = {PythonChangeKind.REMOVED: "bad", PythonChangeKind.ADDED: "good"}


def _python_change(change: PythonChange) -> Iterator[_Line]:
    name = f"{change.operator} {change.key}".rstrip()
    yield _Line(f"{name}  {_PYTHON_ONE[change.kind]}", _PYTHON_STYLES.get(change.kind, ""), "  ", "      ")
    for text in python_function_texts(change):
        yield _Line(text, "quiet", "      ", "        ")


_PYTHON_ONE = {
    PythonChangeKind.REMOVED: "only before",
    PythonChangeKind.ADDED: "only after",
    PythonChangeKind.CHANGED: "another function in force",
    PythonChangeKind.MOVED: "moved",
}


def python_kind_text(change: PythonChange) -> str:
    """How an entry differs."""
    return _PYTHON_ONE[change.kind]


def python_function_texts(change: PythonChange) -> tuple[str, ...]:
    """What is in force, before and after, with its line."""
    sides = (("before", change.before), ("after", change.after))
    both = change.before is not None and change.after is not None
    return tuple(
        f"{f'{side}: ' if both else ''}{one.function} at {one.site or '(no line known)'}"
        for side, one in sides
        if one is not None
    )


def python_row_text(one: RegistryDifference) -> str:
    """How two layers differ in a registry, or why it is not compared; empty when it is the same."""
    if not one.is_compared:
        has = f"; the other has {_count_of(one.not_compared, 'entry', 'entries')}" if one.not_compared else ""
        return f"not compared, since {_why_not_compared(one)}{has}"
    texts = [f"{number:,} {text}" for kind, text in _PYTHON_COUNTED.items() if (number := _of_kind(one, kind))]
    if one.not_compared:
        texts.append(f"{one.not_compared:,} not compared, of a module that the other has not imported")
    return ", ".join(texts)


_PYTHON_COUNTED = {
    PythonChangeKind.REMOVED: "only before",
    PythonChangeKind.ADDED: "only after",
    PythonChangeKind.CHANGED: "with another function",
    PythonChangeKind.MOVED: "moved",
}


def _why_not_compared(one: RegistryDifference) -> str:
    if one.before is one.after:
        return {
            Known.READ: "",
            Known.NOT_RECORDED: "neither recording has read it",
            Known.NOT_FOUND: "it is not found in either PyTorch",
            Known.NOT_IMPORTED: "nobody imported its module",
        }[one.before]
    sides = (("first", one.before), ("second", one.after))
    return " and ".join(f"{_KNOWN[known]} the {side}" for side, known in sides if known is not Known.READ)


_KNOWN = {
    Known.NOT_RECORDED: "it is not in this recording,",
    Known.NOT_FOUND: "it is not found in the PyTorch of",
    Known.NOT_IMPORTED: "its module is not imported in",
}


def _of_kind(one: RegistryDifference, kind: PythonChangeKind) -> int:
    match kind:
        case PythonChangeKind.REMOVED:
            return one.removed
        case PythonChangeKind.ADDED:
            return one.added
        case PythonChangeKind.CHANGED:
            return one.changed
        case PythonChangeKind.MOVED:
            return one.moved


# -- one backend


def _backend(found: BackendUpgrade, *, everything: bool) -> Iterator[_Line]:
    for note in found.notes:
        yield _Line(note, "bad")
    yield _Line(f"for {found.key.name}: {_keys(found.keys, most=8)}")
    if found.is_empty:
        yield _Line("no call with these keys finds anything else")
        return
    plain = [change for change in found.changes if found.key in change.keys]
    rows = (
        ("missing", ("finds nothing now", "find nothing now"), [c for c in plain if c.after.way is Way.MISSING], "bad"),
        (
            "ambiguous",
            ("is ambiguous now", "are ambiguous now"),
            [c for c in found.changes if c.after.way is Way.AMBIGUOUS],
            "bad",
        ),
        ("fallback", ("falls back now", "fall back now"), [c for c in plain if c.after.way is Way.FALLBACK], ""),
        (
            "composite",
            ("finds a composite now", "find a composite now"),
            [c for c in plain if c.after.way is Way.COMPOSITE],
            "",
        ),
        (
            "direct",
            ("finds a kernel of its own now", "find kernels of their own now"),
            [c for c in plain if c.after.way is Way.DIRECT],
            "good",
        ),
    )
    for label, what, changes, style in rows:
        names = [name for change in changes for name in change.operators]
        if names:
            yield _row(label, f"{_count(len(names), 'operator')} {_s(names, *what)}", style)
    others = {name for change in found.changes if found.key not in change.keys for name in change.operators}
    if others:
        text = f"{_count(len(others), 'operator')} {_s([*others], 'finds', 'find')} another kernel at its other keys"
        yield _row("other keys", text)
    for label, side in (("removed", found.removed), ("added", found.added)):
        if side:
            missing = sum(find.way in (Way.MISSING, Way.FALLBACK) for _, find in side)
            had = "had" if label == "removed" else "have"
            text = f"{_count(len(side), 'operator')}, of which {missing:,} {had} no kernel for {found.key.name}"
            yield _row(label, text)
    if found.schemas:
        yield _row("schemas", f"{_count(len(found.schemas), 'schema')} break callers{_such_as(found.schemas)}", "bad")
    if found.changes:
        yield from _part("What calls find", len({name for each in found.changes for name in each.operators}))
        yield from _entries(
            [list(_shared(each, everything=everything)) for each in found.changes], "change", everything=everything
        )
    wanted = [name for name, find in found.added if find.way in (Way.MISSING, Way.FALLBACK)]
    if wanted:
        yield from _part("New operators without a kernel for it", len(wanted))
        yield from _names(wanted if everything else _cut(wanted, 3 * _SHOWN, "operator"), everything=True)


# -- one package


def _package(found: PackageUpgrade, *, everything: bool) -> Iterator[_Line]:
    total = f"{_count(found.registrations, 'registration')} of {_count(found.operators, 'operator')}"
    yield _Line(f"for {found.source}: {total}")
    if not found.is_affected:
        yield _Line("nothing changes for it: the same registrations are accepted, and its kernels run where they ran")
    refused = found.newly_refused
    accepted = [one for one in found.refused if one.after is None]
    both = len(found.refused) - len(refused) - len(accepted)
    lost = [each for each in found.kernels if each.before.is_packages and not each.after.is_packages]
    won = [each for each in found.kernels if each.after.is_packages and not each.before.is_packages]
    moved = [each for each in found.kernels if each.after.is_packages and each.before.is_packages]
    rows = (
        ("refused", f"{_count(len(refused), 'registration')} refused now", len(refused), "bad"),
        ("accepted", f"{_count(len(accepted), 'registration')} no longer refused", len(accepted), "good"),
        ("", f"{_count(both, 'registration')} refused by both", both, "quiet"),
        ("dangling", f"{_count(len(found.dangling), 'operator')} with kernels and no def", len(found.dangling), "bad"),
        (
            "schemas",
            f"{_count(len(found.schemas), 'schema')} changed of operators that it implements",
            len(found.schemas),
            "",
        ),
        ("kernels", f"calls of {_operators(lost)} no longer run its kernel", len(lost), "bad"),
        ("", f"calls of {_operators(won)} run its kernel now and did not", len(won), ""),
        ("", f"calls of {_operators(moved)} run another kernel of it", len(moved), ""),
        ("PyTorch", f"calls of {_operators(found.others)} run another kernel of PyTorch's", len(found.others), "quiet"),
    )
    for label, text, number, style in rows:
        if number:
            yield _row(label, text, style)
    if refused or accepted:
        yield from _part("Refused on one side", len(refused) + len(accepted))
        entries = [
            [
                _Line(one.registration, "", "  ", "      "),
                _Line(
                    f"refused now: {one.after}" if one.before is None else f"was refused: {one.before}",
                    "bad" if one.before is None else "good",
                    "      ",
                    "      ",
                ),
            ]
            for one in (*refused, *accepted)
        ]
        yield from _entries(entries, "registration", everything=everything)
    if found.dangling:
        yield from _part("Dangling", len(found.dangling))
        yield from _names(found.dangling, everything=everything, style="bad")
    if found.schemas:
        yield from _part("Schemas of operators that it implements", len(found.schemas))
        yield from _entries([list(_schema(name, one)) for name, one in found.schemas], "schema", everything=everything)
    for title, changes in (("Calls", found.kernels), ("Calls that run PyTorch's kernels", found.others)):
        if changes:
            yield from _part(title, len({each.operator for each in changes}))
            entries = [list(_other(*group, everything=everything)) for group in _same(changes)]
            yield from _entries(entries, "change", everything=everything)


def _operators(changes: Iterable[OtherKernel]) -> str:
    return _count(len({each.operator for each in changes}), "operator")


def _same(changes: Iterable[OtherKernel]) -> Iterator[tuple[OtherKernel, list[str]]]:
    """The operators whose calls change in one way, and one of them for the way."""
    groups: dict[object, tuple[OtherKernel, list[str]]] = {}
    for each in changes:
        way = each.keys, each.before.find, each.before.is_packages, each.after.find, each.after.is_packages
        groups.setdefault(way, (each, []))[1].append(each.operator)
    yield from groups.values()


def _other(change: OtherKernel, names: list[str], *, everything: bool) -> Iterator[_Line]:
    style = "bad" if change.before.is_packages and not change.after.is_packages else ""
    debug = len(names) == 1
    before, after = _held(change.before, debug=debug), _held(change.after, debug=debug)
    yield _Line(f"{_keys(change.keys)}: {before} -> {after}", style, "  ", "      ")
    yield from _names(names, everything=everything, indent="      ", style="quiet")


def _held(held: Held, *, debug: bool) -> str:
    whose = "the package's" if held.is_packages else "PyTorch's" if held.debug else ""
    find = _find(held.find).removeprefix("its ").removeprefix("the ")
    shown = f" ({held.debug})" if held.debug and debug else ""
    return f"{whose}{' ' if whose else ''}{find}{shown}"


# -- words


def _find(find: Find) -> str:
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


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _count_of(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _more(number: int, noun: str) -> str:
    return f"{number:,} more {noun}{'' if number == 1 else 's'}"


def _s(things: Sequence[object], one: str, several: str) -> str:
    return one if len(things) == 1 else several
