"""`dispatchlab record`: what packages register as a scenario, or the whole registry of the running PyTorch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import click

from dispatchlab.commands.options import JOBS, force_option, import_timeout_option, progress_option, refuse
from dispatchlab.commands.output import exit_with, note, out, save, working
from dispatchlab.views.formatting import counted, first_of

if TYPE_CHECKING:
    from dispatchlab.pytorch.recording.record_package import PackageRecord

_FEW, _MANY = 3, 20


@click.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1)
@click.option(
    "-o", "--output", "file", metavar="FILE", type=click.Path(), help="The file to write. Default: print the record."
)
@force_option
@click.option("--all", "everything", is_flag=True, help="Record everything that is registered, as a registry file.")
@click.option(
    "--check",
    "checked",
    metavar="FILE",
    type=click.Path(),
    help="Compare with the record in FILE, and write nothing. PACKAGE is what FILE names when left out.",
)
@click.option(
    "--format", type=click.Choice(["text", "json"]), help="Output format of --check. Default: text.", default=None
)
@click.option(
    "--once",
    is_flag=True,
    help="Import the packages in this order alone. Then no verdict on the record is a proof.",
)
@click.option(
    "--orders",
    metavar="N",
    type=click.IntRange(min=1),
    help="Import in every order when there are at most N, else in N that are chosen. Default: 24.",
)
@click.option("--jobs", metavar="N", type=JOBS, help="Import in N orders at once. Default: one for each core.")
@import_timeout_option
@progress_option
@click.pass_context
def record(
    context: click.Context,
    /,
    *,
    packages: tuple[str, ...],
    file: str | None,
    everything: bool,
    force: bool,
    checked: str | None,
    format: Literal["text", "json"] | None,
    once: bool,
    orders: int | None,
    jobs: int | None,
    progress: bool | None,
) -> None:
    """Record what importing packages registers, as a scenario that names the true call site of each registration.

    Prints the record when no file is named with -o. Imports the packages in this order, in a new process. Leaves out
    the registrations that PyTorch makes for itself meanwhile. With --all, writes the whole registry of the running
    PyTorch after these imports.

    Then imports them, and the modules that register, in every other order in which that is possible, each in a process
    of its own, and compares what is there afterwards: dumps, tables, the functions that are registered with all values
    that they reach, the overloads that a name tries, registries of Python, settings. The record says what differs, and
    `dispatchlab permute` shows it.

    With --check, compares what the packages register now with what they did when FILE was recorded: operators, schemas,
    kernels and calls of torch.library. Source locations do not count. Exit codes of --check: 0 when it is the same, 1
    when something differs.

    \b
    Examples:
      dispatchlab record my_package
      dispatchlab record my_package -o my_package.yaml
      dispatchlab permute my_package.yaml --engine torch
      dispatchlab record --check my_package.yaml
      dispatchlab record --all -o today.dlreg
    """
    if checked is not None:
        refuse(
            context,
            ("file", "force", "everything", "once", "orders", "jobs"),
            "has no effect with --check, which writes nothing: leave it out",
        )
        _check(checked, packages, format, progress=progress)
        return
    refuse(context, ("format",), "is for --check: leave it out")
    if file is None and not everything:
        refuse(context, ("force",), "is for the file of -o, and none is written: leave it out")
    if once:
        refuse(
            context,
            ("orders", "jobs"),
            "is for other orders, and --once imports in one alone: leave one of the two out",
        )
    if everything:
        refuse(context, ("once", "orders", "jobs"), "has no effect with --all, which imports once: leave it out")
        if file is None:
            note("no file was named: name the one to write with -o FILE")
            exit_with(2)
        _record_registry(packages, file, force=force, progress=progress)
        return
    if not packages:
        note("no package was named: name packages to import, or use --all for everything that is registered")
        exit_with(2)
    from dispatchlab.files.file_kinds import FileKind, check_output
    from dispatchlab.sources.recorded_packages import MOST_ORDERS, recorded_packages

    if file is not None:
        check_output(file, FileKind.SCENARIO, force=force)
    others = "" if once else ", in this order and in others"
    with working(f"starting PyTorch and importing {' and '.join(packages)}{others}", asked=progress):
        found = recorded_packages(packages, once=once, most=orders or MOST_ORDERS, jobs=jobs)
    if file is None:
        out(found.text)
    else:
        save(file, found.text, FileKind.SCENARIO, force=force)
    for line in _summary(found):
        note(f"{file or ', '.join(packages)}: {line}")


def _check(
    file: str, packages: tuple[str, ...], format: Literal["text", "json"] | None, *, progress: bool | None
) -> None:
    from dispatchlab.questions.record.blocks import check_view
    from dispatchlab.questions.record.check_record import check_record

    with working(f"starting PyTorch and importing what {file} names", asked=progress):
        found = check_record(file, packages)
    for each in found.unreadable:
        note(f"{file}: left out: {each}")
    view = check_view(found)
    out(view.json() if format == "json" else view.text())
    exit_with(found.exit_code)


def _record_registry(packages: tuple[str, ...], file: str, *, force: bool, progress: bool | None) -> None:
    from dispatchlab.files.file_kinds import FileKind, check_output
    from dispatchlab.model.python_layer import REGISTRY_NAMED
    from dispatchlab.pytorch.registry import live_registry
    from dispatchlab.records.file import registry_bytes

    check_output(file, FileKind.REGISTRY, force=force)
    importing = "".join(f", importing {name}" for name in packages)
    with working(f"starting PyTorch{importing} and reading its registries", asked=progress):
        registry = live_registry(packages, python=True)
    for each in registry.unreadable:
        note(each)
    content = registry_bytes(registry)
    save(file, content, FileKind.REGISTRY, force=force)
    note(
        f"{file}: {len(registry):,} operators, {registry.kernel_count:,} kernels and {len(registry.fallbacks)} "
        f"fallbacks of PyTorch {registry.torch} in {len(content):,} bytes"
    )
    layer = registry.python
    if layer is not None:
        note(f"{file}: {counted(sum(1 for _ in layer), 'registration')} of Python beside the dispatch tables")
        for name in layer.missing:
            note(f"{file}: {REGISTRY_NAMED[name].title}: not found here, looked for at {REGISTRY_NAMED[name].home}")
        for module in layer.not_imported:
            note(f"{file}: {module} is not imported, so nothing of it is in the Python layer")


def _summary(found: PackageRecord) -> list[str]:
    lines: list[str] = []
    if not found.registrations and found.in_python:
        lines = ["nothing is registered with the dispatcher when this is imported"]
    elif not found.registrations:
        lines = [
            "nothing is registered when this is imported; to record a module that registers, name it: my_package.ops"
        ]
    else:
        counts = f"{counted(found.operators, 'operator')} and {counted(found.kernels, 'kernel')}"
        lines = [
            f"{counted(found.registrations, 'registration')}{_made_by(found)}: {counts}; the dumps of PyTorch name "
            f"{counted(found.shown, 'source location')} for them"
        ]
    if found.idle and (found.registrations or found.in_python):
        lines.append(f"no module of these registers anything: {first_of(found.idle, _FEW)}")
    if found.foundations:
        lines.append(f"kernels are for operators of others, whose defs come first: {first_of(found.foundations, _FEW)}")
    if found.registry is None:
        version = found.torch.partition("+")[0]
        lines.append(
            f"no registry of PyTorch {version} comes with dispatchlab, so the record stands alone: record one with "
            f"`dispatchlab record --all -o torch-{version}.dlreg` and add `registry: torch-{version}.dlreg`"
        )
    written = [one for one in found.in_python if one.effect != "used"]
    if written:
        titles = Counter(one.described.title for one in written)
        lines.append(
            f"{counted(len(written), 'registration')} of Python beside the dispatch tables: "
            f"{', '.join(f'{count} of {title}' for title, count in titles.items())}; "
            "they are in the record, and permute explores those whose rule is known"
        )
        lines += [
            f"  {one.described.title}{f', {one.key}' if one.key else ''} for {one.operator} "
            f"{_EFFECTS[one.effect]}at {one.site}"
            for one in written[:_MANY]
        ]
        if len(written) > _MANY:
            lines.append(f"  and {len(written) - _MANY:,} more")
    used = dict.fromkeys((one.described.title, one.site) for one in found.in_python if one.effect == "used")
    lines += [
        f"{site} names the table of {title}, and may look up or take out what another module registers there: no order "
        "of these is proved"
        for title, site in used
    ]
    lines += [
        f"refused, since PyTorch has one: {one.described.title}{f', {one.key}' if one.key else ''} for {one.operator} "
        f"at {one.site}"
        for one in found.refused[:_MANY]
    ]
    if len(found.refused) > _MANY:
        lines.append(f"  and {len(found.refused) - _MANY:,} more that were refused")
    asked: dict[tuple[str, str], str] = {}
    for one in found.dependences:
        asked.setdefault((one.read.site, one.read.about), str(one))
    lines += list(asked.values())[:_MANY]
    if len(asked) > _MANY:
        lines.append(f"  and {len(asked) - _MANY:,} more questions about what another module registers")
    if found.dangling:
        lines.append(f"kernels without a def dangle: {first_of(found.dangling, _FEW)}")
    if found.others:
        others = ", ".join(f"{count} by {package}" for package, count in found.others.items())
        lines.append(f"some were made by other packages: {others}")
    if found.by_torch:
        verb = "was" if found.by_torch == 1 else "were"
        lines.append(
            f"{counted(found.by_torch, 'registration')} that PyTorch made for itself on the way {verb} left out"
        )
    lines += [f"left out: {each}" for each in found.unreadable]
    return [*lines, *_orders(found)]


def _orders(found: PackageRecord) -> list[str]:
    """What the other orders of imports showed."""
    if found.orders is None:
        return ["recorded in one order of imports, so no verdict on this record is a proof"]
    lines = [found.orders.text]
    for finding in found.orders.findings:
        verb = "depends" if finding.certain else "may depend"
        at = f", registered at {first_of(finding.sites, _FEW)}" if finding.sites else ""
        lines.append(f"  {verb} on the order of imports: {finding.what}{at}")
    return [*lines, *found.orders.open]


_EFFECTS = {"": "", "refused": "refused, since there is one, ", "removed": "taken out "}


def _made_by(found: PackageRecord) -> str:
    """Who made the registrations: C++, lines of Python, or both."""
    lines = counted(len(found.sites), "line")
    if not found.native:
        return f", made by {lines} of Python"
    python = found.registrations - found.native
    return f", {found.native} of them in C++ and {python} made by {lines} of Python" if python else ", all in C++"
