"""Certificates: for every operator of a registry, whether the order of its registrations matters, and who owns them.

The proof runs on an engine, in questions/certify/certify_registry.py; here is what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import RecordedKernel, RecordedOperator


class Certified(WordEnum):
    """The knowledge about an operator."""

    ORDER_INDEPENDENT = "order-independent"
    ORDER_DEPENDENT = "order-dependent"
    NOT_DECIDED = "not decided"


class Cause(WordEnum):
    """The reason why the order matters."""

    OVERRIDE = "override"  # two kernels at one key: the newest wins
    STALE = "stale slots"  # a slot is not refreshed when it should be


@dataclass(frozen=True, slots=True)
class Owner:
    """One registration, by its key and its source; a def has no key."""

    key: DispatchKey | None
    debug: str

    def __str__(self) -> str:
        return f"{self.key or 'def'} ({self.debug or 'no debug text'})"


@dataclass(frozen=True, slots=True)
class OrderReason:
    """One way in which the order matters, shown by two sequences that were run.

    Args:
        cause: why.
        keys: the key of an override, or the slots that can be stale.
        winner: for an override, the kernel that the recorded order made active.
        losers: the kernels that it replaced, newest first.
        registrations: what the numbers of the sequences mean.
        expected_sequence: one sequence.
        actual_sequence: another sequence of the same registrations, which leads elsewhere.
        in_force: whether it shows while everything that was recorded is in force; else only when some of it is not.
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
        reasons: why the order matters; empty when it is proved not to.
        not_decided: why nothing is claimed, a sentence; empty otherwise.
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
        registry: what it was called.
        semantics: the semantics that it is about.
        certificates: by operator.
        patterns: operators that differ in names and texts alone are of one pattern.
        neighbourhoods: small sets of registrations that were explored in all orders.
        largest: how many registrations the largest of them has.
        sets: active sets that were visited.
        edges: registrations and releases that were run there.
        registrations: how many registrations the certificates are about, fallbacks included.
        steps: registrations and releases that were run on whole operators to hold the proof to them.
        elapsed_s: seconds.
        selected: how many operators were to be certified.
        interrupted: the work was stopped before the last of them.
        against: the registry whose operators are left out where they are the same; empty when none are.
        left_out: how many operators these are.
        lazy: how many operators more are left out, to which PyTorch alone added something when a part of it was used.
        known: operators whose order matters in that registry already, for the same reasons; they have no certificate.
        replaced: the backend fallbacks that replaced another one; their release is not covered.
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
        """Return the certificates with an order that matters for one cause."""
        return tuple(
            certificate
            for certificate in self.certificates
            if any(reason.cause is cause for reason in certificate.reasons)
        )

    @property
    def exit_code(self) -> int:
        """0 when everything is proved, 1 when the order of something matters, 3 when something is not decided."""
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
        """Return some of the keys with the number of kernels of each."""
        return tuple((key, self.keys.count(key)) for key in sorted(keys))


def pattern_of(operator: RecordedOperator) -> Pattern:
    """Return the pattern of an operator."""
    return Pattern(operator.schema is not None, tuple(kernel.key for kernel in operator.kernels))


def owner_of(kernel: RecordedKernel) -> Owner:
    """Return the owner of the kernel."""
    return Owner(kernel.key, kernel.debug)


def overrides_of(operator: RecordedOperator) -> Iterator[tuple[DispatchKey, Sequence[RecordedKernel]]]:
    """Return the keys of an operator with several kernels, and these, the newest first."""
    for key, group in groupby(operator.kernels, key=lambda kernel: kernel.key):
        kernels = list(group)
        if len(kernels) > 1:
            yield key, kernels


def is_of_custom_op(operator: RecordedOperator, key: DispatchKey, kernels: Sequence[RecordedKernel]) -> bool:
    """Return whether `custom_op` made them; it registers ADInplaceOrView twice if an argument is written."""
    return key is DispatchKey.ADInplaceOrView and {kernel.debug for kernel in kernels} == {operator.debug}
