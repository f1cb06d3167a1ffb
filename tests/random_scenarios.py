"""Random small scenarios for the lab engine: keys that act on one another, fallbacks, blocks, conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.model.registration import (
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    NameOnly,
    Registration,
)
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_inferred, parse_name, parse_schema
from dispatchlab.prover.chains import normal
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.result import Exploration, Verdict

_T = TypeVar("_T")
_KEYS = (
    *(DispatchKey.CPU, DispatchKey.CUDA, DispatchKey.Meta, DispatchKey.PrivateUse1, DispatchKey.Dense),
    *(DispatchKey.AutogradCPU, DispatchKey.AutogradOther, DispatchKey.Autograd, DispatchKey.AutogradPrivateUse1),
    *(DispatchKey.CompositeImplicitAutograd, DispatchKey.CompositeExplicitAutograd),
    *(DispatchKey.CompositeExplicitAutogradNonFunctional, DispatchKey.CompositeImplicitAutogradNestedTensor),
    *(DispatchKey.SparseCPU, DispatchKey.QuantizedCPU, DispatchKey.FPGA, DispatchKey.SparseCsrCPU),
    *(DispatchKey.NestedTensorCPU, DispatchKey.NestedTensorCUDA, DispatchKey.NestedTensor),
    *(DispatchKey.AutogradNestedTensor, DispatchKey.Functionalize, DispatchKey.BackendSelect),
    *(DispatchKey.FuncTorchBatched, DispatchKey.FuncTorchBatchedDecomposition, None),
)
_FALLBACKS = (
    *(DispatchKey.CPU, DispatchKey.AutogradOther, DispatchKey.AutogradCPU, DispatchKey.Autograd),
    *(DispatchKey.Functionalize, DispatchKey.SparseCPU, DispatchKey.AutogradPrivateUse1),
)
_INFERRED = parse_inferred("(Tensor _0) -> Tensor _0"), parse_inferred("(int _0) -> Tensor _0")
SEMANTICS = ("strict", "strict", "torch-2.13", *(bundled_profiles()[at] for at in (0, -1)), "pr35061")


class _Scenario:
    def __init__(self, random: SplitMix64) -> None:
        self.random = random
        self.keys = [self.one(_KEYS) for _ in range(2 + random.below(4))]
        if random.chance(50):
            self.keys.append(DispatchKey.CompositeImplicitAutograd)
        self.operators = ["t::foo"] if random.chance(70) else ["t::foo", "t::bar"]
        self.signatures: Sequence[str | None] = self.one(((None,), (None, "a"), ("a",), ("a", "b", None)))
        none: tuple[FunctionSchema | None, ...] = (None,)
        self.inferred = self.one((none, none, (_INFERRED[0],), (*_INFERRED, None)))

    def one(self, some: Sequence[_T]) -> _T:
        return some[self.random.below(len(some))]

    def impl(self, operator: str) -> Impl:
        inferred = self.one(self.inferred)
        form = KernelForm.UNBOXED if inferred else KernelForm.BOXED
        form = KernelForm.FALLTHROUGH if self.random.chance(10) else form
        kernel = Kernel(form, inferred, self.one(self.signatures), self.random.chance(10))
        return Impl(parse_name(operator), self.one(self.keys), kernel, self.debug)

    @property
    def debug(self) -> str:
        return f"fn_{self.random.below(1 << 30)}"

    def registration(self) -> Registration:
        operator, kind = self.one(self.operators), self.random.below(100)
        if kind < 12:
            schema = self.one(("(Tensor x) -> Tensor", "(Tensor x) -> Tensor", "(Tensor y) -> Tensor"))
            return Def(parse_schema(f"{operator}{schema}"), debug=self.debug)
        if kind < 17:
            return NameOnly(parse_name(operator))
        if kind < 28:
            form = self.one((KernelForm.FALLTHROUGH, KernelForm.BOXED))
            return Fallback(self.one(_FALLBACKS), Kernel(form), self.debug)
        if kind < 31:
            return Claim("t", self.debug)
        if kind < 40:
            inside = tuple(self.impl(self.one(("foo", "t::bar"))) for _ in range(1 + self.random.below(3)))
            return Block("t", BlockKind.IMPL, inside, debug=self.debug)
        if kind < 43:
            inner = (Def(parse_schema("foo(Tensor x) -> Tensor")), self.impl("foo"))
            return Block("t", self.one((BlockKind.FRAGMENT, BlockKind.DEF)), inner, debug=self.debug)
        return self.impl(operator)


class _RefusedScenario(_Scenario):
    """Registrations that are often refused, some of them when part of them is made."""

    def __init__(self, random: SplitMix64) -> None:
        super().__init__(random)
        self.signatures = self.one((("a", "b"), ("a", "b", None), (None,)))

    def registration(self) -> Registration:
        operator, kind = self.one(self.operators), self.random.below(100)
        if kind < 10:
            schema = self.one(("(Tensor x) -> Tensor", "(Tensor y) -> Tensor", _MANY_ARGUMENTS))
            tags = frozenset({"core"}) if self.random.chance(50) else frozenset[str]()
            return Def(parse_schema(f"{operator}{schema}"), debug=self.debug, tags=tags)
        if kind < 20:
            schema = self.one(("(Tensor x) -> Tensor", _MANY_ARGUMENTS))
            kernel = self.impl(operator).kernel
            return Def(parse_schema(f"{operator}{schema}"), debug=self.debug, kernel=kernel, key=self.one(self.keys))
        if kind < 30:
            return Fallback(self.one(_FALLBACKS), Kernel(KernelForm.BOXED), self.debug)
        if kind < 60:
            inside: tuple[Def | Impl, ...] = (self.impl("foo"), self.impl(operator), *self.refused())
            return Block("t", BlockKind.IMPL, inside, debug=self.debug)
        if kind < 70:
            inside = (Def(parse_schema("foo(Tensor x) -> Tensor")), self.impl("foo"), *self.refused())
            return Block("t", self.one((BlockKind.FRAGMENT, BlockKind.DEF)), inside, debug=self.debug)
        if kind < 75:
            fallbacks = tuple(Fallback(self.one(_FALLBACKS), Kernel(KernelForm.BOXED)) for _ in range(2))
            return Block(None, BlockKind.IMPL, fallbacks, debug=self.debug)
        return self.impl(operator)

    def refused(self) -> tuple[Def, ...]:
        """Nothing, or what no block of kernels may hold."""
        return (Def(parse_schema("foo(Tensor x, Tensor y) -> Tensor")),) if self.random.chance(20) else ()


_MANY_ARGUMENTS = f"({', '.join(f'Tensor x{at}' for at in range(70))}) -> Tensor"


def random_scenario(
    seed: int, most: int = 6, *, refused: bool = False
) -> tuple[str, tuple[Registration, ...], tuple[OperatorName, ...], tuple[tuple[int, ...], ...]]:
    """Semantics, registrations, operators and chains to keep, always the same for a seed.

    Args:
        seed: the seed.
        most: at most so many registrations.
        refused: whether most registrations can be refused.
    """
    random = SplitMix64(seed)
    scenario = _RefusedScenario(random) if refused else _Scenario(random)
    count = 2 + random.below(most - 1)
    registrations = distinguished([scenario.registration() for _ in range(count)])
    order = list(range(count))
    random.shuffle(order)
    kept = order[: 2 + random.below(count - 1)] if random.chance(50) else []
    chains = (kept[:2], kept[2:]) if len(kept) > 3 and seed % 2 else (kept,)
    names = tuple(map(parse_name, scenario.operators if random.chance(90) else scenario.operators[:1]))
    return scenario.one(SEMANTICS), registrations, names, normal(chains)


def findings(found: Exploration) -> tuple[object, ...]:
    """What has to be the same whichever reductions are used."""
    example = found.counterexample
    lengths = None if example is None else max(len(example.expected_sequence), len(example.actual_sequence))
    conflicts = {(one.members, one.kind, one.message, one.asymmetric) for one in found.conflicts}
    proved = found.verdict is Verdict.ORDER_INDEPENDENT
    return found.verdict, lengths, conflicts, found.never_accepted if proved else ()
