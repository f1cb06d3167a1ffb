"""The code of an overridable function: the shapes of a call that are common cost no packing and unpacking.

A handler gets the arguments as they were given, by position or by name, and none that were left out. So each shape,
such as one positional argument and `dim` by name, has a branch of its own, in which everything is called directly:

    def public(_0=_M, _1=_M, _2=_M, /, *_rest, dim=_M, **_named):
        if not _named:
            if dim is _M:
                if _1 is _M and _0 is not _M:
                    try:
                        _found = _relevant(_0)
                        _number = _len(_found)
                    except TypeError:
                        return _general((_0,), {})
                    if _number == 1:
                        ...
                    return _asked(_found, (_0,), {})
                ...
            else:
                ...
        elif len(_named) == 1:
            ...
        return _general(args, kwargs)

Of two arguments by name one has to be the first optional one, which alone is a parameter: CPython looks up the default
of each keyword-only parameter that is left out in a dictionary, so that three of them cost more than an empty one for
all the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from textwrap import indent
from types import CodeType

_PLACES = ("_0", "_1", "_2")
_NAMED = 6
_LONG = 12
_Kind = inspect.Parameter

_GIVEN = "() if _0 is _M else (_0,) if _1 is _M else (_0, _1) if _2 is _M else (_0, _1, _2, *_rest)"

_BRANCH = """\
if {test}:
    try:
        _found = _relevant({call})
        _number = _len(_found)
    except TypeError:
        return _general({values}, {named})
    if _number == 1:
        [_one] = _found
        if _type(_one) is _T:
            return _implementation({call})
    elif _number == 2:
        _one, _other = _found
        if _type(_one) is _T and _type(_other) is _T:
            return _implementation({call})
    elif _number > {long}:
        if [*_map(_type, _found)].count(_T) == _number:
            return _implementation({call})
    else:
        for _one in _found:
            if _type(_one) is not _T:
                break
        else:
            return _implementation({call})
    return _asked(_found, {values}, {named})
"""


def wrapper_code(signature: inspect.Signature, name: str) -> CodeType:
    """The code that defines `public` for an implementation with that signature.

    The names `_M`, `_T`, `_relevant`, `_implementation`, `_asked` and `_general` have to be there when it runs, and
    `_len`, `_map` and `_type`, since an argument may be called `len`.
    """
    return compile(wrapper_source(signature), f"<override of {name}>", "exec")


def wrapper_source(signature: inspect.Signature) -> str:
    """The text of that code."""
    parameters = signature.parameters.values()
    positional = [one.name for one in parameters if one.kind in (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)]
    optional = [
        one.name
        for one in parameters
        if one.kind in (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY)
        if one.default is not _Kind.empty and not one.name.startswith("_")
    ]
    first, *others = optional[:_NAMED] or [""]
    variadic = any(one.kind is _Kind.VAR_POSITIONAL for one in parameters)
    most = len(_PLACES) if variadic else min(len(_PLACES), len(positional))
    first_value = [(first, first)] if first else []
    none_named, one_named = _branches(most, [], positional), ""
    both_named = _branches(most, first_value, positional)
    one_more = ""
    for name in others:
        fetched = f"_value = _named[{name!r}]\n"
        one_named += _block(f"if {name!r} in _named", fetched + _branches(most, [(name, "_value")], positional))
        named = [*first_value, (name, "_value")]
        one_more += _block(f"if {name!r} in _named", fetched + _branches(most, named, positional))
    named_text = "_named"
    if first:
        none_named = _block(f"if {first} is _M", none_named) + _block("else", both_named)
        one_named = _block(f"if {first} is _M", one_named) + _block("else", one_more)
        named_text = f"_named if {first} is _M else {{{first!r}: {first}, **_named}}"
    heads = [*(f"{place}=_M" for place in _PLACES), "/", "*_rest", *([f"{first}=_M"] if first else []), "**_named"]
    return _block(
        f"def public({', '.join(heads)})",
        _block("if not _named", none_named)
        + _block("elif _len(_named) == 1", one_named)
        + f"return _general({_GIVEN}, {named_text})\n",
    )


def _block(head: str, body: str) -> str:
    inside = indent(body or "pass\n", "    ")
    return f"{head}:\n{inside}"


def _branches(most: int, named: Sequence[tuple[str, str]], positional: Sequence[str]) -> str:
    """A branch for each number of positional arguments, up to that, and these by name, each with its expression.

    A name whose place is taken by position is left to the general way; one whose place is the next goes on by
    position, which is faster.
    """
    text = ""
    places = [positional.index(name) for name, _ in named if name in positional]
    for number in range(1, min([most, *places]) + 1):
        given = _PLACES[:number]
        passed_on = [*given]
        for name, value in named:
            is_next = name in positional and positional.index(name) == len(passed_on)
            passed_on.append(value if is_next else f"{name}={value}")
        more = f"{_PLACES[number]} is _M" if number < len(_PLACES) else "not _rest"
        text += _BRANCH.format(
            test=f"{more} and {given[-1]} is not _M",
            call=", ".join(passed_on),
            values=f"({''.join(f'{one}, ' for one in given)})",
            named=f"{{{', '.join(f'{name!r}: {value}' for name, value in named)}}}",
            long=_LONG,
        )
    return text
