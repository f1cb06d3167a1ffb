"""Upgrades as one document: a summary, then the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.upgrade.compare_sources import UpgradeReport
from dispatchlab.questions.upgrade.operator_changes import (
    Cause,
    Composite,
    Find,
    OneSided,
    OperatorChange,
    Reason,
    SchemaChange,
    SharedChange,
    SlotChange,
    Upgrade,
    is_autograd,
)
from dispatchlab.questions.upgrade.package_changes import Held, OtherKernel, PackageUpgrade
from dispatchlab.questions.upgrade.python_changes import PythonDiff
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted, first_of, key_names
from dispatchlab.views.view import View

_FIRST = 10  # rows of a table, unless everything is asked for
_NAMED = 6
_RANKED = 3

_CAUSES = {
    Cause.DISPATCHER: "the rules of the dispatcher",
    Cause.FALLBACKS: "a backend fallback",
    Cause.KERNELS: "kernels",
}


def upgrade_view(report: UpgradeReport, *, everything: bool = False) -> View[UpgradeReport]:
    """Return the view of an upgrade.

    Args:
        report: the report of the check.
        everything: all details instead of the first of each part.
    """
    return View(report, document=_document, torch=report.after.torch, whole=everything)


@as_json.register
def _(value: UpgradeReport) -> dict[str, object]:
    """Leave out what the text leaves out: with `--for`, the differences that do not concern the package."""
    upgrade, python = (value.upgrade, value.python) if value.package is None else (None, None)
    return fields_of(value, upgrade=upgrade, python=python)


def _document(report: UpgradeReport) -> b.Document:
    title = f"{report.before.source} -> {report.after.source}"
    blocks: list[b.Block] = []
    if report.package is not None:
        title += f" for {report.package.source}"
        blocks += _package(report.package)
    if not blocks:
        blocks += [] if report.layer == "python" else _registry(report.upgrade)
        blocks += [] if report.python is None else _python(report.python)
    sides = tuple(
        (name, f"{about}, {counted(side.operators, 'operator')}, by the model {side.model}")
        for name, side in (("before", report.before), ("after", report.after))
        for about in (f"PyTorch {side.torch}" if side.torch[:1].isdigit() else side.source,)
    )
    return b.Document("diff", title, (blocks[0], b.Facts(sides), *blocks[1:]))


# -- all operators


def _registry(found: Upgrade) -> Iterator[b.Block]:
    compared = f", {counted(found.compared, 'operator')} compared"
    if found.is_empty:
        yield b.Verdict("no difference", "good", compared)
        return
    breaks = bool(found.removed) or any(not schema.is_compatible for _, schema in found.schemas)
    yield b.Verdict(
        "callers break" if breaks else "no caller breaks by a schema", "bad" if breaks else "good", compared
    )
    yield b.Facts(tuple((title, "; ".join(texts)) for title, texts in _summary(found) if texts))
    yield from _one_sided("Removed operators", found.removed)
    yield from _one_sided("Added operators", found.added)
    yield from _schemas("Schemas", found.schemas)
    yield from _changes(found.changed)
    rows = ((b.Cell(one.key.name, "name"), one.before or "nothing", one.after or "nothing") for one in found.fallbacks)
    yield from b.part("Backend fallbacks", ("key", "before", "after"), rows)
    yield from _shared("Slots of many operators", found.shared)


def _summary(found: Upgrade) -> Iterator[tuple[str, list[str]]]:
    """Return the differences, a row for each kind."""
    for title, side in (("removed", found.removed), ("added", found.added)):
        overloads = sum(one.is_overload for one in side)
        among = [f"{overloads:,} are overloads of operators that both have"] * bool(overloads)
        yield title, [_ranked(Counter(one.operator.partition("::")[0] for one in side)), *among] if side else []
    broken = [name for name, schema in found.schemas if not schema.is_compatible]
    changed = [f"{len(found.schemas):,} changed"] * bool(found.schemas)
    yield "schemas", [*changed, *([f"{len(broken):,} break callers{_such_as(broken)}"] if broken else [])]
    composites = Counter(change.composite for change in found.changed if change.composite is not None)
    yield "composite", [f"{number:,} {_transition(old, new)}" for (old, new), number in composites.most_common()]
    reasons = Counter(one.reason for change in found.changed for one in change.replaced)
    replaced = [f"{number:,} {_REASONS[reason]}" for reason, number in reasons.most_common()]
    yield "kernels", [*_gained_and_lost(found, lambda key: not is_autograd(key)), *replaced]
    yield "autograd", _gained_and_lost(found, is_autograd)
    keys = [(key, number, "gone") for key, number in found.keys_gone.items()]
    keys += [(key, number, "new") for key, number in found.keys_new.items()]
    kernels = {number: f", with kernels of {counted(number, 'operator')}" if number else "" for _, number, _ in keys}
    yield "keys", [f"{key.name} is {verb}{kernels[number]}" for key, number, verb in keys]
    operators = {name for one in found.shared for name in one.operators}
    yield (
        "dispatcher",
        [f"other rules or fallbacks change slots of {counted(len(operators), 'operator')}"] * bool(operators),
    )
    lost = [change.operator for change in found.changed if any(map(_finds_nothing, change.own_slots))]
    yield "calls", [f"{counted(len(lost), 'operator')} had a kernel at a key and none now{_such_as(lost)}"] * bool(lost)
    tags = [f"{tag} is new, on {counted(number, 'operator')}" for tag, number in found.new_tags.items()]
    tags += [f"{tag} is gone, from {counted(number, 'operator')}" for tag, number in found.gone_tags.items()]
    other_tags = sum(bool(change.tags_gained or change.tags_lost) for change in found.changed)
    yield "tags", [*tags, *([f"other tags on {counted(other_tags, 'operator')}"] if other_tags else [])]
    builds = [f"{name} ({counted(number, 'kernel')})" for name, number in found.builds.items()]
    yield "builds", [f"left out, since one of the builds is without it: {', '.join(builds)}"] * bool(builds)
    some = counted(len(found.left_out), "operator")
    yield "left out", [f"{some} that PyTorch registers on first use of a part: see --all"] * bool(found.left_out)


def _gained_and_lost(found: Upgrade, wanted: Callable[[DispatchKey], bool]) -> list[str]:
    texts = []
    for verb in ("gained", "lost"):
        keys = Counter(
            key.name
            for change in found.changed
            for key in (change.gained if verb == "gained" else change.lost)
            if wanted(key)
        )
        if keys:
            texts.append(f"{keys.total():,} {verb} ({_ranked(keys)})")
    return texts


_REASONS = {
    Reason.FALLTHROUGH: "fall through now, or no longer",
    Reason.OWNER: "from another owner",
    Reason.FILE: "of another file",
}


def _finds_nothing(slot: SlotChange) -> bool:
    return slot.after.way in (Way.MISSING, Way.AMBIGUOUS)


def _transition(old: Composite, new: Composite) -> str:
    if new is Composite.NONE:
        return f"no longer composite ({old} before)"
    return f"became {new}{'' if old is Composite.NONE else f' ({old} before)'}"


def _one_sided(title: str, side: Sequence[OneSided]) -> tuple[b.Section, ...]:
    rows = (
        (
            b.Cell(one.operator, "name"),
            b.Cell((one.schema or "without a def").removeprefix(one.operator), "code"),
            b.Cell(_keys(one.keys), "prose"),
            b.Cell(b.source(one.debug), "code"),
            f"only with {one.of_build}" if one.of_build else "",
        )
        for one in side
    )
    return b.part(title, ("operator", "schema", "kernels at", "registered at", "build"), rows, most=_FIRST)


def _schemas(title: str, schemas: Sequence[tuple[str, SchemaChange]]) -> tuple[b.Section, ...]:
    rows = (
        (
            b.Cell(name, "name"),
            "compatible" if change.is_compatible else f"breaks callers: {change.backward}",
            b.Cell(b.Stack(change.changes or (change.before or "no def", change.after or "no def")), "code"),
        )
        for name, change in schemas
    )
    breaking = (at for at, (_, change) in enumerate(schemas) if not change.is_compatible)
    return b.part(title, ("operator", "for callers", "what changes"), rows, marked=breaking, most=_FIRST)


def _changes(changes: Iterable[OperatorChange]) -> tuple[b.Section, ...]:
    """Return changed kernels and tags, operators with the same changes together; removed kernels come first."""
    groups: dict[tuple[b.Inline, ...], list[str]] = {}
    for change in changes:
        if lines := tuple(_change(change)):
            groups.setdefault(lines, []).append(change.operator)
    is_bad = {lines: any(isinstance(line, b.Span) and line.mood == "bad" for line in lines) for lines in groups}
    ranked = sorted(groups.items(), key=lambda item: (not is_bad[item[0]], item[1][0]))
    rows = ((_names(names), b.Cell(b.Stack(lines))) for lines, names in ranked)
    return b.part("Kernels and tags", ("operators", "what changes"), rows, most=_FIRST)


def _change(change: OperatorChange) -> Iterator[b.Inline]:
    """Return the changes of one operator, except its schema."""
    if change.alias is not None:
        yield f"alias kind: {change.alias[0]} -> {change.alias[1]}"
    if change.composite is not None:
        yield f"composite: {change.composite[0]} -> {change.composite[1]}"
    for verb, keys in (("lost", change.lost), ("gained", change.gained)):
        if aliases := [key for key in keys if key.is_alias]:
            yield b.Span(f"{verb} kernels at {_keys(aliases)}", "bad" if verb == "lost" else "good")
    for slot in change.own_slots:
        text = f"{_keys(slot.keys)}: {_find_text(slot.before)} -> {_find_text(slot.after)}"
        yield b.Span(text, "bad" if _finds_nothing(slot) else "")
    in_slots = {key for slot in change.own_slots for key in slot.keys}
    for verb, keys in (("lost", change.lost), ("gained", change.gained)):
        if others := [key for key in keys if not key.is_alias and key not in in_slots]:
            yield f"{_keys(others)}: {verb} a kernel"
    for key, debug in change.foreign.items():
        yield (f"{key.name}: ", b.source(debug))
    for one in change.replaced:
        yield f"{one.key.name}: {one.before or '(no debug text)'} -> {one.after or '(no debug text)'}"
    if tags := [*(f"+{tag}" for tag in change.tags_gained), *(f"-{tag}" for tag in change.tags_lost)]:
        yield f"tags: {' '.join(tags)}"


def _shared(title: str, changes: Sequence[SharedChange]) -> tuple[b.Section, ...]:
    rows = (
        (
            _names(change.operators),
            f"{_find_text(change.before)} -> {_find_text(change.after)}",
            _CAUSES[change.cause],
            b.Cell(_keys(change.keys), "prose"),
        )
        for change in changes
    )
    return b.part(title, ("operators", "what calls find", "because of", "keys"), rows, most=_FIRST)


# -- what Python registers


def _python(found: PythonDiff) -> Iterator[b.Block]:
    differs = f"{counted(len(found.changes), 'entry', 'entries')} differ" if found.changes else "no difference"
    where = f" in {counted(len(found.compared), 'registry', 'registries')} of Python compared"
    yield b.Verdict(differs, "warn" if found.changes else "good", where)
    left = ((b.Cell(name, "name"), why) for name, why in found.not_compared)
    yield from b.part("Registries of Python that are not compared", ("registry", "why"), left)
    rows = []
    for change in found.changes:
        sides = (("before", change.before), ("after", change.after))
        texts = [f"{side}: {one.function} at {one.site or '(no line known)'}" for side, one in sides if one is not None]
        name = b.Cell(f"{change.operator} {change.key}".rstrip(), "name")
        rows.append((name, b.Cell(change.registry, "name"), change.kind, b.Cell(b.Stack(tuple(texts)), "code")))
    yield from b.part("What Python registers", ("entry", "registry", "how", "function"), rows, most=2 * _FIRST)


# -- one package


def _package(found: PackageUpgrade) -> Iterator[b.Block]:
    affected = found.is_affected
    yield b.Verdict(
        "something changes for it" if affected else "no registration that it uses changes",
        "warn" if affected else "good",
    )
    yield b.Facts(
        (
            ("registrations", found.registrations),
            ("operators", found.operators),
            ("refused now", len(found.newly_refused)),
            ("dangling", len(found.dangling)),
            ("schemas", len(found.schemas)),
            ("calls", len(found.kernels)),
            ("compared", "registrations, refusals, and the kernels that calls run"),
            ("not compared", "the work of kernels, functions of PyTorch in Python and C++, compiled code"),
        )
    )
    if not affected:
        same = "each registration is accepted or refused as before, and each call runs the same kernel"
        yield b.Section("As before", (b.Line(same),))
    rows = tuple(
        (b.Cell(one.registration, "code"), b.Cell(b.Stack((one.before or "accepted", one.after or "accepted"))))
        for one in found.refused
    )
    bad = (at for at, one in enumerate(found.refused) if one.before is None)
    yield from b.part("Refused registrations", ("registration", "before and after"), rows, marked=bad, most=_FIRST)
    dangling = ((b.Cell(name, "name"),) for name in found.dangling)
    yield from b.part("Operators with kernels and no def any more", ("operator",), dangling, most=_FIRST)
    yield from _schemas("Schemas of operators that it implements", found.schemas)
    yield from _calls("Calls that run its kernel on one side", found.kernels)
    changes = ((one.since, one.area, b.Cell(b.Stack((one.what, one.source)))) for one in found.behaviour)
    yield from b.part("PyTorch does otherwise, as users reported", ("since", "where", "what"), changes)


def _calls(title: str, changes: Sequence[OtherKernel]) -> tuple[b.Section, ...]:
    """Return calls that run another kernel, operators with the same change together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for change in changes:
        way = _keys(change.keys), _held_text(change.before), _held_text(change.after)
        groups.setdefault(way, []).append(change.operator)
    rows = ((_names(names), keys, b.Cell(b.Stack(tuple(sides)), "code")) for (keys, *sides), names in groups.items())
    return b.part(title, ("operators", "keys", "before and after"), rows, most=_FIRST)


