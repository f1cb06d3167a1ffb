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
    PYTHON_KINDS,
    change_texts,
    cxx_summary,
    find_text,
    held_text,
    python_function_texts,
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
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import key_names
from dispatchlab.views.source_locations import short_debug
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
    return b.Page("diff", title, (*lead, b.Facts(sides, stacked=True)), tuple(sections))


def _summary(found: Upgrade) -> Iterator[b.Block]:
    if found.is_empty:
        yield b.Verdict("no difference", "good", f" {found.compared:,} operators compared")
        return
    breaks = bool(found.removed) or any(not schema.is_compatible for _, schema in found.schemas)
    yield b.Verdict("callers break" if breaks else "no caller breaks by a schema", "bad" if breaks else "good")
    yield _summary_facts(cxx_summary(found), "result")


def _summary_facts(lines: Iterator[b.Line], title: str) -> b.Facts:
    """The rows of a summary; what has no title of its own is about `title`."""
    return b.Facts(tuple((label or title, text) for label, text in summary_rows(lines)), stacked=True)


def _everything(found: Upgrade) -> Iterator[b.Section]:
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        if side:
            yield b.Section(title, (_one_sided(title, side),), anchor)
    if found.schemas:
        yield b.Section("Schemas", (_schemas("Operators with another schema", found.schemas),), "schemas")
    changed = tuple(
        (b.Cell(change.operator, "name"), b.Cell(b.Stack(texts)))
        for change in found.changed
        if (texts := change_texts(change))
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
        table = _shared("Slots that change for many operators", found.shared)
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


def _python(found: PythonDiff) -> Iterator[b.Section]:
    counts: tuple[b.Row, ...] = tuple(
        (b.Cell(one.registry, "name"), text) for one in found.registries if (text := python_row_text(one))
    )
    if counts:
        table = b.Table("Registries of Python that differ or are not compared", ("registry", "how"), counts)
        yield b.Section("Registries of Python", (table,), "python")
    rows: tuple[b.Row, ...] = tuple(
        (
            b.Cell(one.registry, "name"),
            b.Cell(one.operator, "name"),
            one.key,
            PYTHON_KINDS[one.kind].one,
            b.Cell(b.Stack(python_function_texts(one)), "code"),
        )
        for one in found.changes
    )
    if rows:
        heads = ("registry", "operator", "key", "how", "what is in force")
        yield b.Section("What Python registers", (b.Table("Entries that differ", heads, rows),), "python-entries")


def _one_sided(title: str, side: Sequence[OneSided]) -> b.Table:
    rows = tuple(
        (
            b.Cell(one.operator, "name"),
            b.Cell(one.schema or "without a def", "code"),
            _keys(one.keys),
            _source(one.debug),
            one.of_build,
        )
        for one in side
    )
    return b.Table(title, ("operator", "schema", "kernels at", "registered at", "only with"), rows)


def _schemas(caption: str, schemas: Sequence[tuple[str, SchemaChange]]) -> b.Table:
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


def _shared(caption: str, changes: Sequence[SharedChange]) -> b.Table:
    rows = tuple(
        (
            _keys(change.keys),
            find_text(change.before),
            find_text(change.after),
            _CAUSES[change.cause],
            len(change.operators),
            b.Cell(b.Folded(f"{change.operators[0]}, ...", (b.Line(", ".join(change.operators)),)))
            if len(change.operators) > 1
            else "".join(change.operators),
        )
        for change in changes
    )
    return b.Table(caption, ("keys", "before", "after", "because of", "number", "operators"), rows)


def _keys(keys: Sequence[DispatchKey]) -> str:
    return ", ".join(key_names([key.name for key in keys]))


def _source(debug: str) -> b.Cell:
    return b.Cell(b.source(debug), "code")


# -- one backend


def _backend_lead(found: BackendUpgrade) -> Iterator[b.Block]:
    is_same = found.is_empty
    yield b.Verdict("nothing changes for it" if is_same else "something changes for it", "good" if is_same else "warn")
    yield b.Line(f"The keys of the backend: {_keys(found.keys)}.")
    yield from map(b.Line, found.notes)


def _backend(found: BackendUpgrade) -> Iterator[b.Section]:
    yield b.Section("What calls find", (_shared("Calls that find something else", found.changes),), "calls")
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        rows = tuple((b.Cell(name, "name"), find_text(find)) for name, find in side)
        yield b.Section(title, (b.Table(title, ("operator", f"what {found.key} finds"), rows),), anchor)
    broken = tuple((b.Cell(name, "name"),) for name in found.schemas)
    yield b.Section("Schemas", (b.Table("Operators whose schema breaks callers", ("operator",), broken),), "schemas")


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


def _package(found: PackageUpgrade) -> Iterator[b.Section]:
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
    yield b.Section("Schemas", (_schemas("Schemas of operators that it implements", found.schemas),), "schemas")
    yield b.Section("Calls", (_calls("Calls that run its kernel on one side", found.kernels),), "calls")
    table = _calls("Calls of these operators that run another kernel of PyTorch's", found.others)
    yield b.Section("PyTorch's kernels", (table,), "others")


def _calls(caption: str, changes: Sequence[OtherKernel]) -> b.Table:
    rows = tuple(
        (
            b.Cell(change.operator, "name"),
            _keys(change.keys),
            short_debug(held_text(change.before)),
            short_debug(held_text(change.after)),
        )
        for change in changes
    )
    return b.Table(caption, ("operator", "keys", "before", "after"), rows)
