"""What an upgrade asks of a backend for one program: which operators of its calls have to be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.measured import installed_torch
from dispatchlab.questions.upgrade.operator_changes import Find, schema_change
from dispatchlab.questions.upgrade.slot_models import Model, SlotDifference, kernel_bits
from dispatchlab.records.backend_coverage import Way, runtime_key
from dispatchlab.records.model import Recorded, RecordedOperator
from dispatchlab.records.ownership import ownership_of


class Work(WordEnum):
    """What a backend has to do for an operator."""

    IMPLEMENT = "implement"  # calls find nothing now
    SCHEMA = "schema"  # its kernel gets other arguments
    REMOVED = "removed"  # it is gone


@dataclass(frozen=True, slots=True)
class Task:
    """An operator of a program's calls that has to be looked at.

    Args:
        operator: its name.
        work: what is to be done.
        why: what calls found, what differs in the schema, or which new operator has the schema of one that is gone.
        schema: its schema, in the second registry where that has it.
    """

    operator: str
    work: Work
    why: str
    schema: str


@dataclass(frozen=True, slots=True)
class ProgramUpgrade:
    """What an upgrade asks of a backend for one program.

    Args:
        program: its file.
        key: the key of the backend.
        device: what the program calls it.
        torch: the PyTorch on which its calls were traced; what the second one calls in other ways is not seen.
        error: what the program raised, so that what follows is not seen; empty when it came to its end.
        called: how many operators have calls that reach the device or lead there.
        reached: how many have calls that reach it.
        tasks: what is to be done.
    """

    program: str
    key: DispatchKey
    device: str
    torch: str
    error: str
    called: int
    reached: int
    tasks: tuple[Task, ...]


def program_upgrade(
    before: Recorded, after: Recorded, models: tuple[Model, Model], key: str, program: str, *, device: str = ""
) -> ProgramUpgrade:
    """Run a program on a device that stands in for a backend, and ask what changes for its calls.

    The backend's kernels and its fallback, which the first registry has, are taken to be registered with the second
    PyTorch as well.

    Args:
        before: the first registry, with the kernels of the backend.
        after: the second.
        models: the dispatchers that they are read under.
        key: the name of its key, or the name that a package gave PrivateUse1.
        program: the file.
        device: what the program calls the device; the name that the registry has for it when empty.

    Raises:
        NoStandInError: the key is not PrivateUse1.
        StandInError: the installed PyTorch cannot stand in for a device.
        TorchMissingError: PyTorch is not installed.
        UnknownKeyError: there is no such key.
    """
    from dispatchlab.pytorch.registry import backend_of, live_program  # which starts processes

    row = runtime_key(key, privateuse1=before.privateuse1 or after.privateuse1)
    backend = backend_of(before, row, device=device)
    run = live_program(program, backend, "above")
    reached = {operator for operator, _ in run.calls}
    called = [name for name in sorted(reached | {*run.above}) if _is_in(before, name) or _is_in(after, name)]
    slots = SlotDifference(models, (before.fallbacks, after.fallbacks))
    own = ownership_of(before)

    def tasks(name: str) -> Iterator[Task]:
        old, new = before.operator(name), after.operator(name)
        if new is None or new.schema is None:
            yield Task(name, Work.REMOVED, _renamed(old, before, after), (old and old.schema) or "")
            return
        kernel = None if old is None else old.active_at(row)
        if old is None or kernel is None or own.is_own_kernel(old, kernel):  # none of the backend's
            found = Find(Way.MISSING) if old is None else slots.first.find(kernel_bits(old), row)
            now = slots.second.find(kernel_bits(new), row)
            if now.way not in _SERVED and (old is None or found.way in _SERVED):
                was = "it is new" if old is None else f"calls found {found.source or row}"
                yield Task(
                    name,
                    Work.IMPLEMENT,
                    f"{was}, and {'the fallback' if backend.has_fallback else 'nothing'} now",
                    new.schema,
                )
        if old is not None and name in reached and old.schema != new.schema:
            yield Task(name, Work.SCHEMA, "; ".join(schema_change(old.schema, new.schema).changes), new.schema)

    return ProgramUpgrade(
        program,
        row,
        backend.device,
        installed_torch() or "",
        run.error,
        len(called),
        len(reached),
        tuple(sorted((task for name in called for task in tasks(name)), key=lambda task: _ORDER.index(task.work))),
    )


_SERVED = Way.COMPOSITE, Way.DIRECT
_ORDER = tuple(Work)


def _is_in(recorded: Recorded, name: str) -> bool:
    return recorded.operator(name) is not None


def _renamed(old: RecordedOperator | None, before: Recorded, after: Recorded) -> str:
    """What the new operators say of one that is gone."""
    if old is None or old.schema is None:
        return ""
    signature = old.schema.removeprefix(str(old.name))
    new: Iterable[str] = sorted(
        name
        for name in {*after.names} - {*before.names}
        if (one := after.operator(name)) is not None
        and one.schema is not None
        and one.name.namespace == old.name.namespace
        and one.schema.removeprefix(name) == signature
    )
    return f"new with the same arguments: {', '.join(new)}" if new else ""
