"""What PyTorch does when something is registered twice or in another order, and what a library takes with it.

`python -m tests.live.library_rules` prints the outcome of each rule as JSON. Each runs in a process of its own.
tests/data/library_rules.json has the outcomes of every version.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from typing import Any

NAMESPACE = "library_rules"
NAME = f"{NAMESPACE}::door"
LAST, FIRST = "the last one runs", "the first one runs"
RELEASED, STAYS = "released", "stays"
ABSENT = "not in this version"
ENDS = "undefined: an internal assert, or the end of the process"


class Refused(Exception):
    """PyTorch refuses a registration; the text is what it says."""


def refusal(error: BaseException) -> str:
    """The kind of an error and the first words of what it says, without lines of files."""
    first = (str(error).splitlines() or [""])[0]
    first = re.split(r" at /|\. |\(Previous|; for instance|: This is not allowed", first)[0].rstrip(". ")
    first = re.sub(r"<class '[^']*'>", "Mode", first)
    words = " ".join(first.split()[:12])
    return f"refused, {type(error).__name__}: {words}".rstrip(": ")


def tried(call: Callable[..., object], *arguments: object, **options: object) -> object:
    """Make the registration that the rule is about."""
    try:
        return call(*arguments, **options)
    except Exception as error:
        raise Refused(refusal(error)) from error


def torch_() -> Any:
    """PyTorch, untyped."""
    import torch

    return torch


def library() -> Any:
    """A library of the namespace."""
    return torch_().library.Library(NAMESPACE, "FRAGMENT")


def defined(*kernels: str) -> Any:
    """A library that defines the operator, with a kernel at each of these keys."""
    made = library()
    made.define("door(Tensor x) -> Tensor")
    for key in kernels:
        made.impl("door", lambda x: x.clone(), key)
    return made


def overload() -> Any:
    """The overload of the operator as it is now."""
    return torch_().ops.library_rules.door.default


def size(number: int) -> Callable[..., Any]:
    """A fake implementation that gives this many elements."""
    return lambda x: x.new_empty(number)


def add(number: int) -> Callable[..., Any]:
    """A kernel that adds a number."""
    return lambda x: x + number


def runs(found: float) -> str:
    """Which of two runs, by the number that it gives."""
    return {1: FIRST, 2: LAST}.get(int(found), f"neither runs: {found}")


def fake_that_runs() -> str:
    """Which fake implementation runs on a meta tensor."""
    return runs(overload()(torch_().empty(7, device="meta")).numel())


def value(of: object = None) -> str:
    """Which kernel runs on a tensor of zeros."""
    called = overload() if of is None else of
    return runs(float(called(torch_().zeros(1))))  # type: ignore[operator]


def custom(number: int = 0, name: str = NAME) -> Any:
    """A custom operator that adds a number."""
    torch = torch_()

    def function(x):  # type: ignore[no-untyped-def]
        return x + number

    function.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    return torch.library.custom_op(name, function, mutates_args=())


# -- registered twice, or in another order


def fake_before_def() -> str:
    """`register_fake` before the def."""
    early, made = library(), library()
    tried(torch_().library.register_fake, NAME, size(2), lib=early)
    made.define("door(Tensor x) -> Tensor")
    return fake_that_runs()


def fake_twice() -> str:
    """`register_fake` twice."""
    made = defined("CPU")
    torch_().library.register_fake(NAME, size(1), lib=made)
    tried(torch_().library.register_fake, NAME, size(2), lib=made)
    return fake_that_runs()


def fake_twice_from_two_libraries() -> str:
    """`register_fake` twice, with two libraries."""
    made, other = defined("CPU"), library()
    torch_().library.register_fake(NAME, size(1), lib=made)
    tried(torch_().library.register_fake, NAME, size(2), lib=other)
    return fake_that_runs()


def fake_twice_with_allow_override() -> str:
    """`register_fake` twice, with `allow_override=True`."""
    made, other = defined("CPU"), library()
    torch_().library.register_fake(NAME, size(1), lib=made)
    _needs_option(torch_().library.register_fake, "allow_override")
    tried(torch_().library.register_fake, NAME, size(2), lib=other, allow_override=True)
    return fake_that_runs()


def meta_after_fake() -> str:
    """`impl` at Meta after `register_fake`."""
    made = defined("CPU")
    torch_().library.register_fake(NAME, size(1), lib=made)
    tried(made.impl, "door", size(2), "Meta")
    return fake_that_runs()


def meta_after_fake_from_two_libraries() -> str:
    """`impl` at Meta after `register_fake`, with two libraries."""
    made, other = defined("CPU"), library()
    torch_().library.register_fake(NAME, size(1), lib=made)
    tried(other.impl, "door", size(2), "Meta")
    return fake_that_runs()


def fake_after_meta() -> str:
    """`register_fake` after `impl` at Meta."""
    made = defined("CPU")
    made.impl("door", size(1), "Meta")
    tried(torch_().library.register_fake, NAME, size(2), lib=made)
    return fake_that_runs()


def fake_after_meta_from_two_libraries() -> str:
    """`register_fake` after `impl` at Meta, with two libraries."""
    made, other = defined("CPU"), library()
    made.impl("door", size(1), "Meta")
    tried(torch_().library.register_fake, NAME, size(2), lib=other)
    return fake_that_runs()


def fake_of_a_composite_operator() -> str:
    """`register_fake` of what has a kernel at CompositeImplicitAutograd."""
    made = defined()
    made.impl("door", size(1), "CompositeImplicitAutograd")
    tried(torch_().library.register_fake, NAME, size(2), lib=made)
    return fake_that_runs()


def meta_of_a_composite_operator() -> str:
    """`impl` at Meta of what has a kernel at CompositeImplicitAutograd."""
    made = defined()
    made.impl("door", size(1), "CompositeImplicitAutograd")
    tried(made.impl, "door", size(2), "Meta")
    return fake_that_runs()


def def_twice() -> str:
    """`define` twice, with two libraries."""
    made, other = defined("CPU"), library()
    tried(other.define, "door(Tensor x) -> Tensor")
    return f"accepted by {made and other}"


def kernel_twice_in_one_library() -> str:
    """`impl` twice at one key."""
    made = defined()
    made.impl("door", add(1), "CPU")
    tried(made.impl, "door", add(2), "CPU")
    return value()


def kernel_twice_from_two_libraries() -> str:
    """`impl` twice at one key, with two libraries."""
    made, other = defined(), library()
    made.impl("door", add(1), "CPU")
    tried(other.impl, "door", add(2), "CPU")
    return value()


def kernel_twice_with_allow_override() -> str:
    """`impl` twice at one key, with `allow_override=True`."""
    made = defined()
    made.impl("door", add(1), "CPU")
    _needs_option(made.impl, "allow_override")
    tried(made.impl, "door", add(2), "CPU", allow_override=True)
    return value()


def register_kernel_twice() -> str:
    """`register_kernel` twice."""
    kept = defined()
    _needs("register_kernel")
    torch_().library.register_kernel(NAME, "cpu", add(1))
    tried(torch_().library.register_kernel, NAME, "cpu", add(2))
    return value() if kept else ""


def register_kernel_of_a_custom_op_twice() -> str:
    """`register_kernel` twice, of a custom operator."""
    made = custom()
    _needs("register_kernel")
    torch_().library.register_kernel(NAME, "cpu", add(1))
    tried(torch_().library.register_kernel, NAME, "cpu", add(2))
    return value(made)


def custom_op_twice() -> str:
    """`custom_op` twice."""
    custom(1)
    tried(custom, 2)
    return value()


def custom_op_of_a_name_that_a_library_defined() -> str:
    """`custom_op` after `define`."""
    kept = defined()
    kept.impl("door", add(1), "CPU")
    tried(custom, 2)
    return value()


def def_of_a_name_that_is_a_custom_op() -> str:
    """`define` after `custom_op`."""
    custom(1)
    tried(defined)
    return value()


def fake_of_a_custom_op_twice() -> str:
    """`register_fake` twice, of a custom operator."""
    made = custom()
    torch_().library.register_fake(NAME, size(1))
    tried(torch_().library.register_fake, NAME, size(2))
    return fake_that_runs() if made else ""


def _backward(number: int) -> Callable[..., Any]:
    return lambda context, gradient: gradient * number


def _gradient() -> str:
    x = torch_().zeros(1, requires_grad=True)
    overload()(x).sum().backward()
    return runs(float(x.grad))


def register_autograd_twice() -> str:
    """`register_autograd` twice."""
    kept = defined("CPU")
    torch_().library.register_autograd(NAME, _backward(1))
    tried(torch_().library.register_autograd, NAME, _backward(2))
    return _gradient() if kept else ""


def register_autograd_of_a_custom_op_twice() -> str:
    """`register_autograd` twice, of a custom operator."""
    made = custom(1)
    torch_().library.register_autograd(NAME, _backward(1))
    tried(torch_().library.register_autograd, NAME, _backward(2))
    return _gradient() if made else ""


def _vmap(number: int) -> Callable[..., Any]:
    return lambda info, in_dims, x: (x + number, in_dims[0])


def _vmapped() -> str:
    return runs(float(torch_().vmap(overload())(torch_().zeros(3))[0]))


def register_vmap_twice() -> str:
    """`register_vmap` twice."""
    kept = defined("CPU")
    _needs("register_vmap")
    torch_().library.register_vmap(NAME, _vmap(1))
    tried(torch_().library.register_vmap, NAME, _vmap(2))
    return _vmapped() if kept else ""


def register_vmap_of_a_custom_op_twice() -> str:
    """`register_vmap` twice, of a custom operator."""
    made = custom()
    _needs("register_vmap")
    torch_().library.register_vmap(NAME, _vmap(1))
    tried(torch_().library.register_vmap, NAME, _vmap(2))
    return _vmapped() if made else ""


def _autocast() -> str:
    torch = torch_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = overload()(torch.zeros(1)).dtype
    return {torch.bfloat16: FIRST, torch.float16: LAST}.get(found, f"neither runs: {found}")


def register_autocast_twice() -> str:
    """`register_autocast` twice."""
    torch, kept = torch_(), defined("CPU")
    _needs("register_autocast")
    torch.library.register_autocast(NAME, "cpu", torch.bfloat16)
    tried(torch.library.register_autocast, NAME, "cpu", torch.float16)
    return _autocast() if kept else ""


def register_autocast_of_a_custom_op_twice() -> str:
    """`register_autocast` twice, of a custom operator."""
    torch, made = torch_(), custom()
    _needs("register_autocast")
    torch.library.register_autocast(NAME, "cpu", torch.bfloat16)
    tried(torch.library.register_autocast, NAME, "cpu", torch.float16)
    return _autocast() if made else ""


def _mode() -> Any:
    """A mode that has no rule of its own."""
    modes = __import__("torch.utils._python_dispatch", fromlist=["TorchDispatchMode"])

    class Mode(modes.TorchDispatchMode):  # type: ignore[name-defined, misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    return Mode


def register_torch_dispatch_twice() -> str:
    """`register_torch_dispatch` twice."""
    made, mode = defined("CPU"), _mode()
    _needs("register_torch_dispatch")

    def rule(number: int) -> Callable[..., Any]:
        return lambda mode, func, types, args, kwargs: args[0] + number

    torch_().library.register_torch_dispatch(NAME, mode, rule(1), lib=made)
    tried(torch_().library.register_torch_dispatch, NAME, mode, rule(2), lib=made)
    with mode():
        return value()


def register_decomposition_twice() -> str:
    """`register_decomposition` twice."""
    from torch._decomp import decomposition_table, register_decomposition

    kept, first, last = defined("CPU"), add(1), add(2)
    register_decomposition(overload())(first)
    tried(lambda: register_decomposition(overload())(last))
    return _which(decomposition_table[overload()], first, last) if kept else ""


def _which(found: Any, first: object, last: object) -> str:
    """Which of two functions a table has, below decorators and partials."""
    below, seen = [found], 0
    while seen < len(below) < 200:
        one = below[seen]
        if one is first or one is last:
            return FIRST if one is first else LAST
        seen += 1
        cells = [cell.cell_contents for cell in getattr(one, "__closure__", None) or ()]
        parts = [getattr(one, "func", None), getattr(one, "__wrapped__", None), *getattr(one, "args", ()), *cells]
        below += [part for part in parts if callable(part)]
    return "neither is there"


def py_impl_at_a_key_twice() -> str:
    """`OpOverload.py_impl` twice at one key."""
    made, called = defined("CPU"), overload()
    key = torch_()._C.DispatchKey.Functionalize
    first, last = add(1), add(2)
    called.py_impl(key)(first)
    tried(called.py_impl(key), last)
    return _which(called.py_kernels[key], first, last) if made else ""


def py_impl_for_a_mode_twice() -> str:
    """`OpOverload.py_impl` twice for one mode."""
    made, called, mode = defined("CPU"), overload(), _mode()
    first, last = add(1), add(2)
    called.py_impl(mode)(first)
    tried(called.py_impl(mode), last)
    table = getattr(called, "python_key_table", None) or called.python_key_mode_table
    return _which(table[mode], first, last) if made else ""


def register_op_impl_twice() -> str:
    """`register_op_impl` twice."""
    from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

    made, first, last = defined("CPU"), add(1), add(2)
    register_op_impl(overload())(first)
    tried(lambda: register_op_impl(overload())(last))
    return _which(op_implementations_dict[overload()], first, last) if made else ""


def lowering_twice() -> str:
    """`register_lowering` twice."""
    from torch._inductor.lowering import lowerings, register_lowering

    made, first, last = defined("CPU"), add(1), add(2)
    register_lowering(overload())(first)
    tried(lambda: register_lowering(overload())(last))
    return _which(lowerings[overload()], first, last) if made else ""


def fallback_of_what_is_lowered() -> str:
    """`make_fallback` of what is lowered."""
    from torch._inductor.lowering import fallbacks, lowerings, make_fallback, register_lowering

    made, first = defined("CPU"), add(1)
    register_lowering(overload())(first)
    tried(lambda: make_fallback(overload()))  # type: ignore[no-untyped-call]
    lowered = _which(lowerings[overload()], first, None) == FIRST
    known = "" if overload() in fallbacks else ", not among the fallbacks"
    return ("the lowering runs" if lowered else "the fallback runs") + known if made else ""


def lowering_of_what_is_a_fallback() -> str:
    """`register_lowering` of what is a fallback."""
    from torch._inductor.lowering import fallbacks, lowerings, make_fallback, register_lowering

    made, last = defined("CPU"), add(2)
    make_fallback(overload())  # type: ignore[no-untyped-call]
    tried(lambda: register_lowering(overload())(last))
    lowered = _which(lowerings[overload()], None, last) == LAST
    known = ", still among the fallbacks" if overload() in fallbacks else ""
    return ("the lowering runs" if lowered else "the fallback runs") + known if made else ""


def fallback_of_what_inductor_decomposes() -> str:
    """`make_fallback` of what Inductor decomposes."""
    from torch._inductor.decomposition import register_decomposition
    from torch._inductor.lowering import make_fallback

    made = defined("CPU")
    register_decomposition(overload())(add(1))
    tried(lambda: make_fallback(overload()))  # type: ignore[no-untyped-call]
    return "accepted" if made else ""


def inductor_decomposition_twice() -> str:
    """`register_decomposition` of Inductor twice."""
    from torch._inductor.decomposition import decompositions, register_decomposition

    made, first, last = defined("CPU"), add(1), add(2)
    register_decomposition(overload())(first)
    tried(lambda: register_decomposition(overload())(last))
    return _which(decompositions[overload()], first, last) if made else ""


def register_sharding_twice() -> str:
    """`register_sharding` twice."""
    try:
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError:
        return ABSENT
    made, first, last = defined("CPU"), add(1), add(2)
    register_sharding(overload())(first)
    tried(lambda: register_sharding(overload())(last))
    dispatcher: Any = DTensor._op_dispatcher
    return _which(dispatcher.sharding_propagator.op_strategy_funcs[overload()], first, last) if made else ""


def jagged_function_twice() -> str:
    """`register_jagged_func` twice."""
    from torch.nested._internal.ops import JAGGED_OPS_TABLE, register_jagged_func

    made, first, last = defined("CPU"), add(1), add(2)
    register_jagged_func(overload(), "x: jt_all")(first)
    tried(lambda: register_jagged_func(overload(), "x: jt_all")(last))
    return _which(JAGGED_OPS_TABLE[overload()], first, last) if made else ""


def _higher_order() -> Any:
    operators = __import__("torch._ops", fromlist=["HigherOrderOperator"])

    class Door(operators.HigherOrderOperator):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__("library_rules_door")

        def __call__(self, x: object) -> object:
            return super().__call__(x)

    return Door


def higher_order_operator_twice() -> str:
    """A higher-order operator twice."""
    door = _higher_order()
    first = door()
    last: Any = tried(door)
    return _which(torch_()._ops._higher_order_ops["library_rules_door"], first, last)


def py_impl_of_a_higher_order_operator_twice() -> str:
    """`py_impl` of a higher-order operator twice at one key."""
    made, key, first, last = _higher_order()(), torch_()._C.DispatchKey.CPU, add(1), add(2)
    made.py_impl(key)(first)
    tried(made.py_impl(key), last)
    return _which(made.py_kernels[key], first, last)


def py_impl_of_a_higher_order_operator_for_a_mode_twice() -> str:
    """`py_impl` of a higher-order operator twice for one mode."""
    made, mode, first, last = _higher_order()(), _mode(), add(1), add(2)
    made.py_impl(mode)(first)
    tried(made.py_impl(mode), last)
    table = getattr(made, "python_key_table", None) or made.python_key_mode_table
    return _which(table[mode], first, last)


def fake_of_a_higher_order_operator_twice() -> str:
    """`register_fake` of a higher-order operator twice."""
    from torch._higher_order_ops import utils

    if not hasattr(utils, "registered_hop_fake_fns"):
        return ABSENT
    made, first, last = _higher_order()(), add(1), add(2)
    utils.register_fake(made)(first)
    tried(lambda: utils.register_fake(made)(last))
    return _which(utils.registered_hop_fake_fns[made], first, last)


def effect_twice() -> str:
    """The same effect twice."""
    from torch._higher_order_ops import effects

    made: Any = defined("CPU")
    kinds: Any = effects
    kind = getattr(kinds, "_EffectType", None) or kinds.EffectType
    register = kinds._register_effectful_op
    register(overload(), kind.ORDERED)
    tried(register, overload(), kind.ORDERED)
    return "accepted" if made else ""


# -- what a library takes with it


def _holder() -> Any:
    from torch._library.simple_registry import singleton

    return singleton._data.get(NAME)


def _fakes() -> list[Any]:
    """The functions of the fake implementations that torch.library has for the operator, the newest last."""
    holder = _holder()
    fakes = getattr(holder, "fake_impl", None) or getattr(holder, "abstract_impl", None)
    one = getattr(fakes, "kernel", None)
    return [each.func for each in getattr(fakes, "kernels", None) or ([one] if one is not None else [])]


def _fake_now() -> str:
    if _fakes():
        return STAYS
    return f"{RELEASED}, its entry stays" if _holder() is not None else f"{RELEASED} with its entry"


def release_of_a_fake_and_its_def() -> str:
    """A fake implementation, with its def."""
    made = defined("CPU")
    torch_().library.register_fake(NAME, size(1), lib=made)
    made._destroy()
    return _fake_now()


def release_of_a_fake_of_another_library() -> str:
    """A fake implementation, where the def is another library's."""
    made, other = defined("CPU"), library()
    torch_().library.register_fake(NAME, size(1), lib=other)
    other._destroy()
    return _fake_now() if made else ""


