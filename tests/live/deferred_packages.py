"""Import packages with their registrations put off, and make these in random orders with the packages' own functions.

    python -m tests.live.deferred_packages < request.json > outcomes.json

While the packages are imported, the entry points of `torch.library` and those of the registries of Python keep a call
that a package makes in place of making it. A call whose result the package needs is made at once: whoever looks up an
operator in `torch.ops` gets its def first. What is left is made in a random order, in a process forked for it. A call
that PyTorch refuses without the def of its operator has that def made before it; all else is free. What custom
operators register on themselves follows them. Registrations of C++ are made when their library is loaded, so nothing
can put them off.
"""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial, wraps
from importlib import import_module
from typing import Any

from dispatchlab.model.python_layer import IMPORTS
from dispatchlab.pytorch.introspection.python_registries import read_operators
from tests.live.fresh_orders import forked, mark


class Unit:
    """A call that is put off, and what follows it.

    Args:
        what: what to say of it.
        make: makes it.
        defines: the operators that it defines, by name without overload.
        about: the operators that have to be defined before.
        library: the `Library` that it is made on, None for one that it makes itself.
    """

    def __init__(self, what: str, make: Callable[[], object], defines: str, about: str, library: Any) -> None:
        self.what, self.make, self.defines, self.about, self.library = what, make, defines, about, library
        self.follow: list[Callable[[], object]] = []


