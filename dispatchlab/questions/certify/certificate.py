"""Certificates: for each operator of a registry, whether the order of its registrations matters, and their sources.

The proof runs on an engine, in questions/certify/certify_registry.py. This module has its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import RecordedKernel, RecordedOperator


class Certified(WordEnum):
    """The verdict about an operator."""

    ORDER_INDEPENDENT = "order-independent"
    ORDER_DEPENDENT = "order-dependent"
    NOT_DECIDED = "not decided"


class Cause(WordEnum):
    """The reason why the order matters."""

    OVERRIDE = "override"  # two kernels at one key: the newest wins
    STALE = "stale slots"  # a slot is not refreshed when it should be


@dataclass(frozen=True, slots=True)
class Owner:
    """The key and the source of one registration; a def has no key."""

    key: DispatchKey | None
    debug: str

    def __str__(self) -> str:
        return f"{self.key or 'def'} ({self.debug or 'no debug text'})"


@dataclass(frozen=True, slots=True)
class OrderReason:
    """One reason why the order matters, with two sequences that were run and show it.

    Args:
        cause: the reason.
        keys: the key of an overridden kernel, or the slots that can be stale.
        winner: for an overridden kernel, the kernel that the recorded order made active.
        losers: the kernels that it replaced, newest first.
        registrations: the registrations that the sequences number.
        expected_sequence: one sequence.
        actual_sequence: another sequence of the same registrations, which leads to another state.
        in_force: whether the difference shows while all recorded registrations are active; else only after a release.
    """

    cause: Cause
    keys: tuple[DispatchKey, ...]
    registrations: tuple[Owner, ...]
    expected_sequence: tuple[int, ...]
    actual_sequence: tuple[int, ...]
    winner: Owner | None = None
    losers: tuple[Owner, ...] = ()
    in_force: bool = True


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of one operator.

    Args:
        operator: its name.
        verdict: see `Certified`.
        pattern: the number of its pattern.
        reasons: why the order matters; empty if it is proved that the order does not matter.
        not_decided: a sentence that says why there is no verdict; empty if there is one.
    """

    operator: str
    verdict: Certified
    pattern: int
    reasons: tuple[OrderReason, ...] = ()
    not_decided: str = ""


@dataclass(frozen=True, slots=True)
class Certification:
    """The certificates of a registry, and the amount of work for them.

    Args:
        registry: its name in output.
        semantics: the semantics of the proof.
        certificates: by operator.
        patterns: the number of patterns; operators that differ only in names and texts have the same pattern.
        neighbourhoods: small sets of registrations that were explored in all orders.
        largest: the number of registrations in the largest neighbourhood.
        sets: active sets that were visited.
        edges: registrations and releases that were run in them.
        registrations: the number of certified registrations, including fallbacks.
        steps: registrations and releases that were run on whole operators to check the proof.
        elapsed_s: seconds.
        selected: the number of selected operators.
        interrupted: whether the work was stopped before the last operator.
        against: the registry whose equal operators are left out; empty if no operators are left out.
        left_out: the number of these operators.
        lazy: the number of operators that are left out because PyTorch itself added to them when a part was used.
        known: operators whose order also matters in that registry, for the same reasons; they have no certificate.
        replaced: the backend fallbacks that replaced another fallback; the proof does not cover their release.
        unknown: the backend fallbacks at keys that these semantics do not have; they are left out.
    """

    registry: str
    semantics: str
    certificates: tuple[Certificate, ...]
    patterns: int
    neighbourhoods: int
    largest: int
    sets: int
    edges: int
    registrations: int
    steps: int
    elapsed_s: float = field(default=0.0, compare=False)
    selected: int = 0
    interrupted: bool = False
    against: str = ""
    left_out: int = 0
    lazy: int = 0
    known: tuple[str, ...] = ()
    replaced: tuple[Owner, ...] = ()
    unknown: tuple[Owner, ...] = ()

    def of(self, verdict: Certified) -> tuple[Certificate, ...]:
        """Return the certificates with one verdict."""
        return tuple(certificate for certificate in self.certificates if certificate.verdict is verdict)

    def because(self, cause: Cause) -> tuple[Certificate, ...]:
        """Return the certificates of operators whose order matters because of one cause."""
        return tuple(
            certificate
            for certificate in self.certificates
            if any(reason.cause is cause for reason in certificate.reasons)
        )

    @property
    def exit_code(self) -> int:
        """0 if all operators are proved, 1 if the order of an operator matters, 3 if an operator is not decided."""
        if self.of(Certified.NOT_DECIDED):
            return 3
        return 1 if self.of(Certified.ORDER_DEPENDENT) else 0


@dataclass(frozen=True, slots=True, order=True)
class Pattern:
    """An operator without its names and texts: whether it has a def, and the key of each kernel."""

    defined: bool
    keys: tuple[DispatchKey, ...]

    @property
    def kernel_keys(self) -> frozenset[DispatchKey]:
        """The keys that have kernels."""
        return frozenset(self.keys)

    def counted(self, keys: frozenset[DispatchKey]) -> tuple[tuple[DispatchKey, int], ...]:
        """Return some keys with the number of kernels of each key."""
        return tuple((key, self.keys.count(key)) for key in sorted(keys))


def pattern_of(operator: RecordedOperator) -> Pattern:
    """Return the pattern of an operator."""
    return Pattern(operator.schema is not None, tuple(kernel.key for kernel in operator.kernels))


def owner_of(kernel: RecordedKernel) -> Owner:
    """Return the owner of the kernel."""
    return Owner(kernel.key, kernel.debug)


def overrides_of(operator: RecordedOperator) -> Iterator[tuple[DispatchKey, Sequence[RecordedKernel]]]:
    """Return the keys of an operator with several kernels, and these kernels, the newest first."""
    for key, group in groupby(operator.kernels, key=lambda kernel: kernel.key):
        kernels = list(group)
        if len(kernels) > 1:
            yield key, kernels


def is_of_custom_op(operator: RecordedOperator, key: DispatchKey, kernels: Sequence[RecordedKernel]) -> bool:
    """Return whether `custom_op` made these kernels; it registers ADInplaceOrView twice if an argument is written."""
    return key is DispatchKey.ADInplaceOrView and {kernel.debug for kernel in kernels} == {operator.debug}
