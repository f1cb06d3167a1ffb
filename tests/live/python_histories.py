"""Random sequences of registrations of Python on the lab engine and on the running PyTorch, step by step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.lifetimes import Lifetimes
from dispatchlab.model.python_layer import (
    ASSIGNMENT,
    NO_CALL_OF_ITS_OWN,
    PYTHON_REGISTRIES,
    PythonRegistration,
)
from dispatchlab.model.registration import Def, Impl, PythonImpl, Registration, with_defs_needed
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.run_sequence import SandboxSession
from dispatchlab.scenario.scenario import operators_named_by

KEYS = {
    "py_kernels": ("Autograd", "CPU", "CompositeImplicitAutograd", "Functionalize"),
    "mode_rules": ("street.Mode", "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode"),
    "decompositions": ("post_autograd", "pre_autograd"),
    "higher_order": ("CPU", "street.Mode", "functorch Vmap", ""),
    "dtensor_rules": ("rule", "strategy"),
}
"""Keys of registries that have more than one entry for an operator."""


REGISTRIES = tuple(
    each.name for each in PYTHON_REGISTRIES if each.rule is not None and each.name not in NO_CALL_OF_ITS_OWN
)
"""The registries that are explored live."""

DEFINED, GIVEN, HIGHER = ("test::door", "test::gate.Tensor"), ("given::door",), ("higher_order::walk",)
"""Operators that are defined, an operator that is there already, and one that Python alone knows."""

OF_PYTORCH = {
    "inductor_lowerings": ("aten::relu", "python::math.ceil"),
    "inductor_user_lowerings": ("aten::relu",),
    "inductor_constraints": ("aten::relu",),
    "dtensor_handlers": ("aten::relu",),
    "jagged": ("aten::relu",),
}
"""Operators and functions of PyTorch and Python, in registries where PyTorch takes any number of registrations."""


class Difference(NamedTuple):
    """Where the two sides differ: the steps so far, what each of the sides shows."""

    sequence: StepSequence
    registrations: tuple[Registration, ...]
    lab: object
    live: object

    def __str__(self) -> str:
        named = "".join(f"\n  {number}: {one!r}" for number, one in enumerate(self.registrations))
        return f"after {format_sequence(self.sequence)}\n lab:  {self.lab}\n live: {self.live}{named}"


def registrations(numbers: random.Random) -> tuple[Registration, ...]:
    """Registrations of one history: defs, some of them twice, impls, and much in Python, often in one slot."""
    found: list[Registration] = []
    for number, operator in enumerate(DEFINED):
        schema = parse_schema(f"{operator}(Tensor x) -> Tensor")
        for again in range(numbers.randint(0 if number else 1, 2)):
            found.append(Def(schema, debug=f"def {number} {again}"))
        if numbers.random() < 0.5:
            found.append(Impl(schema.name, DispatchKey.CPU, debug=f"impl {number}"))
    registries = numbers.sample(REGISTRIES, 4)
    if "inductor_fallbacks" in registries or "inductor_decompositions" in registries:
        registries += ["inductor_fallbacks", "inductor_decompositions"]
    for number in range(numbers.randint(3, 8)):
        registry = numbers.choice(registries)
        if registry.startswith("higher_order"):
            operator = HIGHER[0]
        else:
            operator = numbers.choice((*DEFINED, DEFINED[0], *GIVEN, *OF_PYTORCH.get(registry, ())))
        key = numbers.choice(KEYS.get(registry, ("",)))
        one = PythonRegistration(registry, operator, key, f"street:function_{number}")
        how = numbers.random()
        if how < 0.1:
            one = one._replace(call=ASSIGNMENT)
        elif how < 0.2 and operator not in OF_PYTORCH.get(registry, ()):  # what PyTorch has is not in the lab
            one = one._replace(effect="removed", function="")
        found.append(PythonImpl(one))
    numbers.shuffle(found)
    return with_defs_needed(found)


def compare(
    lab: Engine, live: Engine, of: Sequence[Registration], numbers: random.Random, steps: int
) -> Difference | None:
    """Run one history on both engines; where they differ for the first time, or None."""
    operators = operators_named_by(of)
    lifetimes, active = Lifetimes.of(of), 0
    done: list[int] = []
    with lab.sandbox() as left, live.sandbox() as right:
        sessions = [SandboxSession(sandbox, of, operators) for sandbox in (left, right)]
        for _ in range(steps):
            inactive = [index for index in range(len(of)) if not active >> index & 1]
            releasable = lifetimes.released(index for index in range(len(of)) if active >> index & 1)
            if releasable and (not inactive or numbers.random() < 0.3):
                step = ~numbers.choice(releasable)
            elif inactive:
                step = numbers.choice(inactive)
            else:
                break
            done.append(step)
            refusals = [each.release(~step) if step < 0 else each.register(step) for each in sessions]
            shown = [_shown(refusal) for refusal in refusals]
            if shown[0] != shown[1]:
                return Difference(tuple(done), tuple(of), *shown)
            looks = [[_look(each) for each in session.look()[0]] for session in sessions]
            if looks[0] != looks[1]:
                return Difference(tuple(done), tuple(of), *looks)
            if refusals[0] is None:
                active = lifetimes.after_release(active, ~step) if step < 0 else active | 1 << step
    return None


def _shown(refusal: Refusal | None) -> object:
    """What two engines agree on: the kind, and what the decision was made from."""
    return None if refusal is None else (refusal.kind, refusal.facts)


def _look(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, slots=None)