class Deferred:
    """Puts off the registrations of packages."""

    def __init__(self) -> None:
        self.torch = import_module("torch")
        self.units: list[Unit] = []
        self.forced: list[str] = []
        self.made: set[int] = set()
        self._making = 0
        self._number = 0
        self._home = os.path.dirname(str(self.torch.__file__)) + os.sep
        self._dispatch_library = self.torch._C._dispatch_library
        self.torch._C._dispatch_library = self._marked_library

    def _marked_library(self, kind: str, namespace: str, key: str, file: str, line: int) -> Any:
        if self._making:
            return self._dispatch_library(kind, namespace, key, mark(self._number), 1)
        return self._dispatch_library(kind, namespace, key, file, line)

    def _is_at_once(self) -> bool:
        """Whether the call that is being made is PyTorch's own, or one that was put off."""
        return bool(self._making) or sys._getframe(2).f_code.co_filename.startswith(self._home)

    def add(self, what: str, make: Callable[[], object], *, defines: str = "", about: str = "", on: Any = None) -> Unit:
        unit = Unit(what, make, defines, about, on)
        self.units.append(unit)
        return unit

    def make(self, unit: Unit) -> None:
        """Make a call that was put off, and what follows it."""
        number = self.units.index(unit)
        if number in self.made:
            return
        self.made.add(number)
        for other in self.units:
            if unit.about and other.defines == unit.about:
                self.make(other)
        before, self._number = self._number, number
        self._making += 1
        library, m = unit.library, None
        try:
            if library is not None:  # so that what is registered on one library can be told apart
                m = library.m
                library.m = self._dispatch_library("FRAGMENT", library.ns, library.dispatch_key, mark(number), 1)
                _KEPT.append(library.m)
            unit.make()
            for follow in unit.follow:
                follow()
        finally:
            if library is not None:
                library.m = m
            self._making -= 1
            self._number = before

    def force(self, operator: str) -> None:
        """Make the defs of an operator that somebody looks up."""
        if self._making:
            return
        for unit in list(self.units):
            if unit.defines == operator and self.units.index(unit) not in self.made:
                self.forced.append(unit.what)
                self.make(unit)

    # -- what is wrapped

    def wrap(self) -> None:
        """Wrap every entry point."""
        library, ops = self.torch.library, import_module("torch._ops")
        self._methods(library.Library)
        for name in ("impl", "register_kernel", "register_fake", "register_vmap", "register_torch_dispatch"):
            self._decorator(library, name)
        for name in ("define", "register_autograd", "register_autocast"):
            self._function(library, name)
        self._custom_ops(import_module("torch._library.custom_ops").CustomOpDef)
        for module, name in (
            ("torch._decomp", "register_decomposition"),
            ("torch._inductor.decomposition", "register_decomposition"),
            ("torch._subclasses.fake_impls", "register_op_impl"),
            ("torch._inductor.lowering", "register_lowering"),
            ("torch._higher_order_ops.utils", "register_fake"),
            ("torch.distributed.tensor.experimental", "register_sharding"),
            ("torch.nested._internal.ops", "register_jagged_func"),
        ):
            self._decorator(import_module(module), name)
        for name in ("make_fallback", "add_layout_constraint"):
            self._function(import_module("torch._inductor.lowering"), name)
        self._decorator(ops.OperatorBase, "py_impl")
        self._lookups(ops)

    def _methods(self, library: Any) -> None:
        for name in ("define", "impl", "fallback"):
            original = getattr(library, name)

            def method(own: Any, *arguments: Any, _original: Any = original, _name: str = name, **named: Any) -> Any:
                if self._is_at_once():
                    return _original(own, *arguments, **named)
                of = arguments[0] if arguments and _name != "fallback" else ""
                operator = _base(f"{own.ns}::{of}" if isinstance(of, str) else of.name())
                self.add(
                    f"{_name} {operator}",
                    partial(_original, own, *arguments, **named),
                    defines=operator if _name == "define" else "",
                    about=operator if "Meta" in (own.dispatch_key, *arguments, *named.values()) else "",
                    on=own,
                )
                return of.partition("(")[0] if isinstance(of, str) else None

            setattr(library, name, wraps(original)(method))

    def _decorator(self, holder: Any, name: str) -> None:
        """An entry point that is given the function, or is a decorator of it."""
        original = getattr(holder, name)

        @wraps(original)
        def put_off(*arguments: Any, **named: Any) -> Any:
            if self._is_at_once():
                return original(*arguments, **named)
            about = _about(arguments)
            if name in ("impl", "register_kernel") and not _is_meta((*arguments, *named.values())):
                about = ""  # PyTorch takes a kernel before the def
            if any(_is_function(each) for each in (*arguments[1:], *named.values())):
                self.add(f"{name} {_about(arguments)}", partial(original, *arguments, **named), about=about)
                return None

            def decorate(function: Any) -> Any:
                make = partial(_decorated, original, arguments, named, function)
                self.add(f"{name} {_about(arguments)}", make, about=about)
                return function

            return decorate

        setattr(holder, name, put_off)

    def _function(self, holder: Any, name: str) -> None:
        original = getattr(holder, name)

        @wraps(original)
        def put_off(*arguments: Any, **named: Any) -> Any:
            is_other_form = not isinstance(arguments[0], str) and name == "define"
            if self._is_at_once() or is_other_form:
                return original(*arguments, **named)
            about = _about(arguments)
            defines = about if name == "define" else ""
            make = partial(original, *arguments, **named)
            self.add(f"{name} {about}", make, defines=defines, about="" if defines else about)
            return None

        setattr(holder, name, put_off)

    def _custom_ops(self, kind: Any) -> None:
        units: dict[int, Unit] = {}
        original_register = kind._register_to_dispatcher

        def register(own: Any, *arguments: Any, **named: Any) -> None:
            make = partial(original_register, own, *arguments, **named)
            units[id(own)] = self.add(f"custom_op {own._qualname}", make, defines=_base(own._qualname), on=own._lib)

        kind._register_to_dispatcher = register
        for name in [each for each in vars(kind) if each.startswith("register_")]:
            original = getattr(kind, name)

            def part(own: Any, *arguments: Any, _original: Any = original, **named: Any) -> Any:
                unit = units.get(id(own))
                if self._making or unit is None or self.units.index(unit) in self.made:
                    return _original(own, *arguments, **named)
                if any(_is_function(each) for each in (*arguments, *named.values())):
                    unit.follow.append(partial(_original, own, *arguments, **named))
                    return None

                def decorate(function: Any) -> Any:
                    unit.follow.append(partial(_decorated, _original, (own, *arguments), named, function))
                    return function

                return decorate

            setattr(kind, name, wraps(original)(part))

    def _lookups(self, ops: Any) -> None:
        original = ops._OpNamespace.__getattr__

        def looked_up(namespace: Any, name: str) -> Any:
            self.force(f"{namespace.name}::{name}")
            return original(namespace, name)

        ops._OpNamespace.__getattr__ = looked_up


