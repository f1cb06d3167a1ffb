"""Rules about defs: DL001 and DL012 for kernels without a def, DL007 for a released def, DL013 for its namespace, DL014
for its schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dispatchlab.errors import nearest
from dispatchlab.questions.lint.kernel_rules import parsed_schema
from dispatchlab.questions.lint.rule import Found, Level, Subject, rule
from dispatchlab.registries.debug_text import Packages, owner, sites_in
from dispatchlab.registries.model import RecordedOperator
from dispatchlab.views.formatting import first_of

_NEAR = 2


@rule("DL001")
def _dangling(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, names in _without_def(subject, operators):
        if _elsewhere(operator, names):
            continue
        near = near_misses(operator, names)
        hint = f"did you mean {' or '.join(near)}?" if near else "is the package that defines it imported?"
        yield Found(
            str(operator.name),
            None,
            f"it has kernels ({_kernels(operator)}) and no def, so no call can reach it; {hint}",
            tuple(kernel.debug for kernel in operator.kernels),
            fix=f'lib.impl("{near[0]}", fn, "{operator.kernels[0].key}")'
            if near
            else f'lib.define("{operator.name.name}(...) -> ..."), or import the package that defines it first',
        )


def _without_def(
    subject: Subject, operators: Iterable[RecordedOperator]
) -> Iterator[tuple[RecordedOperator, tuple[str, ...]]]:
    """Return the operators with kernels but no def, and the names of all operators with a def."""
    names: tuple[str, ...] | None = None
    for operator in operators:
        if operator.is_dangling and operator.kernels:
            if names is None:
                names = tuple(str(one.name) for one in subject.recorded if not one.is_dangling)
            yield operator, names


def _kernels(operator: RecordedOperator) -> str:
    return first_of([f"{kernel.key} from {owner(kernel.debug)}" for kernel in operator.kernels], _NEAR)


def near_misses(operator: RecordedOperator, names: Sequence[str]) -> tuple[str, ...]:
    """Return the defined operators that a dangling name probably means, best first."""
    name = operator.name
    same_name = [one for one in names if one.partition("::")[2].partition(".")[0] == name.name]
    by_namespace = {space: one for one in reversed(same_name) if (space := one.partition("::")[0]) != name.namespace}
    close = [by_namespace[space] for space in nearest(name.namespace, by_namespace, count=_NEAR)]
    close += [one for space, one in by_namespace.items() if _related(space, name.namespace)]
    inside = {one.partition("::")[2]: one for one in names if one.startswith(f"{name.namespace}::")}
    near = nearest(str(name).partition("::")[2], inside, count=_NEAR)
    return tuple(dict.fromkeys([*close, *(inside[one] for one in near)]))[:_NEAR]


def _related(one: str, other: str) -> bool:
    """Return whether one namespace is the other with a suffix: `quanto_py` and `quanto`."""
    return min(len(one), len(other)) > 2 and (one.startswith(other) or other.startswith(one))


def _elsewhere(operator: RecordedOperator, names: Sequence[str]) -> tuple[str, ...]:
    """Return the operators with this name in similar namespaces, the best first."""
    return tuple(name for name in near_misses(operator, names) if not name.startswith(f"{operator.name.namespace}::"))


@rule("DL012")
def _other_namespace(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, names in _without_def(subject, operators):
        meant = _elsewhere(operator, names)
        if meant:
            yield Found(
                str(operator.name),
                None,
                f"it has kernels ({_kernels(operator)}) and no def, so they never run; did you mean {meant[0]}?",
                tuple(kernel.debug for kernel in operator.kernels),
                cause=meant[0].partition("::")[0],
                fix=f'lib.impl("{meant[0].partition("::")[2]}", fn, "{operator.kernels[0].key}") on a library of '
                f"{meant[0].partition('::')[0]}",
            )


@rule(
    "DL007",
    needs="it compares two moments, and a record is one: name the other with --against",
    can_run=lambda subject: subject.earlier is not None,
)
def _gone(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    assert subject.earlier is not None
    for before in subject.earlier:
        if before.is_dangling:
            continue
        now = subject.recorded.operator(before.name)
        if now is not None and not now.is_dangling:
            continue
        left = f"{len(now.kernels)} of its kernels are left and dangle" if now is not None else "nothing of it is left"
        if now is not None and len(now.kernels) == 1:
            left = "one of its kernels is left and dangles"
        yield Found(
            str(before.name),
            None,
            f"its def from {owner(before.debug)} was released with its Library; {left}",
            (before.debug,),
            fix='keep the Library in a variable of the module: lib = torch.library.Library("'
            f'{before.name.namespace}", "DEF")',
        )


@rule("DL013")
def _foreign(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    owners: dict[str, set[str | None]] = {}
    for one in subject.recorded:
        if not one.is_dangling:
            owners.setdefault(one.name.namespace, set()).add(packages.of(one, None, one.debug))
    for operator in operators:
        namespace, mine = operator.name.namespace, packages.of(operator, None, operator.debug)
        if operator.is_dangling or mine is None or mine == Packages.TORCH or _related(mine, namespace):
            continue
        others = sorted(other for other in owners[namespace] if other not in (None, mine))
        of = next((other for other in others if other == Packages.TORCH or _related(other, namespace)), None)
        if of is None and _is_named_after(namespace, operator.debug):
            continue
        whose = "PyTorch" if of == Packages.TORCH else of or "no package"
        yield Found(
            str(operator.name),
            None,
            f"{mine} defines it ({owner(operator.debug)}) in a namespace of {whose}: if another package also defines "
            "this name, PyTorch refuses the second def, or replaces the first if both packages call custom_op",
            (operator.debug,),
            Level.INFORMATION if of is None else Level.WARNING,
            cause=mine,
            fix=f'name it "{mine}::{operator.name.name}", in a namespace of its own',
        )


def _is_named_after(namespace: str, debug: str) -> bool:
    """Return whether the path of a def and its namespace have a name in common."""
    name = namespace.strip("_").casefold()
    parts = [part for path, _ in sites_in(debug) for part in path.removesuffix(".py").replace("\\", "/").split("/")]
    folded = [part.strip("_").casefold() for part in parts]
    return any(part and name and (name in part or (len(part) > 1 and part in name)) for part in folded)


@rule("DL014")
def _alias_of_nothing(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        if (schema := parsed_schema(operator)) is None:
            continue
        given = {
            name for one in schema.arguments if one.alias is not None for name in one.alias.before | one.alias.after
        }
        for returned in schema.returns:
            sets = () if returned.alias is None else sorted(returned.alias.before - {*given, "*"})
            if sets and "*" not in given:
                yield Found(
                    str(operator.name),
                    None,
                    f"it returns {returned} ({owner(operator.debug)}), but no argument has the annotation "
                    f"({sets[0]}): torch.compile refuses an alias without an argument",
                    (operator.debug,),
                    fix=f"write {returned.type} in the schema, or add ({sets[0]}) to the argument that it aliases",
                )
                break
