"""A Python module of all that is generated for functions of one name, structured or not: stubs, and `register`.

A backend kernel calls the function by hand that native_functions.yaml names; one of a structured group, the wrapper of
that group's own module. The kernels in front of the backends are those of `dispatchlab.codegen.runtime`, with the
formulas of derivatives.yaml where these are within the operators of the layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from dispatchlab.codegen.emit.formula_source import TranslatedFunction, formula_body, formula_imports
from dispatchlab.codegen.emit.generated_group import python_name
from dispatchlab.codegen.emit.python_text import (
    INDENT,
    WIDTH,
    bracketed,
    calls_by_hand,
    long_text,
    python_names,
    register_source,
    text_literal,
)
from dispatchlab.codegen.emit.registration_scenarios import (
    by_base_name,
    first_line,
    kernel_debug,
    libraries_of,
    registration_scenario_text,
    schema_debug,
)
from dispatchlab.codegen.emit.registrations import Body, FunctionRegistrations, GeneratedKernel
from dispatchlab.codegen.read.entry import DEFAULT_NAMESPACE
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.schema_parts import SchemaKind
from dispatchlab.model.keys import DispatchKey

_RUNTIME = "dispatchlab.codegen.runtime"


def registration_files(
    registrations: Iterable[FunctionRegistrations], file: str, formulas: Iterable[TranslatedFunction] = ()
) -> dict[str, str]:
    """A module and a scenario for each name that functions have in common, by the names of their files.

    Args:
        registrations: what is generated for the functions.
        file: what native_functions.yaml is called in the texts.
        formulas: the formulas of some of the functions.
    """
    by_function = {each.function.name: each for each in formulas}
    files: dict[str, str] = {}
    for name, functions in by_base_name(registrations).items():
        own = [by_function[each.function.name] for each in functions if each.function.name in by_function]
        text = registration_module(name, functions, first_line=first_line(file), file=file, formulas=own)
        files[f"{name}_registrations.py"] = text
        files[f"{name}_registrations.yaml"] = registration_scenario_text(name, functions, file)
    return files


def registration_module(
    name: str,
    registrations: Iterable[FunctionRegistrations],
    *,
    first_line: str,
    file: str,
    formulas: Iterable[TranslatedFunction] = (),
) -> str:
    """The text of a module.

    Args:
        name: what the functions have in common.
        registrations: what is generated for them.
        first_line: the line that says where it comes from.
        file: what native_functions.yaml is called in it.
        formulas: the formulas of some of the functions.
    """
    functions = tuple(registrations)
    wrapped = _wrapped(functions)
    names = {each.function.name for each in functions}
    translated = [each for each in formulas if each.function.name in names]
    formula_lines = formula_body(translated, file="derivatives.yaml") if translated else ["FORMULAS = {}"]
    lines = [
        *_head(name, functions, first_line, file),
        *_imports(bool(translated), formula_lines),
        *_by_hand(wrapped),
        "",
        "",
        *formula_lines,
        "",
        "",
        *_wrappers(wrapped, file),
        *_register(functions, wrapped, file),
    ]
    return "\n".join(lines) + "\n"


_Wrapped = dict[int, tuple[GeneratedKernel, str]]


def _wrapped(functions: Sequence[FunctionRegistrations]) -> _Wrapped:
    """The kernels that are Python functions of the module, each with a name of its own, by their identity."""
    found: _Wrapped = {}
    taken: set[str] = set()
    for function in functions:
        for kernel in function.kernels:
            if not _is_function(kernel):
                continue
            name = f"functionalize_{_flat(kernel.name)}" if kernel.body is Body.DECOMPOSES else _flat(kernel.name)
            while name in taken:
                name += "_"
            taken.add(name)
            found[id(kernel)] = kernel, name
    return found


def _flat(name: str) -> str:
    return name.replace("::", "_")


def _is_function(kernel: GeneratedKernel) -> bool:
    match kernel.body:
        case Body.CALLS_NATIVE | Body.STRUCTURED | Body.META | Body.DEFAULT | Body.DECOMPOSES:
            return True
        case _:
            return False


def _head(name: str, functions: Sequence[FunctionRegistrations], first_line: str, file: str) -> Iterator[str]:
    kernels = sum(len(each.kernels) for each in functions)
    yield first_line
    yield f'"""All that is generated for {name}: {len(functions)} functions, {kernels} kernels.'
    yield ""
    for each in functions:
        yield f"- {each.function.short_name}  {each.function.written_at(file)}"
    yield '"""'
    yield ""