def release_of_the_def_under_a_fake_of_another_library() -> str:
    """A fake implementation of another library, when the def goes."""
    made, other = defined("CPU"), library()
    torch_().library.register_fake(NAME, size(1), lib=other)
    made._destroy()
    return _fake_now() if other else ""


def release_of_a_fake_without_a_library() -> str:
    """A fake implementation without `lib`, when the def goes."""
    made = defined("CPU")
    torch_().library.register_fake(NAME, size(1))
    made._destroy()
    return _fake_now()


def release_of_the_newer_of_two_fakes() -> str:
    """The newer of two fake implementations: then."""
    made, other = defined("CPU"), library()
    torch_().library.register_fake(NAME, size(1), lib=made)
    _needs_option(torch_().library.register_fake, "allow_override")
    torch_().library.register_fake(NAME, size(2), lib=other, allow_override=True)
    other._destroy()
    return fake_that_runs()


def release_of_the_older_of_two_fakes() -> str:
    """The older of two fake implementations: then."""
    made, other, older = library(), library(), library()
    made.define("door(Tensor x) -> Tensor")
    torch_().library.register_fake(NAME, size(1), lib=older)
    _needs_option(torch_().library.register_fake, "allow_override")
    torch_().library.register_fake(NAME, size(2), lib=other, allow_override=True)
    older._destroy()
    return fake_that_runs()


