"""Upgrades as blocks and as JSON: a summary first, details by operator below it; in a page every detail.

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

from collections.abc import Iterator, Sequence
from functools import partial

from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.upgrade.backend_changes import BackendUpgrade
from dispatchlab.questions.upgrade.compare_sources import Side, UpgradeReport
from dispatchlab.questions.upgrade.lines import (
    change_texts,
    cxx_summary,
    find_text,
    held_text,
    python_function_texts,
    python_kind_text,
    python_row_text,
    python_summary,
    summary_rows,
    upgrade_lines,
)
from dispatchlab.questions.upgrade.operator_changes import (
    Cause,
    OneSided,
    SchemaChange,
    SharedChange,
    Upgrade,
)
from dispatchlab.questions.upgrade.package_changes import OtherKernel, PackageUpgrade
from dispatchlab.records.compare import by_namespace, counts
from dispatchlab.records.python_compare import PythonDiff
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import (
    Block,
    Cell,
    Facts,
    Folded,
    Line,
    Page,
    Row,
    Section,
    Stack,
    Table,
    Verdict,
    source,
)
from dispatchlab.views.key_names import key_names
from dispatchlab.views.source_locations import short_debug
from dispatchlab.views.view import View

WIDTH = 100
"""How wide the text is where nobody says."""

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
    lines = partial(upgrade_lines, everything=everything)
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


def upgrade_page(report: UpgradeReport) -> Page:
    """What an upgrade means, for everybody, for a backend or for a package."""
    before, after = report.before, report.after
    sides = (
        ("before", f"PyTorch {before.torch}, {before.operators:,} operators, by the model {before.model.name}"),
        ("after", f"PyTorch {after.torch}, {after.operators:,} operators, by the model {after.model.name}"),
    )
    title = f"{before.source} \u2192 {after.source}"
    lead: list[Block] = []
    sections: list[Section] = []
    if report.package is not None:
        title = f"{title} for {report.package.source}"
        lead, sections = [*_package_lead(report.package)], [*_package(report.package)]
    elif report.backend is not None:
        title = f"{title} for {report.backend.key}"
        lead, sections = [*_backend_lead(report.backend)], [*_backend(report.backend)]
    else:
        lead = [] if report.layer == "python" else [*_summary(report.upgrade)]
        sections = [*_everything(report.upgrade)]
        if report.python is not None:
            lead.append(_summary_facts(python_summary(report.python), "Python"))
            sections += _python(report.python)
    return Page("diff", title, (*lead, Facts(sides, stacked=True)), tuple(sections))


def _summary(found: Upgrade) -> Iterator[Block]:
    if found.is_empty:
        yield Verdict("no difference", "good", f" {found.compared:,} operators compared")
        return
    breaks = bool(found.removed) or any(not schema.is_compatible for _, schema in found.schemas)
    yield Verdict("callers break" if breaks else "no caller breaks by a schema", "bad" if breaks else "good")
    yield _summary_facts(cxx_summary(found), "result")


def _summary_facts(lines: Iterator[Line], title: str) -> Facts:
    """The rows of a summary; what has no title of its own is about `title`."""
    return Facts(tuple((label or title, text) for label, text in summary_rows(lines)), stacked=True)


def _everything(found: Upgrade) -> Iterator[Section]:
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        if side:
            yield Section(title, (_one_sided(title, side),), anchor)
    if found.schemas:
        yield Section("Schemas", (_schemas("Operators with another schema", found.schemas),), "schemas")
    changed = tuple(
        (Cell(change.operator, "name"), Cell(Stack(texts)))
        for change in found.changed
        if (texts := change_texts(change))
    )
    if changed:
        table = Table("Operators with other kernels or tags", ("operator", "what changes"), changed)
        yield Section("Kernels and tags", (table,), "changed")
    if found.fallbacks:
        rows: tuple[Row, ...] = tuple(
            (Cell(one.key.name, "name"), one.before or "nothing", one.after or "nothing", _source(one.debug))
            for one in found.fallbacks
        )
        table = Table("Backend fallbacks that changed", ("key", "before", "after", "registered at"), rows)
        yield Section("Backend fallbacks", (table,), "fallbacks")
    if found.shared:
        table = _shared("Slots that change for many operators", found.shared)
        yield Section("Slots of many operators", (table,), "shared")
    rows = tuple(
        (
            Cell(change.operator, "name"),
            Cell("def" if line.key is None else line.key.name, "name"),
            _source(line.before),
            _source(line.after),
        )
        for change in found.changed
        for line in change.lines
    )
    if rows:
        table = Table("Registrations that moved", ("operator", "key", "before", "after"), rows)
        yield Section("Moved lines", (table,), "lines")


def _python(found: PythonDiff) -> Iterator[Section]:
    counts: tuple[Row, ...] = tuple(
        (Cell(one.registry, "name"), text) for one in found.registries if (text := python_row_text(one))
    )
    if counts:
        table = Table("Registries of Python that differ or are not compared", ("registry", "how"), counts)
        yield Section("Registries of Python", (table,), "python")
    rows: tuple[Row, ...] = tuple(
        (
            Cell(one.registry, "name"),
            Cell(one.operator, "name"),
            one.key,
            python_kind_text(one),
            Cell(Stack(python_function_texts(one)), "code"),
        )
        for one in found.changes
    )
    if rows:
        heads = ("registry", "operator", "key", "how", "what is in force")
        yield Section("What Python registers", (Table("Entries that differ", heads, rows),), "python-entries")


def _one_sided(title: str, side: Sequence[OneSided]) -> Table:
    rows = tuple(
        (
            Cell(one.operator, "name"),
            Cell(one.schema or "without a def", "code"),
            _keys(one.keys),
            _source(one.debug),
            one.of_build,
        )
        for one in side
    )
    return Table(title, ("operator", "schema", "kernels at", "registered at", "only with"), rows)


def _schemas(caption: str, schemas: Sequence[tuple[str, SchemaChange]]) -> Table:
    rows = tuple(
        (
            Cell(name, "name"),
            "compatible" if change.is_compatible else f"breaks callers: {change.backward}",
            Cell(Stack(change.changes), "code"),
            Cell(Stack((change.before or "no def", change.after or "no def")), "code"),
        )
        for name, change in schemas
    )
    breaking = frozenset(at for at, (_, change) in enumerate(schemas) if not change.is_compatible)
    return Table(caption, ("operator", "for callers", "what changes", "before and after"), rows, breaking)


def _shared(caption: str, changes: Sequence[SharedChange]) -> Table:
    rows = tuple(
        (
            _keys(change.keys),
            find_text(change.before),
            find_text(change.after),
            _CAUSES[change.cause],
            len(change.operators),
            Cell(Folded(f"{change.operators[0]}, ...", (Line(", ".join(change.operators)),)))
            if len(change.operators) > 1
            else "".join(change.operators),
        )
        for change in changes
    )
    return Table(caption, ("keys", "before", "after", "because of", "number", "operators"), rows)


def _keys(keys: Sequence[DispatchKey]) -> str:
    return ", ".join(key_names([key.name for key in keys]))


def _source(debug: str) -> Cell:
    return Cell(source(debug), "code")


# -- one backend


def _backend_lead(found: BackendUpgrade) -> Iterator[Block]:
    is_same = found.is_empty
    yield Verdict("nothing changes for it" if is_same else "something changes for it", "good" if is_same else "warn")
    yield Line(f"The keys of the backend: {_keys(found.keys)}.")
    yield from map(Line, found.notes)


def _backend(found: BackendUpgrade) -> Iterator[Section]:
    yield Section("What calls find", (_shared("Calls that find something else", found.changes),), "calls")
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        rows = tuple((Cell(name, "name"), find_text(find)) for name, find in side)
        yield Section(title, (Table(title, ("operator", f"what {found.key} finds"), rows),), anchor)
    broken = tuple((Cell(name, "name"),) for name in found.schemas)
    yield Section("Schemas", (Table("Operators whose schema breaks callers", ("operator",), broken),), "schemas")


# -- one package


def _package_lead(found: PackageUpgrade) -> Iterator[Block]:
    affected = found.is_affected
    yield Verdict("it meets something else" if affected else "nothing changes for it", "warn" if affected else "good")
    yield Facts(
        (
            ("registrations", found.registrations),
            ("operators", found.operators),
            ("refused now", len(found.newly_refused)),
            ("dangling", len(found.dangling)),
            ("schemas", len(found.schemas)),
            ("calls", len(found.kernels)),
        )
    )


def _package(found: PackageUpgrade) -> Iterator[Section]:
    refused = tuple(
        (Cell(one.registration, "code"), short_debug(one.before or "accepted"), short_debug(one.after or "accepted"))
        for one in found.refused
    )
    bad = frozenset(at for at, one in enumerate(found.refused) if one.before is None)
    table = Table("Registrations that are refused", ("registration", "before", "after"), refused, bad)
    yield Section("Refused", (table,), "refused")
    rows = tuple((Cell(name, "name"),) for name in found.dangling)
    yield Section("Dangling", (Table("Operators with kernels and no def any more", ("operator",), rows),), "dangling")
    yield Section("Schemas", (_schemas("Schemas of operators that it implements", found.schemas),), "schemas")
    yield Section("Calls", (_calls("Calls that run its kernel on one side", found.kernels),), "calls")
    table = _calls("Calls of these operators that run another kernel of PyTorch's", found.others)
    yield Section("PyTorch's kernels", (table,), "others")


def _calls(caption: str, changes: Sequence[OtherKernel]) -> Table:
    rows = tuple(
        (
            Cell(change.operator, "name"),
            _keys(change.keys),
            short_debug(held_text(change.before)),
            short_debug(held_text(change.after)),
        )
        for change in changes
    )
    return Table(caption, ("operator", "keys", "before", "after"), rows)
