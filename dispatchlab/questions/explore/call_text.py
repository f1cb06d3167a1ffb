"""A typed call, `add.Tensor(cuda requires_grad, cuda)`, as argument specs and options of `explain`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dispatchlab.model.keys import parse_key
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys
from dispatchlab.questions.explain.result import CallExplanation

_CALL = re.compile(r"\s*[\w:.]*\s*\((?P<inside>.*)\)\s*", re.DOTALL)
_GUARD = re.compile(r"(include|exclude)\s*=\s*(.*)", re.DOTALL)


class CallText(NamedTuple):
    """A call as it was typed.

    Args:
        specs: the arguments, as `describe_arguments` reads them.
        include: the keys that guards include.
        exclude: the keys that guards exclude.
    """

    specs: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def read_call(text: str) -> CallText:
    """Read a call: specs separated by commas, lists in brackets, `include=KEY` and `exclude=KEY` for guards.

    >>> read_call("cat([cpu, meta], exclude=Autograd)")
    CallText(specs=('list:cpu, meta',), include=(), exclude=('Autograd',))

    Args:
        text: the arguments, with or without the operator and parentheses around them.
    """
    whole = _CALL.fullmatch(text)
    specs: list[str] = []
    guards: dict[str, list[str]] = {"include": [], "exclude": []}
    for part in _parts(text if whole is None else whole["inside"]):
        guard = _GUARD.fullmatch(part)
        if guard is not None:
            guards[guard[1]] += guard[2].split()
            continue
        name, equals, value = part.rpartition("=") if "=" in part else ("", "", part)
        if value.startswith("[") and value.endswith("]"):
            value = f"list:{value[1:-1].strip()}"
        specs.append(f"{name}{equals}{value}")
    return CallText(tuple(specs), tuple(guards["include"]), tuple(guards["exclude"]))


def explain_call(view: OperatorView, text: str) -> CallExplanation:
    """Explain a typed call of an operator as it is registered now.

    Raises:
        DispatchLabError: a spec or a key cannot be read, or the operator has no schema.
    """
    call = read_call(text)
    include, exclude = (tuple(map(parse_key, keys)) for keys in (call.include, call.exclude))
    return explain(view, describe_arguments(schema_of(view), call.specs), thread_keys(include, exclude))


def _parts(text: str) -> Iterator[str]:
    """The texts between the commas that are outside of brackets."""
    depth, begin = 0, 0
    for at, character in enumerate(f"{text},"):
        if character == "," and depth <= 0:
            part = text[begin:at].strip()
            if part:
                yield part
            begin = at + 1
        depth += (character == "[") - (character == "]")
    rest = text[begin:].strip()
    if rest:
        yield rest