def release_of_a_torch_dispatch_rule() -> str:
    """A `torch_dispatch` rule."""
    made, other, mode = defined("CPU"), library(), _mode()
    _needs("register_torch_dispatch")
    torch_().library.register_torch_dispatch(NAME, mode, lambda *args: None, lib=other)
    other._destroy()
    rules = _holder().torch_dispatch_rules._data
    return (STAYS if rules else RELEASED) if made else ""


def _kernel_now(key: str) -> str:
    return STAYS if torch_()._C._dispatch_has_kernel_for_dispatch_key(NAME, key) else RELEASED


def release_of_an_autograd_formula() -> str:
    """The kernel of `register_autograd`."""
    made, other = defined("CPU"), library()
    torch_().library.register_autograd(NAME, _backward(1), lib=other)
    before = _kernel_now("Autograd")
    other._destroy()
    return _kernel_now("Autograd") if made and before == STAYS else "it made no kernel"


def release_of_a_vmap_rule() -> str:
    """The kernel of `register_vmap`."""
    made, other = defined("CPU"), library()
    _needs("register_vmap")
    torch_().library.register_vmap(NAME, _vmap(1), lib=other)
    before = _kernel_now("FuncTorchBatched")
    other._destroy()
    return _kernel_now("FuncTorchBatched") if made and before == STAYS else "it made no kernel"


