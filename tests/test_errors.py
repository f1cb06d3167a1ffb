"""What errors are made of, and what an unknown name was meant to be."""

from __future__ import annotations

import copy
import pickle
import re
import string
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dispatchlab
from dispatchlab.errors import DispatchLabError, UnknownOperatorError, nearest, nearest_operators, no_operator
from dispatchlab.files import ReadError
from dispatchlab.lab.overrides import NoImplementationError
from dispatchlab.live.bridge.torch import ImportTimeoutError
from dispatchlab.model.dump_format import UnknownKeyInDumpError
from dispatchlab.registries.file import open_bundled

ROOT = Path(dispatchlab.__file__).parent
DEFINES_AN_ERROR = re.compile(r"^class (\w+)\(\w*(?:Error|Crashed|Failed)\b", re.MULTILINE)


def subclasses(base: type[DispatchLabError]) -> Iterator[type[DispatchLabError]]:
    for subclass in base.__subclasses__():
        if subclass.__module__.startswith("dispatchlab."):
            yield subclass
        yield from subclasses(subclass)


def all_errors() -> list[type[DispatchLabError]]:
    """Every error class that the sources define, in modules whose requirements are installed."""
    defined: set[tuple[str, str]] = set()
    for path in sorted(ROOT.rglob("*.py")):
        if names := DEFINES_AN_ERROR.findall(path.read_text(encoding="utf-8")):
            module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
            try:
                import_module(module)
            except ModuleNotFoundError as error:  # the application needs the packages of its extra
                if (error.name or "dispatchlab").startswith("dispatchlab"):
                    raise
            else:
                defined.update((module, name) for name in names)
    kinds = list(dict.fromkeys(subclasses(DispatchLabError)))
    assert {(kind.__module__, kind.__name__) for kind in kinds} == defined
    return kinds


def test_every_error_survives_pickling_with_its_fields_and_notes() -> None:
    kinds = [kind for kind in all_errors() if kind.__init__ is DispatchLabError.__init__]
    own = {kind for kind in all_errors() if kind not in kinds}
    assert own == {UnknownKeyInDumpError, NoImplementationError, ImportTimeoutError}  # tried in the next test
    for kind in kinds:
        for error in (kind(*kind._required), kind(**{name: name for name in kind._required})):
            error.add_note("a note")
            for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                assert (type(again), vars(again), repr(again)) == (kind, vars(error), repr(error))
                assert again.__notes__ == ["a note"]


@pytest.mark.parametrize(
    "error",
    [
        NoImplementationError("f", ["A", "B"], "__torch_dispatch__"),
        ImportTimeoutError("my_package", 2.5),
        UnknownKeyInDumpError("line", "Key"),
        ReadError("a.yaml", "is empty", column=3),
    ],
)
def test_an_error_with_a_constructor_of_its_own_survives_pickling(error: DispatchLabError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), vars(again), str(again)) == (type(error), vars(error), str(error))


def test_a_template_names_fields_of_its_error() -> None:
    for kind in all_errors():
        names = [
            name.partition(".")[0] for _, name, _, _ in string.Formatter().parse(kind.template) if name is not None
        ]
        assert set(names) <= set(kind._fields), kind
        assert kind.template or kind.__str__ is not DispatchLabError.__str__, kind


def test_fields_are_given_by_position_and_by_name() -> None:
    error = ReadError("a.yaml", "is empty", column=3)
    assert (error.path, error.reason, error.line, error.column) == ("a.yaml", "is empty", 0, 3)
    assert repr(error) == "ReadError(path='a.yaml', reason='is empty', line=0, column=3)"
    assert str(error) == "a.yaml: is empty"


@pytest.mark.parametrize(
    ("values", "named", "given"),
    [
        (("a.yaml",), {}, "1 by position and none by name"),
        (("a.yaml", "is empty"), {"path": "b.yaml"}, "2 by position and path by name"),
        (("a.yaml", "is empty"), {"row": 1}, "2 by position and row by name"),
        (("a.yaml", "is empty", 1, 2, 3), {}, "5 by position and none by name"),
    ],
)
def test_an_error_takes_its_fields_and_nothing_else(values: tuple[Any, ...], named: dict[str, Any], given: str) -> None:
    with pytest.raises(TypeError) as caught:
        ReadError(*values, **named)
    assert str(caught.value) == f"ReadError takes path, reason, line, column, and was given {given}"


