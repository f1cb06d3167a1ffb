"""`dispatchlab record`: what packages register as a scenario, or the whole registry of the running PyTorch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import SOURCE, reach_checkout, with_package
from dispatchlab.commands.output import exit_with, note, out, save, working
from dispatchlab.views.formatting import counted, first_of

if TYPE_CHECKING:
    from dispatchlab.live.recording.record_package import PackageRecord

_FEW = 3


@click.command(cls=Command)
@click.argument("packages", metavar="PACKAGE...", nargs=-1, type=SOURCE)
@click.option(
    "-o", "--output", "file", metavar="FILE", type=click.Path(), help="The file to write. Default: print the record."
)
@click.option("--all", "everything", is_flag=True, help="Record all registrations, as a registry file.")
@click.option(
    "--check",
    "checked",
    metavar="FILE",
    type=click.Path(),
    help="Compare with the record in FILE, and write nothing. Default packages: those that FILE names.",
)
@click.option(
    "--format", type=click.Choice(["text", "json"]), help="Output format of --check. Default: text.", default=None
)
def record(
    *,
    packages: tuple[str, ...],
    file: str | None,
    everything: bool,
    checked: str | None,
    format: Literal["text", "json"] | None,
) -> None:
    """Import packages and record their registrations as a scenario, with the line of each registration.

    Prints the record unless -o names a file. Imports the packages in the given order, in a new process. Leaves out the
    registrations that PyTorch makes for itself. With --all, writes the whole registry of the installed PyTorch
    after these imports.

    With --check, compares the present registrations of the packages with those in FILE: operators, schemas, kernels and
    calls of torch.library. Source locations are not compared. Exit codes of --check: 0 if there is no
    difference, else 1.

    \b
    Examples:
      dispatchlab record my_package
      dispatchlab record my_package -o my_package.yaml
      dispatchlab permute my_package.yaml --engine torch
      dispatchlab record --check my_package.yaml
      dispatchlab record --all -o today.dlreg
    """
    reach_checkout()
    packages = tuple(module for name in packages for module in with_package(name)[1] or (name,))
    if checked is not None:
        if file is not None or everything:
            raise click.UsageError("--check writes nothing: leave out --check, or leave out -o and --all")
        _check(checked, packages, format)
        return
    if everything:
        if file is None:
            note("no file was named: name the one to write with -o FILE")
            exit_with(2)
        _record_registry(packages, file)
        return
    packages = packages or with_package(".")[1]
    if not packages:
        note("no package was named: name packages to import, or use --all for everything that is registered")
        exit_with(2)
    from dispatchlab.files import FileKind, check_output
    from dispatchlab.questions.sources.find_sources import recorded_packages

    if file is not None:
        check_output(file, FileKind.SCENARIO)
    with working(f"starting PyTorch and importing {' and '.join(packages)}"):
        found = recorded_packages(packages)
    if file is None:
        out(found.text)
    else:
        save(file, found.text, FileKind.SCENARIO)
    for line in _summary(found):
        note(f"{file or ', '.join(packages)}: {line}")


def _check(file: str, packages: tuple[str, ...], format: Literal["text", "json"] | None) -> None:
    from dispatchlab.questions.record.blocks import check_view
    from dispatchlab.questions.record.check_record import check_record

    with working(f"starting PyTorch and importing what {file} names"):
        found = check_record(file, packages)
    for each in found.unreadable:
        note(f"{file}: left out: {each}")
    view = check_view(found)
    out(view.json() if format == "json" else view.text())
    exit_with(found.exit_code)


def _record_registry(packages: tuple[str, ...], file: str) -> None:
    from dispatchlab.files import FileKind, check_output
    from dispatchlab.live.registry import live_registry
    from dispatchlab.registries.file import registry_bytes

    check_output(file, FileKind.REGISTRY)
    importing = "".join(f", importing {name}" for name in packages)
    with working(f"starting PyTorch{importing} and reading its registries"):
        registry = live_registry(packages, python=True)
    for each in registry.unreadable:
        note(each)
    content = registry_bytes(registry)
    save(file, content, FileKind.REGISTRY)
    note(
        f"{file}: {len(registry):,} operators, {registry.kernel_count:,} kernels and {len(registry.fallbacks)} "
        f"fallbacks of PyTorch {registry.torch} in {len(content):,} bytes"
    )


def _summary(found: PackageRecord) -> list[str]:
    lines: list[str] = []
    if found.registrations:
        counts = f"{counted(found.operators, 'operator')} and {counted(found.kernels, 'kernel')}"
        lines = [f"{counted(found.registrations, 'registration')}{_made_by(found)}: {counts}"]
    elif found.in_python:
        lines = ["nothing is registered with the dispatcher when this is imported"]
    else:
        lines = [
            "nothing is registered when this is imported; to record a module that registers, name it: my_package.ops"
        ]
    if found.foundations:
        lines.append(f"kernels are for operators of others, whose defs come first: {first_of(found.foundations, _FEW)}")
    if found.registry is None:
        version = found.torch.partition("+")[0]
        lines.append(
            f"no registry of PyTorch {version} comes with dispatchlab, so the record stands alone: record one with "
            f"`dispatchlab record --all -o torch-{version}.dlreg` and add `registry: torch-{version}.dlreg`"
        )
    if found.in_python:
        titles = Counter(one.described.title for one in found.in_python)
        lines.append(
            f"{counted(len(found.in_python), 'entry', 'entries')} of the registries of Python, which permute does not "
            f"explore: {', '.join(f'{count} of {title}' for title, count in titles.items())}"
        )
    if found.dangling:
        lines.append(f"kernels without a def dangle: {first_of(found.dangling, _FEW)}")
    if found.by_torch:
        verb = "was" if found.by_torch == 1 else "were"
        lines.append(
            f"{counted(found.by_torch, 'registration')} that PyTorch made for itself on the way {verb} left out"
        )
    return [*lines, *(f"left out: {each}" for each in found.unreadable)]


def _made_by(found: PackageRecord) -> str:
    """Return the makers of the registrations: C++, lines of Python, or both."""
    lines = counted(len(found.sites), "line")
    if not found.native:
        return f", made by {lines} of Python"
    python = found.registrations - found.native
    return f", {found.native} of them in C++ and {python} made by {lines} of Python" if python else ", all in C++"