def release_of_an_autocast_rule() -> str:
    """The kernel of `register_autocast`."""
    torch, made, other = torch_(), defined("CPU"), library()
    _needs("register_autocast")
    torch.library.register_autocast(NAME, "cpu", torch.bfloat16, lib=other)
    other._destroy()
    left = ", its Python kernel stays" if torch._C.DispatchKey.AutocastCPU in overload().py_kernels else ""
    return _kernel_now("AutocastCPU") + left if made else ""


def release_of_a_kernel_of_another_library() -> str:
    """The kernel of `register_kernel`."""
    made, other = defined(), library()
    _needs("register_kernel")
    torch_().library.register_kernel(NAME, "cpu", add(1), lib=other)
    other._destroy()
    return _kernel_now("CPU") if made else ""


def release_of_a_custom_op() -> str:
    """A custom operator's parts, when its library goes."""
    from torch._library.custom_ops import OPDEFS

    made = custom()
    torch_().library.register_fake(NAME, size(1))
    made._lib._destroy()
    found = OPDEFS.get(NAME)
    return f"its parts {STAYS if found is made else RELEASED}, its fake is {_fake_now()}".replace(
        "parts stays", "parts stay"
    )


def release_of_an_effect() -> str:
    """An effect that its library registered."""
    effects: Any = __import__("torch._higher_order_ops.effects", fromlist=["x"])
    kind = getattr(effects, "_EffectType", None) or effects.EffectType
    made, other = defined("CPU"), library()
    if not hasattr(other, "_register_effectful_op"):
        return ABSENT
    other._register_effectful_op(overload(), kind.ORDERED)
    other._destroy()
    return (RELEASED if _holder().effect._effect is None else STAYS) if made else ""