KNOWN = (
    "aten::add.Scalar",
    "aten::add.Tensor",
    "aten::add_.Tensor",
    "aten::pad",
    "aten::rand",
    "my::relu",
    "my::sole.out",
)


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("torch.add", "aten::add"),
        ("torch.Tensor.add_", "aten::add_.Tensor"),
        ("torch.ops.aten.add.Tensor", "aten::add.Tensor"),
        ("torch.ops.my.relu", "my::relu"),
        ("aten.add.Scalar", "aten::add.Scalar"),
        ("at::add", "aten::add"),
        ("torch::pad", "aten::pad"),
        ("my.relu.default", "my::relu"),
        ("aten::ad", "aten::add"),
        ("aten::adt.Tensor", "aten::add.Tensor"),
        ("aten::add.tensor", "aten::add.Tensor"),
        ("Aten::Pad", "aten::pad"),
        ("my::sol", "my::sole.out"),
        ("my::sole", "my::sole.out"),
        ("mine::relu", "my::relu"),
        ("relu", "my::relu"),
    ],
)
def test_an_operator_is_found_by_what_it_is_called_elsewhere_and_by_what_is_like_it(asked: str, first: str) -> None:
    assert nearest_operators(asked, KNOWN)[:1] == (first,)


def test_nothing_is_near_to_nonsense() -> None:
    for asked in ("", ".", "::", "zzzzzz", "a.b.c.d", "q" * 500):
        assert nearest_operators(asked, KNOWN) == ()
    assert nearest_operators("aten::add", ()) == ()


def test_every_operator_of_pytorch_is_near_to_itself_as_python_calls_it() -> None:
    names = open_bundled("torch-2.13-cpu").names
    for name in names[::97]:
        assert nearest_operators("torch.ops." + name.replace("::", "."), names)[0] == name


def test_everyday_words_mean_what_pytorch_calls_them() -> None:
    assert nearest("gpu", ["xpu", "cuda"]) == ("cuda",)
    assert nearest("GPU", ["XPU", "CUDA"]) == ("CUDA",)
    assert nearest("gpu", ["xpu"]) == ("xpu",)


def test_a_glob_that_matches_nothing_says_what_there_is() -> None:
    assert (
        no_operator("my::*x", KNOWN)
        == "no operator matches my::*x; the namespace my has 2 operators, which 'my::*' lists"
    )
    assert no_operator("attn::*", KNOWN) == "no operator matches attn::*; did you mean 'aten::*'?"
    assert (
        no_operator("qq::*", KNOWN, source="a.yaml")
        == "no operator in a.yaml matches qq::*; its namespaces are aten, my"
    )
    assert no_operator("qq::*", KNOWN[:2]) == "no operator matches qq::*; it has aten::add.Scalar, aten::add.Tensor"
    assert no_operator("qq::*") == "no operator matches qq::*"


def test_the_error_about_an_unknown_operator_names_the_option_that_imports_a_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bare", ModuleType("bare"))  # has no spec
    known = ("aten::add.Tensor", "own::add")
    package = "yaml is a package, which --from yaml imports"
    assert str(UnknownOperatorError("yaml::load", known, "a.yaml")) == (
        f"there is no operator yaml::load in a.yaml; {package}"
    )
    assert str(UnknownOperatorError("yaml", known, "a.yaml")) == (
        f"there is no operator yaml in a.yaml; {package}, and --list lists its operators"
    )
    assert str(UnknownOperatorError("yaml:load", known, "a.yaml")) == (
        f"there is no operator yaml::load in a.yaml; {package}"
    )
    assert "package" not in str(UnknownOperatorError("json::load", known, "a.yaml"))
    for name in "__main__", "bare":
        assert "package" not in str(UnknownOperatorError(f"{name}::load", known, "a.yaml"))
    assert "package" not in str(UnknownOperatorError("yaml::load", (*known, "yaml::dump"), "a.yaml"))
