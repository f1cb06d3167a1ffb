"""All that is generated for a file of native functions: a module and a scenario for each group, and an index."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from dispatchlab.codegen.groups import FunctionGroup
from dispatchlab.codegen.layout import text_literal
from dispatchlab.codegen.plan import plan_of
from dispatchlab.codegen.python_source import module_text
from dispatchlab.codegen.read import NativeFunctions
from dispatchlab.codegen.scenario_source import group_scenario_text
from dispatchlab.codegen.source_words import mark
from dispatchlab.errors import DispatchLabError, nearest

INDEX = "__init__.py"


class NoSuchGroupError(DispatchLabError):
    """No structured group has an operator of that name.

    Args:
        asked: the name.
        known: the names of all operators in structured groups.
        other: True when the file has the operator, and it is in no structured group.
    """

    def __init__(self, asked: str, known: tuple[str, ...], *, other: bool) -> None:
        super().__init__(asked, known, other)
        self.asked, self.known, self.other = asked, known, other

    def __str__(self) -> str:
        if self.other:
            return f"{self.asked} is in no structured group, and nothing is generated for the others"
        near = nearest(self.asked, self.known, count=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {len(self.known)} structured operators"
        return f"there is no operator {self.asked}{hint}"


def generated_files(
    natives: NativeFunctions, *, file: str, only: Sequence[str] = (), beside: Iterable[str] = ()
) -> dict[str, str]:
    """The text of every file by its name, in the order of the source file, the index last.

    Args:
        natives: what the source file says.
        file: what it is called in the texts.
        only: operators (`add.out`), groups (`add_Tensor`), names without overload or globs; empty for all.
        beside: groups that the index names, too, because they were generated before.

    Raises:
        NoSuchGroupError: one of `only` is not there.
    """
    plans = [plan_of(group) for group in chosen_groups(natives, only)]
    files: dict[str, str] = {}
    for plan in plans:
        files[f"{plan.name}.py"] = module_text(plan, file)
        files[f"{plan.name}.yaml"] = group_scenario_text(plan, file)
    files[INDEX] = _index_text({*beside, *(plan.name for plan in plans)}, file)
    return files


def chosen_groups(natives: NativeFunctions, only: Sequence[str]) -> tuple[FunctionGroup, ...]:
    """The structured groups that `only` names, in the order of the file."""
    if not only:
        return natives.structured_groups
    found: dict[FunctionGroup, None] = {}
    for asked in only:
        bare = asked.removeprefix("aten::")
        matching = [group for group in natives.structured_groups if _matches(group, bare)]
        if not matching:
            known = tuple(each.short_name for group in natives.structured_groups for each in group.functions)
            other = any(each.short_name == bare for each in natives.functions)
            raise NoSuchGroupError(asked, known, other=other)
        found |= dict.fromkeys(matching)
    return tuple(group for group in natives.structured_groups if group in found)


def _matches(group: FunctionGroup, asked: str) -> bool:
    names = [plan_of(group).name]
    for each in group.functions:
        names += (each.short_name, each.name.name)
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