def release_under_a_decomposition() -> str:
    """A decomposition, when the def goes."""
    from torch._decomp import decomposition_table, register_decomposition

    return _of_the_overload(lambda one: register_decomposition(one)(add(1)), lambda one: one in decomposition_table)


def release_under_a_fake_rule() -> str:
    """A fake-tensor rule, when the def goes."""
    from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

    return _of_the_overload(lambda one: register_op_impl(one)(add(1)), lambda one: one in op_implementations_dict)


def release_under_a_python_kernel() -> str:
    """A Python kernel of `py_impl`, when the def goes."""
    key = torch_()._C.DispatchKey.Functionalize
    return _of_the_overload(lambda one: one.py_impl(key)(add(1)), lambda one: key in one.py_kernels)


def release_under_a_lowering() -> str:
    """A lowering, when the def goes."""
    from torch._inductor.lowering import lowerings, register_lowering

    return _of_the_overload(lambda one: register_lowering(one)(add(1)), lambda one: one in lowerings)


def release_under_a_sharding_rule() -> str:
    """A sharding rule, when the def goes."""
    try:
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError:
        return ABSENT
    dispatcher: Any = DTensor._op_dispatcher
    table = dispatcher.sharding_propagator.op_strategy_funcs
    return _of_the_overload(lambda one: register_sharding(one)(add(1)), lambda one: one in table)


