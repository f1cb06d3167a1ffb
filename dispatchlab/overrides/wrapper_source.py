"""The code of an overridable function: the shapes of a call that are common cost no packing and unpacking.

A handler gets the arguments as they were given, by position or by name, and none that were left out. So each shape,
such as one positional argument and `dim` by name, has a branch of its own, in which everything is called directly:

    def public(_0=_M, _1=_M, /, *, tensors=_M, dim=_M):
        if tensors is _M and dim is _M:
            if _1 is _M and _0 is not _M:
                for _one in (_found := _relevant(_0)):
                    if type(_one) is not _T:
                        return _asked(_found, (_0,), {})
                return _implementation(_0)
        ...
        return _general(args, kwargs)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType

_POSITIONAL = 3
_NAMED = 6
_Kind = inspect.Parameter


def wrapper_code(signature: inspect.Signature, name: str) -> CodeType:
    """The code that defines `public` for an implementation with that signature.

    The names `_M`, `_T`, `_relevant`, `_implementation`, `_asked` and `_general` have to be there when it runs.
    """
    return compile(wrapper_source(signature), f"<override of {name}>", "exec")


def wrapper_source(signature: inspect.Signature) -> str:
    """The text of that code."""
    parameters = [*signature.parameters.values()]
    by_name = [one for one in parameters if one.kind in (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY)]
    if (
        any(one.kind is _Kind.VAR_KEYWORD for one in parameters)
        or len(by_name) > _NAMED
        or any(one.name.startswith("_") for one in by_name)
    ):
        return "def public(*args, **kwargs):\n    return _general(args, kwargs)\n"
    positional = [one.name for one in parameters if one.kind in (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)]
    variadic = any(one.kind is _Kind.VAR_POSITIONAL for one in parameters)
    places = [f"_{at}" for at in range(_POSITIONAL if variadic else min(_POSITIONAL, len(positional)))]
    rest = variadic or len(positional) > len(places)
    star = ["*_rest"] if rest else ["*"] if by_name else []
    heads = [*(f"{place}=_M" for place in places), *(["/"] if places else []), *star]
    lines = [f"def public({', '.join([*heads, *(f'{one.name}=_M' for one in by_name)])}):"]
    optional = [one.name for one in by_name if one.default is not _Kind.empty]
    for chosen in ("", *optional):
        place = positional.index(chosen) if chosen in positional else None
        branches = [*_branches(places, chosen, place)]
        others = sorted((one.name for one in by_name if one.name != chosen), key=lambda one: one not in optional)
        tests = [f"{chosen} is not _M"] if chosen else []
        tests += [f"{one} is _M" for one in others]
        tests += ["not _rest"] if rest else []
        if branches:
            lines += [f"    if {' and '.join(tests) or 'True'}:", *(f"        {line}" for line in branches)]
    given = "".join(f"{place}, " for place in places)
    named = "".join(f"({one.name!r}, {one.name}), " for one in by_name)
    args = f"(*(_one for _one in ({given}) if _one is not _M), {'*_rest' if rest else ''})"
    lines += [f"    return _general({args}, {{_name: _one for _name, _one in ({named}) if _one is not _M}})"]
    return "\n".join(lines) + "\n"


def _branches(places: list[str], name: str, place: int | None) -> Iterator[str]:
    """For each number of positional arguments.

    A name that a position takes as well is left to the general way; one whose place is the next goes on by position,
    which is faster.
    """
    most = len(places) if place is None else place
    for number in range(1, min(len(places), most) + 1):
        last, after = places[number - 1], places[number] if number < len(places) else ""
        yield f"if {f'{after} is _M and ' if after else ''}{last} is not _M:"
        given = places[:number]
        call = ", ".join([*given, *([name if place == number else f"{name}={name}"] if name else [])])
        values = f"({''.join(f'{one}, ' for one in given)})"
        named = f"{{{name!r}: {name}}}" if name else "{}"
        yield "    try:"
        yield f"        _found = _relevant({call})"
        yield "        _is_long = len(_found) > 12"
        yield "    except TypeError:"
        yield f"        return _general({values}, {named})"
        yield "    if _is_long:"
        yield f"        return _long(_found, {values}, {named})"
        yield "    for _one in _found:"
        yield "        if type(_one) is not _T:"
        yield f"            return _asked(_found, {values}, {named})"
        yield f"    return _implementation({call})"
