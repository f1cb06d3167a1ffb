"""Every function of `torch.overrides.get_testing_overrides()`: what handlers are asked, against the running PyTorch.

A call is generated from the signatures of a function: some arguments have handlers, be they tensors or not, some are
plain, some are wrong. Both sides log what each handler gets: the function, the types, the arguments, and the keyword
arguments or their absence; then what the call returned or how it ended.

Three things differ, and are left out or translated:
- `Tensor.set_` asks no handler in PyTorch, though it is in the table;
- constants that the lab has not, such as a reduction of `torch.distributed`, are texts there;
- a function that no handler answers has no kernel here, where PyTorch computes, and what it calls then may ask;
- PyTorch's parser tries a tensor in a list of integers as an index, which asks its handler;
- `unique` decides by the truth of an argument before it asks the handler of its input;
- the getter of `__cuda_array_interface__` is Python there, which gives keyword arguments, though none, and ends
  otherwise; `apply_` takes its function by position alone;
- `einsum` of a tensor first is translated into one of an equation there, and refused here.
"""

from __future__ import annotations

import inspect
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

import torch
from torch.overrides import get_testing_overrides, resolve_name

from dispatchlab import CallError, Lab, tensor
from dispatchlab.call.tensor_options import CPU, DType, Layout, MemoryFormat
from dispatchlab.errors import ErrorKind
from dispatchlab.lab.overrides import Functions, as_subclass
from dispatchlab.lab.overrides.torch_functions import OverridableFunction, torch_functions

_CALLS = 8
_PLAIN: dict[str, Any] = {
    **{"int": 1, "SymInt": 1, "float": 0.5, "Scalar": 2, "bool": True, "str": "text", "Any": 3},
    **{"ScalarType": ("dtype",), "Device": ("device",), "Layout": ("layout",), "MemoryFormat": ("memory_format",)},
}
_HANDLED = ("A", "B", "A", "B", "T", "U")


class _Side:
    """One of the two, with classes that have handlers: A and B of anything, T and U of tensors."""

    def __init__(self, base: Any, plain: Any, constants: dict[str, Any], name: Callable[[Any], str]) -> None:
        self.log: list[Any] = []
        self.kept: list[Any] = []
        self.declines: set[str] = set()
        self.labels: dict[int, str] = {}
        self.constants = constants
        side = self

        def handler(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = "absent") -> Any:
            if side.quiet:
                return None
            shown = kwargs if kwargs == "absent" else {key: side.show(one) for key, one in kwargs.items()}
            side.log.append((cls.__name__, name(func), [one.__name__ for one in types], side.show(args), shown))
            return NotImplemented if cls.__name__ in side.declines else "handled"

        body = {"__torch_function__": classmethod(handler)}
        self.quiet = False
        a, t = type("A", (), body), type("T", (base,), body)
        self.kinds = {"A": a, "B": type("B", (a,), {}), "T": t, "U": type("U", (t,), {})}
        self.base, self.plain = base, plain

    def value(self, spec: Any) -> Any:
        """What a description of an argument stands for."""
        if isinstance(spec, tuple):
            return self.constants[spec[0]]
        if isinstance(spec, list):
            return [self.value(one) for one in spec]
        if spec == "P":
            made = self.plain()
        elif spec in ("T", "U"):
            made = self.of(self.kinds[spec])
        elif spec in ("A", "B"):
            made = self.kinds[spec]()
        else:
            return spec
        self.kept.append(made)
        self.labels[id(made)] = f"{spec}{len(self.labels)}"
        return made

    def of(self, kind: Any) -> Any:
        raise NotImplementedError

    def show(self, value: Any) -> Any:
        """An argument as the log has it."""
        if id(value) in self.labels:
            return self.labels[id(value)]
        if isinstance(value, list | tuple):
            return type(value).__name__, [self.show(one) for one in value]
        for name, constant in self.constants.items():
            if value is constant:
                return name
        return str(value) if isinstance(value, str) or type(value).__module__.startswith("torch") else repr(value)

    def run(self, function: Any, args: list[Any], kwargs: dict[str, Any], declines: set[str]) -> tuple[list[Any], str]:
        """What handlers got, and how the call ended."""
        self.log, self.labels, self.declines, self.kept = [], {}, declines, []
        given, named = [self.value(one) for one in args], {name: self.value(one) for name, one in kwargs.items()}
        try:
            result = function(*given, **named) if named else function(*given)
        except CallError as error:
            refusals = (ErrorKind.WRONG_TYPE, ErrorKind.MISSING_ARGUMENT, ErrorKind.EXTRA_ARGUMENT)
            end = "TypeError" if error.kind in refusals else "refused"
        except TypeError:
            end = "TypeError"
        except Exception:
            end = "refused"
        else:
            end = (
                "handled"
                if isinstance(result, str) and result == "handled"
                else "NotImplemented"
                if result is NotImplemented
                else "result"
            )
        return self.log, end