def release_under_a_jagged_function() -> str:
    """A function of jagged tensors, when the def goes."""
    from torch.nested._internal.ops import JAGGED_OPS_TABLE, register_jagged_func

    def register(one: Any) -> object:
        return register_jagged_func(one, "x: jt_all")(add(1))

    return _of_the_overload(register, lambda one: one in JAGGED_OPS_TABLE)


def _of_the_overload(register: Callable[[Any], object], has: Callable[[Any], bool]) -> str:
    """What becomes of something that is kept by the OpOverload when the operator is defined anew."""
    made = defined("CPU")
    old = overload()
    register(old)
    made._destroy()
    left = has(old)
    again = defined("CPU")
    applies = has(overload())
    kept = "of the old OpOverload" if overload() is not old else "of the OpOverload"
    return (
        (f"{STAYS} {kept}, {'applies' if applies else 'does not apply'} to a new def" if left else RELEASED)
        if again
        else ""
    )


def name_in_torch_ops_after_release() -> str:
    """The name below `torch.ops`, when the def goes."""
    made = defined("CPU")
    kept = overload()
    made._destroy()
    return (STAYS if "door" in vars(torch_().ops.library_rules) else RELEASED) if kept is not None else ""


def call_of_a_stale_overload() -> str:
    """A call of an `OpOverload` that was kept, when the def is gone."""
    made = defined("CPU")
    kept = overload()
    made._destroy()
    try:
        kept(torch_().zeros(1))
    except RuntimeError as error:
        return ENDS if "INTERNAL ASSERT FAILED" in str(error) else refusal(error)
    return "runs"


