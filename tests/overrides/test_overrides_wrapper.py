"""The compiled wrapper of an overridable function handles every call as a plain `*args, **kwargs` wrapper does."""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from dispatchlab import tensor
from dispatchlab.lab.overrides import torch_function_dispatch
from tests.effort import share

pytestmark = pytest.mark.filterwarnings("ignore:Defining your `__torch_function__`")  # instance methods are tested, too

_Kind = inspect.Parameter
_NAMES = ("tensors", "dim", "out", "len", "type", "map", "_found", "_M", "public", "args", "x", "_0", "self", "named")
_LENGTHS = (0, 1, 2, 3, 12, 13, 40)


class Duck:
    """Returns what it was given."""

    def __torch_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return "handler", args, kwargs


def _signature(choose: random.Random) -> inspect.Signature:
    names = choose.sample(_NAMES, choose.randint(0, 8))
    kinds = sorted(
        choose.choice(
            (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD, _Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY)
        )
        for _ in names
    )
    parameters: list[inspect.Parameter] = []
    for name, kind in zip(names, kinds, strict=True):
        positional = [one for one in parameters if one.kind is not _Kind.KEYWORD_ONLY]
        forced = kind is not _Kind.KEYWORD_ONLY and any(one.default is not one.empty for one in positional)
        default = f"default of {name}" if forced or choose.random() < 0.5 else _Kind.empty
        parameters.append(inspect.Parameter(name, kind, default=default))
    if choose.random() < 0.2:
        parameters.append(inspect.Parameter("rest", _Kind.VAR_POSITIONAL))
    if choose.random() < 0.2:
        parameters.append(inspect.Parameter("others", _Kind.VAR_KEYWORD))
    return inspect.Signature(sorted(parameters, key=lambda one: one.kind))


def _functions(signature: inspect.Signature) -> tuple[Callable[..., Any], Callable[..., Iterable[Any]]]:
    """An implementation that returns its arguments, and a dispatcher that returns the elements of all lists in them."""

    def bound(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
        try:
            return signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"implementation() {error}") from None

    def implementation(*args: Any, **kwargs: Any) -> Any:
        found = bound(*args, **kwargs)
        found.apply_defaults()
        return "implementation", dict(found.arguments)

    def relevant(*args: Any, **kwargs: Any) -> list[Any]:
        return [one for value in bound(*args, **kwargs).arguments.values() for one in _elements(value)]

    implementation.__signature__ = signature  # type: ignore[attr-defined]
    return implementation, relevant


def _elements(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = [*value.values()]
    return [one for each in value for one in _elements(each)] if isinstance(value, list | tuple) else [value]


def _call(choose: random.Random, signature: inspect.Signature) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position or by name, at times one that is wrong, missing or too many."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for one in signature.parameters.values():
        if one.default is not one.empty and choose.random() < 0.6:
            continue
        by_name = one.kind is _Kind.KEYWORD_ONLY or (one.kind is _Kind.POSITIONAL_OR_KEYWORD and choose.random() < 0.4)
        if one.kind in (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD) or choose.random() < 0.03:
            continue
        if by_name or kwargs:
            kwargs[one.name] = _value(choose)
        else:
            args.append(_value(choose))
    if choose.random() < 0.15:
        args += [_value(choose) for _ in range(choose.randint(1, 3))]
    if choose.random() < 0.1:
        kwargs[choose.choice((*_NAMES, "unknown"))] = _value(choose)
    return args, kwargs


def _value(choose: random.Random) -> Any:
    some = [tensor([1.0])] * choose.choice(_LENGTHS)
    if choose.random() < 0.2:
        some.insert(choose.randint(0, len(some)), Duck())  # type: ignore[arg-type]
    return some if choose.random() < 0.7 else choose.choice((1, None, tensor([1.0]), Duck()))


def _outcome(call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return call(*args, **kwargs)
    except TypeError as error:
        return str(error)


def test_every_way_of_calling_is_that_of_a_plain_wrapper() -> None:
    handled = implemented = refused = 0
    rounds = share(1_500)
    for seed in range(rounds):
        choose = random.Random(seed)
        signature = _signature(choose)
        implementation, relevant = _functions(signature)
        ours = torch_function_dispatch(relevant, verify=False)(implementation)
        assert inspect.signature(ours) == signature

        def plain(*args: Any, **kwargs: Any) -> Any:
            found = relevant(*args, **kwargs)  # noqa: B023 - called in this round only
            if any(isinstance(one, Duck) for one in found):
                return "handler", args, kwargs
            return implementation(*args, **kwargs)  # noqa: B023

        for _ in range(8):
            args, kwargs = _call(choose, signature)
            wanted, found = _outcome(plain, args, kwargs), _outcome(ours, args, kwargs)
            assert found == wanted, (seed, signature)
            handled += wanted[0] == "handler"
            implemented += wanted[0] == "implementation"
            refused += isinstance(wanted, str)
    assert min(handled, implemented, refused) > rounds


class Swan:
    """Returns what it was given, and for which types."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return "handler", [one.__name__ for one in types], args, kwargs


def _listing(choose: random.Random, names: list[str]) -> str:
    """A dispatcher that returns arguments, a tuple of arguments or, when one is left out, something else."""
    some = [f"({''.join(f'{one}, ' for one in choose.sample(names, choose.randint(0, len(names))))})" for _ in "ab"]
    some.append(choose.choice(names))
    asked, is_not = choose.choice(names), choose.choice(("", "not "))
    either = f"{choose.choice(some)} if {asked} is {is_not}None else {choose.choice(some)}"
    return choose.choice((some[0], some[2], either))


def test_a_dispatcher_that_lists_its_arguments_is_as_good_as_called() -> None:
    """One that has an attribute is called, and the other is not."""
    seen: Counter[str] = Counter()
    rounds = share(200)
    for seed in range(rounds):
        choose = random.Random(seed)
        names = choose.sample(("tensors", "dim", "out", "x"), choose.randint(1, 4))
        rest = choose.choice(("", "", ", *, last=None", ", *rest"))
        names += [one for one in ("last", "rest") if one in rest]
        required = choose.randint(0, len(names))
        heads = [name if at < required else f"{name}=None" for at, name in enumerate(names) if name not in rest]
        head = ", ".join(heads) + rest
        text = f"lambda {head}: {_listing(choose, names)}"
        implementation, listing, called = eval(f"lambda {head}: 'implementation'"), eval(text), eval(text)
        called.is_called = True
        ours, other = (torch_function_dispatch(one, verify=False)(implementation) for one in (listing, called))
        for _ in range(8):
            count = choose.randint(min(required, len(heads)) if choose.random() < 0.8 else 0, len(heads))
            args = [choose.choice((Swan(), tensor([1.0]), None, _value(choose))) for _ in range(count)]
            name = choose.choice(names[count:] or names)
            kwargs = {name: choose.choice((Swan(), None, tensor([1.0])))} if choose.random() < 0.5 else {}
            wanted, found = _outcome(other, args, kwargs), _outcome(ours, args, kwargs)
            assert found == wanted, (seed, text)
            seen[wanted if wanted == "implementation" else "refused" if isinstance(wanted, str) else "handled"] += 1
    assert min(seen["implementation"], seen["refused"], seen["handled"]) > rounds // 2, seen
