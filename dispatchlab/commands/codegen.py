"""`dispatchlab codegen`: the structured kernels of a file of native functions as Python, with their registrations."""

from __future__ import annotations

from pathlib import Path

import click

from dispatchlab.commands.options import force_option
from dispatchlab.commands.output import exit_with, note, out


@click.command()
@click.argument("file", metavar="[FILE.yaml]", required=False, type=click.Path())
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=click.Path(), help="Write the files to DIR. Default: print them."
)
@click.option(
    "--only", metavar="OP", multiple=True, help="Generate only the group of this operator or glob; may be repeated."
)
@force_option
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when the files in DIR differ.")
@click.option(
    "--walk", "walked", metavar="OP", help="Call an operator that has kernels and show the frames of the call."
)
def codegen(
    *, file: str | None, folder: str | None, only: tuple[str, ...], force: bool, check: bool, walked: str | None
) -> None:
    """Generate structured operators from a native_functions.yaml: wrappers, classes, registrations, a scenario.

    Writes nothing when anything in FILE.yaml is wrong.

    \b
    Examples:
      dispatchlab codegen native_functions.yaml -o generated
      dispatchlab codegen native_functions.yaml --only add
      dispatchlab codegen native_functions.yaml -o generated --check
      dispatchlab codegen --walk add.out
    """
    if walked is not None and (file or folder or only or check or force):
        raise click.UsageError("--walk takes an operator, and no file or other option: leave them out")
    if walked is None and file is None:
        raise click.UsageError("no file was named: name a file of native functions, or an operator with --walk")
    if check and folder is None:
        raise click.UsageError("--check compares with the files in a folder: name the folder with -o DIR")
    if force and (check or folder is None):
        raise click.UsageError("--force is for the files of -o DIR, and nothing is written: leave it out")
    if walked is not None:
        from dispatchlab.codegen.call_stack import call_stack

        out(call_stack(walked).text())
    elif file is not None:
        _generate(file, None if folder is None else Path(folder), only, check=check, force=force)


def _generate(file: str, folder: Path | None, only: tuple[str, ...], *, check: bool, force: bool) -> None:
    from dispatchlab.codegen.emit.generate import (
        INDEX,
        differing,
        generated_before,
        generated_files,
        generated_from_others,
        write_files,
    )
    from dispatchlab.codegen.emit.python_source import mark
    from dispatchlab.codegen.read.native_functions import load_native_functions
    from dispatchlab.file_kinds import FileKind, check_overwrite

    natives = load_native_functions(file)
    name = Path(file).name
    before = () if folder is None else generated_before(folder, mark(name))
    beside = [each.removesuffix(".py") for each in before if each.endswith(".py") and each != INDEX]
    files = generated_files(natives, file=name, only=only, beside=beside if only else ())
    if folder is None:
        out("".join(f"# ---- {name}\n{text}" for name, text in files.items()))
        return
    others = generated_from_others(folder, mark(name))
    if others and not (force or check):
        raise click.UsageError(
            f"{folder} holds {len(others)} files that were generated from another file, such as {others[0]}, and the "
            "index would leave them out: write to another folder, or leave them behind with --force"
        )
    for each in others:
        note(f"{folder / each} was generated from another file than {name}")
    left = () if only else tuple(each for each in before if each not in files)
    for each in left:
        note(f"{folder / each} is no longer generated: remove it")
    if not check:
        for each in () if force else differing(folder, files):
            check_overwrite(folder / each, FileKind.SCENARIO if each.endswith(".yaml") else FileKind.GENERATED)
        written = write_files(folder, files)
        modules = len(files) // 2
        groups = f"{modules} structured group{'' if modules == 1 else 's'}"
        out(f"{groups} of {file}: {len(written)} of {len(files)} files written to {folder}\n")
        return
    changed = differing(folder, files)
    for each in changed:
        note(f"{folder / each} {'differs' if (folder / each).exists() else 'is not there'}")
    state = f"{len(changed)} of {len(files)} files differ" if changed else f"all {len(files)} files are up to date"
    many = f"{len(left)} file{'' if len(left) == 1 else 's'}"
    out(f"{state}{f', {many} left from before' if left else ''}; generated from {file}\n")
    exit_with(1 if changed or left else 0)