def override_that_is_released() -> str:
    """The newer of two kernels of Python: then."""
    made, other = defined("CPU"), library()
    made.impl("door", add(1), "AutogradCPU")
    options = {"allow_override": True} if _has_option(made.impl, "allow_override") else {}
    tried(other.impl, "door", add(2), "AutogradCPU", **options)
    other._destroy()
    return value()


def override_that_is_released_under_a_mode() -> str:
    """The newer of two kernels of Python, in a call under a mode: then."""
    made, other = defined("CPU"), library()
    made.impl("door", add(1), "AutogradCPU")
    options = {"allow_override": True} if _has_option(made.impl, "allow_override") else {}
    tried(other.impl, "door", add(2), "AutogradCPU", **options)
    other._destroy()
    with _mode()():
        return value()


class Absent(Exception):
    """This version has no such function or option."""


def _needs(name: str) -> None:
    if not hasattr(torch_().library, name):
        raise Absent(name)


def _has_option(function: Callable[..., object], option: str) -> bool:
    code: Any = getattr(function, "__code__", None) or function.__func__.__code__  # type: ignore[attr-defined]
    return option in code.co_varnames


def _needs_option(function: Callable[..., object], option: str) -> None:
    if not _has_option(function, option):
        raise Absent(option)


RULES: dict[str, Callable[[], str]] = {
    rule.__name__: rule
    for rule in (
        fake_before_def,
        fake_twice,
        fake_twice_from_two_libraries,
        fake_twice_with_allow_override,
        meta_after_fake,
        meta_after_fake_from_two_libraries,
        fake_after_meta,
        fake_after_meta_from_two_libraries,
        fake_of_a_composite_operator,
        meta_of_a_composite_operator,
        def_twice,
        kernel_twice_in_one_library,
        kernel_twice_from_two_libraries,
        kernel_twice_with_allow_override,
        register_kernel_twice,
        register_kernel_of_a_custom_op_twice,
        custom_op_twice,
        custom_op_of_a_name_that_a_library_defined,
        def_of_a_name_that_is_a_custom_op,
        fake_of_a_custom_op_twice,
        register_autograd_twice,
        register_autograd_of_a_custom_op_twice,
        register_vmap_twice,
        register_vmap_of_a_custom_op_twice,
        register_autocast_twice,
        register_autocast_of_a_custom_op_twice,
        register_torch_dispatch_twice,
        effect_twice,
        register_decomposition_twice,
        py_impl_at_a_key_twice,
        py_impl_for_a_mode_twice,
        register_op_impl_twice,
        higher_order_operator_twice,
        py_impl_of_a_higher_order_operator_twice,
        py_impl_of_a_higher_order_operator_for_a_mode_twice,
        fake_of_a_higher_order_operator_twice,
        release_of_a_fake_and_its_def,
        release_of_a_fake_of_another_library,
        release_of_the_def_under_a_fake_of_another_library,
        release_of_a_fake_without_a_library,
        release_of_the_newer_of_two_fakes,
        release_of_the_older_of_two_fakes,
        release_of_a_torch_dispatch_rule,
        release_of_an_autograd_formula,
        release_of_a_vmap_rule,
        release_of_an_autocast_rule,
        release_of_a_kernel_of_another_library,
        release_of_a_custom_op,
        release_of_an_effect,
        release_under_a_decomposition,
        release_under_a_fake_rule,
        release_under_a_python_kernel,
        name_in_torch_ops_after_release,
        call_of_a_stale_overload,
        override_that_is_released,
        override_that_is_released_under_a_mode,
    )
}
"""The rules that need nothing but torch."""

