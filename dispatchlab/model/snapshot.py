"""Snapshots: the observable state of one operator at one moment, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.names import OperatorName


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal in a form that two orders can compare.

    Args:
        kind: why.
        facts: the facts behind the refusal, sorted by name.
        message: the engine's sentence.
    """

    kind: ErrorKind
    facts: tuple[tuple[str, str], ...]
    message: str

    @classmethod
    def of(cls, error: RegistrationError) -> Refusal:
        """Return the refusal of an error."""
        return cls(error.kind, tuple(sorted(error.facts.items())), error.message)


NOTHING_REGISTERED = "nothing is registered for"
"""What is said of an operator that does not exist, before its name."""

TABLES = ("table", "slots that calls use")
"""The titles of the sections that hold a row for each runtime key."""


def main_key(keys: Sequence[str]) -> str:
    """Return the key that most calls use."""
    return next((key for key in ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA") if key in keys), keys[0])


def stale_slots_text(keys: Sequence[str], held: Callable[[str], str], wanted: Callable[[str], str]) -> str:
    """Return the present and the expected content of a stale slot that most calls use, and the other stale slots.

    Args:
        keys: the keys of the stale slots.
        held: returns the content of a slot; may be empty.
        wanted: returns the expected content of a slot; may be empty.
    """
    first = main_key(keys)
    others = [key for key in keys if key != first]
    more = f" (with {', '.join(others[:3])}{', ...' * (len(others) > 3)}: {len(keys)} slots)" if others else ""
    return f"the slot of {first} holds {held(first) or 'nothing'} and should hold {wanted(first) or 'nothing'}{more}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One operator as an engine shows it; texts, so that any two engines can be compared.

    Args:
        operator: the operator looked at.
        dump: what was registered (upstream's `dumpState`), empty when there is no such operator.
        table: the computed table (upstream's `dumpComputedTable`), a line for each row.
        slots: what calls really use, in the same form as `table`; None when the engine cannot read them. `table` is
            recomputed when it is asked for and cannot show a slot that went stale; this can.
        schema: what `find_schema` gives, None when there is none.
        dangling: the operator has kernels and no schema, so `find_dangling_impls` lists it.
        python: what Python keeps for the operator in registries of its own, a line for each entry.
    """

    operator: OperatorName
    dump: str
    table: str
    slots: str | None = None
    schema: str | None = None
    dangling: bool = False
    python: str = ""

    @classmethod
    def of_no_operator(cls, operator: OperatorName) -> Snapshot:
        """Return the snapshot of an operator without registrations."""
        return cls(operator, "", "", "")

    @property
    def exists(self) -> bool:
        """True when anything is registered for the operator, so that `find_op` finds it."""
        return self.dump != ""

    def sections(self) -> tuple[tuple[str, str], ...]:
        """Return all parts of a snapshot as titled texts, in the reader's order."""
        look_up = "found" if self.exists else "not found"
        found = f"operator: {look_up}\nschema: {self.schema or 'none'}\ndangling: {'yes' if self.dangling else 'no'}\n"
        return (
            ("dump", self.dump),
            (TABLES[0], self.table),
            (TABLES[1], "" if self.slots is None else self.slots),
            ("look-up", found),
            ("Python", self.python),
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant of the dispatcher that does not hold for an operator.

    Args:
        operator: the operator.
        rule: the invariant, as a short name that is always the same.
        detail: what was found and what was wanted.
        keys: the runtime keys concerned, by name.
    """

    operator: OperatorName
    rule: str
    detail: str
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.operator}: {self.rule}: {self.detail}"
