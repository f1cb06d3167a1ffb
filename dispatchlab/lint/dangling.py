"""Rules DL001 and DL007: kernels without a def, because it was never there or because it went away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dispatchlab.errors import nearest
from dispatchlab.lint.rule import Found, Rule, Subject, example, owner
from dispatchlab.registry.model import RecordedOperator

_NEAR = 2


def _dangling(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    names: tuple[str, ...] | None = None
    for operator in operators:
        if not operator.is_dangling or not operator.kernels:
            continue
        if names is None:
            names = tuple(str(one.name) for one in subject.recorded if not one.is_dangling)
        near = near_misses(operator, names)
        kernels = operator.kernels
        hint = f"did you mean {' or '.join(near)}?" if near else "is the package that defines it imported?"
        where = ", ".join(f"{kernel.key} from {owner(kernel.debug)}" for kernel in kernels[:_NEAR])
        more = f" and {len(kernels) - _NEAR} more" if len(kernels) > _NEAR else ""
        yield Found(
            str(operator.name),
            None,
            f"it has kernels ({where}{more}) and no def, so nobody can call it; {hint}",
            tuple(kernel.debug for kernel in kernels),
        )


def near_misses(operator: RecordedOperator, names: Sequence[str]) -> tuple[str, ...]:
    """The defined operators that a dangling one was probably meant to be, best first."""
    name = operator.name
    same_name = [one for one in names if one.partition("::")[2].partition(".")[0] == name.name]
    by_namespace = {one.partition("::")[0]: one for one in reversed(same_name)}
    close = [by_namespace[space] for space in nearest(name.namespace, by_namespace, count=_NEAR)]
    close += [one for space, one in by_namespace.items() if _related(space, name.namespace)]
    inside = [one for one in names if one.startswith(f"{name.namespace}::")]
    return tuple(dict.fromkeys([*close, *nearest(str(name), inside, count=_NEAR)]))[:_NEAR]


def _related(one: str, other: str) -> bool:
    """Whether one namespace is the other with something behind it: `quanto_py` and `quanto`."""
    return min(len(one), len(other)) > 2 and (one.startswith(other) or other.startswith(one))


DANGLING = Rule(
    code="DL001",
    name="dangling-impl",
    what="An operator has kernels and no def.",
    why=(
        "A kernel can be registered before its def, because the package that defines the operator may be imported "
        "later. When it never is, or when the name is misspelt, nothing complains: the kernel waits for ever, and "
        "calls go to whatever the right operator has instead."
    ),
    mend=(
        "Compare the name with the near misses of the message, namespace and overload included. If the def is in "
        "another package, import it where the kernel is registered."
    ),
    bad=example(("CPU", "my_package/cpu.py:7"), operator="scales"),
    good=example(("CPU", "my_package/cpu.py:7")),
    check=_dangling,
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
            f"its def from {owner(before.debug)} was there and is gone; {left}. Keep the Library that made it for as "
            "long as the operator is used, in a variable of the module",
            (before.debug,),
        )


GONE = Rule(
    code="DL007",
    name="def-not-kept",
    what="A def was there and is gone, because nobody kept the `Library` that made it.",
    why=(
        "A `torch.library.Library` takes its registrations back when it is garbage. One that is a local variable of a "
        "function goes when the function returns; one in a reference cycle goes at some later moment, whenever the "
        "collector runs, and takes the operator along under whoever calls it then."
    ),
    mend=(
        "Keep the library in a variable of the module, or in an object that lives as long as the operator is used. A "
        "record does not say who keeps a library: this rule compares two moments. Of a live process these are before "
        "and after a run of the garbage collector; of a record or a scenario it needs --against, the registry as it "
        "should be."
    ),
    bad=example(
        ("CPU", "my_package/cpu.py:7"),
        defined=False,
        head="# linted with --against a registry that has the def of scale",
    ),
    good=example(("CPU", "my_package/cpu.py:7")),
    check=_gone,
    needs="a record is one moment, and it compares two: name the other with --against",
    can_run=lambda subject: subject.earlier is not None,
)
