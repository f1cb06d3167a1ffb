"""What Python registers in two sources, compared: recordings, `live`, and records laid over their registry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.python_layer import IN_LAYERS, PythonLayer, PythonRegistration, Second, unread_registries
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory, python_layer
from dispatchlab.model.registration import Block, PythonImpl
from dispatchlab.records.file import python_layer_of
from dispatchlab.records.model import Recorded
from dispatchlab.records.python_compare import PythonDiff, PythonSide, compare_python, python_side
from dispatchlab.sources.find_sources import LIVE, is_scenario_source, registry_of_scenario

if TYPE_CHECKING:
    from dispatchlab.model.registration import Registration


class NoPythonRecordError(DispatchLabError):
    """What Python registers was to be compared, and a source has no record of it."""

    source: str

    template = "{source} has no record of what Python registers: record it again with record --all"


def python_side_of(source: str, recorded: Recorded) -> PythonSide | None:
    """What Python registers in a source; None when that was not recorded.

    Args:
        source: what the user called it.
        recorded: the registry that it means, read with its Python layer if it is `live`.

    Raises:
        DispatchLabError: the source cannot be read.
    """
    if source == LIVE or not is_scenario_source(source):
        layer = python_layer_of(recorded)
        return None if layer is None else python_side(layer)
    from dispatchlab.scenario.load import load_scenario

    scenario = load_scenario(source)
    beneath = registry_of_scenario(scenario)
    under = None if beneath is None else python_layer_of(beneath)
    own = tuple(registration.code for registration in scenario.registrations if isinstance(registration, PythonImpl))
    if under is None and (beneath is not None or not (own or scenario.python)):
        return None
    base = python_layer(recorded.torch, ()) if under is None else under
    layer = laid_over(base, own, scenario.python)
    return PythonSide(layer, unread_registries(base), frozenset(_called(scenario.registrations)))


def laid_over(
    beneath: PythonLayer, registrations: Sequence[PythonRegistration], watched: Sequence[PythonRegistration] = ()
) -> PythonLayerInMemory:
    """A layer with what was registered after it, in order; what PyTorch refuses changes nothing.

    Args:
        beneath: the layer.
        registrations: those that are refused where their rule says so.
        watched: those that a recording saw, which say themselves whether they were refused.
    """
    slots: dict[tuple[str, str, str], list[PythonRegistration]] = {}
    for one in beneath:
        if one.active:
            slots.setdefault(one.slot, []).append(one)
    for at, one in enumerate((*registrations, *watched)):
        second = Second.REPLACES if one.rule is None else one.rule.second
        keeps = (Second.SAME, Second.REFUSED) if at < len(registrations) else (Second.SAME,)
        stays = one.effect == "refused" or (one.slot in slots and second in keeps)
        if one.effect == "used" or one.registry not in IN_LAYERS:
            continue
        if one.effect == "removed":
            slots.pop(one.slot, None)
        elif not stays:
            slots[one.slot] = [one]
    kept = (one for some in slots.values() for one in some)
    return python_layer(beneath.torch, kept, beneath.missing, beneath.not_imported)


def python_names(sides: Iterable[PythonSide | None]) -> frozenset[str]:
    """The operators that Python has registered something for, on either side."""
    return frozenset(one.operator for side in sides if side is not None for one in side.layer)


def python_upgrade(
    before: tuple[str, PythonSide | None],
    after: tuple[str, PythonSide | None],
    *,
    operators: Collection[str] | None = None,
) -> PythonDiff:
    """How what Python registers in two sources differs.

    Args:
        before: what the first is called, and what Python registers in it.
        after: the same of the second.
        operators: compare these alone; all when left out.
    """
    notes = [
        f"{source} has no record of what Python registers, so nothing of it is compared"
        for source, side in (before, after)
        if side is None
    ]
    first, second = before[1], after[1]
    if first is None or second is None:
        return PythonDiff(before=first is not None, after=second is not None, notes=tuple(dict.fromkeys(notes)))
    for source, side in ((before[0], first), (after[0], second)):
        if side.left_out:
            count = len(side.left_out)
            of = f"{count:,} operator{'' if count == 1 else 's'}"
            notes.append(
                f"what calls of torch.library keep in Python for {of} is not compared: {source} has these calls as "
                "registrations"
            )
    found = compare_python(first, second, operators=operators)
    return PythonDiff(found.before, found.after, found.registries, found.changes, tuple(dict.fromkeys(notes)))


def _called(registrations: Iterable[Registration]) -> Iterator[str]:
    """The operators for which a record has calls of functions of torch.library."""
    for registration in registrations:
        if isinstance(registration, Block) and registration.made_by is not None:
            for call in (registration.made_by, *registration.made_by.parts):
                yield str(call.operator.within(registration.namespace or ""))
