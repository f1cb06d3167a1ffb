"""Replay a recorded registry on the lab engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import NamedTuple

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.semantics import Semantics, semantics_named, strict_of
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.keys import SLOT_OF_KEY
from dispatchlab.model.names import OperatorName
from dispatchlab.model.profile import bundled_profile, version_of
from dispatchlab.model.registration import NameOnly
from dispatchlab.registries.model import Recorded, Registry, read_dump, read_fallbacks, registry_of
from dispatchlab.registries.replay import fallback_registration, operator_registrations, run

REPLAY = "strict"
"""The dispatcher to replay a registry on: a record has the slots that went stale, not the order that led to them."""

_UNTOUCHED = OperatorName("dlabrecord", "untouched")


class Bench(NamedTuple):
    """A dispatcher with the registrations of a registry in force.

    Args:
        dispatcher: the dispatcher.
        handles: keep the registrations in force.
    """

    dispatcher: Dispatcher
    handles: tuple[RegistrationHandle, ...]


def for_registry(semantics: str | Semantics, *, torch: str = "") -> Semantics:
    """Return these semantics for a registry: without their own fallbacks, and with every key that has a slot.

    The recorded registrations were made in C++, which can use keys that no text can name.

    Args:
        semantics: the semantics, or their name.
        torch: the recorded PyTorch; `strict` has the keys and the precedence of the nearest version.

    Raises:
        UnknownSemanticsError: no semantics have this name.
    """
    if semantics == "strict" and version_of(torch) is not None:
        found = _strict_for(model_for(torch))
    else:
        found = semantics_named(semantics) if isinstance(semantics, str) else semantics
    return replace(found, fallbacks=(), keys=found.keys | (found.existing & SLOT_OF_KEY.keys()))


@cache
def _strict_for(profile: str) -> Semantics:
    return strict_of(bundled_profile(profile))


def bench(
    recorded: Recorded,
    *,
    semantics: str | Semantics = REPLAY,
    operators: Iterable[str] | None = None,
    shipped: bool = False,
) -> Bench:
    """Replay a registry, without its fallbacks at keys that the dispatcher does not have.

    Args:
        recorded: the registry.
        semantics: the dispatcher for the replay.
        operators: only these operators, and all fallbacks; default: every operator.
        shipped: whether the fallbacks count as PyTorch's own, which packages may replace.

    Raises:
        RegistrationError: the dispatcher refuses a registration.
        DispatchLabError: a record cannot be read.
    """
    found = for_registry(semantics, torch=recorded.torch)
    fallbacks = tuple(fallback_registration(one) for one in recorded.fallbacks if one.key in found.existing)
    if shipped:
        found, fallbacks = replace(found, fallbacks=fallbacks), ()
    dispatcher = Dispatcher.for_scenario(found)
    some = recorded if operators is None else filter(None, map(recorded.operator, operators))
    of_operators = chain.from_iterable(map(operator_registrations, some))
    return Bench(dispatcher, run(chain(fallbacks, of_operators), dispatcher.register))


def registry_on(dispatcher: Dispatcher, origin: str, *, imports: Sequence[str] = ()) -> Registry:
    """Return the registrations of a dispatcher as a record.

    Args:
        dispatcher: a dispatcher with dumps as in PyTorch 2.13, so not one of `pr35061`.
        origin: the text that replaces the version of PyTorch.
        imports: the packages of these registrations.

    Raises:
        DumpError: the dumps have another form.
    """
    entries = [entry for name in dispatcher.operators() if (entry := dispatcher.operator_entry(name)) is not None]
    with dispatcher.register(NameOnly(_UNTOUCHED)):
        fallbacks = read_fallbacks(dispatcher.dump_table(_UNTOUCHED))
    operators = [read_dump(dispatcher.dump(entry.name), entry.tags) for entry in entries]
    return registry_of(origin, operators, fallbacks, imports)
