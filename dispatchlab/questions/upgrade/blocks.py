"""Upgrades as blocks and as JSON: a summary first, details by operator below it; in a page every detail.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.python_layer import REGISTRY_NAMED
from dispatchlab.questions.upgrade.backend_changes import BackendUpgrade
from dispatchlab.questions.upgrade.compare_sources import Side, UpgradeReport
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
from dispatchlab.questions.upgrade.package_changes import Held, OtherKernel, PackageUpgrade
from dispatchlab.questions.upgrade.program_changes import ProgramUpgrade, Task, Work
from dispatchlab.records.backend_coverage import Way
from dispatchlab.records.compare import by_namespace, counts
from dispatchlab.records.python_compare import Known, PythonChange, PythonChangeKind, PythonDiff, RegistryDifference
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted, key_names
from dispatchlab.views.source_locations import short_debug, without_build
from dispatchlab.views.text import plain
from dispatchlab.views.view import View

WIDTH = 100
"""The default width of the text."""

_CAUSES = {
    Cause.DISPATCHER: "the rules of the dispatcher",
    Cause.FALLBACKS: "a backend fallback",
    Cause.KERNELS: "kernels",
}


def upgrade_view(report: UpgradeReport, *, everything: bool = False, width: int = WIDTH) -> View[UpgradeReport]:
    """How an upgrade is shown.

    Args:
        report: what was found.
        everything: all details instead of the first of each part.
        width: how wide the lines of plain text may be.
    """
    lines = partial(_upgrade_lines, everything=everything)
    return View(report, lines=lines, page=upgrade_page, torch=report.after.torch, whole=everything, width=width)


@as_json.register
def _(report: UpgradeReport) -> object:
    value: dict[str, object] = {
        "before": report.before,
        "after": report.after,
        **fields_of(report.upgrade),
        "backend": report.backend,
        "package": report.package,
        "layer": report.layer,
        "python": report.python,
    }
    if report.program is not None:
        value["program"] = report.program
    if report.flat is not None:
        value |= {
            "tables": None,
            "namespaces": {name: counts(part) for name, part in by_namespace(report.flat).items()},
            "changes": report.flat.changes,
        }
    return as_json(value)


@as_json.register
def _(value: Side) -> dict[str, object]:
    return fields_of(value, model=value.model.name)


def upgrade_page(report: UpgradeReport) -> b.Page:
    """What an upgrade means, at large, for a backend or for a package."""
    before, after = report.before, report.after
    sides = (
        ("before", f"PyTorch {before.torch}, {before.operators:,} operators, by the model {before.model.name}"),
        ("after", f"PyTorch {after.torch}, {after.operators:,} operators, by the model {after.model.name}"),
    )
    title = f"{before.source} \u2192 {after.source}"
    lead: list[b.Block] = []
    sections: list[b.Section] = []
    if report.package is not None:
        title = f"{title} for {report.package.source}"
        lead, sections = [*_package_lead(report.package)], [*_package_sections(report.package)]
    elif report.program is not None:
        title = f"{title} for {report.program.program} on {report.program.device}"
        lead, sections = [*_program_head(report.program)], [*_program_sections(report.program)]
    elif report.backend is not None:
        title = f"{title} for {report.backend.key}"
        lead, sections = [*_backend_lead(report.backend)], [*_backend_sections(report.backend)]
    else:
        lead = [] if report.layer == "python" else [*_lead(report.upgrade)]
        sections = [*_sections(report.upgrade)]
        if report.python is not None:
            lead.append(_summary_facts(_python_summary(report.python), "Python"))
            sections += _python_sections(report.python)
    return b.Page("diff", title, (*lead, b.Facts(sides, stacked=True)), tuple(sections))


def _lead(found: Upgrade) -> Iterator[b.Block]:
    if found.is_empty:
        yield b.Verdict("no difference", "good", f" {found.compared:,} operators compared")
        return
    breaks = bool(found.removed) or any(not schema.is_compatible for _, schema in found.schemas)
    yield b.Verdict("callers break" if breaks else "no caller breaks by a schema", "bad" if breaks else "good")
    yield _summary_facts(_cxx_summary(found), "result")


def _summary_facts(lines: Iterator[b.Line], title: str) -> b.Facts:
    """The rows of a summary; what has no title of its own is about `title`."""
    return b.Facts(tuple((plain(line.label) or title, plain(line.content)) for line in lines), stacked=True)


def _sections(found: Upgrade) -> Iterator[b.Section]:
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        if side:
            yield b.Section(title, (_one_sided_table(title, side),), anchor)
    if found.schemas:
        yield b.Section("Schemas", (_schema_table("Operators with another schema", found.schemas),), "schemas")
    changed = tuple(
        (b.Cell(change.operator, "name"), b.Cell(b.Stack(texts)))
        for change in found.changed
        if (texts := tuple(plain(line.content) for line in _change(change)))
    )
    if changed:
        table = b.Table("Operators with other kernels or tags", ("operator", "what changes"), changed)
        yield b.Section("Kernels and tags", (table,), "changed")
    if found.fallbacks:
        rows: tuple[b.Row, ...] = tuple(
            (b.Cell(one.key.name, "name"), one.before or "nothing", one.after or "nothing", _source(one.debug))
            for one in found.fallbacks
        )
        table = b.Table("Backend fallbacks that changed", ("key", "before", "after", "registered at"), rows)
        yield b.Section("Backend fallbacks", (table,), "fallbacks")
    if found.shared:
        table = _shared_table("Slots that change for many operators", found.shared)
        yield b.Section("Slots of many operators", (table,), "shared")
    rows = tuple(
        (
            b.Cell(change.operator, "name"),
            b.Cell("def" if line.key is None else line.key.name, "name"),
            _source(line.before),
            _source(line.after),
        )
        for change in found.changed
        for line in change.lines
    )
    if rows:
        table = b.Table("Registrations that moved", ("operator", "key", "before", "after"), rows)
        yield b.Section("Moved lines", (table,), "lines")


def _python_sections(found: PythonDiff) -> Iterator[b.Section]:
    counts: tuple[b.Row, ...] = tuple(
        (b.Cell(one.registry, "name"), text) for one in found.registries if (text := _python_row_text(one))
    )
    if counts:
        table = b.Table("Registries of Python that differ or are not compared", ("registry", "how"), counts)
        yield b.Section("Registries of Python", (table,), "python")
    rows: tuple[b.Row, ...] = tuple(
        (
            b.Cell(change.registry, "name"),
            b.Cell(change.operator, "name"),
            change.key,
            _PYTHON_KINDS[change.kind].one,
            b.Cell(b.Stack(_python_function_texts(change)), "code"),
        )
        for change in found.changes
    )
    if rows:
        heads = ("registry", "operator", "key", "how", "what is in force")
        yield b.Section("What Python registers", (b.Table("Entries that differ", heads, rows),), "python-entries")


def _one_sided_table(title: str, side: Sequence[OneSided]) -> b.Table:
    rows = tuple(
        (
            b.Cell(one.operator, "name"),
            b.Cell(one.schema or "without a def", "code"),
            _all_keys(one.keys),
            _source(one.debug),
            one.of_build,
        )
        for one in side
    )
    return b.Table(title, ("operator", "schema", "kernels at", "registered at", "only with"), rows)


def _schema_table(caption: str, schemas: Sequence[tuple[str, SchemaChange]]) -> b.Table:
    rows = tuple(
        (
            b.Cell(name, "name"),
            "compatible" if change.is_compatible else f"breaks callers: {change.backward}",
            b.Cell(b.Stack(change.changes), "code"),
            b.Cell(b.Stack((change.before or "no def", change.after or "no def")), "code"),
        )
        for name, change in schemas
    )
    breaking = frozenset(at for at, (_, change) in enumerate(schemas) if not change.is_compatible)
    return b.Table(caption, ("operator", "for callers", "what changes", "before and after"), rows, breaking)


def _shared_table(caption: str, changes: Sequence[SharedChange]) -> b.Table:
    rows = tuple(
        (
            _all_keys(change.keys),
            _find_text(change.before),
            _find_text(change.after),
            _CAUSES[change.cause],
            len(change.operators),
            b.Cell(b.Folded(f"{change.operators[0]}, ...", (b.Line(", ".join(change.operators)),)))
            if len(change.operators) > 1
            else "".join(change.operators),
        )
        for change in changes
    )
    return b.Table(caption, ("keys", "before", "after", "because of", "number", "operators"), rows)


def _all_keys(keys: Sequence[DispatchKey]) -> str:
    return ", ".join(key_names([key.name for key in keys]))


def _source(debug: str) -> b.Cell:
    return b.Cell(b.source(debug), "code")


# -- one backend


def _backend_lead(found: BackendUpgrade) -> Iterator[b.Block]:
    is_same = found.is_empty
    yield b.Verdict("nothing changes for it" if is_same else "something changes for it", "good" if is_same else "warn")
    yield b.Line(f"The keys of the backend: {_all_keys(found.keys)}.")
    yield from map(b.Line, found.notes)


def _backend_sections(found: BackendUpgrade) -> Iterator[b.Section]:
    yield b.Section("What calls find", (_shared_table("Calls that find something else", found.changes),), "calls")
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        rows = tuple((b.Cell(name, "name"), _find_text(find)) for name, find in side)
        yield b.Section(title, (b.Table(title, ("operator", f"what {found.key} finds"), rows),), anchor)
    broken = tuple((b.Cell(name, "name"),) for name in found.schemas)
    yield b.Section("Schemas", (b.Table("Operators whose schema breaks callers", ("operator",), broken),), "schemas")


# -- one program


_TO_DO: Mapping[Work, tuple[str, str, b.Mood]] = {
    Work.IMPLEMENT: ("implement", "no kernel is found now", "bad"),
    Work.SCHEMA: ("schemas", "another schema", "warn"),
    Work.REMOVED: ("removed", "gone", "warn"),
}


def _program_head(found: ProgramUpgrade) -> Iterator[b.Line]:
    if found.error:
        yield b.Line(f"it raises {found.error.splitlines()[0]}: what follows is not seen", "warn", hang=0)
    text = f"{counted(found.called, 'operator')} called, of which {found.reached:,} reach the device"
    yield b.Line(f"{text}, as traced on PyTorch {found.torch}: other calls of the second PyTorch are not seen", hang=0)
    if not found.reached:
        yield b.Line(f"have the program name {found.device}, or give --device", "warn", hang=0)
    elif not found.tasks:
        yield b.Line("nothing is to be done for it", "good", hang=0)


def _program(found: ProgramUpgrade) -> Iterator[b.Line]:
    yield b.Line(f"for {found.program} on {found.device}:", hang=0)
    yield from _program_head(found)
    for work, tasks in _by_work(found):
        label, what, mood = _TO_DO[work]
        yield _row(label, f"{counted(len(tasks), 'operator')}: {what}", mood)
    for work, tasks in _by_work(found):
        yield from _part(_TO_DO[work][1].capitalize(), len(tasks))
        for task in tasks:
            yield b.Line(f"{task.operator}{': ' if task.why else ''}{task.why}", indent=2)
            yield b.Line(task.schema, "quiet", indent=4)


def _program_sections(found: ProgramUpgrade) -> Iterator[b.Section]:
    for work, tasks in _by_work(found):
        rows = tuple((b.Cell(task.operator, "name"), task.why, b.Cell(task.schema, "code")) for task in tasks)
        title = _TO_DO[work][1].capitalize()
        yield b.Section(title, (b.Table(title, ("operator", "why", "schema"), rows),), work)


def _by_work(found: ProgramUpgrade) -> Iterator[tuple[Work, tuple[Task, ...]]]:
    for work in Work:
        if tasks := tuple(task for task in found.tasks if task.work is work):
            yield work, tasks


# -- one package


def _package_lead(found: PackageUpgrade) -> Iterator[b.Block]:
    affected = found.is_affected
    yield b.Verdict("it meets something else" if affected else "nothing changes for it", "warn" if affected else "good")
    yield b.Facts(
        (
            ("registrations", found.registrations),
            ("operators", found.operators),
            ("refused now", len(found.newly_refused)),
            ("dangling", len(found.dangling)),
            ("schemas", len(found.schemas)),
            ("calls", len(found.kernels)),
        )
    )


def _package_sections(found: PackageUpgrade) -> Iterator[b.Section]:
    refused = tuple(
        (b.Cell(one.registration, "code"), short_debug(one.before or "accepted"), short_debug(one.after or "accepted"))
        for one in found.refused
    )
    bad = frozenset(at for at, one in enumerate(found.refused) if one.before is None)
    table = b.Table("Registrations that are refused", ("registration", "before", "after"), refused, bad)
    yield b.Section("Refused", (table,), "refused")
    rows = tuple((b.Cell(name, "name"),) for name in found.dangling)
    yield b.Section(
        "Dangling", (b.Table("Operators with kernels and no def any more", ("operator",), rows),), "dangling"
    )
    yield b.Section("Schemas", (_schema_table("Schemas of operators that it implements", found.schemas),), "schemas")
    yield b.Section("Calls", (_call_table("Calls that run its kernel on one side", found.kernels),), "calls")
    table = _call_table("Calls of these operators that run another kernel of PyTorch's", found.others)
    yield b.Section("PyTorch's kernels", (table,), "others")


def _call_table(caption: str, changes: Sequence[OtherKernel]) -> b.Table:
    rows = tuple(
        (
            b.Cell(change.operator, "name"),
            _all_keys(change.keys),
            short_debug(_held_text(change.before)),
            short_debug(_held_text(change.after)),
        )
        for change in changes
    )
    return b.Table(caption, ("operator", "keys", "before", "after"), rows)


SCREEN = 24
"""How many rows the summary has at most."""

_MOST_KEYS = 4
_SHOWN = 10  # entries of a part, unless everything is asked for


def _upgrade_lines(report: UpgradeReport, *, everything: bool) -> Iterator[b.Block]:
    """The summary, which fits on a screen, and the details.

    Args:
        report: what was found.
        everything: all details instead of the first of each part.
    """
    before, after = report.before, report.after
    torch = before.torch if before.torch == after.torch else f"{before.torch} -> {after.torch}"
    lines = [
        b.Line(f"{before.source} -> {after.source}", "strong", hang=0),
        b.Line(f"PyTorch {torch}, {before.operators:,} -> {after.operators:,} operators", hang=0),
    ]
    if report.package is not None:
        lines += _package(report.package, everything=everything)
    if report.backend is not None:
        lines += _backend(report.backend, everything=everything)
    if report.program is not None:
        lines += _program(report.program)
    if report.package is None and report.backend is None and report.program is None:
        if report.layer != "python":
            lines += _cxx_summary(report.upgrade)
        if report.python is not None:
            lines += _python_summary(report.python)
        if report.layer != "python":
            lines += _details(report.upgrade, everything=everything)
        if report.python is not None:
            lines += _python_details(report.python, everything=everything)
    head = next((at for at, line in enumerate(lines) if not line.content), len(lines))
    is_bad = any(line.mood == "bad" for line in lines[:head])
    yield b.Frame(tuple(lines[:head]), "bad" if is_bad else "quiet", most=SCREEN)
    for line in lines[head:]:
        yield replace(line, content=without_build(line.content)) if isinstance(line.content, str) else line


# -- the summary


def _row(label: str, text: str, mood: b.Mood = "") -> b.Line:
    return b.Line(text, mood, indent=2, label=label, width=11)


def _cxx_summary(upgrade: Upgrade) -> Iterator[b.Line]:
    """At most a screen."""
    if upgrade.is_empty:
        yield b.Line(f"no difference ({counted(upgrade.compared, 'operator')} compared)", hang=0)
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
    lost = [change.operator for change in upgrade.changed if any(map(_finds_nothing, change.own_slots))]
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


def _kernel_rows(upgrade: Upgrade) -> Iterator[b.Line]:
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


def _shared_rows(upgrade: Upgrade) -> Iterator[b.Line]:
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


def _finds_nothing(slot: SlotChange) -> bool:
    return slot.after.way in (Way.MISSING, Way.AMBIGUOUS)


def _transition(old: Composite, new: Composite) -> str:
    if new is Composite.NONE:
        return f"no longer composite ({old} before)"
    return f"became {new}{'' if old is Composite.NONE else f' ({old} before)'}"


# -- the details


def _details(upgrade: Upgrade, *, everything: bool) -> Iterator[b.Line]:
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
                b.Line(change.operator, indent=2),
                *(
                    b.Line(f"{'def' if one.key is None else one.key.name}: {one.before} -> {one.after}", indent=4)
                    for one in change.lines
                ),
            ]
            for change in moved
        ]
        yield from _entries(entries, "operator", everything=everything)


def _part(title: str, number: int) -> Iterator[b.Line]:
    yield b.Line()
    yield b.Line(f"{title} ({number:,})", "strong", hang=0)


def _entries(entries: Sequence[Sequence[b.Line]], noun: str, *, everything: bool) -> Iterator[b.Line]:
    shown = entries if everything else entries[:_SHOWN]
    for entry in shown:
        yield from entry
    left = len(entries) - len(shown)
    if left:
        yield b.Line(f"... and {_more(left, noun)}: see --all", "quiet", indent=2, hang=0)


def _one_sided(title: str, side: Sequence[OneSided], *, everything: bool) -> Iterator[b.Line]:
    """With everything a schema each; else the overloads of one name together."""
    if not side:
        return
    yield from _part(title, len(side))
    mood: b.Mood = "bad" if title == "Removed" else "good"
    if everything or len(side) <= _SHOWN:
        for each in side:
            yield b.Line(each.schema or f"{each.operator}, without a def", mood, indent=2, hang=4)
            build = f", with {each.of_build}" if each.of_build else ""
            yield b.Line(f"{each.debug or '(no debug text)'}{build}", "quiet", indent=6, hang=0)
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
    yield b.Line(", ".join(_cut(texts, 2 * _SHOWN, "name")), mood, indent=2, hang=0)
    yield b.Line("their schemas: see --all", "quiet", indent=2, hang=0)


def _schema(name: str, change: SchemaChange) -> Iterator[b.Line]:
    verdict = "compatible" if change.is_compatible else f"breaks callers: {change.backward}"
    yield b.Line(f"{name}  {verdict}", "" if change.is_compatible else "bad", indent=2, hang=4)
    for text in change.changes:
        yield b.Line(text, "quiet", indent=6)


def _alike(changes: Sequence[OperatorChange]) -> dict[tuple[b.Line, ...], list[str]]:
    """The operators by what changes in them besides their schema; what takes kernels away comes first."""
    groups: dict[tuple[b.Line, ...], list[str]] = {}
    for change in changes:
        lines = tuple(_change(change))
        if lines:
            groups.setdefault(lines, []).append(change.operator)
    return dict(sorted(groups.items(), key=lambda item: (not any(line.mood == "bad" for line in item[0]), item[1][0])))


def _change(change: OperatorChange) -> Iterator[b.Line]:
    """What changes in one operator besides its schema and its lines."""

    def line(text: str, mood: b.Mood = "") -> b.Line:
        return b.Line(text, mood, indent=6)

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
                yield line(
                    f"{_keys(some)}: {_find_text(each.before)} -> {_find_text(each.after)}",
                    "bad" if _finds_nothing(each) else "",
                )
    seen = {key for slots in change.own_slots for key in slots.keys}
    for key in (*change.lost, *change.gained):
        if not key.is_alias and key not in seen:
            yield line(f"{key.name}: {'lost' if key in lost else 'gained'} a kernel")
    for key, debug in change.foreign.items():
        yield line(f"{key.name}: {debug}", "quiet")
    for one in change.replaced:
        yield line(_replaced(one))
    tags = [*(f"+{tag}" for tag in change.tags_gained), *(f"-{tag}" for tag in change.tags_lost)]
    if tags:
        yield line(f"tags: {' '.join(tags)}")


_REPLACED = {
    Reason.OWNER: "{key}: registered from another place: {before} -> {after}",
    Reason.FILE: "{key}: {before} -> {after}",
    Reason.FALLTHROUGH: "{key}: {before} -> {after}",
    Reason.OVERRIDES: "{key}: {before} -> {after}, one over the other",
    Reason.TYPE: "{key}: its type: {before} -> {after}",
}


def _replaced(kernel: Replaced) -> str:
    before, after = kernel.before or "(no debug text)", kernel.after or "(no debug text)"
    if kernel.reason is Reason.LANGUAGE:
        return f"{kernel.key.name}: a kernel in {language_of(before)} -> one in {language_of(after)}"
    return _REPLACED[kernel.reason].format(key=kernel.key.name, before=before, after=after)


def _shared(change: SharedChange, *, everything: bool) -> Iterator[b.Line]:
    why = {Cause.DISPATCHER: "by the rules of the dispatcher", Cause.FALLBACKS: "by the fallback"}
    because = f" {why[change.cause]}" if change.cause in why else ""
    text = f"{_keys(change.keys)}: {_find_text(change.before)} -> {_find_text(change.after)}{because}"
    yield b.Line(f"{text}, {counted(len(change.operators), 'operator')}", indent=2, hang=4)
    yield from _names(change.operators, everything=everything, indent=6, mood="quiet")


def _names(names: Sequence[str], *, everything: bool, indent: int = 2, mood: b.Mood = "") -> Iterator[b.Line]:
    shown = names if everything else _cut(list(names), 6, "operator")
    yield b.Line(", ".join(shown), mood, indent=indent)


# -- what Python registers


def _python_summary(diff: PythonDiff) -> Iterator[b.Line]:
    """A row or two: how much differs, and what is not compared."""
    if diff.registries:
        compared = sum(registry.is_compared for registry in diff.registries)
        if diff.is_empty:
            yield _row("Python", f"no difference ({counted(compared, 'registry', 'registries')} compared)")
        else:
            texts = [
                f"{number:,} {_PYTHON_KINDS[kind].several}"
                for kind in (PythonChangeKind.REMOVED, PythonChangeKind.ADDED, PythonChangeKind.CHANGED)
                if (number := sum(_of_kind(registry, kind) for registry in diff.registries))
            ]
            differing = sum(any((registry.removed, registry.added, registry.changed)) for registry in diff.registries)
            mood: b.Mood = "bad" if any(registry.removed for registry in diff.registries) else ""
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
    mood: b.Mood = ""


_PYTHON_KINDS = {
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


def _python_details(diff: PythonDiff, *, everything: bool) -> Iterator[b.Line]:
    """The counts of each registry, then what differs in each."""
    rows = [(one.registry, text) for one in diff.registries if one.is_compared and (text := _python_row_text(one))]
    uncompared: dict[str, list[str]] = {}
    for one in diff.registries:
        if not one.is_compared:
            has = f" ({counted(one.not_compared, 'entry', 'entries')})" if one.not_compared else ""
            uncompared.setdefault(_why_not_compared(one), []).append(f"{one.registry}{has}")
    if rows or uncompared:
        yield b.Line()
        yield b.Line("Registries of Python", "strong", hang=0)
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        yield b.Line(text, indent=2, label=name, width=width + 2)
    for why, names in uncompared.items():
        yield b.Line(f"not compared, since {why}: {', '.join(names)}", "quiet", indent=2, hang=4)
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
                text = f"{_PYTHON_KINDS[kind].several}: {', '.join(_cut(names, 6, 'operator'))}"
                yield b.Line(text, _PYTHON_KINDS[kind].mood, indent=2, hang=4)
        yield b.Line("their functions: see --all, or name one with --operator", "quiet", indent=2, hang=0)


_FEW_ENTRIES = 5  # so that a summary of many registries is no wall


def _python_change(change: PythonChange) -> Iterator[b.Line]:
    name = f"{change.operator} {change.key}".rstrip()
    shown = _PYTHON_KINDS[change.kind]
    yield b.Line(f"{name}  {shown.one}", shown.mood, indent=2, hang=4)
    for text in _python_function_texts(change):
        yield b.Line(text, "quiet", indent=6)


def _python_function_texts(change: PythonChange) -> tuple[str, ...]:
    """What is in force, before and after, with its line."""
    sides = (("before", change.before), ("after", change.after))
    both = change.before is not None and change.after is not None
    return tuple(
        f"{f'{side}: ' if both else ''}{one.function} at {one.site or '(no line known)'}"
        for side, one in sides
        if one is not None
    )


def _python_row_text(difference: RegistryDifference) -> str:
    """How two layers differ in a registry, or why it is not compared; empty when it is the same."""
    if not difference.is_compared:
        has = (
            f"; the other has {counted(difference.not_compared, 'entry', 'entries')}" if difference.not_compared else ""
        )
        return f"not compared, since {_why_not_compared(difference)}{has}"
    texts = [f"{n:,} {shown.in_row}" for kind, shown in _PYTHON_KINDS.items() if (n := _of_kind(difference, kind))]
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


_FOUND_NOW: tuple[tuple[str, Way, tuple[str, str], b.Mood], ...] = (
    ("missing", Way.MISSING, ("finds nothing now", "find nothing now"), "bad"),
    ("ambiguous", Way.AMBIGUOUS, ("is ambiguous now", "are ambiguous now"), "bad"),
    ("fallback", Way.FALLBACK, ("falls back now", "fall back now"), ""),
    ("composite", Way.COMPOSITE, ("finds a composite now", "find a composite now"), ""),
    ("direct", Way.DIRECT, ("finds a kernel of its own now", "find kernels of their own now"), "good"),
)


def _backend(upgrade: BackendUpgrade, *, everything: bool) -> Iterator[b.Line]:
    for note in upgrade.notes:
        yield b.Line(note, "bad", hang=0)
    yield b.Line(f"for {upgrade.key.name}: {_keys(upgrade.keys, most=8)}", hang=0)
    if upgrade.is_empty:
        yield b.Line("no call with these keys finds anything else", hang=0)
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


def _package(upgrade: PackageUpgrade, *, everything: bool) -> Iterator[b.Line]:
    total = f"{counted(upgrade.registrations, 'registration')} of {counted(upgrade.operators, 'operator')}"
    yield b.Line(f"for {upgrade.source}: {total}", hang=0)
    if not upgrade.is_affected:
        yield b.Line(
            "nothing changes for it: the same registrations are accepted, and its kernels run where they ran", hang=0
        )
    refused = upgrade.newly_refused
    accepted = [one for one in upgrade.refused if one.after is None]
    both = len(upgrade.refused) - len(refused) - len(accepted)
    lost = [kernel for kernel in upgrade.kernels if kernel.before.is_packages and not kernel.after.is_packages]
    won = [kernel for kernel in upgrade.kernels if kernel.after.is_packages and not kernel.before.is_packages]
    moved = [kernel for kernel in upgrade.kernels if kernel.after.is_packages and kernel.before.is_packages]
    rows: tuple[tuple[str, str, int, b.Mood], ...] = (
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
                b.Line(one.registration, indent=2, hang=4),
                b.Line(
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
            yield from _part(title, len({change.operator for change in changes}))
            entries = [list(_other(*group, everything=everything)) for group in _same(changes)]
            yield from _entries(entries, "change", everything=everything)


def _operators(changes: Iterable[OtherKernel]) -> str:
    return counted(len({change.operator for change in changes}), "operator")


def _same(changes: Iterable[OtherKernel]) -> Iterator[tuple[OtherKernel, list[str]]]:
    """The operators whose calls change in one way, and one of them for the way."""
    groups: dict[object, tuple[OtherKernel, list[str]]] = {}
    for change in changes:
        way = change.keys, change.before.find, change.before.is_packages, change.after.find, change.after.is_packages
        groups.setdefault(way, (change, []))[1].append(change.operator)
    yield from groups.values()


def _other(change: OtherKernel, names: list[str], *, everything: bool) -> Iterator[b.Line]:
    mood: b.Mood = "bad" if change.before.is_packages and not change.after.is_packages else ""
    debug = len(names) == 1
    before, after = _held_text(change.before, debug=debug), _held_text(change.after, debug=debug)
    yield b.Line(f"{_keys(change.keys)}: {before} -> {after}", mood, indent=2, hang=4)
    yield from _names(names, everything=everything, indent=6, mood="quiet")


def _held_text(held: Held, *, debug: bool = True) -> str:
    """What runs in a slot, and whose it is."""
    whose = "the package's" if held.is_packages else "PyTorch's" if held.debug else ""
    find = _find_text(held.find).removeprefix("its ").removeprefix("the ")
    shown = f" ({held.debug})" if held.debug and debug else ""
    return f"{whose}{' ' if whose else ''}{find}{shown}"


# -- words


_FINDS = {
    Way.DIRECT: "its own kernel",
    Way.FALLBACK: "the fallback",
    Way.AMBIGUOUS: "ambiguous",
    Way.MISSING: "nothing",
}


def _find_text(find: Find) -> str:
    """What a call finds: `its own kernel`, `CompositeImplicitAutograd`, `nothing`."""
    return _FINDS.get(find.way, str(find.source))


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
