"""A dispatcher as a user makes it: the first call runs as PyTorch's does, and `explain` says how."""

from __future__ import annotations

import pkgutil
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    ErrorKind,
    Library,
    Tensor,
    fallthrough,
    operator,
    tensor,
)
from dispatchlab.call import ExcludeDispatchKeyGuard, IncludeDispatchKeyGuard
from dispatchlab.engine.semantics import SEMANTICS, NamedFunction
from dispatchlab.lab import Lab, no_grad
from dispatchlab.lab.overrides import DispatchMode, PythonDispatch
from tests.call_programs import (
    BACKENDS,
    ELSEWHERE,
    KINDS,
    STALE,
    HandlerRanError,
    Outcome,
    Program,
    explained,
    explained_by_values,
    on_lab,
    program,
)
from tests.effort import share

BUILTIN_FALLBACKS = SEMANTICS["torch-2.13"].builtin_fallbacks

PROGRAMS, SEED = 300, 20301
ALL_SEMANTICS = ("strict", "torch-2.13", "pr35061")
GUIDE = Path(__file__).parents[1] / "docs" / "python.md"


def user_operator(schema: str, semantics: str = "strict", **kernels: object) -> tuple[Dispatcher, Library]:
    """`t::f` with kernels at some keys, on a dispatcher as a user makes it."""
    dispatcher = Dispatcher(semantics)
    library = Library("t", "FRAGMENT", dispatcher=dispatcher)
    library.define(schema)
    for key, kernel in kernels.items():
        library.impl("f", kernel, key)  # type: ignore[arg-type]
    return dispatcher, library


# -- the first call


@pytest.mark.parametrize("semantics", ALL_SEMANTICS)
def test_the_example_of_the_guide_can_be_called_under_every_semantics(semantics: str) -> None:
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert "Dispatcher()" in found[1]
    names: dict[str, object] = {"print": lambda *values: None}
    exec(compile(found[1].replace("Dispatcher()", f"Dispatcher({semantics!r})"), str(GUIDE), "exec"), names)
    dispatcher = names["dispatcher"]
    assert isinstance(dispatcher, Dispatcher)
    one = tensor([1.0])
    assert operator(dispatcher, "test::foo")(one) is one


@pytest.mark.parametrize("semantics", ALL_SEMANTICS)
def test_a_def_and_a_cpu_kernel_are_enough(semantics: str) -> None:
    dispatcher, _held = user_operator("f(Tensor x) -> Tensor", semantics, CPU=lambda x: tensor([2.0]))
    assert operator(dispatcher, "t::f")(tensor([1.0])).item() == 2.0
    assert len(dispatcher.builtin_fallbacks) == 38
    dispatcher.check_invariants()


def test_a_bare_dispatcher_is_asked_for_and_shows_nothing_but_what_was_registered() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    library = Library("t", "FRAGMENT", dispatcher=dispatcher)
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x, "CPU", debug="cpu")
    assert dispatcher.dump_table("t::f") == "CPU: cpu [kernel]\n"
    assert dispatcher.builtin_fallbacks == frozenset()


@pytest.mark.parametrize(("semantics", "count"), [("strict", 0), ("torch-2.13", 38), ("pr35061", 0)])
def test_a_scenario_finds_what_its_semantics_brings_along(semantics: str, count: int) -> None:
    assert len(Dispatcher.for_scenario(semantics).builtin_fallbacks) == count


# -- against explain


def test_generated_first_calls_come_to_what_explain_says() -> None:
    rng = random.Random(SEED)
    different: list[tuple[Program, str, Outcome, Outcome]] = []
    outcomes: Counter[str] = Counter()
    tried = share(PROGRAMS)
    for _ in range(tried):
        one = program(rng, {**KINDS, **ELSEWHERE})
        for semantics in ("strict", "torch-2.13"):
            found, said = on_lab(one, semantics), explained(one, semantics)
            outcomes[found.what] += 1
            if found != said:
                different.append((one, semantics, found, said))
    assert different == []
    assert outcomes.total() == 2 * tried
    kinds = {"kernel", "fallback", "handler", "fails", "missing_kernel", "no_tensor_arguments"}
    if tried == PROGRAMS:
        assert set(outcomes) >= {*kinds, "ambiguous_autogradother"}
    assert outcomes["kernel"] > tried // 2


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_generated_first_calls_come_to_what_explain_says_of_their_tensors(semantics: str) -> None:
    rng = random.Random(SEED + 1)
    outcomes: Counter[str] = Counter()
    tried = share(PROGRAMS)
    for _ in range(tried):
        one = program(rng, {**KINDS, **ELSEWHERE})
        found = on_lab(one, semantics)
        assert found == explained_by_values(one, semantics), one
        outcomes[found.what] += 1
    assert outcomes["kernel"] > share(60)
    assert outcomes["missing_kernel"] > share(30)


