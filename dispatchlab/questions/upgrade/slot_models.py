"""Models for upgrades: the dispatcher of each registry's PyTorch, and the content of its slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dispatchlab.engine.reference_precedence import Shape, plain_shape
from dispatchlab.engine.semantics import SEMANTICS, Semantics, semantics_named
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import SLOT_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.profile import nearest_profile, version_of
from dispatchlab.model.slot_set import ALL_SLOTS, KEY_OF_BIT, UNDEFINED_SLOT, key_bits, set_bits, slots_of
from dispatchlab.questions.upgrade.operator_changes import Cause, Find, SlotChange
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.model import RecordedFallback, RecordedOperator


@dataclass(frozen=True, slots=True)
class Model:
    """The dispatcher of a registry.

    Args:
        semantics: its semantics.
        note: a sentence if it is not the model of the registry's own PyTorch; else empty.
    """

    semantics: Semantics
    note: str = ""

    @property
    def name(self) -> str:
        """The name that users call."""
        return self.semantics.name


def models_of(before: str, after: str) -> tuple[Model, Model]:
    """Return the models of two registries.

    A scenario gets the model of a registry of PyTorch. Each of two scenarios has its own semantics.

    Args:
        before: the PyTorch of the first one, as in `torch.__version__`; for a scenario, its semantics and its file.
        after: the PyTorch of the second one.
    """
    first, second = _model(before), _model(after)
    own = [SEMANTICS.get(text.partition(" ")[0]) or semantics_named(None) for text in (before, after)]
    return first or second or Model(own[0]), second or first or Model(own[1])


def _model(torch: str) -> Model | None:
    version = version_of(torch)
    if version is None or not torch[:1].isdigit():
        return None
    name = f"torch-{version[0]}.{version[1]}"
    if name in SEMANTICS:
        return Model(SEMANTICS[name])
    nearest = nearest_profile(version)
    note = f"there is no model of PyTorch {torch}: slots are computed by that of {nearest.removeprefix('torch-')}"
    return Model(semantics_named(nearest), note)


_WAYS = {Provenance.KERNEL: Way.DIRECT, Provenance.FALLBACK: Way.FALLBACK, Provenance.AMBIGUOUS: Way.AMBIGUOUS}
MISSING = Find(Way.MISSING)
"""What calls find in a slot that holds no kernel."""

# Note [Why a slot holds something else]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What a slot holds follows from the keys at which the operator has kernels, the backend fallbacks, and the rules of the
# dispatcher. From the first registry to the second there are three steps: its dispatcher, then the fallbacks, then the
# kernels. A slot that differs in the end is put down to the last step that changed it: what an operator's own kernels
# do is reported there, and what is left is reported once for all operators. Slots that only one dispatcher has are
# reported as keys.


class Slots:
    """The slots of one registry.

    Args:
        semantics: its dispatcher.
        fallbacks: its backend fallbacks.
    """

    def __init__(self, semantics: Semantics, fallbacks: Sequence[RecordedFallback]) -> None:
        self.plain = semantics.precedence.plain
        keys = {fallback.key: fallback.fallthrough for fallback in fallbacks if fallback.key in SLOT_OF_KEY}
        self.fallbacks = slots_of(keys), slots_of(key for key, fallthrough in keys.items() if fallthrough)

    def all(self, present: int) -> Mapping[int, Find]:
        """Return the content of each slot, by number, for kernels at these keys."""
        return _by_slot(plain_shape(self.plain, present, *self.fallbacks))


class SlotDifference:
    """Computes the slots in which an operator differs between two registries, once for equal sets of keys.

    Args:
        models: the dispatchers of the two.
        fallbacks: the backend fallbacks of the two.
    """

    def __init__(
        self, models: tuple[Model, Model], fallbacks: tuple[Sequence[RecordedFallback], Sequence[RecordedFallback]]
    ) -> None:
        self.first, self.second = (Slots(model.semantics, side) for model, side in zip(models, fallbacks, strict=True))
        first, second = (slots_of(side.plain.slots) for side in (self.first, self.second))
        self._common = first & second & ~UNDEFINED_SLOT  # which is no key of a call
        self._found = lru_cache(maxsize=1 << 14)(self._difference)

    def __call__(self, old: RecordedOperator, new: RecordedOperator) -> tuple[SlotChange, ...]:
        return self._found(kernel_bits(old), kernel_bits(new))

    def _difference(self, old: int, new: int) -> tuple[SlotChange, ...]:
        """Return why a slot has other content. See Note [Why a slot holds something else]."""
        first, second = self.first, self.second
        start = plain_shape(first.plain, old, *first.fallbacks)
        end = plain_shape(second.plain, new, *second.fallbacks)
        differing = _differing(start, end) & self._common
        if not differing:
            return ()
        steps = (
            start,
            plain_shape(second.plain, old, *first.fallbacks),
            plain_shape(second.plain, old, *second.fallbacks),
            end,
        )
        holds = [_by_slot(step, differing) for step in steps]
        groups: dict[tuple[Cause, Find, Find], list[DispatchKey]] = {}
        for slot in set_bits(differing):
            finds = [each.get(slot, MISSING) for each in holds]
            if finds[0] == finds[3]:  # kernels of one alias key, for another reason
                continue
            if finds[2] != finds[3]:
                cause = Cause.KERNELS
            else:
                cause = Cause.FALLBACKS if finds[1] != finds[2] else Cause.DISPATCHER
            groups.setdefault((cause, finds[0], finds[3]), []).append(SLOT_KEYS[slot])
        return tuple(SlotChange(cause, tuple(sorted(keys)), *pair) for (cause, *pair), keys in groups.items())


def kernel_bits(operator: RecordedOperator) -> int:
    """Return the keys at which an operator has kernels."""
    return key_bits(kernel.key for kernel in operator.kernels)


def _differing(one: Shape, other: Shape) -> int:
    """Return the slots that differ between two tables."""
    bits = 0
    for held in one.keys() | other.keys():
        bits |= one.get(held, 0) ^ other.get(held, 0)
    return bits


def _by_slot(shape: Shape, wanted: int = ALL_SLOTS) -> Mapping[int, Find]:
    found: dict[int, Find] = {}
    for (source, reason), slots in shape.items():
        if slots & wanted:
            way = _WAYS.get(reason, Way.COMPOSITE)
            find = Find(way, KEY_OF_BIT.get(source) if way is Way.COMPOSITE else None)
            found.update(dict.fromkeys(set_bits(slots & wanted), find))
    return found
