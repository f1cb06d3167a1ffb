"""Generate a module and a scenario for each group, and an index: as texts or as files."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dispatchlab.codegen.emit.generated_group import GeneratedGroup, Wrapper, generated_group
from dispatchlab.codegen.emit.python_source import debug_text, def_debug_text, inferred_schema, label, mark, module_text
from dispatchlab.codegen.emit.python_text import text_literal
from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.errors import DispatchLabError, no_operator
from dispatchlab.files import ReadError, read_file, write_folder
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.registration import Block, BlockKind, Def, Impl, Kernel, KernelForm
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.scenario.write import scenario_text


def scenario_of(generated: GeneratedGroup, file: str) -> Scenario:
    """Return the registrations of the group's module, library by library.

    Args:
        generated: the generated code, as values.
        file: the name of the source file in the text.
    """
    group = generated.group
    namespace = group.out.name.namespace
    defs = []
    for each in group.functions:
        bare = FunctionSchema(each.schema.name.without_namespace, each.schema.arguments, each.schema.returns)
        defs.append(Def(bare, tags=each.tags, debug=def_debug_text(generated, each, file)))
    blocks = [Block(namespace, BlockKind.FRAGMENT, tuple(defs))]
    for key in generated.keys:
        impls = tuple(_impl(generated, wrapper, file) for wrapper in key.wrappers)
        blocks += [Block(namespace, BlockKind.IMPL, impls, key=key.key)] if impls else []
    return Scenario(
        claim=f"The {len(blocks)} libraries that are generated for {group.functional.name} can be loaded in any order.",
        registrations=tuple(blocks),
        operators=tuple(function.name for function in group.functions),
        namespace=namespace,
    )


def _impl(generated: GeneratedGroup, wrapper: Wrapper, file: str) -> Impl:
    inferred = inferred_schema(wrapper.function)
    symint = is_symint_schema(inferred)
    kernel = Kernel(KernelForm.UNBOXED, inferred=inferred, signature=cpp_signature(inferred), symint=symint)
    return Impl(wrapper.function.name.without_namespace, None, kernel, debug_text(generated, wrapper, file))


INDEX = "__init__.py"
_LONGEST_LINE = 10_000


class NoSuchGroupError(DispatchLabError):
    """No structured group has an operator of that name.

    Args:
        asked: the name.
        known: the names of all operators in structured groups.
        other: True when the file has the operator, and it is in no structured group.
    """

    asked: str
    known: tuple[str, ...]
    other: bool

    def __str__(self) -> str:
        if self.other:
            return f"{self.asked} is in no structured group, so it has no module: see its kernels with --registrations"
        return no_operator(self.asked, self.known)


def generated_files(
    natives: NativeFunctions, *, file: str, only: Sequence[str] = (), beside: Iterable[str] = ()
) -> dict[str, str]:
    """Return the text of every file by its name, in the order of the source file, the index last.

    Args:
        natives: the content of the source file.
        file: the name of the source file in the texts.
        only: operators (`add.out`), groups (`add_Tensor`), names without overload or globs; empty for all.
        beside: groups that the index names, too, because they were generated before.

    Raises:
        NoSuchGroupError: one of `only` does not exist.
    """
    file = label(file)
    groups = [generated_group(group) for group in chosen_groups(natives, only)]
    files: dict[str, str] = {}
    for each in groups:
        files[f"{each.name}.py"] = module_text(each, file)
        files[f"{each.name}.yaml"] = f"{mark(file)}\n{scenario_text(scenario_of(each, file))}"
    files[INDEX] = _index_text({*beside, *(each.name for each in groups)}, file)
    return files


def chosen_groups(natives: NativeFunctions, only: Sequence[str]) -> tuple[FunctionGroup, ...]:
    """Return the structured groups that `only` names, in the order of the file."""
    if not only:
        return natives.structured_groups
    found: dict[FunctionGroup, None] = {}
    for asked in only:
        bare = asked.removeprefix("aten::")
        matching = [group for group in natives.structured_groups if _matches(group, bare)]
        if not matching:
            known = tuple(each.short_name for group in natives.structured_groups for each in group.functions)
            other = any(function.short_name == bare for function in natives.functions)
            raise NoSuchGroupError(asked, known, other=other)
        found |= dict.fromkeys(matching)
    return tuple(group for group in natives.structured_groups if group in found)


def _matches(group: FunctionGroup, asked: str) -> bool:
    names = [generated_group(group).name]
    for function in group.functions:
        names += (function.short_name, function.name.name)
    return any(name == asked or fnmatch.fnmatchcase(name, asked) for name in names)


def _index_text(groups: Iterable[str], file: str) -> str:
    names = sorted(groups)
    lines = [
        mark(file),
        f'"""The structured operators of {file}: {len(names)} groups, a module and a scenario each."""',
        "",
        "from __future__ import annotations",
        "",
        "from contextlib import ExitStack",
        "from importlib import import_module",
        "",
        "from dispatchlab.codegen.runtime import Dispatcher",
        "",
        "GROUPS = (",
        *(f"    {text_literal(name)}," for name in names),
        ")",
        "",
        "",
        "def register(dispatcher: Dispatcher, kernels: object) -> ExitStack:",
        '    """Register every group; what comes back takes everything down again."""',
        "    with ExitStack() as undo:",
        "        for name in GROUPS:",
        '            undo.enter_context(import_module(f"{__name__}.{name}").register(dispatcher, kernels))',
        "        return undo.pop_all()",
    ]
    return "\n".join(lines) + "\n"


def write_files(folder: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    """Write files into a folder, which is made if it is missing; do not write files that are already correct.

    Returns:
        The names of the changed files.

    Raises:
        WriteError: one of them cannot be written; then no file is written.
    """
    changed = differing(folder, files)
    write_folder(folder, {name: files[name] for name in changed})
    return changed


def differing(folder: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the files that are not in the folder, or not with this text."""
    return tuple(name for name, text in files.items() if not _is_there(folder / name, text))


def generated_before(folder: Path, first_line: str) -> tuple[str, ...]:
    """Return the sorted names of a folder's files that begin with this line; empty without a folder."""
    return tuple(sorted(path.name for path in folder.glob("*") if _first_line(path) == first_line.encode()))


def _first_line(path: Path) -> bytes | None:
    """Return the first line of a regular file; None for anything else, whose reading might never end."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.readline(_LONGEST_LINE).rstrip()
    except OSError:
        return None


def _is_there(path: Path, text: str) -> bool:
    try:
        expected = text.encode()
        return read_file(path, limit=len(expected), what="the file that would be generated") == expected
    except (OSError, ReadError):
        return False