def test_generated_first_calls_come_to_what_explain_says_as_it_was_in_2020() -> None:
    rng = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    tried = share(PROGRAMS)
    for _ in range(tried):
        one = program(rng, {**KINDS, **ELSEWHERE}, aliases=False)
        found = on_lab(one, "pr35061")
        assert found == explained(one, "pr35061"), one
        outcomes[found.what] += 1
    assert outcomes["kernel"] > tried // 5
    assert outcomes["missing_kernel"] > tried // 10


def test_an_operator_with_a_stale_slot_reports_that_and_not_the_missing_kernel() -> None:
    assert on_lab(STALE, "torch-2.13") == explained(STALE, "torch-2.13") == Outcome("broken")
    assert on_lab(STALE, "strict") == explained(STALE, "strict") == Outcome("missing_kernel", "DeferredInit")


# -- what the builtin fallbacks do


def test_every_builtin_fallback_that_is_no_fallthrough_names_a_kernel() -> None:
    named = [one.kernel.function for one in BUILTIN_FALLBACKS if not one.kernel.is_fallthrough]
    assert all(
        isinstance(function, NamedFunction) and callable(pkgutil.resolve_name(function.reference)) for function in named
    )
    assert {"builtin fallbacks": len(BUILTIN_FALLBACKS), "that name a kernel": len(named)} == {
        "builtin fallbacks": 38,
        "that name a kernel": 28,
    }


def test_autograd_hands_on_and_marks_the_results_so_that_backward_warns() -> None:
    dispatcher, _held = user_operator("f(Tensor x) -> Tensor", CPU=lambda x: tensor(x.numpy() * 2))
    call = operator(dispatcher, "t::f")
    x = tensor([1.0, 2.0], requires_grad=True)
    with no_grad():
        assert not call(x).requires_grad
    assert not call(tensor([1.0])).requires_grad
    result = call(x)
    assert result.requires_grad
    assert repr(result) == "tensor([2., 4.], grad_fn=<WarnNotImplemented>)"
    lab = Lab()
    with pytest.warns(UserWarning, match=r"t::f has no Autograd kernel, and a gradient gets to it"):
        lab.backward(lab.sum(result))
    assert x.grad is None


def test_a_result_that_has_a_history_keeps_it() -> None:
    dispatcher, _held = user_operator("f(Tensor x) -> Tensor", CPU=lambda x: x)
    x = tensor([1.0], requires_grad=True)
    assert operator(dispatcher, "t::f")(x) is x
    assert x.grad_fn is None


def with_key(values: object, key: str) -> Tensor:
    return Tensor(np.array(values), key_set=DispatchKeySet.of(DispatchKey.CPU, DispatchKey[key]))


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [("Conjugate", [1 + 2j], [1 - 2j]), ("Negative", [1.0], [-1.0]), ("ZeroTensor", [1.0], [0.0])],
)
def test_a_kernel_gets_the_elements_that_a_tensor_stands_for(
    key: str, given: list[object], expected: list[object]
) -> None:
    heard: list[Tensor] = []

    def kernel(x: Tensor, *, more: list[Tensor]) -> Tensor:
        heard.extend((x, *more))
        return x

    dispatcher, _held = user_operator("f(Tensor x, *, Tensor[] more) -> Tensor", CPU=kernel)
    lazy = with_key(given, key)
    operator(dispatcher, "t::f")(lazy, more=[tensor([3.0]), lazy])
    assert [one.numpy().tolist() for one in heard] == [expected, [3.0], expected]
    assert not any(one.key_set.has(DispatchKey[key]) for one in heard)
    assert lazy.numpy().tolist() == given


def test_what_is_written_to_a_conjugate_tensor_is_kept_conjugate() -> None:
    def fill(x: Tensor) -> Tensor:
        x.numpy()[...] = 3 + 2j
        return x

    dispatcher, _held = user_operator("f(Tensor(a!) x) -> Tensor(a!)", CPU=fill)
    lazy = with_key([1 + 1j], "Conjugate")
    assert operator(dispatcher, "t::f")(lazy) is lazy
    assert lazy.numpy().tolist() == [3 - 2j]
    assert lazy.version == 1
    with pytest.raises(CallError, match="a tensor of zeros cannot be written: pass a clone of it"):
        operator(dispatcher, "t::f")(with_key([1.0], "ZeroTensor"))


def test_a_view_of_a_conjugate_tensor_is_the_kernels_own_business() -> None:
    dispatcher, _held = user_operator("f(Tensor(a) x) -> Tensor(a)", CPU=lambda x: x)
    lazy = with_key([1 + 1j], "Conjugate")
    assert operator(dispatcher, "t::f")(lazy) is lazy


def test_functionalize_refuses_results_that_alias() -> None:
    dispatcher, _held = user_operator("f(Tensor(a!) x) -> Tensor(a!)", CPU=lambda x: x)
    with IncludeDispatchKeyGuard(DispatchKey.Functionalize), pytest.raises(CallError) as caught:
        operator(dispatcher, "t::f")(tensor([1.0]))
    assert (caught.value.kind, caught.value.facts["key"]) == (ErrorKind.OTHER, "Functionalize")


