"""The C++ declarations that are generated are those that torchgen writes, white space and notes aside."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.codegen import FunctionGroup, NativeFunctions, load_native_functions
from dispatchlab.codegen.emit.cpp_declarations import (
    cpp_files,
    function_declarations,
    kernel_declarations,
    meta_declaration,
    operator_declaration,
    schema_registrations,
)

WHY = "torchgen comes with PyTorch: pip install 'dispatchlab[torch]'"
gen: Any = pytest.importorskip("torchgen.gen", reason=WHY)
dest: Any = pytest.importorskip("torchgen.dest.native_functions", reason=WHY)
model: Any = pytest.importorskip("torchgen.model", reason=WHY)
selector: Any = pytest.importorskip("torchgen.selective_build.selector", reason=WHY)
packaged: Any = pytest.importorskip("torchgen.packaged", reason=WHY)

NATIVE = Path(next(iter(packaged.__path__))) / "ATen" / "native"
FILE = NATIVE / "native_functions.yaml"

Declaration = tuple[str, str, str]
"""The file, the operator, and the text without white space."""


@cache
def natives() -> NativeFunctions:
    return load_native_functions(FILE)


def bare(text: str) -> str:
    return "".join(re.sub(r"// See Note .*", "", text).split())


@cache
def ours() -> tuple[Declaration, ...]:
    return tuple(_ours())


def _ours() -> Iterator[Declaration]:
    found = natives()
    for one, schema in zip(found.functions, schema_registrations(found.functions), strict=True):
        yield "Functions.h", one.short_name, bare(function_declarations(one))
        yield "Operators.h", one.short_name, bare(operator_declaration(one))
        yield "RegisterSchema.cpp", one.short_name, bare(schema)
    for each in found.groups:
        name = (each.functional if isinstance(each, FunctionGroup) else each).short_name
        if isinstance(each, FunctionGroup) and each.structured:
            yield "NativeMetaFunctions.h", name, bare(meta_declaration(each))
        for key in found.backends:
            for text in kernel_declarations(each, key):
                yield "NativeFunctions.h", f"{name} {key}", bare(text)


@cache
def parsed_by_torchgen() -> Any:
    return gen.parse_native_yaml(str(FILE), str(NATIVE / "tags.yaml"))


def theirs() -> Iterator[Declaration]:
    parsed = parsed_by_torchgen()
    operators = gen.ComputeOperators(gen.Target.DECLARATION, static_dispatch_backend_indices=[])
    schemas = gen.RegisterSchema(selector.SelectiveBuilder.get_nop_selector())
    for one in parsed.native_functions:
        yield "Functions.h", str(one.func.name), bare(gen.ComputeFunction()(one))
        yield "Operators.h", str(one.func.name), bare(operators(one))
        yield "RegisterSchema.cpp", str(one.func.name), bare(schemas(one))
    for each in gen.get_grouped_native_functions(parsed.native_functions):
        grouped = isinstance(each, model.NativeFunctionsGroup)
        name = str((each.functional if grouped else each).func.name)
        if grouped and each.structured:
            yield "NativeMetaFunctions.h", name, bare(gen.compute_meta_function_declaration(each))
        for key, index in parsed.backend_indices.items():
            for text in dest.compute_native_function_declaration(each, index):
                yield "NativeFunctions.h", f"{name} {key}", bare(text)


def test_every_declaration_is_the_one_that_torchgen_writes() -> None:
    here, there = Counter(ours()), Counter(theirs())
    assert [*(here - there)][:3] == [*(there - here)][:3] == []
    counts = Counter(file for file, _, _ in here.elements())
    assert counts["Functions.h"] == counts["Operators.h"] == counts["RegisterSchema.cpp"] == 3101
    assert (counts["NativeMetaFunctions.h"], counts["NativeFunctions.h"] > 4000) == (275, True)


def test_the_files_hold_every_declaration_and_no_kernel_twice() -> None:
    files = cpp_files(natives(), file="native_functions.yaml", only={one.name for one in natives().functions})
    declared: dict[str, list[str]] = {}
    for file, _, text in ours():
        declared.setdefault(file, []).append(text)
    declared["NativeFunctions.h"] = [*dict.fromkeys(declared["NativeFunctions.h"])]
    assert [file for file, texts in declared.items() if "".join(texts) not in bare(files[file])] == []
    assert declared.keys() == files.keys()
