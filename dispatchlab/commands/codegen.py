"""`dispatchlab codegen`: the structured kernels of a file of native functions as Python, with their registrations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dispatchlab.codegen.emit.generate import INDEX, differing, generated_before, generated_files, write_files
from dispatchlab.codegen.emit.python_source import mark
from dispatchlab.codegen.read.native_functions import load_native_functions
from dispatchlab.commands.output import note, out


@dataclass(frozen=True, slots=True, kw_only=True)
class CodegenRequest:
    """What was asked for.

    Args:
        file: the file of native functions.
        folder: where the generated files are, or will be; None to print them.
        only: operators, groups or globs; empty for all structured groups.
        check: compare instead of writing.
    """

    file: str
    folder: str | None
    only: tuple[str, ...] = ()
    check: bool = False


def walk_operator(asked: str) -> int:
    """Call an operator and print the frames that the call went through, as `codegen --walk` does.

    Raises:
        NoSuchGroupError: there are no kernels for an operator of that name.
    """
    from dispatchlab.codegen.call_stack import call_stack

    out(call_stack(asked).text())
    return 0


def codegen(request: CodegenRequest) -> int:
    """Generate.

    Returns:
        0, or 1 when files were to be compared and differ, or some are there that are generated no more.

    Raises:
        NativeYamlError: the file is wrong; nothing was written.
        NoSuchGroupError: it has no such operator; nothing was written.
        WriteError: the files could not be written; nothing was.
    """
    natives = load_native_functions(request.file)
    name = Path(request.file).name
    before = () if request.folder is None else generated_before(Path(request.folder), mark(name))
    beside = [each.removesuffix(".py") for each in before if each.endswith(".py") and each != INDEX]
    files = generated_files(natives, file=name, only=request.only, beside=beside if request.only else ())
    modules = len(files) // 2
    if request.folder is None:
        out("".join(f"# ---- {name}\n{text}" for name, text in files.items()))
        return 0
    folder = Path(request.folder)
    left = () if request.only else tuple(each for each in before if each not in files)
    for each in left:
        note(f"{folder / each} is generated no more: remove it")
    if request.check:
        changed = differing(folder, files)
        for each in changed:
            note(f"{folder / each} {'differs' if (folder / each).exists() else 'is not there'}")
        told = f"{len(changed)} of {len(files)} files differ" if changed else f"all {len(files)} files are up to date"
        many = f"{len(left)} file{'' if len(left) == 1 else 's'}"
        out(f"{told}{f', {many} left from before' if left else ''}; generated from {request.file}\n")
        return 1 if changed or left else 0
    written = write_files(folder, files)
    groups = f"{modules} structured group{'' if modules == 1 else 's'}"
    out(f"{groups} of {request.file}: {len(written)} of {len(files)} files written to {folder}\n")
    return 0