MORE_RULES: dict[str, Callable[[], str]] = {
    rule.__name__: rule
    for rule in (
        lowering_twice,
        fallback_of_what_is_lowered,
        lowering_of_what_is_a_fallback,
        fallback_of_what_inductor_decomposes,
        inductor_decomposition_twice,
        release_under_a_lowering,
        register_sharding_twice,
        release_under_a_sharding_rule,
        jagged_function_twice,
        release_under_a_jagged_function,
    )
}
"""The rules that import Inductor, DTensor or jagged tensors."""


def outcome(rule: Callable[[], str]) -> str:
    """What a rule comes to, in this process."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return rule()
    except Refused as error:
        return str(error)
    except Absent:
        return ABSENT


def outcome_apart(rule: Callable[[], str]) -> str:
    """What a rule comes to in a process of its own, which may end as it likes."""
    with tempfile.TemporaryFile("w+") as out:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                text = outcome(rule)
            except BaseException as error:
                text = f"the rule raised {type(error).__name__}: {error}"
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            out.write(text)
            out.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        if os.WIFSIGNALED(status):
            return ENDS
        return out.read()


def outcomes(rules: Iterable[str]) -> dict[str, str]:
    """The outcome of each of these rules."""
    import torch

    torch.set_num_threads(1)
    every = {**RULES, **MORE_RULES}
    wanted = list(rules)
    if any(rule in MORE_RULES for rule in wanted):  # once, and not in each child
        import torch._inductor.decomposition
        import torch._inductor.lowering
        import torch.nested._internal.ops

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                import torch.distributed.tensor
                import torch.distributed.tensor.experimental
            except ImportError:
                pass
    return {rule: outcome_apart(every[rule]) for rule in wanted}


if __name__ == "__main__":
    print(json.dumps(outcomes(sys.argv[1:] or [*RULES, *MORE_RULES]), indent=1))  # noqa: T201