class _Ours(_Side):
    def __init__(self) -> None:
        self.functions = Functions(Lab())
        constants = {"dtype": DType.float32, "device": CPU, "layout": Layout.strided}
        constants["memory_format"] = MemoryFormat.contiguous_format
        super().__init__(
            self.functions.Tensor,
            lambda: self.functions.tensor([1.0, 2.0]),
            constants,
            {one: key for key, one in reversed(self.functions._functions.items())}.__getitem__,
        )

    def of(self, kind: Any) -> Any:
        return as_subclass(tensor([1.0, 2.0]), kind)


class _Theirs(_Side):
    def __init__(self) -> None:
        constants = {"dtype": torch.float32, "device": torch.device("cpu"), "layout": torch.strided}
        constants["memory_format"] = torch.contiguous_format
        super().__init__(
            torch.Tensor,
            lambda: torch.tensor([1.0, 2.0]),
            constants,
            full_name,
        )

    def of(self, kind: Any) -> Any:
        return torch.Tensor._make_subclass(kind, torch.ones(2))


_SAME = {"torch.spmm": "torch.mm", "torch.hsmm": "torch.hspmm", "torch.saddmm": "torch.sspaddmm"}
"""Functions that equal others; the table has the others."""


def full_name(function: Any) -> str:
    """Return a function as the table names it, without `torch.`."""
    found = _SAME.get(resolve_name(function), resolve_name(function))
    if found is None:
        module = "" if "_VariableFunctions" in function.__qualname__ else function.__module__
        found = f"{module.replace('.distributed_c10d', '')}.{function.__name__}"
    return str(found).removeprefix("torch.").removeprefix(".")


def _argument(choose: random.Random, type_name: str) -> Any:
    """A description of an argument: with a handler, of the right type, plain, or wrong."""
    picked = choose.random()
    if picked < 0.45:
        return choose.choice(_HANDLED if type_name.startswith(("Tensor", "Any")) else _HANDLED[:4])
    if picked < 0.5:
        return choose.choice(["text", None, 1.5, [], ["A", 1]])
    element = type_name.rstrip("?").partition("[")[0]
    if "[" in type_name:
        return [
            choose.choice(["P", "T", "A", "U"]) if element == "Tensor" else _PLAIN.get(element, "A") for _ in range(2)
        ]
    return "P" if element == "Tensor" else _PLAIN.get(element, "A")


