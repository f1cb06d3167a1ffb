"""Short names of registrations, all different, for the boxes of pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dispatchlab.model.registration import (
    Block,
    Claim,
    Def,
    Fallback,
    Impl,
    NameOnly,
    Registration,
    TorchLibraryCall,
    operators_of,
    shown_text,
)

_LONGEST = 28


def short_names(registrations: Sequence[Registration]) -> tuple[str, ...]:
    """Return the shortest distinct name for each: `CPU`, else `foo CPU`, else `CPU fn_a`, else `CPU #3`.

    Args:
        registrations: in the order of their numbers.
    """
    several = len({name for one in registrations for name in operators_of(one)}) > 1
    candidates = [tuple(dict.fromkeys(_candidates(registration, several=several))) for registration in registrations]
    level = [0] * len(candidates)
    while True:
        names = [_cut(each[at]) for each, at in zip(candidates, level, strict=True)]
        counts = Counter(names)
        more = [at for at, name in enumerate(names) if counts[name] > 1 and level[at] + 1 < len(candidates[at])]
        if not more:
            break
        for at in more:
            level[at] += 1
    shortest = [_cut(each[0]) for each in candidates]
    numbered = tuple(name if counts[name] == 1 else f"{shortest[at]} #{at}" for at, name in enumerate(names))
    if len({*numbered}) == len(numbered):
        return numbered
    return tuple(f"{name} #{at}" for at, name in enumerate(shortest))


def _candidates(registration: Registration, *, several: bool) -> Iterator[str]:
    """Return the names that a registration can have, the shortest first."""
    short, long = plain_name(registration, several=several), plain_name(registration, several=True)
    debug = shown_text(registration).removeprefix("registered at ").rpartition("/")[2].strip()
    yield short
    if debug:
        yield f"{short} {debug}"
    yield long
    if debug:
        yield f"{long} {debug}"


def plain_name(registration: Registration, *, several: bool) -> str:
    """Return the name of a registration, with its operator if several operators are shown."""
    match registration:
        case Def():
            return f"def {registration.operator.without_namespace}" if several else "def"
        case Impl():
            key = registration.key or "no key"
            return f"{registration.operator.without_namespace} {key}" if several else str(key)
        case Fallback():
            return f"fallback {registration.key or 'no key'}"
        case NameOnly():
            return f"name {registration.operator.without_namespace}" if several else "name"
        case Claim():
            return f"claim {registration.namespace}"
        case Block(made_by=TorchLibraryCall(function=function, operator=operator)):
            return f"{function} {operator.without_namespace}" if several else str(function)
        case Block():
            key = f" {registration.key}" if registration.key else ""
            return f"{registration.namespace or '_'} {registration.kind}{key}"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