def _held_text(held: Held) -> str:
    """Return the kernel that runs in a slot, and its owner."""
    whose = "the package's " if held.is_packages else "PyTorch's " if held.debug else ""
    find = _find_text(held.find).removeprefix("its ").removeprefix("the ")
    return f"{whose}{find}{f' ({held.debug})' if held.debug else ''}"


# -- words


_FINDS = {
    Way.DIRECT: "its own kernel",
    Way.FALLBACK: "the fallback",
    Way.AMBIGUOUS: "ambiguous",
    Way.MISSING: "nothing",
}


def _find_text(find: Find) -> str:
    """Return the kernel that a call finds: `its own kernel`, `CompositeImplicitAutograd`, `nothing`."""
    return _FINDS.get(find.way, str(find.source))


def _keys(keys: Sequence[DispatchKey]) -> str:
    return ", ".join(key_names([key.name for key in keys]))


def _names(names: Sequence[str]) -> b.Cell:
    """Return operators; all after the first ones are in a folded part."""
    if len(names) <= _NAMED:
        return b.Cell(", ".join(names), "name")
    return b.Cell(b.Folded(first_of(names, _NAMED), (b.Line(", ".join(names)),)))


def _ranked(counts: Mapping[str, int]) -> str:
    """Return the largest numbers, and the rest as one."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(number for _, number in ranked[_RANKED:])
    shown = [f"{name} {number:,}" for name, number in ranked[:_RANKED]]
    return ", ".join([*shown, *([f"others {rest:,}"] if rest else [])])


def _such_as(names: Sequence[str]) -> str:
    return f", such as {names[0]}" if names else ""
