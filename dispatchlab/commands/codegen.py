"""`dispatchlab codegen`: the structured kernels of a file of native functions as Python, with their registrations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import click

from dispatchlab.commands.options import PLAIN_FORMATS, ROW, SOURCE, force_option, given, refuse
from dispatchlab.commands.output import Format, exit_with, note, out, show_view


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
    "--registrations",
    is_flag=True,
    help="Show every registration that is generated for the functions, structured or not; with -o DIR write a module "
    "and a scenario for each name.",
)
@click.option(
    "--formulas",
    is_flag=True,
    help="Print the gradients of derivatives.yaml as Python, where they call nothing but the operators of the layers.",
)
@click.option(
    "--cpp",
    is_flag=True,
    help="Show the C++ declarations of the functions: Functions.h, NativeFunctions.h, NativeMetaFunctions.h, "
    "Operators.h and RegisterSchema.cpp, as PyTorch's build has them; with -o DIR write the files.",
)
@click.option(
    "--backend",
    metavar="YAML",
    type=click.Path(),
    help="Show the code of a backend: declarations and registrations of its kernels, as torchgen's gen_backend_stubs "
    "writes them from the same YAML, a test of each operator against the CPU, and a scenario; with -o DIR write the "
    "files. FILE.yaml is that of the installed PyTorch when left out.",
)
@click.option(
    "--derivatives",
    metavar="FILE",
    type=click.Path(),
    help="The derivatives.yaml with the gradients, which decides about kernels of Autograd. Default: the one that "
    "belongs to FILE.yaml, beside it or where PyTorch has it.",
)
@click.option(
    "--against", metavar="SOURCE", type=SOURCE, help="Compare the registrations with those of a recorded registry."
)
@click.option(
    "--walk",
    "walked",
    metavar="OP",
    help="Show each frame of a call of OP in C++, from the Python binding to the kernel. OP is a name of the operator "
    "(add.Tensor), of Python (torch.add) or of C++ (at::_ops::add_Tensor::call).",
)
@click.option(
    "--arg",
    "args",
    metavar="SPEC",
    multiple=True,
    help="Describe an argument of --walk as `explain` takes it: 'cuda requires_grad', out=cpu; may be repeated. "
    "Default: CPU tensors.",
)
@click.option("--exclude", metavar="KEY", multiple=True, type=ROW, help="With --walk, exclude KEY as a guard does.")
@click.option("--include", metavar="KEY", multiple=True, type=ROW, help="With --walk, include KEY as a guard does.")
@click.option("--format", type=PLAIN_FORMATS, help="Output format of --registrations and --walk.")
@click.pass_context
def codegen(
    context: click.Context,
    /,
    *,
    file: str | None,
    folder: str | None,
    only: tuple[str, ...],
    force: bool,
    check: bool,
    registrations: bool,
    formulas: bool,
    cpp: bool,
    backend: str | None,
    derivatives: str | None,
    against: str | None,
    walked: str | None,
    args: tuple[str, ...],
    exclude: tuple[str, ...],
    include: tuple[str, ...],
    format: Format | None,
) -> None:
    """Generate code from a native_functions.yaml: structured operators, registrations, gradients, C++ of a backend.

    Writes nothing when anything in FILE.yaml is wrong.

    \b
    Examples:
      dispatchlab codegen native_functions.yaml -o generated
      dispatchlab codegen native_functions.yaml --only add
      dispatchlab codegen native_functions.yaml -o generated --check
      dispatchlab codegen native_functions.yaml --registrations --only empty
      dispatchlab codegen native_functions.yaml --registrations --against torch-2.13
      dispatchlab codegen native_functions.yaml --formulas --only sin
      dispatchlab codegen native_functions.yaml --cpp --only add.Tensor
      dispatchlab codegen --backend npu.yaml -o csrc
      dispatchlab codegen --walk torch.add
      dispatchlab codegen --walk add_.Tensor --arg "cpu requires_grad"
    """
    if walked is not None:
        if any(name in given(context) for name in _OF_A_FILE):
            raise click.UsageError("--walk shows a call and writes nothing: leave out what is for generated files")
    elif file is None and backend is None:
        raise click.UsageError("no file was named: name a file of native functions, or an operator with --walk")
    else:
        refuse(context, ("args", "exclude", "include"), "is for a call: add --walk, or leave this out")
    if not registrations:
        refuse(context, ("against",), "is for --registrations: add it, or leave this out")
        if walked is None:
            refuse(context, ("format",), "is for --registrations and --walk: add one of them, or leave this out")
    if not (registrations or formulas):
        refuse(context, ("derivatives",), "is for --registrations and --formulas: add one of them, or leave this out")
    if formulas:
        refuse(context, ("registrations", "folder"), "and --formulas do different things: leave one of them out")
    if cpp:
        refuse(context, ("registrations", "formulas"), "and --cpp do different things: leave one of them out")
    if backend is not None:
        others = ("registrations", "formulas", "cpp", "only")
        refuse(context, others, "and --backend do different things: leave one of them out")
    if folder is not None:
        refuse(context, ("against", "format"), "is for what is printed, and -o writes files: leave one of them out")
    if check and folder is None:
        raise click.UsageError("--check compares with the files in a folder: name the folder with -o DIR")
    if force and (check or folder is None):
        raise click.UsageError("--force is for the files of -o DIR, and nothing is written: leave it out")
    if walked is not None:
        _show_walk(walked, args, file, include=include, exclude=exclude, format=format)
    elif backend is not None:
        files, first_line, what = _backend(backend, file)
        if folder is None:
            _print(files)
        else:
            _write(Path(folder), files, first_line, what, backend, (), check=check, force=force)
    elif file is not None and formulas:
        _show_formulas(file, derivatives, only)
    elif file is not None and registrations and folder is None:
        _show_registrations(file, derivatives, only, against=against, format=format)
    elif file is not None and folder is None:
        files, _, _ = _declarations(file, only) if cpp else _generated(file, None, only)
        _print(files)
    elif file is not None and folder is not None:
        path = Path(folder)
        if registrations:
            made = _scenarios(file, derivatives, only)
        else:
            made = _declarations(file, only) if cpp else _generated(file, path, only, whole=not check)
        _write(path, *made, file, only, check=check, force=force)


_OF_A_FILE = (
    *("folder", "only", "check", "force", "registrations", "formulas", "cpp", "backend", "derivatives", "against"),
)


def _print(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        out(f"{'//' if name.endswith(('.h', '.cpp')) else '#'} ---- {name}\n{text}")


def _show_walk(
    operator: str,
    arguments: tuple[str, ...],
    file: str | None,
    *,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    format: Format | None,
) -> None:
    from dispatchlab.questions.native_functions.blocks import walk_view
    from dispatchlab.questions.native_functions.walk_calls import walk_call

    show_view(format, walk_view(walk_call(operator, arguments, file=file, include=include, exclude=exclude)))


def _show_registrations(
    file: str, derivatives: str | None, only: tuple[str, ...], *, against: str | None, format: Format | None
) -> None:
    from dispatchlab.questions.native_functions.blocks import registrations_view
    from dispatchlab.questions.native_functions.generated_registrations import registration_report
    from dispatchlab.sources.find_sources import recorded_from

    recorded = None if against is None else recorded_from(against, report=note)
    report = registration_report(file, derivatives=derivatives, only=only, against=recorded, name=against or "")
    show_view(format, registrations_view(report))
    exit_with(1 if report.comparison is not None and report.comparison.unexplained else 0)


def _show_formulas(file: str, derivatives: str | None, only: tuple[str, ...]) -> None:
    from dispatchlab.questions.native_functions.generated_registrations import formulas_of_file

    found = formulas_of_file(file, derivatives=derivatives, only=only)
    out(found.module)
    for line in found.left_out:
        note(line)


_Made: TypeAlias = tuple[Mapping[str, str], str, str]
"""Files by their names, the first line that all of them have, and what they hold."""


def _scenarios(file: str, derivatives: str | None, only: tuple[str, ...]) -> _Made:
    from dispatchlab.questions.native_functions.generated_registrations import generated_scenarios

    scenarios = generated_scenarios(file, derivatives=derivatives, only=only)
    for line in scenarios.left_out:
        note(line)
    what = f"the registrations of {scenarios.functions:,} function{'' if scenarios.functions == 1 else 's'} of {file}"
    return scenarios.files, scenarios.first_line, what


def _declarations(file: str, only: tuple[str, ...]) -> _Made:
    from dispatchlab.questions.native_functions.generated_registrations import cpp_declarations

    files = cpp_declarations(file, only=only)
    return files, files["Functions.h"].partition("\n")[0], f"the C++ declarations of {file}"


def _backend(backend: str, file: str | None) -> _Made:
    from dispatchlab.codegen.emit.backend_files import backend_mark
    from dispatchlab.codegen.emit.python_source import label
    from dispatchlab.questions.native_functions.generated_registrations import backend_code
    from dispatchlab.questions.native_functions.walk_calls import installed_file
    from dispatchlab.questions.order.golden import golden

    natives = installed_file() if file is None else file
    if natives is None:
        raise click.UsageError("PyTorch is not installed: name its native_functions.yaml in front of --backend")
    files = backend_code(backend, natives, golden=golden)
    return files, backend_mark(label(Path(backend).name)), f"the backend of {backend}"


def _generated(file: str, folder: Path | None, only: tuple[str, ...], *, whole: bool = False) -> _Made:
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
    if others and whole and not only:
        functions = f"{others:,} function{' is' if others == 1 else 's are'}"
        note(f"{functions} in no structured group: --registrations writes modules and scenarios of them")
    return files, mark(name), what


def _write(
    folder: Path,
    files: Mapping[str, str],
    first_line: str,
    what: str,
    file: str,
    only: tuple[str, ...],
    *,
    check: bool,
    force: bool,
) -> None:
    """Write the files, or compare with those that are there.

    Args:
        folder: where they go.
        files: the texts by the names of the files.
        first_line: the first line that all of them have.
        what: what they hold.
        file: what they are generated from.
        only: what was selected; then other files are left alone.
        check: write nothing.
        force: write over files that were not generated.
    """
    from dispatchlab.codegen.emit.generate import differing, generated_before, generated_from_others, write_files
    from dispatchlab.files.file_kinds import FileKind, check_overwrite

    before, name = generated_before(folder, first_line), Path(file).name
    others = generated_from_others(folder, first_line)
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
        kinds = {".yaml": FileKind.SCENARIO, ".txt": FileKind.GOLDEN}
        for each in () if force else differing(folder, files):
            check_overwrite(folder / each, kinds.get(Path(each).suffix, FileKind.GENERATED))
        written = write_files(folder, files)
        out(f"{what}: {len(written)} of {len(files)} files written to {folder}\n")
        return
    changed = differing(folder, files)
    for each in changed:
        note(f"{folder / each} {'differs' if (folder / each).exists() else 'is not there'}")
    state = f"{len(changed)} of {len(files)} files differ" if changed else f"all {len(files)} files are up to date"
    many = f"{len(left)} file{'' if len(left) == 1 else 's'}"
    out(f"{state}{f', {many} left from before' if left else ''}; generated from {file}\n")
    exit_with(1 if changed or left else 0)
