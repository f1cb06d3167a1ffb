"""Run tests that the table of the design documents names, each with the behaviour of its row switched off.

    python -m tests.planted_faults          a line for each: 1 when the test fails, as it should

A fault takes the place of a function everywhere that it was imported to, before anything of the test is set up.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

Fault = Callable[[Any], Any]


def returning(value: Any) -> Fault:
    """A function that returns this, whatever it is given."""
    return lambda real: lambda *args, **kwargs: value


def _last_argument_that_counts(real: Any) -> Any:
    return lambda arguments, protocol: real([*arguments][::-1], protocol)


def _every_argument(real: Any) -> Any:
    return lambda arguments, protocol: [one for one in arguments if real([one], protocol)]


def _of_32_arguments(real: Any) -> Any:
    return lambda arguments, protocol: real([*arguments][:32], protocol)


def _first_of_lists(real: Any) -> Any:
    return lambda values: [one for one in values if not isinstance(one, list | tuple)]


def _backwards(real: Any) -> Any:
    return lambda self, *args, **kwargs: real(_reversed(self), *args, **kwargs)


def _reversed(parser: Any) -> Any:
    parser.signatures = tuple(reversed(parser.signatures))
    return parser


def _without_out(real: Any) -> Any:
    return lambda bound: {name: value for name, value in real(bound).items() if name != "out"}


_REGISTRATIONS = "dispatchlab.codegen.emit.registrations"
_NO_AUTOGRAD = (
    "dispatchlab.call.tensor_keys:tensor_key_set",
    lambda real: lambda base, *, inference=False: real(base, inference=True),
)
_ENGINE = "dispatchlab.engine.dispatcher:Dispatcher"
_DISPATCH = "dispatchlab.overrides.torch_dispatch"
_HANDLERS = "dispatchlab.overrides.handlers"
_STRUCTURED = "dispatchlab.codegen.runtime.structured"

FAULTS: dict[str, tuple[str, Fault]] = {
    # -- __torch_dispatch__
    "tests/overrides/test_overrides_dispatch.py::test_handlers_get_the_classes_of_lists_and_optionals": (
        f"{_DISPATCH}:elements",
        _first_of_lists,
    ),
    "tests/overrides/test_overrides_function.py::test_the_order_of_handlers_is_numpys_for_2000_hierarchies": (
        f"{_HANDLERS}:overloaded_args",
        _last_argument_that_counts,
    ),
    "tests/overrides/test_overrides_dispatch.py::test_a_tensor_carries_the_python_keys_when_its_class_has_a_handler": (
        "dispatchlab.call.torch_handlers:python_bits",
        returning(0),
    ),
    "tests/overrides/test_overrides_dispatch.py"
    "::test_detach_and_the_copies_that_autograd_keeps_go_through_the_handler": (
        f"{_DISPATCH}:Interpreter.detach",
        returning(None),
    ),
    "tests/overrides/test_overrides_dispatch.py"
    "::test_a_call_goes_to_the_interpreter_of_the_first_argument_that_has_one": (
        f"{_DISPATCH}:interpreter_of",
        returning(None),
    ),
    "tests/overrides/test_overrides_nesting.py::test_a_wrapper_inside_a_wrapper_logs_once_for_each_depth": (
        "dispatchlab.call.torch_handlers:python_bits",
        returning(0),
    ),
    "tests/overrides/test_overrides_function.py::test_a_class_can_want_no_handler": (
        "dispatchlab.call.torch_handlers:has_handler",
        lambda real: lambda kind, protocol: hasattr(kind, protocol),
    ),
    "tests/overrides/test_overrides_dispatch.py"
    "::test_arguments_are_given_without_their_defaults_and_by_name_where_they_have_to_be": (
        f"{_DISPATCH}:without_defaults",
        lambda real: lambda schema, values: (tuple(values), {}),
    ),
    "tests/overrides/test_overrides_dispatch.py"
    "::test_an_argument_that_is_added_later_with_a_default_is_not_seen_by_an_old_handler": (
        f"{_DISPATCH}:without_defaults",
        lambda real: lambda schema, values: (tuple(values), {}),
    ),
    "tests/overrides/test_overrides_defaults.py"
    "::test_without_defaults_and_normalized_again_is_the_same_for_every_operator_of_the_bundled_registry": (
        f"{_DISPATCH}:normalize",
        lambda real: lambda schema, args, kwargs=None: (tuple(args), {**(kwargs or {})}),
    ),
    # -- pull request 35061
    "tests/test_engine_defs.py::test_a_def_that_goes_leaves_its_kernels_without_a_schema": (
        f"{_ENGINE}._release",
        returning(None),
    ),
    "tests/test_engine_defs.py::test_counts_are_live_defs_and_live_registrations": (
        f"{_ENGINE}.def_count",
        returning(1),
    ),
    "tests/test_engine_defs.py::test_a_failed_look_up_distinguishes_no_operator_from_one_without_a_def": (
        f"{_ENGINE}.find_op",
        returning(None),
    ),
    "tests/test_engine_defs.py::test_a_def_is_checked_against_every_kernel_inactive_ones_included": (
        "dispatchlab.engine.primitives:mismatch",
        returning(None),
    ),
    "tests/test_engine_handles.py::test_every_registration_goes_without_a_trace_and_only_once": (
        f"{_ENGINE}._take_out",
        returning(None),
    ),
    "tests/test_engine_invariants.py::test_a_broken_entry_is_found_and_nothing_else_is_blamed": (
        f"{_ENGINE}.violations",
        returning(()),
    ),
    "tests/test_model_schema.py::test_a_name_is_accepted_or_refused_as_recorded": (
        "dispatchlab.model.schema_parser:parse_name",
        returning(None),
    ),
    "tests/test_model_schema.py::test_either_is_accepted_or_refused_as_recorded": (
        "dispatchlab.model.schema_parser:parse_schema_or_name",
        returning(None),
    ),
    "tests/test_model_schema.py::test_clone_with_name_keeps_all_but_the_name": (
        "dispatchlab.model.schema:clone_with_name",
        lambda real: lambda schema, name: schema,
    ),
    "tests/test_engine_import_api_2020.py::test_autograd_kernels_have_a_short_way": (
        "dispatchlab.registration_2020:dispatch_autograd",
        lambda real: lambda function: function,
    ),
    # -- pull request 25629
    "tests/overrides/test_override_examples.py::test_the_diagonal_tensor_handles_what_it_implements": (
        f"{_HANDLERS}:overloaded_args",
        returning([]),
    ),
    "tests/overrides/test_override_examples.py"
    "::test_the_functions_that_the_design_measures_find_tensors_in_lists_and_ducks": (
        f"{_HANDLERS}:call_handlers",
        returning("forwarded"),
    ),
    "tests/overrides/test_override_examples.py::test_more_than_32_arguments_have_handlers": (
        f"{_HANDLERS}:overloaded_args",
        _of_32_arguments,
    ),
    "tests/overrides/test_overrides_function.py"
    "::test_tensors_and_everything_without_a_handler_go_to_the_implementation": (
        f"{_HANDLERS}:call_handlers",
        returning("forwarded"),
    ),
    "tests/overrides/test_overrides_function.py::test_one_argument_for_each_type_subclasses_before_superclasses": (
        f"{_HANDLERS}:overloaded_args",
        _every_argument,
    ),
    "tests/overrides/test_override_examples.py::test_plain_tensors_are_no_overrides": (
        "dispatchlab.overrides.functional:adopted",
        lambda real: lambda tensor, own: tensor,
    ),
    "tests/overrides/test_override_examples.py"
    "::test_a_dispatcher_of_another_signature_is_found_out_when_the_function_is_made": (
        "dispatchlab.overrides.torch_function:_difference",
        returning(""),
    ),
    "tests/overrides/test_override_examples.py::test_what_is_overridable_keeps_its_signature_and_its_implementation": (
        "dispatchlab.overrides.torch_functions:OverridableFunction.made",
        lambda real: lambda self, implementation: implementation,
    ),
    # -- the walkthrough
    "tests/test_call.py::test_masks_are_a_function_of_the_slots_that_fall_through": (
        "dispatchlab.call.dispatch_table:masks",
        lambda real: lambda skipped: real(0),
    ),
    "tests/test_call_layers.py::test_randn_goes_through_backend_select_empty_and_normal": (
        "dispatchlab.layers.composites:backend_select",
        lambda real: lambda operator: lambda *args, **kwargs: None,
    ),
    "tests/test_call_trace.py::test_randn_goes_through_backend_select_to_empty_and_normal_with_autograd_excluded": (
        "dispatchlab.layers.composites:backend_select",
        lambda real: lambda operator: lambda *args, **kwargs: None,
    ),
    "tests/test_call_layers.py::test_every_write_raises_the_version_by_one": (
        "dispatchlab.layers.views:in_place_kernel",
        lambda real: lambda operator, keys, stack: None,
    ),
    # -- codegen
    "tests/test_codegen_bindings.py::test_the_first_signature_that_fits_is_taken": (
        "dispatchlab.call.python_arg_parser:PythonArgParser.bind",
        _backwards,
    ),
    "tests/test_codegen_bindings.py::test_a_deprecated_signature_warns_with_the_one_to_use": (
        "dispatchlab.call.python_arg_parser:PythonArgParser._warn",
        returning(None),
    ),
    "tests/test_codegen_runtime.py::test_the_functional_variant_allocates_what_meta_asks_for": (
        f"{_STRUCTURED}:create_out",
        returning(None),
    ),
    "tests/test_codegen_runtime.py::test_in_place_is_written_back_from_the_proxy": (
        f"{_STRUCTURED}:copy_proxies",
        returning(None),
    ),
    "tests/test_codegen_runtime.py::test_an_out_with_other_strides_is_written_by_way_of_a_proxy": (
        f"{_STRUCTURED}:maybe_create_proxy",
        returning(None),
    ),
    "tests/test_codegen_runtime.py::test_an_out_of_another_size_is_resized_to_the_strides_that_meta_asks_for": (
        f"{_STRUCTURED}:resize_out",
        returning(None),
    ),
    # -- several of them
    "tests/overrides/test_overrides_nesting.py::test_the_trace_is_written_with_numbers": (
        "dispatchlab.call.torch_handlers:python_bits",
        returning(0),
    ),
    "tests/overrides/test_overrides_nesting.py::test_logging_batching_and_autograd_nest_in_every_order": (
        "dispatchlab.call.torch_handlers:python_bits",
        returning(0),
    ),
    "tests/overrides/test_overrides_function.py::test_many_arguments_cost_one_look_at_each_and_many_types_no_scan": (
        f"{_HANDLERS}:overloaded_args",
        _every_argument,
    ),
    "tests/test_design_documents.py::test_a_handler_may_take_arguments_that_the_function_would_refuse": (
        "dispatchlab.overrides.torch_function:_wrapped",
        lambda real: lambda implementation, dispatcher: lambda *args: implementation(*args),
    ),
    "tests/test_design_documents.py::test_one_boxed_kernel_batches_every_operator_as_a_stack_of_its_samples": (
        "dispatchlab.call.local_key_set:IncludeDispatchKeyGuard",
        lambda real: lambda *keys: nullcontext(),
    ),
    "tests/test_design_documents.py::test_a_call_goes_from_unboxed_to_a_boxed_kernel_and_back_to_an_unboxed_one": (
        "dispatchlab.call.local_key_set:IncludeDispatchKeyGuard",
        lambda real: lambda *keys: nullcontext(),
    ),
    "tests/test_call_layers.py"
    "::test_add_of_two_cuda_tensors_goes_to_autograd_past_backend_select_to_cuda": _NO_AUTOGRAD,
    "tests/test_call_trace.py"
    "::test_add_of_two_cuda_tensors_goes_from_autograd_to_cuda_past_backend_select": _NO_AUTOGRAD,
    "tests/test_call.py::test_an_unknown_operator_or_overload_is_refused_with_those_that_there_are": (
        f"{_ENGINE}._no_operator",
        lambda real: lambda self, name: KeyError(name),
    ),
    "tests/test_codegen_registrations.py::test_a_function_outside_of_structured_groups_has_its_registrations": (
        f"{_REGISTRATIONS}:_unstructured",
        returning(()),
    ),
    "tests/test_codegen_registrations.py::test_an_out_variant_records_no_node_and_a_composite_has_no_autograd_kernel": (
        f"{_REGISTRATIONS}:_has_autograd_kernel",
        returning(1),
    ),
    "tests/test_registration_source.py::test_a_factory_goes_to_the_backend_of_its_options": (
        f"{_REGISTRATIONS}:is_factory",
        returning(0),
    ),
    "tests/test_registration_source.py::test_modules_register_what_the_registrations_say_and_take_it_down_again": (
        f"{_ENGINE}._release",
        returning(None),
    ),
    "tests/test_codegen_generate.py::test_the_files_are_the_golden_ones_to_the_character": (
        "dispatchlab.codegen.emit.generated_group:checked_arguments",
        returning(()),
    ),
    "tests/test_codegen_bindings.py::test_positional_keyword_default_and_out_arguments_reach_the_operator": (
        "dispatchlab.codegen.runtime.python_bindings:_operator_values",
        _without_out,
    ),
    # -- statements of several documents
    "tests/overrides/test_overrides_dispatch.py"
    "::test_a_handler_that_comes_back_to_itself_is_refused_and_leaves_nothing_behind": (
        "dispatchlab.call.torch_handlers:python_bits",
        returning(0),
    ),
    "tests/overrides/test_overrides_dispatch.py"
    "::test_an_interpreter_of_the_first_version_gives_every_argument_by_position": (
        f"{_DISPATCH}:interpreter_of",
        returning(None),
    ),
    "tests/overrides/test_overrides_nesting.py::test_a_trace_of_calls_shows_the_hops_through_the_python_key": (
        "dispatchlab.call.torch_handlers:python_bits",
        returning(0),
    ),
    "tests/overrides/test_overrides_defaults.py::test_normalize_refuses_what_a_call_refuses": (
        f"{_DISPATCH}:normalize",
        lambda real: lambda schema, args, kwargs=None: (tuple(args), {**(kwargs or {})}),
    ),
    "tests/test_prover_graph_walk.py::test_what_was_refused_and_left_a_trace_is_a_residue": (
        "dispatchlab.prover.checker:_flaw",
        returning(None),
    ),
    "tests/test_call_trace.py"
    "::test_calling_again_below_autograd_leaves_backend_select_and_cuda_as_the_walkthrough_has_it": _NO_AUTOGRAD,
    "tests/test_call_trace.py::test_the_programs_of_the_walkthrough_leave_these_traces": _NO_AUTOGRAD,
    "tests/test_call_layers.py::test_the_asserts_of_a_debug_build_find_a_kernel_that_gives_an_input_other_memory": (
        "dispatchlab.layers.autograd:with_debug_asserts",
        lambda real: lambda kernel: kernel,
    ),
    "tests/test_codegen_walk.py::test_torch_add_goes_through_the_22_frames_of_the_walkthrough": (
        "dispatchlab.questions.native_functions.cpp_frames:_entry_frames",
        returning(()),
    ),
    "tests/test_codegen_registrations.py::test_without_names_there_are_counts_and_everything_that_is_left_out": (
        f"{_REGISTRATIONS}:left_out",
        returning(()),
    ),
    "tests/test_codegen_cpp.py::test_the_declarations_of_add_are_those_of_the_walkthrough": (
        "dispatchlab.codegen.emit.cpp_declarations:_structured_type",
        returning("int64_t"),
    ),
}


def _without_a_def(real: Any) -> Any:
    """A kernel that comes before its def is dropped."""

    def register(self: Any, semantics: Any, state: Any) -> None:
        entry = state.operator(self.variable)
        if entry is not None and entry.defs:
            real(self, semantics, state)

    return register


def _newest_last(real: Any) -> Any:
    """A kernel joins those of its key behind them."""

    def with_kernels(self: Any, bit: Any, kernels: Any, *others: Any) -> Any:
        return real(self, bit, tuple(reversed(kernels)), *others)

    return with_kernels


_BY_FAULT: tuple[tuple[str, Fault, str], ...] = (
    # -- registration
    (
        "dispatchlab.engine.primitives:RegisterImpl.register",
        _without_a_def,
        """scenarios/basics/a_kernel_before_its_def.yaml
        scenarios/basics/a_kernel_alone.yaml
        scenarios/basics/five_registrations.yaml
        scenarios/pr35061_tests/test_def.yaml
        scenarios/pr35061_tests/test_impl_only.yaml
        tests/test_engine_defs.py::test_dangling_impls_are_the_operators_without_a_schema_by_name
        tests/test_engine_defs.py::test_two_kernels_are_not_compared_until_there_is_a_def""",
    ),
    (
        "dispatchlab.engine.primitives:RegisterFallback.register",
        returning(None),
        """scenarios/pr35061/import_fallback.yaml
        scenarios/fallbacks/serves_every_operator.yaml
        scenarios/fallbacks/fallthrough_for_all_but_one.yaml
        tests/test_engine_import_api_2020.py::test_a_fallback_is_accepted_at_top_level_with_a_key""",
    ),
    (
        "dispatchlab.engine.lowering:_Inside._fallback",
        lambda real: lambda self, registration, key: registration,
        "tests/test_engine_import_api_2020.py::test_a_fallback_in_a_namespace_without_a_key_or_at_a_taken_key_is_refused",
    ),
    (
        "dispatchlab.engine.lowering:_Inside._named",
        lambda real: lambda self, name, semantics: name.within("other"),
        """scenarios/pr35061/import_fills_in_the_namespace.yaml
        tests/test_engine_import_api_2020.py::test_a_namespace_is_filled_in_where_it_is_missing_and_never_compared""",
    ),
    (
        "dispatchlab.engine.primitives:_merged",
        lambda real: lambda name, stored, new: stored,
        """scenarios/pr35061/alias_kind_mismatch.yaml
        tests/test_engine_pr35061.py::test_alias_kinds_merge_only_when_the_explicit_one_comes_first
        tests/test_engine_pr35061.py::test_a_def_with_another_schema_is_refused_with_both_of_them
        tests/test_engine_register_operators.py::test_the_same_op_twice_is_merged_in_2020""",
    ),
    (
        "dispatchlab.engine.primitives:RegisterDef.release",
        returning(None),
        """tests/test_engine_pr35061.py::test_equal_defs_are_merged_and_the_schema_goes_with_the_last
        tests/test_engine_defs.py::test_the_operator_vanishes_with_the_last_of_its_registrations_in_any_order
        tests/test_engine_defs.py::test_a_second_def_is_refused_even_when_it_is_equal_and_whatever_its_alias_kind
        tests/test_engine_import_api_2020.py::test_chained_calls_are_released_with_their_block
        tests/test_engine_defs.py::test_overloads_are_operators_of_their_own
        tests/test_call.py::test_an_operator_that_is_defined_anew_takes_the_new_arguments
        tests/deep/test_engine_register_operators_long.py::test_an_op_is_a_def_and_an_impl_for_each_kernel""",
    ),
    (
        "dispatchlab.engine.primitives:mismatch",
        returning(None),
        """scenarios/schemas/type_of_an_argument.yaml
        scenarios/pr35061_tests/test_def_impl_schema_mismatch.yaml
        scenarios/pr35061/a_kernel_that_does_not_fit.yaml
        tests/test_engine_pr35061.py::test_kernels_are_checked_whichever_side_comes_first_and_a_refusal_stores_nothing""",
    ),
    (
        "dispatchlab.engine.primitives:mismatch",
        returning("a boxed kernel"),
        "scenarios/kernels/boxed_fits_every_schema.yaml",
    ),
    (
        "dispatchlab.engine.operator_entry:OperatorEntry.with_kernels",
        _newest_last,
        "scenarios/pr35061/the_newest_catch_all_wins.yaml scenarios/pr35061_tests/test_overwrite_catchall.yaml",
    ),
    (
        "dispatchlab.engine.operator_entry:_refilled",
        lambda real: lambda slots, wanted, filled: slots,
        "scenarios/table/autograd_fills_only_autograd_rows.yaml scenarios/pr35061/autograd_was_one_key.yaml",
    ),
    (
        "dispatchlab.engine.dispatcher:_with_builtin_fallbacks",
        lambda real: lambda name: {},
        "scenarios/fallbacks/pytorch_has_some_already.yaml",
    ),
    (
        "dispatchlab.engine.introspection:_stored_text",
        returning(""),
        "scenarios/alias_kinds/each_form_of_def.yaml",
    ),
    (
        "dispatchlab.registration_2020:_declared",
        lambda real: lambda given: (real(given)[0], None),
        "tests/test_engine_import_api_2020.py::test_the_alias_kind_of_each_form_of_def",
    ),
    (
        "dispatchlab.engine.introspection:_kernel_line",
        returning("a kernel"),
        """scenarios/kernels/every_form.yaml scenarios/kernels/a_fallthrough_kernel_is_a_kernel.yaml
        scenarios/pr35061/catch_all.yaml scenarios/schemas/many_types.yaml
        tests/test_engine_import_api_2020.py::test_every_wrapper_makes_its_kernel_at_its_key
        tests/test_torch_stand_in.py::test_a_library_of_the_stand_in_registers_what_its_calls_say""",
    ),
    (
        "dispatchlab.engine.row_reasons:operator_view",
        returning(None),
        "tests/test_engine_defs.py::test_call_sites_are_kept_beside_the_debug_text",
    ),
    (
        "dispatchlab.engine.lowering:_known",
        lambda real: lambda key, semantics: key,
        "tests/test_engine_pr35061.py::test_there_are_no_alias_keys_but_autograd",
    ),
    (
        "dispatchlab.engine.in_force:state_violations",
        returning(()),
        "tests/test_engine_invariants.py::test_what_is_of_nothing_in_force_is_found",
    ),
    (
        "dispatchlab.model.schema_parser:parse_schema",
        returning(None),
        """tests/test_model_schema.py::test_a_schema_is_accepted_or_refused_as_recorded
        tests/live/test_schema_live.py::test_texts_are_accepted_refused_and_printed_alike""",
    ),
    # -- every order
    (
        "dispatchlab.prover.all_orders:AllOrders.runs",
        returning(()),
        """tests/test_prover_all_orders.py::test_all_sequences_are_run_step_by_step
        tests/test_prover_all_orders.py::test_all_orders_keep_the_order_of_the_scenario""",
    ),
    (
        "dispatchlab.prover.checker:_flaw",
        returning(None),
        "tests/test_prover_all_orders.py::test_two_orders_that_differ_are_found_with_the_right_one_first",
    ),
    (
        "dispatchlab.questions.order.snapshots:rows_between",
        returning(()),
        "tests/test_snapshots.py::test_the_text_can_be_expected_inline_as_upstream_does",
    ),
    (
        "dispatchlab.questions.order.snapshots:_passes",
        lambda real: lambda *given: [*real(*given)][1:],
        "tests/test_snapshots.py::test_every_sequence_passes_the_snapshots_that_are_listed",
    ),
    (
        "dispatchlab.questions.order.snapshots:_orders",
        lambda real: lambda found, count, steps: [0] * len(real(found, count, steps)),
        "tests/test_snapshots.py::test_the_counted_orders_are_those_that_lead_there",
    ),
    (
        "dispatchlab.questions.order.snapshots:_chosen",
        lambda real: lambda engine, scenario, sequences: real(engine, scenario, [one[::-1] for one in sequences]),
        "tests/test_snapshots.py::test_chosen_sequences_show_what_all_orders_show",
    ),
    (
        "test_scenarios_cover:_scenarios",
        returning({}),
        "tests/test_scenarios_cover.py::test_every_behaviour_is_shown_by_files_that_exist",
    ),
    # -- keys
    (
        "dispatchlab.model.keys:RUNTIME_KEYS",
        lambda real: real[::-1],
        "tests/test_model_keys.py::test_runtime_keys_stand_in_the_order_of_the_table",
    ),
    (
        "dispatchlab.model.key_set:DispatchKeySet.highest",
        returning(None),
        """tests/test_model_keys.py::test_the_highest_key_is_the_last_one_listed
        tests/test_model_keys.py::test_every_runtime_key_has_upstreams_bits""",
    ),
    (
        "dispatchlab.call.local_key_set:IncludeDispatchKeyGuard",
        lambda real: lambda *keys: nullcontext(),
        """tests/test_call_threads.py::test_a_guard_of_one_thread_is_none_of_anothers_business
        tests/live/test_call_live.py::test_every_nest_of_guards_sets_torchs_two_sets""",
    ),
    # -- calls
    (
        "dispatchlab.call.call_signature:CallSignature.key_bits",
        returning(0),
        """tests/test_call.py::test_undefined_and_empty_lists_and_generators_decide_as_upstream_has_it
        tests/test_call.py::test_every_kernel_hears_the_same_however_it_is_called
        tests/live/test_call_live.py::test_kernel_and_key_set_of_2000_generated_calls_are_torchs""",
    ),
    (
        "dispatchlab.call.tensor_keys:tensor_key_set",
        _NO_AUTOGRAD[1],
        """tests/live/test_call_live.py::test_every_kind_of_tensor_carries_torchs_keys
        tests/live/test_call_layers_live.py::test_result_and_gradients_are_torchs
        tests/live/test_formulas_live.py::test_gradients_of_generated_calls_are_torchs
        tests/live/test_in_place_views_live.py::test_writes_to_views_and_bases_are_refused_and_differentiated_as_torchs
        tests/test_codegen_layers.py::test_the_gradient_reaches_through_a_kernel_that_was_generated
        tests/test_codegen_layers.py::test_values_and_gradients_are_those_of_the_layers_own_kernels
        tests/test_cli_explain.py::test_the_examples_of_the_walkthrough_on_the_registry_of_pytorch""",
    ),
    (
        "dispatchlab.call.calling_conventions:run_on_stack",
        returning(None),
        "tests/test_call.py::test_an_unbalanced_stack_is_refused_and_put_back",
    ),
    (
        "dispatchlab.call.operators:Operator._call_boxed",
        returning(None),
        "tests/test_call.py::test_a_stack_that_is_too_short_is_refused",
    ),
    (
        "dispatchlab.call.calling_conventions:_with_arguments",
        lambda real: lambda operator, function, held, keys: function,
        "tests/test_call.py::test_a_fallback_gets_the_key_set_then_the_operator_then_the_arguments",
    ),
    (
        "dispatchlab.call.trace:_kernel",
        returning(None),
        "tests/test_call_trace.py::test_each_conversion_of_the_calling_convention_is_shown",
    ),
    (
        "dispatchlab.layers.tracing:recording",
        lambda real: lambda: nullcontext(""),
        """tests/test_call_layers.py::test_tracing_writes_down_what_was_called_and_not_what_that_called
        tests/test_registration_source.py::test_a_trace_has_the_call""",
    ),
    # -- overrides
    (
        f"{_HANDLERS}:overloaded_args",
        _every_argument,
        """tests/overrides/test_overrides_dispatch.py::test_all_decline_names_every_type_in_the_order_called
        tests/overrides/test_overrides_function.py::test_a_call_that_every_handler_declines_names_every_type_in_the_order_called
        tests/live/test_override_order_live.py::test_the_order_of_handlers_is_torchs_for_2000_hierarchies""",
    ),
    (
        f"{_HANDLERS}:overloaded_args",
        returning([]),
        """tests/live/test_every_override_live.py::test_handlers_of_every_overridable_function_are_asked_what_torchs_are
        tests/live/test_upstream_overrides_live.py::test_a_program_does_here_what_it_does_on_torch""",
    ),
    (
        "dispatchlab.call.tensor:_converted",
        lambda real: lambda result, *others: result,
        """tests/overrides/test_overrides_function.py::test_super_is_the_default_and_does_not_ask_again
        tests/overrides/test_overrides_function.py::test_a_subclass_is_preserved_and_the_deepest_wins""",
    ),
    (
        f"{_DISPATCH}:PythonDispatch.release",
        returning(None),
        "tests/overrides/test_overrides_dispatch.py::test_the_fallbacks_come_and_go_with_their_registration",
    ),
    (
        "dispatchlab.call.torch_handlers:python_bits",
        returning(0),
        "tests/test_design_documents.py"
        "::test_a_subclass_is_lost_where_a_kernel_goes_by_the_elements_and_kept_where_it_calls_operators",
    ),
    (
        "dispatchlab.overrides.torch_function:_wrapped",
        lambda real: lambda implementation, dispatcher: lambda *args, **kwargs: implementation(*args, **kwargs),
        "tests/overrides/test_overrides_wrapper.py::test_every_way_of_calling_is_that_of_a_plain_wrapper",
    ),
    (
        "inspect:signature",
        lambda real: lambda function: real(lambda *args, **kwargs: None),
        "tests/overrides/test_overrides_function.py::test_a_wrong_call_is_refused_in_the_name_of_the_function",
    ),
    (
        "dispatchlab.overrides.torch_function:_difference",
        returning(""),
        "tests/overrides/test_overrides_function.py::test_a_dispatcher_of_another_signature_is_refused_with_both",
    ),
    (
        "dispatchlab.overrides.torch_function:torch_function_dispatch",
        lambda real: lambda *args, **kwargs: lambda function: real(*args, **kwargs)(function).__get__(1),
        "tests/overrides/test_overrides_function.py"
        "::test_name_docstring_signature_module_and_repr_are_those_of_the_implementation",
    ),
    # -- codegen
    (
        "dispatchlab.codegen.emit.generated_group:generated_group",
        returning(None),
        "tests/test_codegen_generate.py::test_variants_are_made_for_every_structured_key_and_two_that_no_file_names",
    ),
    (
        "dispatchlab.engine.dispatcher:Dispatcher._release",
        returning(None),
        "tests/test_codegen_generate.py::test_what_the_module_registers_is_what_its_scenario_registers",
    ),
    (
        "dispatchlab.call.tensor_options:Device.__eq__",
        returning(1),
        "tests/test_codegen_runtime.py::test_cuda_is_a_label_and_devices_must_agree",
    ),
    (
        f"{_STRUCTURED}:maybe_create_proxy",
        lambda real: lambda out, sizes, strides, options, **others: real(out, sizes, strides[::-1], options, **others),
        "tests/test_codegen_runtime.py::test_an_out_with_the_right_strides_is_written_itself",
    ),
    (
        "dispatchlab.codegen.runtime.memory:empty_strided",
        returning(None),
        "tests/test_codegen_runtime.py::test_on_meta_shapes_and_dtypes_come_without_elements",
    ),
    (
        f"{_STRUCTURED}:Kernels.call",
        returning(None),
        "tests/test_codegen_runtime.py::test_another_backend_computes_by_its_out_variant",
    ),
    (
        "dispatchlab.codegen.runtime.element_types:not_implemented",
        lambda real: lambda kernel, dtype: ValueError(dtype),
        "tests/test_codegen_loops.py::test_a_dtype_without_a_loop_is_refused_by_the_name_of_its_kernel",
    ),
    (
        f"{_STRUCTURED}:Kernels.__getattr__",
        lambda real: lambda self, name: lambda *args: None,
        "tests/test_codegen_generate.py::test_a_function_that_nobody_wrote_is_named_when_it_is_called",
    ),
    (
        "dispatchlab.codegen.emit.generate:write_files",
        lambda real: lambda folder, files: (),
        "tests/test_codegen_generate.py::test_files_are_written_when_they_differ_and_only_then",
    ),
    (
        "dispatchlab.codegen.read.rules:broken_rules",
        returning(()),
        "tests/test_codegen_rules.py::test_a_file_that_breaks_a_rule_is_refused_in_pinned_words",
    ),
    (
        "dispatchlab.codegen.runtime.tensor_iterator:TensorIteratorBase",
        lambda real: type("Other", (), {}),
        "tests/test_codegen_rules.py::test_every_class_that_a_meta_class_may_inherit_from_is_in_the_runtime",
    ),
    (
        "dispatchlab.codegen.read.native_functions:NativeFunctions.structured_groups",
        lambda real: property(lambda self: ()),
        "tests/live/test_codegen_live.py::test_the_file_of_pytorch_2_13_has_3101_functions_in_275_structured_groups",
    ),
    (
        "dispatchlab.codegen.read.native_function:NativeFunction.is_generated",
        returning(1),
        "tests/live/test_codegen_live.py::test_all_functions_have_the_facts_that_torchgen_gives_them",
    ),
    (
        "dispatchlab.codegen.read.native_functions:NativeFunctions.backends",
        lambda real: property(lambda self: {}),
        "tests/live/test_codegen_live.py::test_every_key_has_the_kernels_that_torchgen_gives_it",
    ),
    (
        "dispatchlab.codegen.emit.ufunc_loops:ufunc_loops",
        returning(None),
        "tests/live/test_codegen_ufunc_live.py::test_loops_and_functors_of_generated_groups_are_those_of_torchgen",
    ),
    (
        "dispatchlab.questions.native_functions.lab_frames:_frames",
        returning(()),
        "tests/deep/test_codegen_walk_long.py::test_the_lab_runs_the_same_call_and_shows_where",
    ),
    (
        "tools.document_pictures:_edges",
        returning(""),
        "tests/test_design_documents.py::test_a_figure_is_drawn_from_the_code_of_today",
    ),
    (
        f"{_HANDLERS}:overloaded_args",
        returning([]),
        "tests/test_design_documents.py::test_the_literal_algorithm_calls_the_handlers_that_ours_calls",
    ),
    (
        "dispatchlab.codegen.read.native_function:NativeFunction",
        lambda real: dataclass(type("NativeFunction", (), {"__module__": real.__module__})),
        "tests/test_design_documents.py::test_what_codegen_reads_and_makes_is_frozen",
    ),
    (
        "dispatchlab.call.local_key_set:DEFAULT_INCLUDED",
        lambda real: type(real)(0),
        "tests/test_model_keys.py::test_default_sets_of_a_thread_print_as_upstream_prints_them",
    ),
    (
        "dispatchlab.layers.lab:Lab.legacy_vmap",
        lambda real: lambda self, function, **dims: function,
        "tests/test_call_layers.py::test_vmap_over_one_argument_leaves_the_other_alone",
    ),
    (
        "tools.boxing_sizes:source",
        lambda real: lambda form, count: real("unboxed", count),
        "tests/process/test_boxing_sizes.py::test_a_boxed_kernel_does_not_grow_with_the_operators_and_the_others_do",
    ),
    (
        "dispatchlab.layers.kernels:check_alpha",
        returning(None),
        "tests/live/test_call_live.py::test_a_bool_argument_and_alpha_take_and_refuse_what_torchs_do",
    ),
)
WITHOUT_FAULT = dict.fromkeys(
    (
        "the overhead of the Python implementation is 1 to 2 us",
        "the table of six benchmarks: one tensor, one duck, two of either, both, and a thousand tensors",
        "the six cases beside numpy's, torch's and the literal algorithm, with machine and versions",
        "goal: no overhead where all inputs are tensors",
        "goal: less than a microsecond for tensor-like objects",
        "benchmarks of the overhead for a range of scenarios, with airspeed velocity",
        "measured by hand: 2.58 us for two tensors, 1.65 us for one",
        "such code is faster than a boxed fallback",
    ),
    "a figure that is measured: no test asserts a time",
) | {"missing: documentation for library authors and users": "a page, and no behaviour"}
"""Statements that no fault is planted for, each with the reason."""

FAULTS |= {test: (place, fault) for place, fault, tests in _BY_FAULT for test in tests.split()}

"""By test: what is replaced, and by what."""


@contextmanager
def planted(place: str, fault: Fault) -> Iterator[None]:
    """A block in which a function is another one, wherever it was imported to, or is imported to meanwhile."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    real = vars(owner)[name]
    wrong = fault(real)

    def replace(old: Any, new: Any) -> None:
        setattr(owner, name, new)
        ours = [
            vars(one)
            for key, one in [*sys.modules.items()]
            if key.startswith(("dispatchlab", "test_", "tests", "examples", "tools"))
        ]
        for names in ours if not classes else ():
            names |= {key: new for key, value in names.items() if value is old}

    replace(real, wrong)
    try:
        yield
    finally:
        replace(wrong, real)


class _Planting:
    """A plugin that plants the fault of each test while it runs, and prints what came of it."""

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run one test; one that has several parameters ends with the first that fails. A skip says nothing."""
        test = item.nodeid.partition("[")[0]
        test = test if test in FAULTS else test.partition("::")[0]
        if not self.ended.get(test):
            with planted(*FAULTS[test]):
                reports = runtestprotocol(item, log=False, nextitem=None)
            if not any(report.skipped for report in reports):
                self.ended[test] = int(any(report.failed for report in reports))
        return True


def main() -> None:
    """Print a line for each test: 1 when it fails with its fault, as it should."""
    planting = _Planting()
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
    tests = sys.argv[1:] or [one for one in FAULTS if find_spec("torch") or "/live/" not in one]
    pytest.main([*options, *tests], plugins=[planting])
    sys.stdout.write("".join(f"\nplanted {status} {test}" for test, status in planting.ended.items()) + "\n")


if __name__ == "__main__":
    main()
