"""What is written into modules that are loaded is found by identity, wherever it lies."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

from dispatchlab.pytorch.introspection.function_content import Contents
from dispatchlab.pytorch.introspection.shared_state import Known, SharedState

_SOURCE = """
import collections
number = 1
steps = [1, 2]
table = {"one": {"two": 2}}
names = {"a"}
ordered = collections.OrderedDict(a=1, b=2)
cached_lines = {}
def function(x=1, *, y=(1,)): return x
class Class:
    constants = ["a"]
    def method(self): return 1
    @staticmethod
    def static(): return 1
    @property
    def shown(self): return 1
one = Class()
def _counting():
    count = 1
    def counted():
        nonlocal count
        count += 1
        return count
    return counted
counted = _counting()
def level():
    for number in range(100):  # Python specialises the store
        one.level = number
level_of = Class()
level_of.level = 1
def other_level():
    for number in range(100):
        level_of.level = number
"""


def _module(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = ModuleType(name)
    exec(source, vars(made))
    monkeypatch.setitem(sys.modules, name, made)
    return made


_CHANGES: dict[str, tuple[Callable[[Any], object], list[tuple[str, bool]]]] = {
    "an equal number": (lambda m: setattr(m, "number", 1.0), [(".number", True)]),
    "a new attribute": (lambda m: setattr(m, "added", 1), [(".added", True)]),
    "an attribute taken away": (lambda m: delattr(m, "number"), [(".number", True)]),
    "an item of a list": (lambda m: m.steps.append(3), [(".steps", False)]),
    "the order of a list": (lambda m: m.steps.reverse(), [(".steps", False)]),
    "an inner entry": (lambda m: m.table["one"].update(two=3), [(".table['one']['two']", False)]),
    "an entry taken out": (lambda m: m.table.clear(), [(".table['one']", False)]),
    "an entry under another key": (
        lambda m: m.table.update(other=m.table.pop("one")),
        [(".table['other']", False), (".table['one']", False)],
    ),
    "an item of a set": (lambda m: m.names.add("b"), [(".names['b']", False)]),
    "an entry of an ordered one": (lambda m: m.ordered.update(b=3), [(".ordered['b']", False)]),
    "what takes the place of an item": (lambda m: operator.setitem(m.steps, 0, 3), [(".steps", False)]),
    "what a closure counts": (lambda m: m.counted(), [(".counted", False)]),
    "a store that is specialised": (lambda m: m.level(), [(".one.level", False)]),
    "another one": (lambda m: m.other_level(), [(".level_of.level", False)]),
    "the code of a function": (
        lambda m: setattr(m.function, "__code__", (lambda x=1, *, y=1: 2).__code__),
        [(".function.__code__", True)],
    ),
    "the defaults of a function": (
        lambda m: setattr(m.function, "__defaults__", (2,)),
        [(".function.__defaults__", True)],
    ),
    "a keyword default": (lambda m: m.function.__kwdefaults__.update(y=2), [(".function['y']", False)]),
    "the docstring": (lambda m: setattr(m.function, "__doc__", "new"), [(".function.__doc__", True)]),
    "the first attribute of a function": (
        lambda m: setattr(m.function, "scale", 2),
        [(".function.__dict__", True)],
    ),
    "a method": (lambda m: setattr(m.Class, "method", print), [(".Class.method", True)]),
    "the code of a static method": (
        lambda m: setattr(m.Class.static, "__code__", (lambda: 2).__code__),
        [(".Class.static.__code__", True)],
    ),
    "the code of a property": (
        lambda m: setattr(m.Class.shown.fget, "__code__", (lambda self: 2).__code__),
        [(".Class.shown.__code__", True)],
    ),
    "a list of a class": (lambda m: m.Class.constants.append("b"), [(".Class.constants", False)]),
    "an attribute of an object": (lambda m: setattr(m.one, "level", 2), [(".one.level", False)]),
    "nothing": (lambda m: None, []),
    "a cache": (lambda m: setattr(m, "cached_lines", {1: 2}), []),
    "a cache that is named": (lambda m: setattr(m, "named_cache", {1: 2}), [(".named_cache", True)]),
    "a large key that is no address": (lambda m: m.table.update({1 << 60: 1}), [(f".table[{1 << 60}]", False)]),
    "what is kept by address": (lambda m: m.table.update({id(m): 1}), []),
}


_DYNAMO = """
from torch._compile import _disable_dynamo
def inner(): return 1
def other(): return 2
called = _disable_dynamo(inner)
"""


def _disable(fn: Callable[[], object], recursive: object = True, *, wrapping: bool) -> Callable[[], object]:  # noqa: FBT002
    return lambda: fn()


_DISABLED: dict[str, tuple[Callable[[Any, Callable[..., Any]], object], bool]] = {
    "the first call": (lambda m, disable: m.called(), False),
    "itself": (lambda m, disable: setattr(m.inner, "__dynamo_disable", disable(m.inner, wrapping=False)), False),
    "another one": (lambda m, disable: setattr(m.inner, "__dynamo_disable", disable(m.other, wrapping=False)), True),
    "no such function": (lambda m, disable: setattr(m.inner, "__dynamo_disable", m.other), True),
    "more beside it": (lambda m, disable: setattr(m.inner, "also", m.called()), True),
}


def test_that_a_function_keeps_itself_without_dynamo_from_its_first_call_on_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dynamo = ModuleType("torch._dynamo")  # not PyTorch's own, which loads much that other tests would find
    vars(dynamo)["disable"] = _disable
    monkeypatch.setitem(sys.modules, "torch._dynamo", dynamo)
    monkeypatch.setattr(sys.modules["torch"], "_dynamo", dynamo, raising=False)
    modules = [_module(f"t_dynamo_{at}", _DYNAMO, monkeypatch) for at in range(len(_DISABLED))]
    state = SharedState()
    for module, (change, _) in zip(modules, _DISABLED.values(), strict=True):
        change(module, _disable)

    def found() -> list[str]:
        return [one.path.partition(".")[0] for one in state.changes(_known()) if one.path.startswith("t_dynamo")]

    assert found() == [f"t_dynamo_{at}" for at, (_, is_shown) in enumerate(_DISABLED.values()) if is_shown]
    monkeypatch.setitem(vars(dynamo), "disable", lambda function, *given, **named: function)
    assert found() == [module.__name__ for module in modules]


def _known() -> Known:
    """What is known at the end, when the memory of the process is known, too."""
    return Known({"named_cache"}, Contents((), {}).address)


def test_each_change_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {what: _module(f"t_shared_{at:02}", _SOURCE, monkeypatch) for at, what in enumerate(_CHANGES)}
    state = SharedState()
    assert [change for change in state.changes(_known()) if change.path.startswith("t_shared")] == []
    for what, module in modules.items():
        _CHANGES[what][0](module)
    found = list(state.changes(_known()))
    for what, module in modules.items():
        name = module.__name__
        own = [(one.path.removeprefix(name), one.is_attribute) for one in found if one.path.startswith(name)]
        assert own == _CHANGES[what][1], what


def test_of_modules_that_came_later_plain_values_are_digested_and_those_of_packages_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = _module("t_shared", _SOURCE, monkeypatch)
    state = SharedState()

    def read(source: str) -> dict[str, object]:
        _module("t_later", "table = {'a': 1}\nsteps = [1, 2]\n" + source, monkeypatch)
        found = state.new_state(["t_later"], "t_shared".__eq__, _known())
        return {change.path: change.value for change in found if change.path != "t_later"}

    before = read("")
    assert set(before) == {"t_later.table", "t_later.steps"}
    assert read("table['a'] = 1.0")["t_later.table"] != before["t_later.table"]
    assert read("steps.reverse()")["t_later.steps"] != before["t_later.steps"]
    given = read("import sys\ntable['b'] = sys.modules['t_shared'].one")
    assert given["t_later.table['b']"] is package.one
    numbers = f"import os\ntable.update(owner_pid=os.getpid(), exponents=({os.getpid()}, 521), size={os.getpid()})"
    shown = str(read(numbers)["t_later.table"])
    assert shown.count(str(os.getpid())) == 2
    assert "the number of the process" in shown


@pytest.mark.parametrize(("name", "is_shown"), [("process_identity", False), ("_creator_pid", False), ("size", True)])
def test_the_number_of_the_process_is_left_out_where_a_name_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch, *, is_shown: bool
) -> None:
    state = SharedState()
    source = f"import os\nclass C:\n    pass\nc = C()\nc.{name} = (os.getpid(), 7)\n"
    _module("state_of_a_lock", source, monkeypatch)
    found = state.new_state(["state_of_a_lock"], lambda module: False, Known((), str))
    text = next(str(change.value) for change in found if change.path == "state_of_a_lock.c")
    assert (str(os.getpid()) in text, "7" in text) == (is_shown, True)


def test_nor_is_the_number_of_a_process_shown_that_took_the_place_of_its_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = _module("state_of_a_lock", "class C:\n    pass\nc = C()\nc.process_identity = (1, (7, 8))\n", monkeypatch)
    state = SharedState()
    lock.c.process_identity = (os.getpid(), (7, 8))
    found = {change.path: change.value for change in state.changes(Known((), str))}
    assert found["state_of_a_lock.c.process_identity"] == ("the number of the process", (7, 8))
