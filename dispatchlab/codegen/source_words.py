"""How does generated code say things: names, annotations, and what dumps print of kernels and defs?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.codegen.native_function import NativeFunction, Precomputed
from dispatchlab.codegen.plan import GroupPlan, Wrapper, python_name
from dispatchlab.model.schema import Argument, clone_with_name
from dispatchlab.model.schema_types import ListType, OptionalType, Type


def schema_text(function: NativeFunction) -> str:
    """The schema as a def in a library says it, without namespace."""
    name = function.name
    return str(clone_with_name(function.schema, type(name)("", name.name, name.overload)))


def written_at(function: NativeFunction, file: str) -> str:
    """`native_functions.yaml:558`."""
    return f"{file}:{function.place.line}" if function.place else file


def debug_text(plan: GroupPlan, wrapper: Wrapper, file: str) -> str:
    """What dumps print of a kernel."""
    return f"{wrapper.name} ({plan.name}.py, {written_at(wrapper.function, file)})"


def def_debug_text(plan: GroupPlan, function: NativeFunction, file: str) -> str:
    """What dumps print of a def."""
    return f"schema ({plan.name}.py, {written_at(function, file)})"


def python_names(arguments: Iterable[Argument | Precomputed]) -> list[str]:
    """What arguments are called in a call."""
    return [python_name(one.name) for one in arguments]


def python_parameters(arguments: Iterable[Argument | Precomputed]) -> list[str]:
    """Arguments as a def has them, with annotations."""
    return [f"{python_name(one.name)}: {annotation(one.type)}" for one in arguments]


def annotation(type_: Type) -> str:
    """The type as an annotation from which the same type is inferred, but for the size of a list."""
    match type_:
        case OptionalType(element):
            return f"{annotation(element)} | None"
        case ListType(element):
            return f"list[{annotation(element)}]"
        case _:
            return "list[int]" if str(type_) == "DimVector" else str(type_)


def annotated_types(function: NativeFunction) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    """The types of arguments and returns that the annotations of a wrapper say: those of the schema, without sizes."""
    arguments = tuple(_without_sizes(one.type) for one in function.schema.arguments)
    return arguments, tuple(_without_sizes(one.type) for one in function.schema.returns)


def _without_sizes(type_: Type) -> Type:
    match type_:
        case OptionalType(element):
            return OptionalType(_without_sizes(element))
        case ListType(element):
            return ListType(_without_sizes(element))
        case _:
            return type_


def banner(text: str) -> Iterator[str]:
    """The line above a section, and two empty ones."""
    yield f"# -- {text}"
    yield ""
    yield ""
