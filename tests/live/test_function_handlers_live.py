"""Handlers of public functions, function modes and guards in generated nestings, against the running PyTorch.

Each program makes classes that derive from one another, tensors and not, and modes, each with a way to behave; then it
calls functions, methods and operators on their instances, in blocks of modes and guards. Compared are the calls that
handlers see, with their types and arguments, the results and their classes, and how each call ends.

Left out are three differences: the dimension, shape and device of a tensor are fields here, for which PyTorch calls
handlers (`tensordot` of a number of dimensions and iteration ask for `dim()`); the reflected division is two functions
there; and PyTorch crashes when a function is called again past an object that is no tensor.
"""

from __future__ import annotations

import operator
import random
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.live.override_sides import ProgramError, Side, sides

_PROGRAMS = 1_500
_BEHAVIOURS = ("on", "on", "on", "decline", "decline", "answer", "raise", "redispatch", "other", "off and on")
_MODES = ("on", "on", "on", "decline", "answer", "raise", "redispatch", "again", "other")
_GUARDS = ("disable", "disable_subclass", "enable", "mode", "mode", "mode")


class _Run:
    """One program on one of the two."""

    def __init__(self, s: Side, seed: int) -> None:
        self.s, self.log = s, list[Any]()
        self.choose = random.Random(seed)
        self.depth = 0

        def combine(a: Any, b: Any, *, scale: Any = 1) -> Any:
            if s.has((a, b)):
                return s.handle(combine, (a, b), a, b, scale=scale)
            return s.f.add(a, b) if scale == 1 else s.f.mul(s.f.add(a, b), scale)

        self.combine = combine

    def behave(
        self, who: str, behaviour: str, default: Callable[[], Any], func: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        """Note the call, and go on as chosen."""
        s = self.s
        self.log.append([who, s.name(func), s.show(types), [self.about(one) for one in args], sorted(kwargs)])
        self.depth += 1
        try:
            if self.depth > 6:
                return "too deep"
            match behaviour:
                case "decline":
                    return NotImplemented
                case "answer":
                    return f"answer of {who}"
                case "raise":
                    raise ProgramError(who)
                case "redispatch":
                    return self.again(default, func, types, args, kwargs)
                case "other":
                    return s.f.neg(s.f.mul(self.plain, 2))
                case "off and on":
                    with s.disable(), s.enable():
                        return default()
                case _:
                    return default()
        finally:
            self.depth -= 1

    def again(self, default: Callable[[], Any], func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call a function again; PyTorch crashes where that has objects for tensors."""
        given = [inner for one in args for inner in (one if isinstance(one, list | tuple) else [one])]
        if all(self.s.is_tensor(one) or isinstance(one, int | float) for one in given):
            return self.s.redispatch(func, types, args, kwargs)
        return default()

    def about(self, value: Any) -> Any:
        """An argument as the log has it: its class, for values are seen in results."""
        return [self.about(one) for one in value] if isinstance(value, list | tuple) else type(value).__name__

    def made_kind(self, number: int, kinds: list[Any]) -> Any:
        """A class, of tensors or not, that may derive from an earlier one and may have no handler of its own."""
        s, choose = self.s, self.choose
        of_tensors, derives, bare = choose.random() < 0.6, choose.random() < 0.4, choose.random() < 0.2
        behaviour, picked = choose.choice(_BEHAVIOURS), choose.random()
        earlier = [one for one in kinds if issubclass(one, s.Tensor) == of_tensors]
        base = earlier[int(picked * len(earlier))] if derives and earlier else s.Tensor if of_tensors else object
        name = f"K{number}"

        def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            if not of_tensors and behaviour in ("on", "redispatch", "off and on"):
                # What is no tensor goes on with a tensor in its place, one level deep.
                plain = [self.plain if isinstance(one, cls) else one for one in args]
                return self.behave(cls.__name__, "on", lambda: func(*plain, **kwargs), func, types, args, kwargs)

            def default() -> Any:
                return s.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs)

            return self.behave(cls.__name__, behaviour, default, func, types, args, kwargs)

        if bare and base is not object:
            return type(name, (base,), {})
        return s.kind(name, handler, base)

    def made_mode(self, number: int) -> Any:
        """A function mode."""
        s, behaviour = self.s, self.choose.choice(_MODES)

        def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            def default() -> Any:
                if behaviour == "again" and self.depth < 3:
                    with mode:
                        return self.again(lambda: func(*args, **kwargs), func, types, args, kwargs)
                return func(*args, **kwargs)

            return self.behave(f"M{number}", behaviour, default, func, types, args, kwargs)

        return s.mode(handler)

    def made_value(self, kind: Any) -> Any:
        return self.s.new(kind, [1.0, 2.0]) if issubclass(kind, self.s.Tensor) else kind()

    def calls(self) -> list[Callable[..., Any]]:
        s = self.s
        return [
            s.f.add,
            s.f.mul,
            lambda a, b: s.f.sum(a),
            lambda a, b: s.f.stack([a, b]),
            lambda a, b: s.f.add(a, b, alpha=2),
            lambda a, b: s.f.neg(b),
            lambda a, b: s.f.tensordot(a, b, dims=([0], [0])),  # a number has PyTorch ask for `dim()`, a field here
            lambda a, b: s.f.broadcast_tensors(a, b),
            lambda a, b: self.combine(a, b),
            lambda a, b: self.combine(a, b, scale=3),
            operator.add,
            operator.sub,
            operator.mul,  # the reflected operator of a division is two functions in PyTorch, and one here
            operator.lt,
            lambda a, b: 1.0 - a,
            lambda a, b: a[0] if isinstance(a, s.Tensor) else self.plain[a],
            lambda a, b: (
                operator.setitem(self.plain, a, b) if not isinstance(a, s.Tensor) else operator.setitem(a, 0, 5.0)
            ),
            lambda a, b: a.view([2, 1]) if isinstance(a, s.Tensor) else self.plain.view([2, a]),
            lambda a, b: s.f.stack([a, self.plain]) if not isinstance(a, s.Tensor) else s.f.lt(a, 2),
            lambda a, b: s.has((a, b)),
        ]

    def run(self) -> list[Any]:
        """What is compared."""
        s, choose = self.s, self.choose
        self.plain = s.tensor([3.0, 4.0])
        kinds: list[Any] = []
        for number in range(choose.randint(1, 4)):
            kinds.append(self.made_kind(number, kinds))
        values = [self.plain, *map(self.made_value, kinds)]
        calls, ends = self.calls(), []
        for _ in range(3):
            with ExitStack() as stack:
                for number in range(choose.choice((0, 0, 1, 2, 3))):
                    guard = choose.choice(_GUARDS)
                    stack.enter_context(self.made_mode(number) if guard == "mode" else getattr(s, guard)())
                one, two = (choose.randrange(len(values)) for _ in range(2))
                call = choose.randrange(len(calls))
                ends.append([call, self.ended(calls[call], values[one], values[two])])
        return [ends, self.log, len(s.function_modes()), s.enabled()]

    def ended(self, call: Callable[..., Any], one: Any, two: Any) -> Any:
        try:
            result = call(one, two)
        except RecursionError:
            return "recursion"
        except Exception as error:
            # An object for a whole list of numbers, whose handlers all decline, fails an assertion in PyTorch.
            wrong = TypeError() if "PyList_Check(arg) INTERNAL ASSERT" in str(error) else error
            return self.s.outcome(_raising, wrong)
        return [self.about(result), self.s.numbers_of(result)]


def _raising(error: Exception) -> None:
    raise error


def _compare(seed: int, pair: tuple[Side, Side]) -> list[Any]:
    found, expected = (_Run(side, seed).run() for side in pair)
    assert found == expected, seed
    return found


def compare(programs: int, start: int = 0) -> Counter[str]:
    """Compare that many programs; how often which end came, and how many calls handlers saw."""
    pair, seen = sides(), Counter[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(start, start + programs):
            ends, log, *_ = _compare(seed, pair)
            seen["handled"] += len(log)
            seen["modes"] += sum(line[0].startswith("M") for line in log)
            for _, end in ends:
                seen[end if isinstance(end, str) else "result"] += 1
    return seen


@pytest.mark.filterwarnings("ignore")
def test_functions_modes_and_guards_in_generated_nestings_do_what_torchs_do() -> None:
    seen = compare(_PROGRAMS)
    assert seen["handled"] > 2 * _PROGRAMS
    assert seen["modes"] > _PROGRAMS // 2
    assert min(seen["result"], seen["TypeError"]) > _PROGRAMS // 3
