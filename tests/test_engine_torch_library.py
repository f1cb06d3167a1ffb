"""Calls of `torch.library` on the lab engine: what they refuse, what Python keeps, what a release takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import semantics_named
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import Impl, Kernel, Registration, TorchLibraryCall
from dispatchlab.model.registration import TorchLibraryFunction as F
from dispatchlab.prover.chains import Module
from dispatchlab.prover.modules import explore_modules
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
    dump = dispatcher.dump(NAME)
    assert "made" not in dump
    assert "debug: again\n" in dump  # whose library PyTorch keeps by name
    assert refusal(dispatcher, block(F.CUSTOM_OP, FOO, "again")) is ErrorKind.META_BESIDE_COMPOSITE
    assert dispatcher.dump(NAME) == dump
    cuda = block(F.REGISTER_KERNEL, FOO, "cuda", on=["cuda"])
    assert refusal(dispatcher, cuda) is ErrorKind.LIBRARY_DESTROYED
    handles[0].release()
    with dispatcher.register(cuda):
        assert "CUDA: cuda" in dispatcher.dump(NAME)
    handles[1].release()
    dispatcher.register(block(F.CUSTOM_OP, FOO, "third")).release()
    assert not dispatcher.snapshot(NAME).exists


def test_a_refused_call_on_a_custom_op_leaves_the_kernels_of_the_calls_before_it() -> None:
    dispatcher = Dispatcher.for_scenario("torch-2.13")
    rule = TorchLibraryCall(F.REGISTER_TORCH_DISPATCH, FOO, ("here:Mode",))
    cuda, vmap = TorchLibraryCall(F.REGISTER_KERNEL, FOO, ("cuda",)), TorchLibraryCall(F.REGISTER_VMAP, FOO)
    with dispatcher.register(block(F.REGISTER_TORCH_DISPATCH, FOO, "rule", on=["here:Mode"])):
        made = block(F.CUSTOM_OP, FOO, "made", on=["cpu"], parts=[cuda, rule, vmap])
        assert refusal(dispatcher, made) is ErrorKind.DUPLICATE_RULE
    kernels = [line.partition(":")[0] for line in dispatcher.dump(NAME).splitlines() if "made ::" in line]
    assert kernels == ["CPU", "CUDA", "Meta", "Autograd[alias]"]


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
    dispatcher = Dispatcher(replace(semantics_named("torch-2.13"), torch_library=False))
    with dispatcher.register(FAKE):
        assert "Meta: fake" in dispatcher.dump(NAME)
    assert python(dispatcher) == []


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


def test_a_fake_of_another_module_is_refused_in_one_order_of_imports_and_nothing_is_blamed_for_it() -> None:
    modules = Module("defines", (0,)), Module("fakes", (1,))
    found = explore_modules(LabEngine(), [DEFINE, FAKE], [NAME], modules)
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert found.counterexample is not None
    assert (found.counterexample.flaw, found.counterexample.why) == (Flaw.OUTCOME, ())
    assert "no_such_schema" in found.counterexample.diff