def _imports(formulas: bool, formula_lines: Sequence[str]) -> Iterator[str]:  # noqa: FBT001
    yield "from __future__ import annotations"
    yield ""
    if formulas:
        yield "from collections.abc import Mapping"
    yield "from contextlib import ExitStack"
    if formulas:
        yield "from typing import Any"
    yield ""
    if formulas:
        call, *layers = formula_imports(formula_lines, package="dispatchlab.layers")
        yield call
    yield f"from {_RUNTIME} import Dispatcher, Library, link"
    yield f"from {_RUNTIME} import generated_kernels as generated"
    if formulas:
        yield from layers
    yield ""


def _called(kernel: GeneratedKernel) -> str:
    """What is reached through `kernels`: a function by hand, or the wrapper of the structured group."""
    return python_name(kernel.calls.rpartition("::")[2] if kernel.calls else kernel.name)


def _by_hand(wrapped: _Wrapped) -> Iterator[str]:
    found: dict[str, str] = {}
    for kernel, _ in wrapped.values():
        arguments = ", ".join(python_names(kernel.function.schema.arguments))
        found.setdefault(_called(kernel), f"{_called(kernel)}({arguments})")
    return calls_by_hand(
        "What is handed to `register`: functions by hand, and the wrappers of structured groups.", found
    )


def _wrappers(wrapped: _Wrapped, file: str) -> Iterator[str]:
    for kernel, name in wrapped.values():
        function = kernel.function
        arguments = python_names(function.schema.arguments)
        yield from bracketed(f"def {name}(", ["kernels", *arguments], "):")
        yield f"    # {function.short_name} at {kernel.key}, {function.written_at(file)}"
        yield from bracketed(f"return kernels.{_called(kernel)}(", arguments, ")", indent=1)
        yield ""
        yield ""


def _register(functions: Sequence[FunctionRegistrations], wrapped: _Wrapped, file: str) -> Iterator[str]:
    defs = [(each.function, _debug(schema_debug(each.function, file))) for each in functions]
    libraries = (
        (key, [(one.function, _kernel_lines(one, wrapped, file)) for one in kernels])
        for key, kernels in libraries_of(functions)
    )
    yield from register_source(defs, libraries)


def _kernel_lines(kernel: GeneratedKernel, wrapped: _Wrapped, file: str) -> Iterator[str]:
    yield f"            {_kernel(kernel, wrapped)},"
    yield from _debug(kernel_debug(kernel, file))


def _debug(text: str) -> Iterator[str]:
    line = f"{INDENT * 3}debug={text_literal(text)},"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{INDENT * 3}debug=("
    yield from long_text(text, indent=4)
    yield f"{INDENT * 3}),"


def _kernel(kernel: GeneratedKernel, wrapped: _Wrapped) -> str:
    name = text_literal(kernel.function.short_name)
    match kernel.body:
        case Body.RETURNS_SELF:
            return "generated.returns_self"
        case Body.CALLS_NATIVE | Body.STRUCTURED | Body.META | Body.DEFAULT | Body.DECOMPOSES:
            return f"generated.wrapper({wrapped[id(kernel)][1]}, linked)"
        case Body.SELECTS_BACKEND:
            return "generated.select_backend"
        case Body.FUNCTIONALIZES:
            return _functionalized(kernel)
        case Body.FORMULA | Body.NOT_IMPLEMENTED | Body.NO_FORMULA:
            formulas = "FORMULAS" if kernel.body is Body.FORMULA and kernel.key is DispatchKey.Autograd else "{}"
            return f"generated.autograd(linked, {formulas}, {name}{_ways(kernel.function, kernel.body)})"
        case Body.VIEW:
            return "generated.makes_view"
        case Body.WRITE:
            return "generated.counts_writes"
        case Body.RECORDS:
            return "generated.records_call"
        case _:
            assert_never(kernel.body)


def _functionalized(kernel: GeneratedKernel) -> str:
    namespace = kernel.function.name.namespace
    prefix = "" if namespace == DEFAULT_NAMESPACE else f"{namespace}::"
    names = [f"{prefix}{name}" for name in (kernel.view, kernel.functional) if name]
    kind = "view" if kernel.view else "write"
    in_place = ", in_place=True" if kernel.function.kind is SchemaKind.INPLACE else ""
    return f"generated.functionalize_{kind}(linked, {', '.join(map(text_literal, names))}{in_place})"


def _ways(function: NativeFunction, body: Body) -> str:
    if body is Body.NO_FORMULA:
        return ", detaches=True"
    if function.kind is SchemaKind.INPLACE:
        return ", writes=True"
    return ", views=True" if function.is_view else ""
