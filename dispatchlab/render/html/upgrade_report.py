"""The report of `diff`: what the second registry means for whoever used the first, with every detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.analysis.upgrade import UpgradeReport
from dispatchlab.analysis.upgrade_backend import BackendUpgrade
from dispatchlab.analysis.upgrade_package import OtherKernel, PackageUpgrade
from dispatchlab.registry.python_compare import PythonDiff
from dispatchlab.registry.upgrade import Cause, OneSided, OperatorChange, SchemaChange, SharedChange, Upgrade
from dispatchlab.render.html.elements import Html, element, joined
from dispatchlab.render.html.page import Section, page
from dispatchlab.render.html.parts import (
    Cell,
    Row,
    data_table,
    facts,
    folded,
    keys_text,
    lines,
    paragraphs,
    short_debug,
    summary_list,
    verdict,
)
from dispatchlab.render.upgrade import (
    change_texts,
    find_text,
    held_text,
    python_function_texts,
    python_kind_text,
    python_row_text,
    python_summary_rows,
    summary_rows,
)

_CAUSES = {
    Cause.DISPATCHER: "the rules of the dispatcher",
    Cause.FALLBACKS: "a backend fallback",
    Cause.KERNELS: "kernels",
}


def upgrade_page(report: UpgradeReport) -> str:
    """What an upgrade means, for everybody, for a backend or for a package."""
    before, after = report.before, report.after
    sides: list[tuple[str, str]] = [
        ("before", f"PyTorch {before.torch}, {before.operators:,} operators, by the model {before.model.name}"),
        ("after", f"PyTorch {after.torch}, {after.operators:,} operators, by the model {after.model.name}"),
    ]
    lead = joined((upgrade_lead(report), summary_list(sides)))
    return page("diff", upgrade_title(report), lead, upgrade_sections(report))


def upgrade_title(report: UpgradeReport) -> str:
    """What is compared, and for whom."""
    title = f"{report.before.source} \u2192 {report.after.source}"
    if report.package is not None:
        return f"{title} for {report.package.source}"
    return title if report.backend is None else f"{title} for {report.backend.key}"


def upgrade_lead(report: UpgradeReport) -> Html:
    """The result in short."""
    if report.package is not None:
        return _package_lead(report.package)
    if report.backend is not None:
        return _backend_lead(report.backend)
    cxx = [] if report.layer == "python" else [_summary(report.upgrade)]
    python = [] if report.python is None else [_python_lead(report)]
    return joined((*cxx, *python))


def upgrade_sections(report: UpgradeReport) -> tuple[Section, ...]:
    """Every detail."""
    if report.package is not None:
        return tuple(_package(report.package))
    if report.backend is not None:
        return tuple(_backend(report.backend))
    return (*_everything(report.upgrade), *(() if report.python is None else _python(report.python)))


def _summary(found: Upgrade) -> Html:
    if found.is_empty:
        return element("p", verdict("no difference", "good"), f" {found.compared:,} operators compared")
    broken = any(not schema.is_compatible for _, schema in found.schemas)
    text = "callers break" if found.removed or broken else "no caller breaks by a schema"
    rows = [(label or "result", line) for label, line in summary_rows(found)]
    mood = verdict(text, "bad" if found.removed or broken else "good")
    return joined((element("p", mood), summary_list(rows)))


def _everything(found: Upgrade) -> Iterator[Section]:
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        if side:
            yield Section(anchor, title, _one_sided(title, side))
    if found.schemas:
        yield Section("schemas", "Schemas", _schemas("Operators with another schema", found.schemas))
    changed = [row for change in found.changed if (row := _change(change)) is not None]
    if changed:
        body = data_table("Operators with other kernels or tags", ("operator", "what changes"), changed)
        yield Section("changed", "Kernels and tags", body)
    if found.fallbacks:
        rows = [
            (
                Cell(each.key.name, "name"),
                each.before or "nothing",
                each.after or "nothing",
                Cell(short_debug(each.debug), "code"),
            )
            for each in found.fallbacks
        ]
        body = data_table("Backend fallbacks that changed", ("key", "before", "after", "registered at"), rows)
        yield Section("fallbacks", "Backend fallbacks", body)
    if found.shared:
        yield Section(
            "shared", "Slots of many operators", _shared("Slots that change for many operators", found.shared)
        )
    lines = [
        (
            Cell(change.operator, "name"),
            Cell("def" if one.key is None else one.key.name, "name"),
            Cell(short_debug(one.before), "code"),
            Cell(short_debug(one.after), "code"),
        )
        for change in found.changed
        for one in change.lines
    ]
    if lines:
        body = data_table("Registrations that moved", ("operator", "key", "before", "after"), lines)
        yield Section("lines", "Moved lines", body)


def _python_lead(report: UpgradeReport) -> Html:
    rows = [(label or "Python", text) for label, text in python_summary_rows(report)]
    return summary_list(rows)


def _python(found: PythonDiff) -> Iterator[Section]:
    counted = [(Cell(one.registry, "name"), text) for one in found.registries if (text := python_row_text(one))]
    if counted:
        body = data_table("Registries of Python that differ or are not compared", ("registry", "how"), counted)
        yield Section("python", "Registries of Python", body)
    rows = [
        (
            Cell(one.registry, "name"),
            Cell(one.operator, "name"),
            one.key,
            python_kind_text(one),
            Cell(lines(python_function_texts(one)), "code"),
        )
        for one in found.changes
    ]
    if rows:
        header = ("registry", "operator", "key", "how", "what is in force")
        yield Section("python-entries", "What Python registers", data_table("Entries that differ", header, rows))


def _one_sided(title: str, side: Sequence[OneSided]) -> Html:
    rows = [
        (
            Cell(each.operator, "name"),
            Cell(each.schema or "without a def", "code"),
            keys_text(tuple(key.name for key in each.keys)),
            Cell(short_debug(each.debug), "code"),
            each.of_build,
        )
        for each in side
    ]
    return data_table(title, ("operator", "schema", "kernels at", "registered at", "only with"), rows)


def _schemas(caption: str, schemas: Sequence[tuple[str, SchemaChange]]) -> Html:
    rows = [
        (
            Cell(name, "name"),
            "compatible" if change.is_compatible else f"breaks callers: {change.backward}",
            Cell(lines(change.changes), "code"),
            Cell(lines((change.before or "no def", change.after or "no def")), "code"),
        )
        for name, change in schemas
    ]
    bad = [at for at, (_, change) in enumerate(schemas) if not change.is_compatible]
    return data_table(caption, ("operator", "for callers", "what changes", "before and after"), rows, bad=bad)


def _change(change: OperatorChange) -> Row | None:
    texts = change_texts(change)
    return (Cell(change.operator, "name"), lines(texts)) if texts else None


def _shared(caption: str, changes: Sequence[SharedChange]) -> Html:
    rows = [
        (
            keys_text(tuple(key.name for key in each.keys)),
            find_text(each.before),
            find_text(each.after),
            _CAUSES[each.cause],
            len(each.operators),
            folded(f"{each.operators[0]}, ...", ", ".join(each.operators))
            if len(each.operators) > 1
            else each.operators,
        )
        for each in changes
    ]
    return data_table(caption, ("keys", "before", "after", "because of", "number", "operators"), rows)


# -- one backend


def _backend_lead(found: BackendUpgrade) -> Html:
    text = "nothing changes for it" if found.is_empty else "something changes for it"
    keys = f"The keys of the backend: {keys_text(tuple(key.name for key in found.keys))}."
    return joined(
        (element("p", verdict(text, "good" if found.is_empty else "warn")), paragraphs([keys]), paragraphs(found.notes))
    )


def _backend(found: BackendUpgrade) -> Iterator[Section]:
    yield Section("calls", "What calls find", _shared("Calls that find something else", found.changes))
    for anchor, title, side in (
        ("removed", "Removed operators", found.removed),
        ("added", "Added operators", found.added),
    ):
        rows = [(Cell(name, "name"), find_text(find)) for name, find in side]
        body = data_table(title, ("operator", f"what {found.key} finds"), rows)
        yield Section(anchor, title, body)
    broken = [(Cell(name, "name"),) for name in found.schemas]
    yield Section("schemas", "Schemas", data_table("Operators whose schema breaks callers", ("operator",), broken))


# -- one package


def _package_lead(found: PackageUpgrade) -> Html:
    affected = found.is_affected
    text = "it meets something else" if affected else "nothing changes for it"
    counted = [
        ("registrations", found.registrations),
        ("operators", found.operators),
        ("refused now", len(found.newly_refused)),
        ("dangling", len(found.dangling)),
        ("schemas", len(found.schemas)),
        ("calls", len(found.kernels)),
    ]
    return joined((element("p", verdict(text, "warn" if affected else "good")), facts(counted)))


def _package(found: PackageUpgrade) -> Iterator[Section]:
    refused = [
        (Cell(each.registration, "code"), *(short_debug(text or "accepted") for text in (each.before, each.after)))
        for each in found.refused
    ]
    heads: tuple[str, ...] = ("registration", "before", "after")
    bad = [at for at, each in enumerate(found.refused) if each.before is None]
    yield Section("refused", "Refused", data_table("Registrations that are refused", heads, refused, bad=bad))
    rows = [(Cell(name, "name"),) for name in found.dangling]
    yield Section("dangling", "Dangling", data_table("Operators with kernels and no def any more", ("operator",), rows))
    yield Section("schemas", "Schemas", _schemas("Schemas of operators that it implements", found.schemas))
    yield Section("calls", "Calls", _calls("Calls that run its kernel on one side", found.kernels))
    body = _calls("Calls of these operators that run another kernel of PyTorch's", found.others)
    yield Section("others", "PyTorch's kernels", body)


def _calls(caption: str, changes: Sequence[OtherKernel]) -> Html:
    rows = [
        (
            Cell(each.operator, "name"),
            keys_text(tuple(key.name for key in each.keys)),
            short_debug(held_text(each.before)),
            short_debug(held_text(each.after)),
        )
        for each in changes
    ]
    return data_table(caption, ("operator", "keys", "before", "after"), rows)
