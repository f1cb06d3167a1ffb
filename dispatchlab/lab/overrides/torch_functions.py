"""The overridable functions of PyTorch 2.13 as data: the arguments of their parsers and of their handlers.

A file has a line for each signature of a function or method of C, and one for each other function:

    Tensor.add(Tensor other, *, Scalar alpha=1)        a signature; `Tensor.dim` alone takes nothing but its tensor
    Tensor.__add__ = Tensor.add                        handlers get the other function
    Tensor.shape @                                     a property
    Tensor.__rsub__ !                                  an operator in Python, which is left to its other operand
    einsum :(*args) -> operands -> equation, *operands a function in Python: its parameters, the arguments whose
                                                       handlers count, and what they get, in the name of another perhaps
    lu ? get_infos, 2, False, with_infos, no_infos     one of two, by the value of an argument
    Tensor.set_ -                                      asks no handler

It was read off the parsers of that PyTorch.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from dispatchlab.call.python_arg_parser import NUMBERS_AS_TENSORS, PythonArgParser
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import DType, MemoryFormat
from dispatchlab.call.torch_handlers import special
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab.overrides.handlers import call_c_handlers, handle_torch_function, has_torch_function

Function = Callable[..., Any]


@dataclass(frozen=True)
class OverridableFunction:
    """A function of PyTorch.

    Args:
        name: without `torch.`, such as `Tensor.add`.
        mark: the kind of function; empty for a C function. See the description of this module.
        facts: the text after the mark, or the signatures.
    """

    name: str
    mark: str
    facts: tuple[str, ...]

    @property
    def base(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def is_method(self) -> bool:
        """True when the first argument is a tensor that the signatures leave out."""
        return self.name.startswith("Tensor.")

    @cached_property
    def parser(self) -> PythonArgParser:
        """The parser of its arguments, except the tensor of a method."""
        name = self.name.replace(".", "_") if self.name.partition(".")[0] in _PREFIXED else self.base
        signatures = [f"{name}{one}" for one in self.facts] or [f"{name}()"]
        return PythonArgParser(name, signatures, numbers=self.base in NUMBERS_AS_TENSORS)

    def made(self, implementation: Function) -> Function:
        """Return the function in Python, with its parameters; without handlers it is the implementation."""
        given, relevant, asked, *_ = self.facts
        parameters: Any = ast.parse(f"def f{given}: pass").body[0]
        passed = [one.arg for one in (*parameters.args.posonlyargs, *parameters.args.args)]
        passed += [f"*{one.arg}" for one in (parameters.args.vararg,) if one]
        passed += [f"{one.arg}={one.arg}" for one in parameters.args.kwonlyargs]
        passed += [f"**{one.arg}" for one in (parameters.args.kwarg,) if one]
        source = (
            f"def {self.base}{given}:\n    if _has({relevant}):\n"
            f"        return _handle(_public[0], {relevant}, {asked})\n"
            f"    return _implementation({', '.join(passed)})\n"
        )
        public: list[Function] = []
        constants: dict[str, Any] = {"_has": has_torch_function, "_handle": handle_torch_function, "_public": public}
        constants |= {"_implementation": implementation, "DType": DType, "MemoryFormat": MemoryFormat}
        constants["Tensor"] = Tensor
        constants["__name__"] = __name__
        exec(compile(source, f"<function {self.name}>", "exec"), constants)
        made: Function = constants[self.base]
        made.__dict__["_asks_as"] = public
        public.append(made)
        named(made, self.name).__dict__["_implementation"] = implementation
        return made

    def linked(self, functions: Mapping[str, Function]) -> Function:
        """Return the function that calls another one: a function with another name, or one of two functions.

        Args:
            functions: the others, by name.
        """
        if self.mark == "?":
            name, at, _, *ways = self.facts
            if_true, if_false = (functions[one] for one in ways)

            def either(*args: Any, **kwargs: Any) -> Any:
                given = kwargs.get(name, args[int(at)] if int(at) < len(args) else False)
                return (if_true if given else if_false)(*args, **kwargs)

            for one in ways:
                asks_as = torch_functions()[one].facts[3:]
                if asks_as:
                    functions[one].__dict__["_asks_as"][0] = either
            return named(either, self.name)
        target = functions[self.facts[0]]
        is_operator = self.base.startswith("__") and self.base != "__long__" and self.base != "__nonzero__"
        return left_to_the_other(target, self.base) if is_operator else target


def named(function: Function, name: str) -> Function:
    """Return the function, under a name with the modules or the class that it is in."""
    function.__name__, function.__qualname__ = name.rpartition(".")[2], name.removeprefix("functional.")
    return function


def left_to_the_other(method: Function, name: str) -> Function:
    """Return an operator that leaves the call to its other operand when it cannot compute it."""

    def attempt(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except TypeError:
            return NotImplemented
        except CallError as error:
            if error.kind is ErrorKind.WRONG_TYPE:
                return NotImplemented
            raise

    return named(attempt, f"Tensor.{name}")


def in_python(implementation: Function, name: str) -> Function:
    """Return an operator in Python, which asks the handlers of both operands."""

    def attempt(*args: Any, **kwargs: Any) -> Any:
        if has_torch_function(args):
            return handle_torch_function(public, args, *args, **kwargs)
        return implementation(*args, **kwargs)

    public = left_to_the_other(attempt, name.removeprefix("Tensor."))
    return public


# Note [Who asks for a property]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `x.shape` asks the handler of `x`. Upstream the code below the handlers is C++, which reads sizes without asking; here
# it is Python, which reads the same attributes. So a property asks for those alone who are outside of this package.


def add_property(own: type[Tensor], entry: OverridableFunction, read: Function | None) -> property:
    """Make an attribute of tensors overridable; handlers get its `__get__` and `__set__`.

    Args:
        own: the class of tensors.
        entry: which attribute.
        read: reads it; None for what tensors have here, and what they do not have.
    """
    name = entry.base
    found: Any = getattr(Tensor, name, None)

    def plain(self: Any) -> Any:
        if read is not None:
            return read(self)
        if found is None:
            raise AttributeError(f"tensors have no {name} here: only handlers can provide it")
        return found.__get__(self)

    def get(self: Any) -> Any:
        if (type(self) is own and not special) or _is_inside():
            return plain(self)
        return call_c_handlers(getter, plain, (self,), (self,), {}, is_lone=True)

    def put(self: Any, value: Any) -> None:
        def write(self: Any, value: Any) -> None:
            found.__set__(self, value)

        if (type(self) is own and not special) or _is_inside():
            write(self, value)
        else:
            call_c_handlers(setter, write, (self,), (self, value), {}, is_lone=True)

    made = property(get, put if hasattr(found, "__set__") else None)
    getter, setter = made.__get__, made.__set__
    setattr(own, name, made)
    return made


def _is_inside() -> bool:
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("dispatchlab.")


_PREFIXED = frozenset(("linalg", "fft", "special"))


@cache
def torch_functions() -> Mapping[str, OverridableFunction]:
    """Return all functions of torch, by name."""
    found: dict[str, tuple[str, list[str]]] = {}
    text = (files("dispatchlab.lab.overrides") / "data" / "torch_functions.txt").read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        match = _LINE.match(line)
        assert match is not None
        name, signature, mark, rest = match.groups(default="")
        facts = [signature] if signature else rest.split(" -> " if mark == ":" else ", ") if rest else []
        found.setdefault(name, (mark, []))[1].extend(facts)
    return {name: OverridableFunction(name, mark, tuple(facts)) for name, (mark, facts) in found.items()}


_LINE = re.compile(r"([\w.]+)(?:(\(.*)| ([=@!:?-]) ?(.*))?$")
