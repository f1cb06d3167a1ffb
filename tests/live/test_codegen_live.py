"""The model of native_functions.yaml held to torchgen's, on the file that comes with the installed torch."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.codegen.emit.generate import generated_files, scenario_of, write_files
from dispatchlab.codegen.emit.generated_group import GeneratedGroup, generated_group
from dispatchlab.codegen.read.groups import FunctionGroup, ViewGroup
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Def, Impl
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.questions.certify.certificate import Certified
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.registries.model import RecordedKernel, RecordedOperator, registry_of

WHY = "torchgen comes with PyTorch: pip install 'dispatchlab[torch]'"
gen: Any = pytest.importorskip("torchgen.gen", reason=WHY)
theirs: Any = pytest.importorskip("torchgen.model", reason=WHY)
packaged: Any = pytest.importorskip("torchgen.packaged", reason=WHY)

NATIVE = Path(next(iter(packaged.__path__))) / "ATen" / "native"
FILE = NATIVE / "native_functions.yaml"


@cache
def ours() -> NativeFunctions:
    return load_native_functions(FILE)


@cache
def torchgens() -> Any:
    return gen.parse_native_yaml(str(FILE), str(NATIVE / "tags.yaml"))


def _facts(function: NativeFunction) -> dict[str, object]:
    parts = function.parts
    return {
        "schema": function.schema,
        "namespace": function.name.namespace,
        "kind": str(function.kind),
        "variants": {str(each) for each in function.variants},
        "structured": function.structured,
        "structured_delegate": _name(function.structured_delegate),
        "structured_inherits": function.structured_inherits,
        "autogen": [_name(name) for name in function.autogen],
        "manual_kernel_registration": function.manual_kernel_registration,
        "manual_cpp_binding": function.manual_cpp_binding,
        "python_module": function.python_module,
        "category_override": function.category_override,
        "device_guard": function.device_guard,
        "device_check": str(function.device_check),
        "cpp_no_default_args": set(function.cpp_no_default_args),
        "use_const_ref_for_mutable_tensors": function.use_const_ref_for_mutable_tensors,
        "tags": set(function.tags),
        "is_abstract": function.is_abstract,
        "is_view": function.is_view,
        "composites": {str(key) for key in function.composites},
        "line": function.location.line if function.location and not function.is_generated else None,
        "precomputed": None
        if function.precomputed is None
        else (
            {name: [str(one) for one in values] for name, values in function.precomputed.replace},
            [str(one) for one in function.precomputed.add],
        ),
        "ufunc": {
            str(loop.key): (loop.name, {kind.name for kind in loop.scalar_kinds}) for loop in function.ufunc_inner_loop
        },
        "before_self": [one.name for one in parts.before_self],
        "self": None if parts.self_argument is None else parts.self_argument.name,
        "after_self": [one.name for one in parts.after_self],
        "options": [one.name for one in parts.options],
        "keywords": [one.name for one in parts.keywords],
        "outs": [one.name for one in parts.outs],
        "returns": [one.name for one in function.schema.returns],
        "written": [one.name for one in function.schema.arguments if one.alias is not None and one.alias.is_write],
        "types": [str(one.type) for one in function.schema.arguments],
        "return types": [str(one.type) for one in function.schema.returns],
    }


def _their_facts(function: Any) -> dict[str, object]:
    arguments = function.func.arguments
    composites = {
        "CompositeImplicitAutograd": function.has_composite_implicit_autograd_kernel,
        "CompositeImplicitAutogradNestedTensor": function.has_composite_implicit_autograd_nested_tensor_kernel,
        "CompositeExplicitAutograd": function.has_composite_explicit_autograd_kernel,
        "CompositeExplicitAutogradNonFunctional": function.has_composite_explicit_autograd_non_functional_kernel,
    }
    options = arguments.tensor_options
    return {
        "schema": parse_schema(f"{function.namespace}::{function.func}"),
        "namespace": function.namespace,
        "kind": function.func.kind().name,
        "variants": {each.name for each in function.variants},
        "structured": function.structured,
        "structured_delegate": None if function.structured_delegate is None else str(function.structured_delegate),
        "structured_inherits": function.structured_inherits,
        "autogen": [str(name) for name in function.autogen],
        "manual_kernel_registration": function.manual_kernel_registration,
        "manual_cpp_binding": function.manual_cpp_binding,
        "python_module": function.python_module,
        "category_override": function.category_override,
        "device_guard": function.device_guard,
        "device_check": function.device_check.name,
        "cpp_no_default_args": set(function.cpp_no_default_args),
        "use_const_ref_for_mutable_tensors": function.use_const_ref_for_mutable_tensors,
        "tags": set(function.tags),
        "is_abstract": function.is_abstract,
        "is_view": function.is_view_op,
        "composites": {key for key, has in composites.items() if has},
        "line": None if "generated" in function.tags else function.loc.line,
        "precomputed": None
        if function.precomputed is None
        else (
            {name: [str(one) for one in values] for name, values in function.precomputed.replace.items()},
            [str(one) for one in function.precomputed.add],
        ),
        "ufunc": {
            str(key): (loop.name, {str(kind) for kind in loop.supported_dtypes})
            for key, loop in function.ufunc_inner_loop.items()
        },
        "before_self": [one.name for one in arguments.pre_self_positional],
        "self": None if arguments.self_arg is None else arguments.self_arg.argument.name,
        "after_self": [one.name for one in arguments.post_self_positional],
        "options": [] if options is None else [one.name for one in options.all()],
        "keywords": [one.name for one in arguments.flat_kwarg_only],
        "outs": [one.name for one in arguments.out],
        "returns": [one.name or "" for one in function.func.returns],
        "written": [one.name for one in function.func.schema_order_arguments() if one.is_write],
        # NB: to the schema parser a DeviceIndex is an int
        "types": [str(one.type).replace("DeviceIndex", "int") for one in function.func.schema_order_arguments()],
        "return types": [str(one.type) for one in function.func.returns],
    }


def _name(name: OperatorName | None) -> str | None:
    return None if name is None else str(name.without_namespace)


def test_all_functions_have_the_facts_that_torchgen_gives_them() -> None:
    mine = {function.short_name: function for function in ours().functions}
    other = {str(function.func.name): function for function in torchgens().native_functions}
    assert len(ours().functions) == len(mine)
    assert sorted(mine) == sorted(other)
    assert len([one for one in mine.values() if not one.is_generated]) > 2500
    assert len([one for one in mine.values() if one.is_generated]) > 400
    different = {name: (_facts(mine[name]), _their_facts(other[name])) for name in mine}
    assert {
        (name, fact): (a[fact], b[fact]) for name, (a, b) in different.items() for fact in a if a[fact] != b[fact]
    } == {}


def test_the_order_of_functions_is_that_of_torchgen() -> None:
    assert [one.short_name for one in ours().functions] == [str(one.func.name) for one in torchgens().native_functions]


def test_functions_are_grouped_as_torchgen_groups_them() -> None:
    def mine(each: FunctionGroup | NativeFunction) -> object:
        if isinstance(each, NativeFunction):
            return each.short_name
        return _group(each.functional, each.inplace, each.mutable, each.out)

    def other(each: Any) -> object:
        if isinstance(each, theirs.NativeFunction):
            return str(each.func.name)
        return _group(each.functional, each.inplace, each.mutable, each.out)

    expected = [other(each) for each in gen.get_grouped_native_functions(torchgens().native_functions)]
    assert [mine(each) for each in ours().groups] == expected
    assert len([each for each in ours().groups if isinstance(each, FunctionGroup)]) > 1000
    assert len(ours().structured_groups) == sum(
        isinstance(each, theirs.NativeFunctionsGroup) and each.structured
        for each in gen.get_grouped_native_functions(torchgens().native_functions)
    )


def _group(*functions: Any) -> tuple[str | None, ...]:
    return tuple(
        None if one is None else one.short_name if isinstance(one, NativeFunction) else str(one.func.name)
        for one in functions
    )


def test_views_are_grouped_as_torchgen_groups_them() -> None:
    theirs_grouped = gen.get_grouped_by_view_native_functions(torchgens().native_functions)
    expected = {
        _group(each.view, each.view_copy, each.view_inplace)
        for each in theirs_grouped
        if isinstance(each, theirs.NativeFunctionsViewGroup)
    }
    found = {_group(each.view, each.copy, each.inplace) for each in ours().view_groups if isinstance(each, ViewGroup)}
    assert found == expected
    assert len(found) > 50
    alone = sorted(each.short_name for each in ours().view_groups if isinstance(each, NativeFunction))
    assert alone == sorted(str(each.func.name) for each in theirs_grouped if isinstance(each, theirs.NativeFunction))


def test_every_key_has_the_kernels_that_torchgen_gives_it() -> None:
    def rows(items: Iterable[tuple[Any, Any]]) -> dict[str | None, tuple[str, bool, str]]:
        return {str(name): (kernel.kernel, kernel.structured, kernel.cpp_namespace) for name, kernel in items}

    expected = {str(key): rows(index.index.items()) for key, index in torchgens().backend_indices.items()}
    found: dict[str, dict[str | None, tuple[str, bool, str]]] = {
        str(key): {_name(name): (kernel.name, kernel.structured, kernel.namespace) for name, kernel in kernels.items()}
        for key, kernels in ours().backends.items()
    }
    assert {key: value for key, value in expected.items() if value} == found
    assert sum(map(len, found.values())) > 5000


# -- what is generated


@cache
def generated_groups() -> tuple[GeneratedGroup, ...]:
    return tuple(map(generated_group, ours().structured_groups))


def test_every_structured_group_registers_at_the_keys_at_which_torchgen_registers_it() -> None:
    selector = pytest.importorskip("torchgen.selective_build.selector").SelectiveBuilder.get_nop_selector()
    dest = pytest.importorskip("torchgen.dest")
    target = pytest.importorskip("torchgen.utils").Target.REGISTRATION
    indices = torchgens().backend_indices
    keys = [*indices, theirs.DispatchKey.Meta, theirs.DispatchKey.CompositeExplicitAutogradNonFunctional]
    grouped = [
        each
        for each in gen.get_grouped_native_functions(torchgens().native_functions)
        if isinstance(each, theirs.NativeFunctionsGroup) and each.structured
    ]
    expected: set[tuple[str, str]] = set()
    for key in dict.fromkeys(keys):
        index = dataclasses.replace(indices[key], dispatch_key=key)
        register = dest.RegisterDispatchKey(index, target, selector, False, True, None, False)  # noqa: FBT003
        for group in grouped:
            for text in register(group):
                for name in re.findall(r'm\.impl\("([^"]+)"', text):
                    expected.add((str(key), name))
    found = {
        (str(each.key), wrapper.function.short_name)
        for generated in generated_groups()
        for each in generated.keys
        for wrapper in each.wrappers
    }
    assert found == expected
    assert len(found) > 3500


def test_all_structured_groups_compile_register_and_come_down_again(tmp_path: Path) -> None:
    files = generated_files(ours(), file=FILE.name)
    assert len(files) == 2 * len(generated_groups()) + 1
    write_files(tmp_path / "all_of_aten", files)
    sys.path.insert(0, str(tmp_path))
    try:
        package = importlib.import_module("all_of_aten")
        dispatcher = Dispatcher()
        held = package.register(dispatcher, object())
        names = {str(each) for each in dispatcher.operators()}
        assert names == {str(each.name) for group in ours().structured_groups for each in group.functions}
        dispatcher.check_invariants()
        held.close()
        assert not dispatcher.operators()
    finally:
        sys.path.remove(str(tmp_path))
        for name in [each for each in sys.modules if each.split(".")[0] == "all_of_aten"]:
            del sys.modules[name]


def test_all_generated_registrations_are_certified_as_independent_of_their_order() -> None:
    recorded: list[RecordedOperator] = []
    for generated in generated_groups():
        scenario = scenario_of(generated, FILE.name)
        kernels: dict[OperatorName, list[RecordedKernel]] = {}
        defs: dict[OperatorName, Def] = {}
        for block in scenario.registrations:
            assert isinstance(block, Block)
            for each in block.registrations:
                if isinstance(each, Def):
                    defs[each.operator.within("aten")] = each
                elif isinstance(each, Impl):
                    assert block.key is not None
                    kernel = RecordedKernel(block.key, each.debug, active=True)
                    kernels.setdefault(each.operator.within("aten"), []).append(kernel)
        for name, define in defs.items():
            ordered = tuple(sorted(kernels[name], key=lambda kernel: kernel.key))
            recorded.append(RecordedOperator(name, f"aten::{define.schema}", define.debug, kernels=ordered))
    found = certification_of(registry_of("generated", tuple(recorded), ()), name="g", semantics="strict")
    assert {each.verdict for each in found.certificates} == {Certified.ORDER_INDEPENDENT}
    assert len(found.certificates) == sum(len(generated.group.functions) for generated in generated_groups())
    assert found.edges > 300


def test_the_file_of_pytorch_2_13_has_3101_functions_in_275_structured_groups() -> None:
    torch: Any = pytest.importorskip("torch", reason=WHY)
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the counts are those of PyTorch 2.13")
    made = sum(function.is_generated for function in ours().functions)
    wrappers = sum(len(each.wrappers) for generated in generated_groups() for each in generated.keys)
    counts = {
        "functions": len(ours().functions),
        "functions that torchgen makes": made,
        "groups of functions": len(ours().groups),
        "structured groups": len(generated_groups()),
        "wrappers of structured groups": wrappers,
    }
    assert counts == {
        "functions": 3101,
        "functions that torchgen makes": 517,
        "groups of functions": 1691,
        "structured groups": 275,
        "wrappers of structured groups": 3863,
    }
