"""Semantics: the dispatcher that the engine behaves as, in three small records of choices.

`strict` is the commutative engine that the design promises. `torch-2.13` is what PyTorch 2.13 does, its defects
included, so that a run here predicts a run there. `pr35061` is the engine as PR #35061 first proposed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dispatchlab.engine import precedence
from dispatchlab.engine.builtin_fallbacks import BUILTIN_FALLBACKS
from dispatchlab.engine.precedence import Precedence
from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.model.keys import PARSED_BY_TORCH, DispatchKey
from dispatchlab.model.registration import Fallback
from dispatchlab.model.short_repr import member_repr
from dispatchlab.model.slot_set import ALL_SLOTS, KEY_BIT, REFRESH_NEEDED, REFRESH_UPSTREAM


class SignatureLife(Enum):
    """How long the C++ signature of a kernel is held against other kernels."""

    KERNEL = "as long as the kernel is registered"
    OPERATOR = "as long as the operator exists, and even when the kernel is refused"
    NEVER = "signatures are not compared"

    __repr__ = member_repr


@dataclass(frozen=True, slots=True)
class Semantics:
    """The choices that make one dispatcher differ from another.

    Args:
        name: how users call it.
        precedence: which kernel a slot gets, given all that is registered.
        refresh: the slots that are recomputed when the active kernel of a key changes.
        full_refresh_without_key: registering a kernel without a key recomputes every slot.
        catch_all: a kernel without a key goes to a bucket of its own and not to CompositeImplicitAutograd.
        keys: the keys that a registration can name.
        signature_life: see `SignatureLife`.
        refusal_leaves_traces: what a refused registration had already written stays, see Note [Traces of a refusal].
        tags_outlive_def: the tags of a def stay when it goes.
        fallback_without_slot: a fallback at a functionality key such as `Dense` is accepted, and serves nobody.
        kernels_in_wildcard_block: an IMPL library of the namespace `_` can hold kernels of qualified operators.
        several_defs: an operator can be defined again by an equal schema; the alias kinds are merged.
        schema_2020: dumps print schemas as 2020 did, `-> (Tensor)`, and no `debug:` line.
        warn_each_override: warn of every override of a kernel, not only of the first in a process.
        fallbacks: the backend fallbacks that a scenario finds before it registers anything.
    """

    name: str
    precedence: Precedence
    refresh: Mapping[DispatchKey, int]
    full_refresh_without_key: bool = False
    catch_all: bool = False
    keys: frozenset[DispatchKey] = frozenset(DispatchKey)
    signature_life: SignatureLife = SignatureLife.KERNEL
    refusal_leaves_traces: bool = False
    tags_outlive_def: bool = False
    fallback_without_slot: bool = False
    kernels_in_wildcard_block: bool = True
    several_defs: bool = False
    schema_2020: bool = False
    warn_each_override: bool = True
    fallbacks: tuple[Fallback, ...] = ()

    def __repr__(self) -> str:
        return f"<Semantics {self.name}>"

    @property
    def is_atomic(self) -> bool:
        """A registration that is made of several comes as a whole or not at all."""
        return not self.refusal_leaves_traces


STRICT = Semantics("strict", precedence.TORCH_2_13, REFRESH_NEEDED)

TORCH_2_13 = Semantics(
    "torch-2.13",
    precedence.TORCH_2_13,
    REFRESH_UPSTREAM,
    full_refresh_without_key=True,
    keys=PARSED_BY_TORCH,
    signature_life=SignatureLife.OPERATOR,
    refusal_leaves_traces=True,
    tags_outlive_def=True,
    fallback_without_slot=True,
    kernels_in_wildcard_block=False,
    warn_each_override=False,
    fallbacks=BUILTIN_FALLBACKS,
)

PR35061 = Semantics(
    "pr35061",
    precedence.PR35061,
    {key: KEY_BIT[key] & ALL_SLOTS for key in DispatchKey},
    catch_all=True,
    keys=frozenset(key for key in DispatchKey if not key.is_alias),
    signature_life=SignatureLife.NEVER,
    several_defs=True,
    schema_2020=True,
)

SEMANTICS: Mapping[str, Semantics] = {semantics.name: semantics for semantics in (STRICT, TORCH_2_13, PR35061)}
"""All of them, by name."""


class UnknownSemanticsError(DispatchLabError):
    """No semantics has this name."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        known = ", ".join(SEMANTICS)
        return f"unknown semantics {self.text!r}: expected one of {known}{did_you_mean(self.text, SEMANTICS)}"


def semantics_named(name: str) -> Semantics:
    """The semantics with this name; raises UnknownSemanticsError."""
    try:
        return SEMANTICS[name]
    except KeyError:
        raise UnknownSemanticsError(name) from None
