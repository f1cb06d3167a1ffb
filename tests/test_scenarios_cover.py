"""Every behaviour that upstream's tests are about is a scenario, or there is a reason why it cannot be one.

`COVERED` maps what is to be shown, list by list, to the files that show it; `NOT_A_SCENARIO` has reasons for the rest.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import ErrorKind
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.explore import explore
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.program_walk import explore_program
from dispatchlab.prover.result import Expectation, Exploration, judge
from dispatchlab.questions.lint import rules as lint_rules
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario
from tests.effort import share

ROOT = Path(__file__).parent.parent / "scenarios"

TEST_DISPATCH_2020 = {
    "def": (
        "pr35061_tests/test_def",
        "basics/five_registrations",
    ),
    "def_impl_schema_mismatch": (
        "pr35061_tests/test_def_impl_schema_mismatch",
        "schemas/number_of_arguments",
    ),
    "def_with_inference": (
        "pr35061_tests/test_def_with_inference",
        "basics/def_by_name",
    ),
    "def_only": (
        "pr35061_tests/test_def_only",
        "basics/a_def_alone",
    ),
    "impl_only": (
        "pr35061_tests/test_impl_only",
        "basics/a_kernel_alone",
    ),
    "multiple_def_error": ("pr35061_tests/test_multiple_def_error", "basics/a_second_def", "pr35061/equal_defs_merge"),
    "def_with_explicit_alias": (
        "pr35061_tests/test_def_with_explicit_alias",
        "alias_kinds/pure_function",
    ),
    "multiple_def_schema_mismatch": (
        "pr35061_tests/test_multiple_def_schema_mismatch",
        "basics/a_second_def_with_another_schema",
        "pr35061/different_schemas_conflict",
    ),
    "multiple_def_alias_defaulting": (
        "pr35061_tests/test_multiple_def_alias_defaulting",
        "alias_kinds/a_second_def_with_a_default_kind",
        "pr35061/alias_kind_defaulting",
    ),
    "multiple_def_alias_mismatch": (
        "pr35061_tests/test_multiple_def_alias_mismatch",
        "alias_kinds/a_second_def_with_another_kind",
        "pr35061/alias_kind_mismatch",
    ),
    "overwrite_catchall": (
        "pr35061_tests/test_overwrite_catchall",
        "order/the_newest_composite_kernel_wins",
        "order/three_in_a_row",
        "pr35061/the_newest_catch_all_wins",
    ),
    "a failed constructor leaves the previous state": (
        "libraries/a_refused_member_takes_the_library_along",
        "defects/half_a_def_strict",
        "defects/half_a_def_torch",
    ),
}

TEST_DISPATCH_2023 = {
    "computed_table": ("table/five_kinds_of_kernels",),
    "computed_table_with_cpu_math_autogradcpu_fallthrough": (
        "table/the_row_cpu_took_falls_through",
        "table/the_row_a_backend_took_falls_back",
    ),
    "computed_table_with_math": ("table/composite_implicit_fills_everything",),
    "computed_table_with_cpu_math": ("table/a_backend_takes_its_autograd_row",),
    "computed_table_with_autograd": ("table/autograd_fills_only_autograd_rows",),
    "computed_table_with_cpu_autograd_math": ("table/autograd_serves_the_backend_with_a_kernel",),
    "computed_table_with_ambiguous_autogradother": (
        "table/ambiguous_autogradother",
        "defects/stale_quantized_strict",
        "defects/stale_quantized_torch",
    ),
    "computed_table_with_cpu_defaultbackend": ("table/cpu_beats_composite_explicit",),
    "computed_table_with_cpu_autograd_defaultbackend": ("table/composite_explicit_with_autograd",),
    "computed_table_with_cpu_autograd_math_defaultbackend": (
        "table/all_aliases_and_cpu_strict",
        "table/all_aliases_and_cpu_torch",
    ),
    "multiple_fallback": (
        *("fallbacks/a_second_one", "fallbacks/pytorch_has_some_already"),
        *("defects/replaced_fallback_strict", "defects/replaced_fallback_torch"),
        *("defects/lost_fallback_strict", "defects/lost_fallback_torch"),
    ),
    "batched decompositions": ("defects/stale_batched_before_2_10",),
    "overwrite_math": ("order/the_newest_composite_kernel_wins",),
    "find_dangling_impls_ext": ("lifetimes/a_dangling_kernel",),
    "python_dispatcher_basic": ("table/autograd_serves_the_backend_with_a_kernel",),
    "python_dispatcher_math_autogradcpu": ("table/an_autograd_key_beats_composite_implicit",),
    "python_dispatcher_defaultbackend_autogradcpu": ("table/autogradcpu_beside_a_default_backend",),
    "python_dispatcher_autogradother": ("table/ambiguous_autogradother",),
    "python_dispatcher_defaultbackend_math": ("table/explicit_beats_implicit",),
}

OP_REGISTRATION_2020 = {
    "testBasics": ("basics/a_def_alone", "basics/a_kernel_before_its_def", "basics/def_with_a_kernel"),
    "importTopLevel": ("pr35061/import_without_a_namespace", "basics/a_kernel_alone"),
    "overload": ("basics/overloads",),
    "importNamespace": (
        "pr35061/import_fills_in_the_namespace",
        "libraries/def_of_a_foreign_namespace",
        "libraries/impl_of_a_foreign_namespace",
    ),
    "schema": ("alias_kinds/each_form_of_def", "alias_kinds/inferred_and_explicit"),
    "dispatch": ("basics/one_operator_for_each_key",),
    "dispatchMultiple": ("basics/three_keys_of_one_operator",),
    "fallback": ("fallbacks/serves_every_operator", "pr35061/import_fallback"),
    "TorchLibraryTwiceIsError": ("libraries/a_second_def_block", "libraries/a_claim_and_a_def_block"),
    "CppFunction": ("kernels/every_form",),
    "schema before or after the kernel, name before or after": (
        "basics/a_kernel_before_its_def",
        "basics/def_by_name",
    ),
    "without a schema it fails": ("basics/def_by_name_needs_a_typed_kernel",),
    "stack-based kernels cannot infer": ("basics/def_by_name_needs_a_typed_kernel",),
    "catch-all is called": ("pr35061/catch_all", "table/composite_implicit_fills_everything"),
    "a kernel out of scope, then the catch-all": ("lifetimes/a_kernel_goes_and_the_composite_returns",),
    "a schema without kernels": ("basics/a_def_alone",),
    "a name without kernels": ("lifetimes/a_name_keeps_the_operator",),
    "out of scope the schema is gone, a kernel may come afterwards": ("lifetimes/the_def_goes_and_kernels_stay",),
    "a different schema fails": ("basics/a_second_def_with_another_schema",),
    "a kernel is removed and the schema remains": ("lifetimes/the_schema_survives_its_kernels",),
    "an operator without tensor inputs": ("schemas/no_returns", "table/undefined_sees_only_composites"),
    "the same key in two calls": ("order/the_newest_kernel_wins", "order/a_fixed_order_settles_it"),
    "several keys": ("basics/three_keys_of_one_operator",),
    "mismatching kernels": ("signatures/composite_against_a_backend", "schemas/number_of_arguments"),
    "alias kinds that agree": ("pr35061/equal_alias_kinds_merge",),
    "alias kinds that differ": ("pr35061/alias_kind_mismatch", "pr35061/alias_kind_defaulting"),
    "fallback for the wrong backend, and for the right one beside a kernel": (
        "fallbacks/loses_to_a_kernel",
        "fallbacks/serves_every_operator",
    ),
    "autograd kernel with and without a regular one": (
        "table/autograd_fills_only_autograd_rows",
        "table/composite_implicit_beats_autograd",
        "table/autograd_serves_the_backend_with_a_kernel",
    ),
    "XLA autograd precedence": ("table/one_autograd_key_beats_all", "table/xla_with_a_composite_kernel"),
    "testAvailableArgTypes, as far as kernels are compared": ("schemas/many_types",),
}

OP_REGISTRATION_2024 = {
    "whenRegisteringBackendFallbackKernelAndCatchallKernelForSameBackend": ("fallbacks/loses_to_composite_kernels",),
    "whenRegisteringAutogradKernelWithRegularKernel": ("basics/three_keys_of_one_operator",),
    "dispatchWithCompositeImplicitAutogradKernel": ("table/composite_implicit_fills_everything",),
    "dispatchWithCompositeImplicitAutogradAndAutogradKernel": ("table/composite_implicit_beats_autograd",),
    "dispatchWithCompositeImplicitAutogradAndCatchAllKernel": (
        "order/the_newest_composite_kernel_wins",
        "kernels/no_key_means_composite_implicit",
    ),
    "AutogradBackendOverridesCompositeImplicitAutogradKernel": ("table/an_autograd_key_beats_composite_implicit",),
    "BackendOverridesCompositeImplicitAutogradKernel": ("table/a_backend_takes_its_autograd_row",),
    "dispatchWithCompositeExplicitAutogradKernel": ("table/composite_explicit_fills_backends",),
    "dispatchWithCompositeExplicitAutogradAndCompositeImplicitAutogradKernel": ("table/explicit_beats_implicit",),
    "BackendOverridesCompositeExplicitAutogradKernel": ("table/cpu_beats_composite_explicit",),
    "dispatchAutogradPrecedence": ("table/one_autograd_key_beats_all", "table/five_kinds_of_kernels"),
    "throwsWhenRegisterToBackendMapsToAutogradOther": ("table/ambiguous_autogradother",),
    "registerCompositeImplicitAutogradWithCPUKernel_andCallAutogradOtherKernel": (
        "table/a_backend_takes_its_autograd_row",
    ),
    "AutogradBackendOverridesAutogradKernel": ("table/one_autograd_key_beats_all",),
    "AutogradXLAOverridesAutogradKernel": ("table/one_autograd_key_beats_all",),
    "whenRegisterWithXLAKernelAndCatchAll_AutogradXLAIsNotFilled": ("table/xla_with_a_composite_kernel",),
    "mismatching C++ signatures of two keys": ("signatures/by_value_and_by_reference",),
    "mismatching C++ signatures, catch-all and key": ("signatures/composite_against_a_backend",),
    "mismatching C++ signatures through a library": ("signatures/in_a_library",),
    "fallthrough fallback beside a kernel of one operator": ("fallbacks/fallthrough_for_all_but_one",),
}

LIBRARIES = {
    "DEF claims its namespace": ("libraries/def_block", "libraries/two_namespaces"),
    "DEF of the wildcard": ("libraries/def_block_of_the_wildcard",),
    "FRAGMENT of the wildcard": ("libraries/fragment_of_the_wildcard",),
    "DEF with a key": ("libraries/def_block_with_a_key",),
    "FRAGMENT with a key": ("libraries/fragment_with_a_key",),
    "def in IMPL": ("libraries/def_in_an_impl_block",),
    "impl with the key of the call, of the block, or none": (
        "libraries/the_key_of_an_impl_block",
        "libraries/an_impl_block_without_a_key",
    ),
    "impl with another key": ("libraries/a_kernel_with_another_key",),
    "fallback in DEF": ("libraries/fallback_in_a_def_block",),
    "fallback in FRAGMENT": ("libraries/fallback_in_a_fragment",),
    "fallback in IMPL of a namespace": ("libraries/fallback_with_a_namespace",),
    "fallback in IMPL of the wildcard, without a key": ("libraries/fallback_without_a_key",),
    "fallback in IMPL of the wildcard": (
        "libraries/fallback_in_the_wildcard_block",
        "libraries/a_fallback_key_wins_over_its_block",
    ),
    "fallback at an alias key": (
        "fallbacks/at_an_alias_key",
        "defects/half_a_fallback_strict",
        "defects/half_a_fallback_torch",
    ),
    "FRAGMENT and IMPL coexist with DEF": ("libraries/fragment_and_impl_join_a_def", "libraries/two_fragments"),
    "an equal namespace in a name": ("libraries/names_may_repeat_the_namespace",),
    "another namespace in a name": (
        "libraries/def_of_a_foreign_namespace",
        "libraries/impl_of_a_foreign_namespace",
    ),
    "names in IMPL of the wildcard": (
        "libraries/a_bare_name_in_the_wildcard_block",
        "libraries/qualified_names_in_the_wildcard_block_strict",
        "libraries/qualified_names_in_the_wildcard_block_torch",
    ),
    "registrations run in order": ("libraries/the_order_inside_is_fixed", "order/two_libraries_with_one_key"),
    "all or nothing": ("libraries/a_refused_member_takes_the_library_along",),
    "a def with a function": ("basics/def_with_a_kernel", "order/a_def_brings_the_older_kernel"),
}

SCHEMAS = {
    "number of arguments": ("schemas/number_of_arguments",),
    "number of returns": ("schemas/number_of_returns",),
    "type of an argument": ("schemas/type_of_an_argument",),
    "type of a return": ("schemas/type_of_a_return",),
    "names, defaults, kwarg-only, alias annotations, sizes": ("schemas/names_and_defaults_do_not_count",),
    "int for SymInt": ("schemas/an_int_kernel_serves_a_symint_schema",),
    "SymInt for int": ("schemas/a_symint_kernel_needs_a_symint_schema",),
    "ScalarType is not int": ("schemas/scalar_type_is_not_int",),
    "Tensor is not Tensor?": ("schemas/optional_is_another_type",),
    "Tensor[] is not Tensor?[]": ("schemas/list_of_optional_is_another_type",),
    "Scalar is not float": ("schemas/scalar_is_not_float",),
    "every list, inactive kernels included": ("schemas/inactive_kernels_are_checked_too",),
    "kernels are never compared with one another": ("schemas/kernels_are_not_compared_with_one_another",),
    "boxed and fallthrough kernels are never checked": ("kernels/boxed_fits_every_schema",),
    "64 arguments": ("schemas/sixty_four_arguments", "defects/ghost_operators_strict"),
}

TABLE = {
    "a fallthrough kernel is direct": ("kernels/a_fallthrough_kernel_is_a_kernel",),
    "Undefined takes composites only, the non-functional one first": (
        "table/undefined_sees_only_composites",
        "table/non_functional_beats_explicit",
        "table/explicit_beats_implicit",
    ),
    "explicit takes implicit away from autograd and nested rows": ("table/explicit_beats_implicit",),
    "explicit never triggers ambiguity": ("table/explicit_is_never_ambiguous",),
    "non-functional does not count as a kernel of a backend": ("table/non_functional_leaves_autograd_rows_alone",),
    "CPU and implicit leave AutogradCPU to Autograd or the fallback": (
        "table/autograd_serves_the_backend_with_a_kernel",
        "table/the_row_a_backend_took_falls_back",
    ),
    "HIP, VE and MTIA never take the composite away": ("table/hip_ve_and_mtia_keep_the_composite",),
    "implicit beats fallbacks, which beat nothing": ("fallbacks/loses_to_composite_kernels",),
    "Autograd beats fallbacks": ("fallbacks/loses_to_autograd",),
    "modes only come from direct kernels and fallbacks": (
        "table/composites_leave_modes_alone",
        "kernels/kernels_of_rare_keys",
    ),
    "nested composite": (
        "table/nested_composite_fills_nested_rows",
        "table/nested_composite_yields_to_no_backend",
    ),
    "batched decomposition": ("table/batched_decomposition",),
    "AutogradOther directly, and by its alias": (
        "table/autogradother_settles_ambiguity",
        "table/autograd_does_not_settle_ambiguity",
    ),
    "functionality keys have no slot": (
        "table/a_functionality_key_has_no_row_strict",
        "table/a_functionality_key_has_no_row_torch",
    ),
    "SymInt kernels and kernels without a debug text in a dump": (
        "kernels/symint_kernels_print_as_boxed",
        "kernels/every_form",
    ),
}

DEFECTS = {
    "stale slots: implicit, then explicit": (
        "defects/stale_slots_strict",
        "defects/stale_slots_torch",
        "defects/stale_slots_with_a_fixed_order_torch",
    ),
    "stale slots: Quantized": ("defects/stale_quantized_strict", "defects/stale_quantized_torch"),
    "stale slots: Sparse and SparseCsr": (
        "defects/stale_sparse_strict",
        "defects/stale_sparse_torch",
        "defects/sparsehip_is_not_stale",
    ),
    "stale slots: NestedTensor": ("defects/stale_nested_strict", "defects/stale_nested_torch"),
    "a signature outlives its kernel": (
        "signatures/the_hidden_signature_strict",
        "signatures/the_hidden_signature_torch",
    ),
    "a refused kernel sets the signature": (
        "signatures/a_refused_kernel_poisons_strict",
        "signatures/a_refused_kernel_poisons_torch",
    ),
    "signatures of boxed and of SymInt kernels": (
        "signatures/boxed_kernels_have_none",
        "signatures/symint_kernels_have_their_own",
    ),
    "ghost operators": ("defects/ghost_operators_strict", "defects/ghost_operators_torch"),
    "def and impl in one call": ("defects/half_a_def_strict", "defects/half_a_def_torch"),
    "fallback at an alias key": ("defects/half_a_fallback_strict", "defects/half_a_fallback_torch"),
    "unqualified names, DEF of the wildcard": (
        "libraries/a_bare_name_in_the_wildcard_block",
        "libraries/def_block_of_the_wildcard",
    ),
    "backends that take nothing away": ("table/hip_ve_and_mtia_keep_the_composite",),
    "keys that cannot be parsed": ("table/keys_that_only_cpp_names",),
    "the autograd key of 2020": ("pr35061/autograd_was_one_key",),
    "keys of another version": ("table/a_key_of_another_version",),
    "tags outlive their def": ("basics/tags", "lifetimes/tags_outlive_their_def"),
    "fallbacks that are there from the start": (
        "fallbacks/pytorch_has_some_already",
        "fallbacks/pytorch_fills_rows_of_an_empty_operator",
    ),
}

PR35061 = {
    "catch-all": ("pr35061/catch_all",),
    "fallback before catch-all, unless it falls through": ("pr35061/fallback_before_catch_all",),
    "equal defs": ("pr35061/equal_defs_merge", "pr35061/equal_alias_kinds_merge"),
    "explicit alias kind first, default later": ("pr35061/alias_kind_defaulting",),
    "explicit alias kinds that differ": ("pr35061/alias_kind_mismatch",),
    "another schema": ("pr35061/different_schemas_conflict",),
    "the check that a development bug lost": ("pr35061/a_kernel_that_does_not_fit",),
    "import": ("pr35061/import_fills_in_the_namespace", "pr35061/import_without_a_namespace"),
    "fallbacks at top level only": ("pr35061/import_fallback",),
}

TORCH_LIBRARY = {
    "register_fake before the def": ("torch_library/a_fake_needs_the_operator",),
    "register_fake, impl Meta and composite kernels": (
        "torch_library/a_fake_beside_a_composite_kernel",
        "torch_library/a_meta_kernel_and_a_fake",
    ),
    "register_fake twice": ("torch_library/two_fakes",),
    "custom_op twice": (
        "torch_library/a_second_custom_op",
        "torch_library/a_custom_op_that_is_refused_destroys_the_first",
    ),
    "custom_op beside a def": ("torch_library/a_custom_op_beside_a_def",),
    "calls by name for a custom_op": (
        "torch_library/a_fake_for_the_custom_op_of_another",
        "torch_library/kernels_for_the_custom_op_of_another",
    ),
    "register_autograd": (
        "torch_library/autograd_needs_the_def",
        "torch_library/two_autograd_formulas",
        "torch_library/no_autograd_for_what_writes",
    ),
    "register_autocast": ("torch_library/a_cast_beside_a_kernel", "torch_library/a_stale_overload"),
    "register_torch_dispatch": ("torch_library/two_rules_for_one_mode",),
}

OURS = {
    "several operators": (
        "several/operators_do_not_meet",
        "several/one_pattern",
        "several/a_fallback_meets_them_all",
        "several/a_library_ties_operators_together",
        "several/a_conflict_of_one_operator",
        "several/only_one_is_observed",
    ),
    "registrations that are equal": ("order/equal_fallthroughs", "order/equal_texts"),
    "alias kinds": ("alias_kinds/special_case",),
    "fallbacks outside of libraries": ("fallbacks/without_a_key",),
}

RULES: dict[str, tuple[str, ...]] = {
    rule.code: (f"lint/{rule.code.lower()}_found", f"lint/{rule.code.lower()}_not_found") for rule in lint_rules.RULES
}
"""The rules of lint, each with what it finds and a near miss."""

PYTHON_REGISTRIES = {
    "an assignment": ("python_layer/two_packages_write_one_lowering",),
    "register_decomposition": (
        "python_layer/a_decomposition_twice",
        "python_layer/a_decomposition_that_is_assigned",
    ),
    "OpOverload.py_impl": ("python_layer/an_entry_before_its_def",),
    "register_op_impl": ("python_layer/a_package_that_imports_too_late",),
    "a set": ("python_layer/two_fallbacks_of_inductor",),
    "one entry in each slot": ("python_layer/single_entries",),
}

COVERED: dict[str, dict[str, tuple[str, ...]]] = {
    "the rules of lint": RULES,
    "test_dispatch.py, 2020": TEST_DISPATCH_2020,
    "test_dispatch.py, 2023": TEST_DISPATCH_2023,
    "op_registration_test.cpp, 2020": OP_REGISTRATION_2020,
    "op_registration_test.cpp, 2024": OP_REGISTRATION_2024,
    "library.cpp": LIBRARIES,
    "the comparison of schemas": SCHEMAS,
    "the computed table": TABLE,
    "defects of PyTorch 2.13": DEFECTS,
    "torch/library.py": TORCH_LIBRARY,
    "registries of Python": PYTHON_REGISTRIES,
    "PR #35061": PR35061,
    "this project": OURS,
}

CALLS = "is about calls, and a scenario registers"
BUILDER = "is about the options of the C++ builder RegisterOperators, which makes one def and one impl for each kernel"

NOT_A_SCENARIO = {
    "test_dispatch.py, 2020": {
        "all_invariants": "the invariants are checked on every edge of every scenario",
        "the harness's permutations": "every scenario is explored over all orders and interleavings",
    },
    "test_dispatch.py, 2023": {
        "find_dangling_impls": "is about the operators that PyTorch ships",
        "dispatch_print_registrations_for_dispatch_key_invalid": "is about a look-up by the text of a key",
        "python_dispatcher_duplicate_registrations": "is about the arguments of a Python class, not registrations",
        "python_dispatcher_quantized_structured_not_implemented": CALLS,
    },
    "op_registration_test.cpp, 2020": {
        "BackendSelectRedispatchesToCPU": CALLS,
        "testDelayedListener": "is about listeners, which observe registrations and are none",
        "the schema given twice, two kernels for a key in one call": BUILDER,
        "one kernel that can infer is enough": BUILDER,
        "call of a dispatched kernel with the wrong key fails": CALLS,
        "deregistering invalidates an operator handle": "is about handles that callers keep",
    },
    "op_registration_test.cpp, 2024": {
        "erroroutwithinvalidoverloadname": "a file with such a name is refused when it is read",
        "dispatchMultipleTensors": CALLS,
        "testImplNoDefGetsCaught": "is about the operators that PyTorch ships",
        "callKernelsWithDispatchKeySetConvention": CALLS,
        "typed access with the wrong type": CALLS,
        "whenRegisteringCPUTensorType": CALLS,
    },
    "defects of PyTorch 2.13": {
        "invariants compare functions by identity only": "is about PyTorch's own check, which scenarios do not run",
    },
}

SHOWN_KINDS = {
    ErrorKind.DUPLICATE_DEF,
    ErrorKind.SCHEMA_CONFLICT,
    ErrorKind.ALIAS_KIND_CONFLICT,
    ErrorKind.SCHEMA_MISMATCH,
    ErrorKind.SIGNATURE_MISMATCH,
    ErrorKind.DUPLICATE_FALLBACK,
    ErrorKind.DUPLICATE_LIBRARY,
    ErrorKind.DUPLICATE_PYTHON,
    ErrorKind.WILDCARD_NAMESPACE,
    ErrorKind.KEY_ON_DEF_BLOCK,
    ErrorKind.DEF_IN_IMPL_BLOCK,
    ErrorKind.NAMESPACE_MISMATCH,
    ErrorKind.KEY_MISMATCH,
    ErrorKind.FALLBACK_OUTSIDE_IMPL,
    ErrorKind.FALLBACK_WITHOUT_KEY,
    ErrorKind.FALLBACK_WITH_NAMESPACE,
    ErrorKind.UNQUALIFIED_NAME,
    ErrorKind.CANNOT_INFER_SCHEMA,
    ErrorKind.TOO_MANY_ARGUMENTS,
    ErrorKind.UNKNOWN_KEY,
    ErrorKind.NO_SUCH_SCHEMA,
    ErrorKind.DUPLICATE_RULE,
    ErrorKind.NOT_FUNCTIONAL,
}
"""The refusals of registrations. Those of `torch.library` that depend on who comes last are in counterexamples; the
other kinds are those of texts, look-ups and calls."""


@cache
def _scenarios() -> dict[str, Scenario]:
    """Every scenario, by its path without the suffix."""
    return {
        path.relative_to(ROOT).with_suffix("").as_posix(): load_scenario(path) for path in sorted(ROOT.rglob("*.yaml"))
    }


@cache
def _explored(name: str, semantics: str) -> Exploration:
    scenario = _scenarios()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are overridden
        if scenario.program is not None:
            engine, program = LabEngine(semantics), scenario.program
            return explore_program(engine, scenario.registrations, scenario.operators, program=program)
        return explore(LabEngine(semantics), scenario.registrations, scenario.operators, order=scenario.order)


@cache
def _walked(name: str) -> Exploration:
    """Its states alone: the sandboxes are those of its own test, which explores it whole."""
    scenario = _scenarios()[name]
    space = LabEngine(scenario.semantics or "strict").space(scenario.registrations, scenario.operators)
    return explore_graph(space, len(scenario.registrations), order=scenario.order)


def _is_as_expected(name: str, semantics: str) -> bool:
    found = _explored(name, semantics)
    return judge(found.verdict, _scenarios()[name].expect, conflicts=len(found.conflicts))[0]


@pytest.mark.parametrize("source", COVERED)
def test_every_behaviour_is_shown_by_files_that_exist(source: str) -> None:
    rows = COVERED[source]
    missing = {row: [name for name in names if name not in _scenarios()] for row, names in rows.items()}
    assert {row: names for row, names in missing.items() if names or not rows[row]} == {}


def test_no_behaviour_is_both_shown_and_excused() -> None:
    for source, reasons in NOT_A_SCENARIO.items():
        assert source in COVERED
        assert not reasons.keys() & COVERED[source].keys()
        assert all(reasons.values())


def test_every_scenario_shows_a_behaviour_that_is_listed() -> None:
    listed = {name for rows in COVERED.values() for names in rows.values() for name in names}
    assert sorted(_scenarios().keys() - listed) == []
    assert len(_scenarios()) > 150


def test_every_claim_is_a_sentence_of_its_own() -> None:
    claims = [scenario.claim for scenario in _scenarios().values()]
    assert [claim for claim in claims if not (claim[0].isupper() and claim.endswith("."))] == []
    assert sorted(claims) == sorted(set(claims))


def test_the_guide_names_every_topic_once() -> None:
    guide = (ROOT / "README.md").read_text(encoding="utf-8")
    topics = re.findall(r"^\| \[(\w+)\]\((\w+)/\) \|", guide, re.MULTILINE)
    assert [one for one, other in topics if one != other] == []
    assert sorted(topic for topic, _ in topics) == sorted({name.split("/")[0] for name in _scenarios()})
    assert [name for name in re.findall(r"`(\w+)`", guide) if name not in ("semantics",) and not _is_named(name)] == []


def _is_named(stem: str) -> bool:
    return any(name.endswith(f"/{stem}") for name in _scenarios())


def test_twins_have_the_same_registrations_and_say_which_dispatcher_they_are_about() -> None:
    strict = {name.removesuffix("_strict") for name in _scenarios() if name.endswith("_strict")}
    torch = {name.removesuffix("_torch") for name in _scenarios() if name.endswith("_torch")}
    assert len(strict) >= 12
    assert sorted(strict - torch) == []
    for name in strict:
        one, other = _scenarios()[f"{name}_strict"], _scenarios()[f"{name}_torch"]
        assert (one.semantics, other.semantics) == ("strict", "torch-2.13"), name
        assert (one.registrations, one.operators, one.order) == (other.registrations, other.operators, other.order)
        assert one.expect is not other.expect, name


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_a_scenario_without_semantics_holds_for_this_dispatcher_and_for_pytorch(semantics: str) -> None:
    names = [name for name, scenario in _scenarios().items() if scenario.semantics is None]
    tried = names[:: len(names) // share(len(names))]
    assert [name for name in tried if not _is_as_expected(name, semantics)] == []
    assert len(names) > 100


def test_nothing_depends_on_order_in_the_commutative_dispatcher_but_what_is_meant_to() -> None:
    by_design = {
        name
        for name, scenario in _scenarios().items()
        if scenario.expect is Expectation.ORDER_DEPENDENT and scenario.semantics in (None, "strict")
    }
    found_by_lint = {"lint/dl002_found"}
    assert found_by_lint < by_design
    # Rules of torch.library and of registries of Python are the same, whatever the dispatcher is.
    topics = Counter(name.split("/")[0] for name in by_design - found_by_lint)
    assert topics == {"order": 5, "torch_library": 9, "python_layer": 3}


def test_every_kind_of_refusal_is_shown() -> None:
    kinds = {conflict.kind for name in _scenarios() for conflict in _walked(name).conflicts}
    assert kinds == {kind.value for kind in SHOWN_KINDS}


def test_five_registrations_stand_for_14400_orders() -> None:
    found = _explored("basics/five_registrations", "strict")
    assert (found.sets, found.states, found.edges, found.orders) == (32, 32, 160, 14_400)


@pytest.mark.parametrize(
    ("name", "expected", "actual"),
    [
        ("defects/stale_slots_torch", "+1 +0", "+0 +1"),
        ("defects/stale_slots_with_a_fixed_order_torch", "+1", "+0 +1 -0"),
        ("defects/stale_quantized_torch", "+2 +1", "+1 +2"),
        ("defects/ghost_operators_torch", "(nothing)", "+0"),
        ("signatures/the_hidden_signature_torch", "+0 +2", "+0 +1 -1 +2"),
        ("signatures/a_refused_kernel_poisons_torch", "+0 +2", "+0 +1 +2"),
        ("pr35061/alias_kind_defaulting", "+0 +1", "+1 +0"),
        ("order/the_newest_kernel_wins", "+0 +1", "+1 +0"),
    ],
)
def test_a_violated_scenario_has_these_shortest_sequences(name: str, expected: str, actual: str) -> None:
    counterexample = _explored(name, _scenarios()[name].semantics or "strict").counterexample
    assert counterexample is not None
    assert (format_sequence(counterexample.expected_sequence), format_sequence(counterexample.actual_sequence)) == (
        expected,
        actual,
    )
