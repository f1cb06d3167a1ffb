"""The C++ declarations that are generated are those that torchgen writes, white space and notes aside."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.codegen import FunctionGroup, NativeFunctions, load_native_functions
from dispatchlab.codegen.emit.backend_files import kernel_class, registered_wrappers
from dispatchlab.codegen.emit.cpp_declarations import (
    cpp_files,
    function_declarations,
    kernel_declarations,
    meta_declaration,
    operator_declaration,
    schema_registrations,
)
from dispatchlab.codegen.read.backend_file import BackendFileError, read_backend_file
from dispatchlab.codegen.read.groups import members_of
from tests import effort

WHY = "torchgen comes with PyTorch: pip install 'dispatchlab[torch]'"
gen: Any = pytest.importorskip("torchgen.gen", reason=WHY)
dest: Any = pytest.importorskip("torchgen.dest.native_functions", reason=WHY)
model: Any = pytest.importorskip("torchgen.model", reason=WHY)
selector: Any = pytest.importorskip("torchgen.selective_build.selector", reason=WHY)
stubs: Any = pytest.importorskip("torchgen.gen_backend_stubs", reason=WHY)
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
    files = cpp_files(natives(), file="native_functions.yaml", only={*natives().by_name})
    declared: dict[str, list[str]] = {}
    for file, _, text in ours():
        declared.setdefault(file, []).append(text)
    declared["NativeFunctions.h"] = [*dict.fromkeys(declared["NativeFunctions.h"])]
    assert [file for file, texts in declared.items() if "".join(texts) not in bare(files[file])] == []
    assert declared.keys() == files.keys()


def code_in(text: str) -> str:
    return bare(re.sub(r"//.*", "", text))


def chosen_backend(seed: int) -> tuple[str, list[str]]:
    """A file of a backend with variants of some groups, and the operators in it; every fourth may be refused."""
    choice = random.Random(seed)
    lists: dict[str, list[str]] = {"supported": ["empty.memory_format"], "autograd": [], "symint": []}
    groups = [*map(members_of, natives().groups)]
    rare = [each for each in groups if any(one.kind.value == "mutable" for one in each)]
    foreach = [each for each in groups if each[0].name.name.startswith("_foreach")]
    chosen = [*choice.sample(groups, 100), *choice.sample(rare, 5), *choice.sample(foreach, 10)]
    for functional, *variants in dict.fromkeys(chosen):
        for one in (functional, *variants):
            needed = seed % 4 and one in variants and (not one.schema.returns or one.kind.value == "mutable")
            if needed or choice.random() < 0.6:
                lists["autograd" if len(functional.short_name) % 6 == seed % 6 else "supported"].append(one.short_name)
                if one.has_symint and choice.random() < 0.5:
                    lists["symint"].append(one.short_name)
    flags = {"use_out_as_primary": seed % 4 == 1, "device_guard": seed % 4 in (0, 3)}
    lines = [f"backend: {choice.choice(['PrivateUse1', 'XLA', 'Lazy'])}", "cpp_namespace: torch::npu"]
    lines += [f"{name}: {value}" for name, value in flags.items()]
    lines += [f"{name}: [{', '.join(names)}]" for name, names in lists.items() if names]
    return "\n".join(lines), lists["supported"] + lists["autograd"]


def test_the_code_of_a_backend_is_the_one_that_torchgen_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parsed_by_torchgen()
    monkeypatch.setattr(
        stubs, "parse_native_yaml", lambda *_: parsed._replace(backend_indices=dict(parsed.backend_indices))
    )
    written, kinds, refused = 0, Counter[str](), 0
    for seed in range(40 if effort.percent == 100 else 8):
        text, names = chosen_backend(seed)
        path, out = tmp_path / f"{seed}.yaml", tmp_path / str(seed)
        path.write_text(text)
        out.mkdir()
        try:
            backend = read_backend_file(text, natives())
        except BackendFileError:
            with pytest.raises(AssertionError):
                stubs.run(str(path), str(out), dry_run=False)
            refused += 1
            continue
        stubs.run(str(path), str(out), dry_run=False)
        assert code_in(kernel_class(backend, natives())) in code_in(
            (out / f"{backend.key}NativeFunctions.h").read_text()
        )
        for key in backend.keys:
            assert code_in(registered_wrappers(backend, key)) in code_in((out / f"Register{key}.cpp").read_text()), key
        written += len(names)
        for each in backend.registered:
            kinds[str(each.function.kind)] += 1
            kinds["made"] += each.own is None
            kinds["structured"] += each.function.in_structured_group
            kinds["foreach"] += each.function.name.name.startswith("_foreach")
            kinds["symint"] += each.own is not None and each.own.takes_symint
            kinds["autograd"] += each.key is not backend.key
    assert refused
    assert written > 500
    assert len(kinds) == 9
    assert min(kinds.values()) > 1
