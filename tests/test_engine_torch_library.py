"""Calls of `torch.library` on the lab engine: what they refuse, what Python keeps, what a release takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import semantics_named, semantics_of
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.profile import bundled_profile
from dispatchlab.model.registration import Impl, Kernel, Registration, TorchLibraryCall
from dispatchlab.model.registration import TorchLibraryFunction as F
from dispatchlab.model.torch_library_rules import torch_library_rules
from dispatchlab.prover.program import Module, Program
from dispatchlab.prover.program_walk import explore_program
from dispatchlab.prover.result import Flaw, Verdict
from tests.torch_library_scenarios import FOO, OPERATORS, block

pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")

NAME = OPERATORS[0]
DEFINE = block(F.DEFINE, FOO, "def")
FAKE = block(F.REGISTER_FAKE, FOO, "fake")
MADE = block(F.CUSTOM_OP, FOO, "made", on=["cpu"])


def refusal(dispatcher: Dispatcher, registration: Registration) -> ErrorKind:
    """How a registration is refused."""
    with pytest.raises(RegistrationError) as caught:
        dispatcher.register(registration)
    return caught.value.kind


@pytest.fixture(params=["torch-2.13", "strict"])
def dispatcher(request: pytest.FixtureRequest) -> Dispatcher:
    return Dispatcher.for_scenario(request.param)


def python(dispatcher: Dispatcher) -> list[str]:
    """What Python keeps for the operator, as a snapshot shows it."""
    return dispatcher.snapshot(NAME).python.splitlines()


def test_a_fake_needs_the_operator_and_no_composite_kernel(dispatcher: Dispatcher) -> None:
    assert refusal(dispatcher, FAKE) is ErrorKind.NO_SUCH_SCHEMA
    with dispatcher.register(Impl(NAME, K.CompositeImplicitAutograd, Kernel())):
        assert refusal(dispatcher, FAKE) is ErrorKind.META_BESIDE_COMPOSITE
        assert refusal(dispatcher, block(F.IMPL, FOO, "meta", key=K.Meta)) is ErrorKind.META_BESIDE_COMPOSITE
        dispatcher.register(Impl(NAME, K.Meta, Kernel())).release()  # which the dispatcher itself does not mind
    assert not dispatcher.snapshot(NAME).exists
    assert python(dispatcher) == []


def test_the_newest_fake_is_in_force_and_each_goes_with_its_own_library(dispatcher: Dispatcher) -> None:
    defined, first = dispatcher.register(DEFINE), dispatcher.register(FAKE)
    second = dispatcher.register(block(F.REGISTER_FAKE, FOO, "newer"))
    assert python(dispatcher) == ["torch_library fake: newer", "torch_library fake (inactive): fake"]
    second.release()
    defined.release()
    assert python(dispatcher) == ["torch_library fake: fake"]  # and it stays although its operator is gone
    first.release()
    assert python(dispatcher) == []


def test_a_second_custom_op_destroys_the_library_of_the_first(dispatcher: Dispatcher) -> None:
    first = dispatcher.register(MADE)
    second = dispatcher.register(block(F.CUSTOM_OP, FOO, "again"))
    dump = dispatcher.dump(NAME)
    assert "again" in dump
    assert "made" not in dump
    assert python(dispatcher) == ["custom_ops custom_op: again", "torch_library fake: again"]
    first.release()
    assert dispatcher.dump(NAME) == dump
    second.release()
    assert not dispatcher.snapshot(NAME).exists


def test_what_is_called_for_a_custom_op_by_name_belongs_to_the_custom_op(dispatcher: Dispatcher) -> None:
    made = dispatcher.register(MADE)
    before = dispatcher.dump(NAME)
    fake = dispatcher.register(FAKE)
    assert dispatcher.dump(NAME) == before
    kernel = dispatcher.register(block(F.REGISTER_KERNEL, FOO, "cuda", on=["cuda"]))
    assert "CUDA: made" in dispatcher.dump(NAME)
    after = dispatcher.dump(NAME), python(dispatcher)
    fake.release()
    kernel.release()
    assert (dispatcher.dump(NAME), python(dispatcher)) == after
    assert "custom_ops fake: fake" in after[1]
    made.release()
    assert not dispatcher.snapshot(NAME).exists
    assert python(dispatcher) == []


def test_a_refused_custom_op_leaves_an_object_whose_library_takes_nothing_more() -> None:
    dispatcher = Dispatcher.for_scenario("torch-2.13")
    handles = [dispatcher.register(MADE), dispatcher.register(Impl(NAME, None, Kernel(), "math"))]
    assert refusal(dispatcher, block(F.CUSTOM_OP, FOO, "again")) is ErrorKind.META_BESIDE_COMPOSITE
    assert "made" not in dispatcher.dump(NAME)
    cuda = block(F.REGISTER_KERNEL, FOO, "cuda", on=["cuda"])
    assert refusal(dispatcher, cuda) is ErrorKind.LIBRARY_DESTROYED
    handles[0].release()
    with dispatcher.register(cuda):
        assert "CUDA: cuda" in dispatcher.dump(NAME)


def test_rules_of_autograd_vmap_and_autocast_look_the_operator_up(dispatcher: Dispatcher) -> None:
    calls = [
        block(F.REGISTER_AUTOGRAD, FOO, "backward"),
        block(F.REGISTER_VMAP, FOO, "vmap"),
        block(F.REGISTER_AUTOCAST, FOO, "cast", on=["cpu"]),
    ]
    with dispatcher.register(Impl(NAME, K.CPU, Kernel())):
        assert {refusal(dispatcher, call) for call in calls} == {ErrorKind.NO_SUCH_SCHEMA}
    with dispatcher.register(block(F.DEFINE, FOO, "def", schema="(Tensor(a!) x) -> ()")):
        assert refusal(dispatcher, calls[0]) is ErrorKind.NOT_FUNCTIONAL
    with dispatcher.register(DEFINE):
        for call in calls:
            dispatcher.register(call).release()


def test_the_python_kernel_of_a_cast_goes_with_the_def(dispatcher: Dispatcher) -> None:
    cast = block(F.REGISTER_AUTOCAST, FOO, "cast", on=["cpu"])
    other = Impl(NAME, K.AutocastCPU, Kernel(), "other")
    with dispatcher.register(DEFINE):
        with dispatcher.register(other):
            assert refusal(dispatcher, cast) is ErrorKind.DUPLICATE_KERNEL
        dispatcher.register(cast).release()
        assert python(dispatcher) == ["py_kernels AutocastCPU: cast"]
        with dispatcher.register(other):
            dispatcher.register(cast).release()  # it takes the place of its own Python kernel
    assert python(dispatcher) == []


def test_there_is_one_torch_dispatch_rule_for_a_class_and_it_needs_no_operator(dispatcher: Dispatcher) -> None:
    rule = block(F.REGISTER_TORCH_DISPATCH, FOO, "rule", on=["here:Mode"])
    with dispatcher.register(rule):
        assert python(dispatcher) == ["torch_library torch_dispatch here.Mode: rule"]
        assert refusal(dispatcher, block(F.REGISTER_TORCH_DISPATCH, FOO, "b", on=["here:Mode"])) is (
            ErrorKind.DUPLICATE_RULE
        )
        with dispatcher.register(MADE):
            assert refusal(dispatcher, block(F.REGISTER_TORCH_DISPATCH, FOO, "b", on=["here:Mode"])) is (
                ErrorKind.DUPLICATE_RULE
            )
        part = TorchLibraryCall(F.REGISTER_TORCH_DISPATCH, FOO, ("here:Mode",))
        assert refusal(dispatcher, block(F.CUSTOM_OP, FOO, "made", parts=[part])) is ErrorKind.DUPLICATE_RULE


def test_where_the_rules_are_not_known_the_content_is_registered() -> None:
    dispatcher = Dispatcher(replace(semantics_named("torch-2.13"), torch_library=None))
    with dispatcher.register(FAKE):
        assert "Meta: fake" in dispatcher.dump(NAME)
    assert python(dispatcher) == []


@pytest.fixture
def older() -> Dispatcher:
    """With the rules from before 2.13."""
    return Dispatcher.for_scenario("torch-2.11")


def test_before_2_13_torch_library_takes_one_kernel_of_an_operator_and_key(older: Dispatcher) -> None:
    cpu, other = (block(F.IMPL, FOO, text, key=K.CPU) for text in ("cpu", "other"))
    by_device = block(F.REGISTER_KERNEL, FOO, "device", on=["cuda", "cpu"])
    with older.register(Impl(NAME, K.CPU, Kernel(), "C++")), older.register(cpu):  # what C++ registers is not counted
        assert {refusal(older, each) for each in (other, by_device)} == {ErrorKind.DUPLICATE_KERNEL}
        with older.register(block(F.IMPL, FOO, "cuda", key=K.CUDA)):
            pass
    with older.register(by_device):  # whose kernel for CUDA was taken back when that for the CPU was refused
        assert refusal(older, block(F.IMPL, FOO, "cuda", key=K.CUDA)) is ErrorKind.DUPLICATE_KERNEL
    named = block(F.IMPL, FOO, "named", key=K.CompositeImplicitAutograd)  # the table has a key "" beside this one
    with older.register(block(F.IMPL, FOO, "none", key=None)), older.register(other), older.register(named):
        assert "named" in older.dump(NAME)


def test_without_leave_to_override_a_kernel_is_refused_until_the_note_of_another_is_gone(
    dispatcher: Dispatcher,
) -> None:
    first, second = (block(F.IMPL, FOO, text, key=K.CPU) for text in ("first", "second"))
    assert second.made_by is not None
    careful = replace(second, debug="careful", made_by=replace(second.made_by, allow_override=False))
    with dispatcher.register(Impl(NAME, K.CPU, Kernel(), "C++")), dispatcher.register(careful):
        pass
    one, other = dispatcher.register(first), dispatcher.register(second)
    assert refusal(dispatcher, careful) is ErrorKind.DUPLICATE_KERNEL
    assert refusal(dispatcher, careful) is ErrorKind.DUPLICATE_KERNEL  # a refusal takes no note along
    one.release()
    with dispatcher.register(careful):  # the note was one for both
        assert "second" in dispatcher.dump(NAME)
        other.release()
        dispatcher.register(careful).release()
    assert not dispatcher.snapshot(NAME).exists


def test_before_2_13_who_may_override_does(older: Dispatcher) -> None:
    kernel, fake = block(F.IMPL, FOO, "kernel", key=K.CPU), block(F.REGISTER_FAKE, FOO, "newer")
    with older.register(DEFINE), older.register(FAKE), older.register(kernel):
        for each in (kernel, fake):
            assert each.made_by is not None
            assert refusal(older, each) is ErrorKind.DUPLICATE_KERNEL
            with older.register(replace(each, made_by=replace(each.made_by, allow_override=True))):
                assert "(inactive)" in older.dump(NAME)


def test_before_2_13_there_is_one_fake_and_none_beside_a_meta_kernel(older: Dispatcher) -> None:
    again, meta = block(F.REGISTER_FAKE, FOO, "again"), block(F.IMPL, FOO, "meta", key=K.Meta)
    with older.register(DEFINE):
        with older.register(FAKE):
            assert {refusal(older, each) for each in (again, meta)} == {ErrorKind.DUPLICATE_KERNEL}
        with older.register(meta):
            assert refusal(older, again) is ErrorKind.DUPLICATE_KERNEL
        kept = older.register(again)
    assert python(older) == ["torch_library fake: again"]
    assert refusal(older, MADE) is ErrorKind.DUPLICATE_KERNEL  # its own fake is a second one
    kept.release()


def test_before_2_13_a_kernel_in_the_library_of_a_custom_op_is_its_claim(older: Dispatcher) -> None:
    schema = "(Tensor(a!) x) -> ()"  # of the two kernels at ADInplaceOrView, C++ makes the first
    with older.register(block(F.CUSTOM_OP, FOO, "made", on=["cpu"], schema=schema)):
        older.register(block(F.REGISTER_KERNEL, FOO, "cuda", on=["cuda"]))
        taken = [block(F.IMPL, FOO, "late", key=key) for key in (K.CPU, K.CUDA, K.Autograd, K.ADInplaceOrView)]
        assert {refusal(older, each) for each in taken} == {ErrorKind.DUPLICATE_KERNEL}
    kept = [older.register(each) for each in taken]
    assert older.dump(NAME).count("late") == len(kept)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_before_2_13_a_meta_kernel_of_a_custom_op_is_refused_after_what_is_said_before_it(
    older: Dispatcher, order: tuple[int, int]
) -> None:
    parts = TorchLibraryCall(F.REGISTER_AUTOGRAD, FOO), TorchLibraryCall(F.REGISTER_KERNEL, FOO, ("meta",))
    kinds = ErrorKind.NOT_FUNCTIONAL, ErrorKind.DUPLICATE_KERNEL
    for on in ("cpu", "meta"):
        said = [parts[number] for number in order]
        made = block(F.CUSTOM_OP, FOO, "made", on=[on], schema="(Tensor(a!) x) -> ()", parts=said)
        assert refusal(older, made) is (kinds[order[0]] if on == "cpu" else ErrorKind.DUPLICATE_KERNEL)


def test_before_2_13_a_cast_has_a_python_kernel_for_either_device_even_when_it_is_refused(older: Dispatcher) -> None:
    first, second = (block(F.REGISTER_AUTOCAST, FOO, text, on=["cpu"]) for text in ("first", "second"))
    with older.register(DEFINE), older.register(first):
        assert refusal(older, second) is ErrorKind.DUPLICATE_KERNEL
        assert python(older) == ["py_kernels AutocastCPU: second", "py_kernels AutocastCUDA: second"]
        assert refusal(older, block(F.REGISTER_AUTOCAST, FOO, "mps", on=["mps"])) is ErrorKind.OTHER


def test_a_profile_whose_rules_contradict_each_other_has_no_model() -> None:
    profile = bundled_profile("torch-2.11")
    assert torch_library_rules(profile) is not None
    for rule in ("fake_after_meta", "vmap_after_vmap"):
        mixed = replace(profile, library_rules=(*profile.library_rules, rule))
        assert torch_library_rules(mixed) is None


def test_a_custom_op_of_2_4_needs_no_device_and_one_of_2_9_has_no_formula_for_a_view() -> None:
    part = TorchLibraryCall(F.REGISTER_AUTOGRAD, FOO)
    view = block(F.CUSTOM_OP, FOO, "view", schema="(Tensor(a) x) -> Tensor(a)", parts=[part])
    number = block(F.CUSTOM_OP, FOO, "number", on=["cpu"], schema="(int n) -> Tensor")
    for version, refused in (("2.4", view), ("2.9", view), ("2.9", number), ("2.11", number)):
        kind = refusal(Dispatcher.for_scenario(f"torch-{version}"), refused)
        assert kind is (ErrorKind.NOT_FUNCTIONAL if refused is view else ErrorKind.OTHER)
    for version, accepted in (("2.4", number), ("2.11", view)):
        dispatcher = Dispatcher.for_scenario(f"torch-{version}")
        with dispatcher.register(accepted):
            assert dispatcher.snapshot(NAME).exists


def test_a_function_that_a_pytorch_has_not_is_refused() -> None:
    profile = bundled_profile("torch-2.11")
    rules = tuple(each for each in profile.library_rules if each != "register_vmap")
    dispatcher = Dispatcher(semantics_of(replace(profile, library_rules=rules)))
    with dispatcher.register(DEFINE):
        assert refusal(dispatcher, block(F.REGISTER_VMAP, FOO, "vmap")) is ErrorKind.OTHER


def test_a_fake_of_another_module_is_refused_in_one_order_of_imports_and_nothing_is_blamed_for_it() -> None:
    program = Program.of(2, (Module("defines", (0,)), Module("fakes", (1,))))
    found = explore_program(LabEngine(), [DEFINE, FAKE], [NAME], program=program)
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert found.counterexample is not None
    assert (found.counterexample.flaw, found.counterexample.why) == (Flaw.OUTCOME, ())
    assert "no_such_schema" in found.counterexample.diff
