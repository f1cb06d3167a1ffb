"""Histories: registrations of several operators and the steps that register and release them, taken on any engine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import RegistrationError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import format_sequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.protocol import Engine, Handle


def with_keys_as_text(model: Semantics) -> Semantics:
    """A model for histories, which are recorded by bindings that are given keys as text."""
    return replace(model, keys=model.parsed)


@dataclass(frozen=True, slots=True)
class History:
    """What happens to one fresh dispatcher.

    Args:
        registrations: what the steps register and release.
        steps: `i` registers the registration with that number, `~i` releases it.
    """

    registrations: tuple[Registration, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What an engine shows after a step.

    Args:
        refused: the kind of the refusal; empty when the step was accepted.
        facts: what the refusal says of it.
        snapshots: each operator.
    """

    refused: str
    facts: tuple[tuple[str, str], ...]
    snapshots: tuple[Snapshot, ...]


def take(engine: Engine, history: History, operators: Sequence[OperatorName]) -> Iterator[Seen]:
    """Take the steps on a fresh dispatcher. The release of a registration that was refused does nothing."""
    handles: dict[int, Handle] = {}
    with engine.sandbox() as sandbox, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kernels override each other
        for step in history.steps:
            refused, facts = "", {}
            try:
                if step >= 0:
                    handles[step] = sandbox.register(history.registrations[step])
                elif ~step in handles:
                    handles.pop(~step).release()
            except RegistrationError as error:
                refused, facts = error.kind.name, dict(error.facts)
            yield Seen(refused, tuple(sorted(facts.items())), tuple(map(sandbox.snapshot, operators)))


# Note [Fallthroughs in memory]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# All fallthrough kernels of PyTorch are one object, so a stale slot that holds one fallthrough where the table computes
# another cannot be seen to be stale. Where PyTorch shows the fallthrough of the table, the model may show another one.


def first_difference(history: History, live: Sequence[Seen], model: Iterator[Seen]) -> str:
    """Where PyTorch and a model differ first, after how many steps and in what; empty when they do not."""
    for count, (one, other) in enumerate(zip(live, model, strict=True), 1):
        what = _difference(one, other)
        if what:
            return f"after {format_sequence(history.steps[:count])}: {what}"
    return ""


_BY_CHANCE = {"inferred_debug", "inferred_schema", "reason"}
"""What a refusal says of the kernel that it names: of several that do not fit, that is up to addresses."""


def _difference(one: Seen, other: Seen) -> str:
    if one.refused != other.refused:
        return f"{one.refused or 'accepted'}, and {other.refused or 'accepted'}"
    said, meant = dict(one.facts), dict(other.facts)
    names_another = said.get("inferred_debug") != meant.get("inferred_debug")
    for name in sorted((said.keys() & meant.keys()) - (_BY_CHANCE if names_another else set())):
        if said[name] != meant[name]:
            return f"{name} of the refusal: {said[name]!r}, and {meant[name]!r}"
    for before, shown in zip(one.snapshots, other.snapshots, strict=True):
        after = _as_in_memory(before, shown)
        for (title, text), (_, wanted) in zip(before.sections(), after.sections(), strict=True):
            if text != wanted:
                lost, new = text.splitlines(), wanted.splitlines()
                only = [line for line in lost if line not in new][:3], [line for line in new if line not in lost][:3]
                return f"{title} of {before.operator}: {only[0]}, and {only[1]}"
    return ""


def _as_in_memory(live: Snapshot, model: Snapshot) -> Snapshot:
    """The model's snapshot with the fallthroughs that memory cannot distinguish. See Note [Fallthroughs in memory]."""
    if live.slots == model.slots or live.slots is None or model.slots is None:
        return model
    seen, computed = (dict(line.split(": ", 1) for line in text.splitlines()) for text in (live.slots, live.table))
    lines = []
    for line in model.slots.splitlines():
        key, _, text = line.partition(": ")
        alike = text.startswith("fallthrough ") and seen.get(key, "").startswith("fallthrough ")
        lines.append(f"{key}: {seen[key]}" if alike and seen[key] == computed.get(key) else line)
    return replace(model, slots="".join(f"{line}\n" for line in lines))
