"""The generated code for the functions of a file: the number of kernels, selected kernels, declarations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dispatchlab.codegen.emit.cpp_declarations import cpp_files
from dispatchlab.codegen.emit.python_source import label
from dispatchlab.codegen.emit.registrations import FunctionRegistrations, LeftOut, left_out, registrations_of
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.model.names import OperatorName, find_names


@dataclass(frozen=True, slots=True)
class RegistrationReport:
    """The generated registrations for the functions of a file.

    Args:
        file: the file of native functions.
        functions: the number of functions in the file, including those that are made from others.
        kernels: the number of generated kernels in each part of the generated code.
        left_out: the functions without generated code, and the reasons.
        selected: the selected functions, with their kernels.
    """

    file: str
    functions: int
    kernels: Mapping[str, int]
    left_out: tuple[LeftOut, ...]
    selected: tuple[FunctionRegistrations, ...]


def registration_report(native_functions: str, *, only: Sequence[str] = ()) -> RegistrationReport:
    """Read a file of native functions, and report the generated code.

    Args:
        native_functions: the file.
        only: operators, names without overload or globs.

    Raises:
        NativeYamlError: with every problem of the file.
        UnknownOperatorError: one of `only` does not exist.
    """
    natives = load_native_functions(native_functions)
    registrations = registrations_of(natives)
    named = _named(natives, only, source=native_functions)
    selected = tuple(registered for registered in registrations if registered.function.name in named)
    return RegistrationReport(
        native_functions,
        len(registrations),
        Counter(str(kernel.part) for registered in registrations for kernel in registered.kernels),
        tuple(_within(left_out(natives), named)) if only else left_out(natives),
        selected,
    )


def cpp_declarations(native_functions: str, *, only: Sequence[str] = ()) -> Mapping[str, str]:
    """Return the C++ declarations of the functions of a file, by the name of the generated file.

    Args:
        native_functions: the file of native functions.
        only: operators, names without overload or globs; the kernels of all their variants are declared.

    Raises:
        NativeYamlError: with every problem of the file.
        UnknownOperatorError: one of `only` does not exist.
    """
    natives = load_native_functions(native_functions)
    names = _named(natives, only, source=native_functions) if only else {one.name for one in natives.functions}
    return cpp_files(natives, file=label(Path(native_functions).name), only=names)


def _named(natives: NativeFunctions, only: Sequence[str], *, source: str) -> frozenset[OperatorName]:
    """Return the functions for names, names without overload and globs."""
    names = {str(function.name): function.name for function in natives.functions}
    selected: set[OperatorName] = set()
    for asked in only:
        meant = find_names([*names], asked)
        if not meant:
            raise UnknownOperatorError(asked, tuple(names), source)
        selected.update(names[one] for one in meant)
    return frozenset(selected)


def _within(left: Iterable[LeftOut], names: frozenset[OperatorName]) -> Iterator[LeftOut]:
    """Return the parts of some functions that are left out."""
    for without in left:
        functions = tuple(name for name in without.functions if name in names)
        if functions:
            yield LeftOut(without.why, functions)
