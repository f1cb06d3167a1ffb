"""What is known of each mode that a call can be explained under, whatever the call: one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dispatchlab.call.tensor_keys import AUTOGRAD_KEYS
from dispatchlab.call.transform_rules import FUNCTIONALIZE, GRAD, VMAP, TransformKeys
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import AUTOCAST_KEYS
from dispatchlab.model.python_layer import Mode
from dispatchlab.questions.explain.kernel_rules import BACK, FRONT
from dispatchlab.questions.explain.result import EMPTY


class Option(NamedTuple):
    """A compiler of torch.compile, or a table of decompositions of make_fx.

    Args:
        title: what it is called.
        registries: the registries of Python that it is made of.
        imports: the modules that it imports before it runs anything, which fill them.
    """

    title: str = ""
    registries: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()


NO_OPTION = Option()
"""That of a mode that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFacts:
    """What is known of a mode.

    Args:
        title: what it is called, where `{option}` stands for the title of its option.
        registries: the registries of Python without which nothing can be said of it.
        imports: the modules that it imports before it runs anything, which fill them.
        options: its options by their names.
        reached: what ends the hops of a call that reaches it.
        python_dispatcher: whether it turns the Python dispatcher on; make_fx does when sizes are symbolic.
        transform: the transform of functorch that it is.
        keys: of a mode that a call goes through by keys of its own: these.
        composite: what it sees of a composite kernel at one of them.
        passed: why a call passes it by.
        note: what holds for every call in it.
    """

    title: str
    registries: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    reached: str = ""
    python_dispatcher: bool = False
    transform: TransformKeys | None = None
    keys: DispatchKeySet = EMPTY
    composite: str = ""
    passed: str = ""
    note: str = ""


_INDUCTOR = ("decompositions", "inductor_decompositions")
_AOT_AUTOGRAD = "the kernel of Python calls the modes of AOTAutograd with the operator"

MODES: Mapping[Mode, ModeFacts] = {
    "fake": ModeFacts(
        title="under FakeTensorMode",
        registries=(
            "decompositions",
            "meta_functions",
            "fake_rules",
            "fake_checks",
            "fast_fake_rules",
            "torch_library",
        ),
        reached="the kernel of Python calls FakeTensorMode.__torch_dispatch__ with the operator",
    ),
    "make_fx": ModeFacts(
        title="under make_fx with {option}",
        registries=("py_kernels",),
        options={
            "none": Option("no decompositions"),
            "core_aten": Option("the decompositions to core ATen", ("export_decompositions",)),
            "inductor": Option("the decompositions of Inductor", _INDUCTOR, ("torch._inductor.decomposition",)),
            "all": Option("all decompositions after autograd", ("decompositions",)),
            "pre_autograd": Option("the decompositions before autograd", ("decompositions",)),
        },
        reached="the kernel of Python calls the mode of make_fx with the operator",
    ),
    "compile": ModeFacts(
        title="under torch.compile with {option}",
        registries=("py_kernels", "aot_decompositions"),
        options={
            "inductor": Option(
                "Inductor",
                (*_INDUCTOR, "inductor_lowerings"),
                ("torch._inductor.decomposition", "torch._inductor.lowering"),
            ),
            "aot_eager": Option("aot_eager", imports=("torch._functorch.aot_autograd",)),
        },
        reached=_AOT_AUTOGRAD,
        python_dispatcher=True,
    ),
    "export": ModeFacts(
        title="under torch.export",
        registries=("py_kernels", "aot_decompositions", "export_decompositions"),
        imports=("torch._functorch.aot_autograd",),
        reached=_AOT_AUTOGRAD,
        python_dispatcher=True,
    ),
    "dtensor": ModeFacts(
        title="with DTensors",
        registries=("py_kernels", "decompositions", "dtensor_rules", "dtensor_handlers"),
        imports=("torch.distributed.tensor",),
        reached="the kernel of Python calls DTensor with the operator",
    ),
    "functionalize": ModeFacts(
        title="inside of torch.func.functionalize",
        transform=FUNCTIONALIZE,
        keys=FUNCTIONALIZE.entered,
        composite="it is composite: functionalize sees the operators that it calls",
        passed="the key Functionalize falls through, so the call passes functionalize by",
        note="remove='mutations', the default, leaves views as they are; 'mutations_and_views' makes copies of them",
    ),
    "grad": ModeFacts(
        title="inside of torch.func.grad",
        transform=GRAD,
        keys=AUTOGRAD_KEYS,
        composite="it is composite: grad sees the operators that it calls, and records those",
        passed="the operator has no autograd kernel, so nothing is recorded",
        note="vjp, jacrev and grad_and_value take the same hops; so do jvp and jacfwd, where the autograd kernel "
        "computes the tangent instead of recording; for a second order, with a grad inside of another, the call goes "
        f"from {BACK} to {FRONT} again and through the same keys for the outer one",
    ),
    "vmap": ModeFacts(
        title="inside of torch.func.vmap",
        transform=VMAP,
        keys=VMAP.entered | VMAP.also_included,
        passed="no argument is batched, so the call passes vmap by",
        note="every tensor is taken to be batched, by in_dims; a call with no batched tensor passes vmap by; with "
        "chunk_size each chunk takes these hops",
    ),
    "autocast": ModeFacts(
        title="inside of torch.autocast",
        keys=DispatchKeySet.of(*AUTOCAST_KEYS),
        passed="there is no autocast for the device of the call, so nothing is cast",
    ),
}