def test_a_handler_and_a_mode_are_called_without_layers() -> None:
    dispatcher, _held = user_operator("f(Tensor x) -> Tensor", CPU=lambda x: x)
    call = operator(dispatcher, "t::f")
    asked: list[str] = []

    class Mode(DispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(str(func.name))
            return args[0]

    with pytest.raises(HandlerRanError):
        call(KINDS["cpu python"]())
    with PythonDispatch(dispatcher), pytest.raises(HandlerRanError):
        call(KINDS["cpu python"]())
    one = tensor([1.0])
    with Mode():
        assert call(one) is one
    assert asked == ["t::f"]


def test_the_layers_stand_on_the_builtin_fallbacks_too() -> None:
    lab = Lab(Dispatcher())
    library = Library("aten", "FRAGMENT", dispatcher=lab.dispatcher)
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: tensor(x.numpy() * 2), "CPU")
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    lab.backward(lab.sum(lab.sin(x)))
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), np.cos(x.numpy()))
    assert lab.vmap(lab("twice"))(tensor([[1.0], [2.0]])).numpy().tolist() == [[2.0], [4.0]]


def test_meta_is_refused_with_the_kernel_that_is_missing() -> None:
    dispatcher, _held = user_operator("f(Tensor x) -> Tensor", CPU=lambda x: x)
    with pytest.raises(CallError) as caught:
        operator(dispatcher, "t::f")(tensor([1.0], device="meta"))
    assert (caught.value.kind, caught.value.facts["key"]) == (ErrorKind.MISSING_KERNEL, "Meta")
    assert caught.value.message == (
        "t::f got tensors on the device meta, and has no kernel that computes what its results look like: "
        'register one: lib.impl("f", kernel, "Meta")'
    )


# -- what to do when there is no kernel

ADVICE = re.compile(r'lib\.impl\("f", (kernel|fallthrough), "(\w+)"\)')


def _followed(dispatcher: Dispatcher, library: Library, given: Tensor) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Call `t::f` until it runs or fails otherwise, following the advice each time: what came of it, what it said."""
    for _ in range(8):
        try:
            operator(dispatcher, "t::f")(given)
        except CallError as error:
            refused = error
        else:
            yield "ran", []
            return
        advice = ADVICE.findall(refused.message)
        yield str(refused.kind), advice if refused.kind is ErrorKind.MISSING_KERNEL else []
        if refused.kind is not ErrorKind.MISSING_KERNEL:
            return
        assert advice, refused.message
        for what, key in advice:
            library.impl("f", fallthrough if what == "fallthrough" else (lambda x: x), key)
    raise AssertionError(f"the advice leads nowhere: {refused.message}")


@pytest.mark.parametrize("bare", [False, True])
def test_a_missing_kernel_can_be_called_once_the_advice_is_followed(*, bare: bool) -> None:
    rng = random.Random(SEED)
    followed: Counter[str] = Counter()
    tried = share(PROGRAMS)
    for _ in range(tried):
        kind = rng.choice([kind for kind in {**KINDS, **ELSEWHERE} if kind != "cpu python"])
        made = {**KINDS, **ELSEWHERE}[kind]()
        dispatcher = Dispatcher(builtin_fallbacks=not bare)
        library = Library("t", "FRAGMENT", dispatcher=dispatcher)
        library.define("f(Tensor x) -> Tensor")
        for key in rng.sample((*BACKENDS, "Autograd", "AutogradOther", "ADInplaceOrView"), rng.randint(0, 3)):
            library.impl("f", fallthrough if rng.random() < 0.3 else (lambda x: x), key)
        for what, keys in _followed(dispatcher, library, made):
            assert all(each == "fallthrough" or key in ("Meta", *map(str, made.key_set)) for each, key in keys)
            followed[what] += 1
            followed.update(each for each, _ in keys)
    assert followed["ran"] > tried * 2 // 3
    assert followed["kernel"] > tried // 5
    assert followed["fallthrough"] > tried // 60


def test_the_advice_names_the_backend_and_never_a_kernel_above_it() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    library = Library("t", "FRAGMENT", dispatcher=dispatcher)
    library.define("f(Tensor x) -> Tensor")
    with pytest.raises(CallError) as caught:
        operator(dispatcher, "t::f")(tensor([1.0]))
    assert caught.value.message.splitlines()[0] == (
        "t::f has no kernel and no fallthrough for AutogradCPU, where a call for CPU comes before the backend: it has "
        "kernels for no key; this dispatcher is bare, and Dispatcher() starts with the backend fallbacks that PyTorch "
        'has; register lib.impl("f", kernel, "CPU") and lib.impl("f", fallthrough, "AutogradCPU")'
    )


def test_an_excluded_backend_leaves_no_tensor_to_go_by() -> None:
    dispatcher, _held = user_operator("f(Tensor x) -> Tensor", CPU=lambda x: x)
    with ExcludeDispatchKeyGuard(DispatchKey.CPU), pytest.raises(CallError) as caught:
        operator(dispatcher, "t::f")(tensor([1.0]))
    assert caught.value.kind is ErrorKind.NO_TENSOR_ARGUMENTS