_KEPT: list[Any] = []


def _decorated(original: Any, arguments: tuple[Any, ...], named: dict[str, Any], function: Any) -> object:
    return original(*arguments, **named)(function)


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type) and type(value).__module__ != "torch._ops"


def _is_meta(arguments: tuple[Any, ...]) -> bool:
    keys = [each for one in arguments for each in (one if isinstance(one, list | tuple) else (one,))]
    return any(each in ("Meta", "meta") for each in keys if isinstance(each, str))


def _base(name: str) -> str:
    return name.partition("(")[0].strip().partition(".")[0]


def _about(arguments: tuple[Any, ...]) -> str:
    """The operator that a call is about; empty for several."""
    first = arguments[0]
    if type(first).__name__ == "Library":  # the old form of `impl` and `define`
        return _base(f"{first.ns}::{arguments[1]}")
    if isinstance(first, list | tuple):
        first = first[0] if len(first) == 1 else ""
    if isinstance(first, str):
        return _base(first)
    name = getattr(first, "_qualname", None) or getattr(first, "name", None) or getattr(first, "_qualified_op_name", "")
    return _base(name() if callable(name) else str(name))


def _order(deferred: Deferred, seed: int) -> list[int]:
    """A random order of what is left; the first is that of the import."""
    left = [number for number in range(len(deferred.units)) if number not in deferred.made]
    if seed:
        random.Random(seed).shuffle(left)
    return left


def _flushed(deferred: Deferred, order: list[int], operators: Callable[[], Iterator[str]]) -> dict[str, Any]:
    refused = {}
    for number in order:
        try:
            deferred.make(deferred.units[number])
        except Exception as error:
            refused[number] = f"{deferred.units[number].what}: {type(error).__name__}: {error}".split("\nException")[0]
    c = deferred.torch._C
    names = sorted(operators())
    python = read_operators(names)
    return {
        "refused": refused,
        "shown": {name: (c._dispatch_dump(name), c._dispatch_dump_table(name)) for name in names},
        "python": sorted([one.registry, one.operator, one.key, one.function, one.active] for one in python),
    }


def main() -> None:
    """Serve one request: the packages, and how many orders."""
    warnings.simplefilter("ignore")
    request = json.load(sys.stdin)
    for module in IMPORTS:
        import_module(module)
    read_operators(())  # looks up every operator once, for all processes
    for module in request.get("before", ()):  # what the packages import and what is not theirs
        import_module(module)
    deferred = Deferred()
    c = deferred.torch._C
    before = {name: c._dispatch_dump(name) for name in c._dispatch_get_all_op_names()}
    deferred.wrap()
    output, sys.stdout = sys.stdout, sys.stderr
    for package in request["packages"]:
        import_module(package)

    def operators() -> Iterator[str]:
        for name in c._dispatch_get_all_op_names():
            if before.get(name) != c._dispatch_dump(name):
                yield name

    orders = [_order(deferred, seed) for seed in range(request["orders"])]
    outcomes = [forked(partial(_flushed, deferred, order, operators)) for order in orders]
    answer = {
        "units": [unit.what for unit in deferred.units],
        "forced": deferred.forced,
        "left": len(orders[0]),
        "orders": orders,
        "outcomes": outcomes,
    }
    json.dump(answer, output)


if __name__ == "__main__":
    main()
