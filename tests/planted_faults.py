"""Run tests that the table of the design documents names, each with the behaviour of its row switched off.

    python -m tests.planted_faults          one line for each: its exit status, 1 when the test fails as it should

A fault takes the place of a function everywhere that it was imported to, before anything of the test is set up.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

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
        f"{_DISPATCH}:detach_by_handlers",
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
        lambda real: hasattr,
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
        lambda real: nullcontext,
    ),
    "tests/test_design_documents.py::test_a_call_goes_from_unboxed_to_a_boxed_kernel_and_back_to_an_unboxed_one": (
        "dispatchlab.call.local_key_set:IncludeDispatchKeyGuard",
        lambda real: nullcontext,
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
"""By test: what is replaced, and by what."""


@contextmanager
def planted(place: str, fault: Fault) -> Iterator[None]:
    """A block in which a function is another one, wherever it was imported to."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    real = vars(owner)[name]
    wrong = fault(real)
    changed = [(owner, name)]
    if not classes:
        ours = [
            one for key, one in sys.modules.items() if key.startswith(("dispatchlab", "test_", "tests", "examples"))
        ]
        changed += [(one, key) for one in ours for key, value in [*vars(one).items()] if value is real]
    for one, key in changed:
        setattr(one, key, wrong)
    try:
        yield
    finally:
        for one, key in changed:
            setattr(one, key, real)


class _Planting:
    """A plugin that plants the fault after the tests are collected."""

    def __init__(self, place: str, fault: Fault) -> None:
        self.place, self.fault = place, fault

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Run the tests with it."""
        with planted(self.place, self.fault):
            return (yield)


def main() -> None:
    """Print the exit status of each test with its fault."""
    for test, (place, fault) in FAULTS.items():
        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
        status = pytest.main([test, *options, "--whole"], plugins=[_Planting(place, fault)])
        sys.stdout.write(f"\nplanted {int(status)} {test}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