def _calls(
    entry: OverridableFunction, function: Any, choose: random.Random
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Generated calls of a function."""
    first = [choose.choice(["T", "U"])] if entry.is_method else []
    for _ in range(100):
        args: list[Any] = [*first]
        kwargs: dict[str, Any] = {}
        if entry.mark in ("", "=") and (target := torch_functions()[entry.facts[0]] if entry.mark else entry).facts:
            signature = choose.choice(target.parser.signatures)
            by_position = choose.randint(0, signature.positional)
            for at, one in enumerate(signature.parameters):
                value = _argument(choose, str(one.type))
                if at < by_position:
                    args.append(value)
                elif not one.optional or choose.random() < 0.25:
                    kwargs[one.name] = value
        elif entry.base in ("__getitem__", "__setitem__"):
            args.append(choose.choice([0, "A", "T", ["B", 0]]))
            args += [choose.choice([1.5, "A", "U", "P"])] if entry.base == "__setitem__" else []
        elif entry.mark in (":", "?", "!"):
            made = function if entry.mark != "?" else torch_functions()[entry.facts[-1]].made(lambda: None)
            parameters = [*inspect.signature(made).parameters.values()][len(first) :]
            for each in parameters:
                if each.kind is each.VAR_POSITIONAL:
                    args += [choose.choice([*_HANDLED, "P"]) for _ in range(choose.randint(1, 3))]
                elif each.kind is each.KEYWORD_ONLY:
                    kwargs |= {each.name: choose.choice(["P", 1, "A"])} if choose.random() < 0.5 else {}
                elif each.kind is not each.VAR_KEYWORD and (each.default is each.empty or choose.random() < 0.3):
                    if kwargs or choose.random() < 0.2:
                        kwargs[each.name] = choose.choice([*_HANDLED, "P", 1])
                    else:
                        args.append(choose.choice([*_HANDLED, "P", 1]))
                elif each.kind is not each.VAR_KEYWORD and not kwargs:
                    kwargs = {"": None}
            kwargs.pop("", None)
        if _has_handler([*args, *kwargs.values()]):
            yield args, kwargs


def _has_handler(values: list[Any]) -> bool:
    return any(
        one in ("A", "B", "T", "U") or (isinstance(one, list) and _has_handler(one))
        for one in values
        if one is not None
    )


def compare(calls_seed: int = 0) -> tuple[Counter[str], list[str]]:
    """How often which end came, and every difference."""
    ours, theirs = _Ours(), _Theirs()
    seen, wrong = Counter[str](), []
    for their_function in get_testing_overrides():
        name = full_name(their_function)
        entry = torch_functions()[name.removesuffix(".__get__")]
        if entry.mark == "-":
            seen["asks none"] += 1
            continue
        function = ours.functions._functions[name]
        choose = random.Random(f"{calls_seed} {name}")
        asked = False
        for number, (args, kwargs) in enumerate(_calls(entry, function, choose)):
            if number >= _CALLS and asked:
                break
            declines = set(choose.sample(["A", "B", "T", "U"], choose.choice([0, 0, 1, 2, 4])))
            expected = theirs.run(their_function, args, kwargs, declines)
            found = ours.run(function, args, kwargs, declines)
            if name == "functional.einsum" and args[0] in ("P", "T", "U"):
                continue
            log = [one for one in expected[0] if one[1] != "Tensor.__index__" or one[1] == name]
            expected = (log, expected[1])
            asks_as = entry.facts[3:] if entry.mark == ":" else ()
            is_python = entry.mark in (":", "?", "!")
            if name.startswith("functional.unique") and any(one not in (0, 1) for one in [*args[1:], *kwargs.values()]):
                continue
            if "__cuda_array_interface__" in name:
                expected = ([(*one[:4], "absent") for one in log], found[1])
            if name == "Tensor.apply_" and kwargs:
                continue
            if is_python and not found[0] and not any(one[1] in (name, *asks_as) for one in log):
                seen["no handler"] += 1
                continue
            asked = asked or bool(expected[0])
            seen[expected[1]] += 1
            if found != expected:
                wrong.append(f"{name} {args} {kwargs} {sorted(declines)}\n  ours   {found}\n  theirs {expected}")
        seen["functions"] += asked
        wrong += [] if asked else [f"{name}: no handler was asked"]
    return seen, wrong


@pytest.mark.filterwarnings("ignore")
def test_handlers_of_every_overridable_function_are_asked_what_torchs_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen, wrong = compare()
    assert wrong == []
    assert seen["asks none"] == 1
    assert min(seen["handled"], seen["TypeError"]) > 1_000
