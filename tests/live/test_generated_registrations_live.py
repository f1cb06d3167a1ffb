"""Every registration that is generated for PyTorch's native functions, held to recorded registries and torchgen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from dispatchlab.codegen.emit.registrations import FunctionRegistrations, left_out, registrations_of
from dispatchlab.codegen.read.derivatives import Derivatives, derivatives_beside, load_derivatives
from dispatchlab.codegen.read.matched_derivatives import matched_derivatives
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions
from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.native_functions.generated_registrations import (
    Comparison,
    Rule,
    compare_with_registry,
    generated_file,
)
from dispatchlab.records.file import open_bundled
from dispatchlab.records.model import RecordedOperator, registry_of

WHY = "torchgen comes with PyTorch: pip install 'dispatchlab[torch]'"
packaged: Any = pytest.importorskip("torchgen.packaged", reason=WHY)
FILE = f"{next(iter(packaged.__path__))}/ATen/native/native_functions.yaml"
torch: Any = pytest.importorskip("torch", reason=WHY)
of_2_13 = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the registries are those of 2.13")


@cache
def natives() -> NativeFunctions:
    return load_native_functions(FILE)


@cache
def derivatives() -> Derivatives:
    path = derivatives_beside(FILE)
    assert path is not None
    return load_derivatives(path, natives())


@cache
def generated() -> tuple[FunctionRegistrations, ...]:
    return registrations_of(natives(), derivatives())


@cache
def compared(name: str) -> Comparison:
    return compare_with_registry(generated(), open_bundled(name), name=name)


@of_2_13
@pytest.mark.parametrize(
    ("name", "kernels", "rules"),
    [
        (
            "torch-2.13",
            14_576,
            {
                Rule.OTHER_BUILD: 1_292,
                Rule.BATCHING: 1_214,
                Rule.AUTOCAST: 693,
                Rule.VIEW_BITS: 220,
                Rule.AUTOGRAD: 13,
                Rule.TRACER: 15,
                Rule.FUNCTIONALIZATION: 7,
                Rule.BACKEND: 1,
                Rule.PYTHON: 1_340,
                Rule.OTHER_OPERATOR: 9,
            },
        ),
        (
            "torch-2.13-cpu",
            12_856,
            {
                Rule.OTHER_BUILD: 3_012,
                Rule.BATCHING: 1_214,
                Rule.AUTOCAST: 692,
                Rule.VIEW_BITS: 220,
                Rule.AUTOGRAD: 13,
                Rule.TRACER: 15,
                Rule.FUNCTIONALIZATION: 7,
                Rule.PYTHON: 1_339,
                Rule.OTHER_OPERATOR: 9,
            },
        ),
    ],
)
def test_every_function_registers_what_the_version_has_recorded(
    name: str, kernels: int, rules: dict[Rule, int]
) -> None:
    found = compared(name)
    assert found.unexplained == ()
    assert (found.defs, found.kernels, dict(found.by_rule)) == (3_101, kernels, rules)


@of_2_13
def test_every_kernel_of_a_generated_file_is_among_the_generated_ones() -> None:
    """Counted from the other side: the comparison must not have passed over recorded kernels."""
    recorded = sum(
        bool(generated_file(kernel.debug))
        for operator in open_bundled("torch-2.13")
        if operator.name.namespace == "aten"
        for kernel in operator.kernels
    )
    assert recorded == compared("torch-2.13").kernels == 14_576


@of_2_13
def test_what_is_left_out_is_named_and_is_what_was_registered_by_hand() -> None:
    found = {each.why.partition(":")[0]: each.functions for each in left_out(natives(), derivatives())}
    counts = {why: len(functions) for why, functions in found.items()}
    assert counts == {
        "kernels of Autograd, ADInplaceOrView and Tracer, written by hand": 15,
        "kernels of Functionalize": 14,
    }
    by_hand = {
        each.operator for each in compared("torch-2.13").differences if each.rule in (Rule.AUTOGRAD, Rule.TRACER)
    }
    assert set(found["kernels of Autograd, ADInplaceOrView and Tracer, written by hand"]) == by_hand
    functionalized = {
        each.operator for each in compared("torch-2.13").differences if each.rule is Rule.FUNCTIONALIZATION
    }
    beside = functionalized - set(found["kernels of Functionalize"])
    assert {name.name for name in beside} == {"lift", "lift_fresh_copy", "_to_copy", "_unsafe_view"}


def test_without_derivatives_the_kernels_of_autograd_are_left_out_by_name() -> None:
    registrations = registrations_of(natives())
    without = {kernel.key for each in registrations for kernel in each.kernels}
    with_them = {kernel.key for each in generated() for kernel in each.kernels}
    autograd = {DispatchKey.Autograd, DispatchKey.AutogradNestedTensor, DispatchKey.AutogradCUDA}
    assert with_them - without == autograd
    named = next(each for each in left_out(natives(), None) if "derivatives.yaml" in each.why)
    kernels = {each.function.name for each in generated() if any(kernel.key in autograd for kernel in each.kernels)}
    assert set(named.functions) == kernels


# -- the comparison finds what is wrong


_NAMES = frozenset(("normal_", "empty", "add", "view"))
_BESIDE = frozenset((*_NAMES, "randn", "ones", "sub", "sum", "clone", "bmm", "mul", "relu"))


@cache
def _small() -> tuple[FunctionRegistrations, ...]:
    return tuple(each for each in generated() if each.function.name.name in _NAMES)


@cache
def _base() -> tuple[RecordedOperator, ...]:
    operators = (each for each in open_bundled("torch-2.13") if each.name.namespace == "aten")
    return tuple(each for each in operators if each.name.name in _BESIDE)


def _differences(changed: RecordedOperator) -> Sequence[tuple[str, str]]:
    """What is unexplained when one operator is another one."""
    operators = tuple(changed if each.name == changed.name else each for each in _base())
    registry = registry_of("changed", operators, ())
    found = compare_with_registry(_small(), registry, name="changed", whole=False)
    return [(str(each.operator), str(each.key or "def")) for each in found.unexplained]


@of_2_13
def test_a_change_to_any_generated_kernel_is_a_difference_that_no_rule_explains() -> None:
    registry = open_bundled("torch-2.13")
    tried = 0
    for each in _small():
        operator = registry.operator(str(each.function.name))
        assert operator is not None
        for at, kernel in enumerate(operator.kernels):
            if not generated_file(kernel.debug):
                continue
            key = str(kernel.key)
            others = (*operator.kernels[:at], *operator.kernels[at + 1 :])
            changes = [
                replace(kernel, inferred="(int _0) -> ()"),
                replace(kernel, debug=kernel.debug.replace(".cpp", "_77.cpp")),
            ]
            for change in changes:
                kernels = (*operator.kernels[:at], change, *operator.kernels[at + 1 :])
                found = _differences(replace(operator, kernels=kernels))
                assert (str(operator.name), key) in found
                tried += 1
            if kernel.active and operator.active_at(kernel.key) is kernel and len(operator.kernels_at(kernel.key)) == 1:
                assert _differences(replace(operator, kernels=others)) == [(str(operator.name), key)]
                tried += 1
        assert _differences(replace(operator, tags=operator.tags | {"core", "odd"})) == [(str(operator.name), "def")]
    assert tried > 200


@of_2_13
def test_a_kernel_by_hand_at_a_key_that_is_not_its_own_is_not_explained() -> None:
    operator = open_bundled("torch-2.13").operator("aten::normal_")
    assert operator is not None
    vmap = next(kernel for kernel in operator.kernels if kernel.key is DispatchKey.VmapMode)
    kernels = tuple(
        replace(each, debug=vmap.debug) if each.key is DispatchKey.CPU else each for each in operator.kernels
    )
    assert ("aten::normal_", "CPU") in _differences(replace(operator, kernels=kernels))


# -- the formulas


@cache
def _torchgens() -> Any:
    loaded: Any = pytest.importorskip("torchgen.packaged.autograd.load_derivatives", reason=WHY)
    tags = FILE.replace("native_functions.yaml", "tags.yaml")
    return loaded.load_derivatives(str(derivatives_beside(FILE)), FILE, tags)[0]


def test_the_formulas_are_those_that_torchgen_reads() -> None:
    mine = derivatives().by_function
    names = {str(name.without_namespace): entry for name, entry in mine.items()}
    copies = 0
    for schema, infos in _torchgens().items():
        entry = names.pop(str(schema.name), None)
        if entry is None:
            copies += 1
            assert "_copy" in str(schema.name)
            continue
        assert entry.nodes == tuple(info.op for info in infos.values())
        for key, info in infos.items():
            found = entry.at(DispatchKey.Autograd if key == "Default" else DispatchKey[key])
            assert found is not None
            formulas = [(each.text, each.names) for each in found.formulas]
            assert formulas == [(each.original_formula, each.var_names) for each in info.derivatives]
            assert found.non_differentiable == tuple(info.non_differentiable_arg_names)
            assert len(found.forward) == len(info.forward_derivatives)
            differentiable = entry.output_differentiability
            expected = info.output_differentiability
            assert differentiable == (tuple(expected) if expected else None)
            conditions = info.output_differentiability_conditions
            assert entry.condition == (conditions[0] if conditions else "")
    assert not names
    assert (copies, len(mine) > 600) == (37, True)


def test_every_function_has_the_formulas_that_torchgen_gives_it() -> None:
    autograd: Any = pytest.importorskip("torchgen.api.autograd", reason=WHY)
    gen: Any = pytest.importorskip("torchgen.gen", reason=WHY)
    functions = gen.parse_native_yaml(FILE, FILE.replace("native_functions", "tags")).native_functions
    found = matched_derivatives(natives(), derivatives())
    mine = {str(name.without_namespace): match for name, match in found.items()}
    kinds: Counter[bool] = Counter()
    for each in autograd.match_differentiability_info(functions, dict(_torchgens())):
        match = mine.pop(str(each.func.func.name), None)
        if each.info is None:
            assert match is None, each.func.func.name
            continue
        assert match is not None, each.func.func.name
        keys = ["Default" if key is DispatchKey.Autograd else key.name for key in match.keys]
        assert keys == [*each.info], each.func.func.name
        assert match.nodes == tuple(info.op for info in each.info.values()), each.func.func.name
        kinds[match.exact] += 1
    assert not mine
    assert kinds[True] > 700
    assert kinds[False] > 500
