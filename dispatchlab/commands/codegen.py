"""`dispatchlab codegen`: the structured kernels of a file of native functions as Python, with their registrations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import format_option
from dispatchlab.commands.output import Format, note, out, show_view


@click.command(cls=Command)
@click.argument("file", metavar="FILE.yaml", type=click.Path())
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=click.Path(), help="Write the files to DIR. Default: print them."
)
@click.option(
    "--only", metavar="OP", multiple=True, help="Generate only the group of this operator or glob; may be repeated."
)
@click.option("--registrations", is_flag=True, help="Show every registration that is generated for the functions.")
@click.option(
    "--cpp",
    is_flag=True,
    help="Show the C++ declarations of the functions: Functions.h, NativeFunctions.h, NativeMetaFunctions.h, "
    "Operators.h and RegisterSchema.cpp, as in PyTorch's build; with -o DIR, write the files.",
)
@format_option()
def codegen(
    *,
    file: str,
    folder: str | None,
    only: tuple[str, ...],
    registrations: bool,
    cpp: bool,
    format: Format | None,
) -> None:
    """Generate code from a native_functions.yaml: structured operators as Python, or C++ declarations.

    Writes nothing if FILE.yaml has a mistake.

    \b
    Examples:
      dispatchlab codegen native_functions.yaml -o generated
      dispatchlab codegen native_functions.yaml --only add
      dispatchlab codegen native_functions.yaml --registrations --only empty
      dispatchlab codegen native_functions.yaml --cpp --only add.Tensor
    """
    if registrations:
        from dispatchlab.questions.native_functions.blocks import registrations_view
        from dispatchlab.questions.native_functions.registrations import registration_report

        show_view(format, registrations_view(registration_report(file, only=only)))
        return
    path = None if folder is None else Path(folder)
    made = _declarations(file, only) if cpp else _generated(file, path, only)
    if path is None:
        for name, text in made[0].items():
            out(f"{'//' if name.endswith(('.h', '.cpp')) else '#'} ---- {name}\n{text}")
    else:
        _write(path, *made, only)


_Made: TypeAlias = tuple[Mapping[str, str], str, str]
"""Files by their names, the first line that all of them have, and what they hold."""


def _declarations(file: str, only: tuple[str, ...]) -> _Made:
    from dispatchlab.questions.native_functions.registrations import cpp_declarations

    files = cpp_declarations(file, only=only)
    return files, files["Functions.h"].partition("\n")[0], f"the C++ declarations of {file}"


def _generated(file: str, folder: Path | None, only: tuple[str, ...]) -> _Made:
    from dispatchlab.codegen.emit.generate import INDEX, generated_before, generated_files
    from dispatchlab.codegen.emit.python_source import mark
    from dispatchlab.codegen.read.native_functions import load_native_functions

    natives = load_native_functions(file)
    name = Path(file).name
    before = () if folder is None else generated_before(folder, mark(name))
    beside = [each.removesuffix(".py") for each in before if each.endswith(".py") and each != INDEX]
    files = generated_files(natives, file=name, only=only, beside=beside if only else ())
    modules = len(files) // 2
    what = f"{modules} structured group{'' if modules == 1 else 's'} of {file}"
    others = len(natives.functions) - sum(len(each.functions) for each in natives.structured_groups)
    if others and folder is not None and not only:
        functions = f"{others:,} function{' is' if others == 1 else 's are'}"
        note(f"{functions} in no structured group: --registrations shows what is generated for them")
    return files, mark(name), what


def _write(folder: Path, files: Mapping[str, str], first_line: str, what: str, only: tuple[str, ...]) -> None:
    """Write the files; with `only`, other files are left alone."""
    from dispatchlab.codegen.emit.generate import differing, generated_before, write_files
    from dispatchlab.files import FileKind, check_overwrite

    for each in () if only else generated_before(folder, first_line):
        if each not in files:
            note(f"{folder / each} is no longer generated: remove it")
    for each in differing(folder, files):
        kind = FileKind.SCENARIO if each.endswith(".yaml") else FileKind.GENERATED
        check_overwrite(folder / each, kind)
    written = write_files(folder, files)
    out(f"{what}: {len(written)} of {len(files)} files written to {folder}\n")
