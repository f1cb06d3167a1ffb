"""Python bindings: which signature fits, the message when none does, and the call stack of one operator."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

from dispatchlab.call import tensor
from dispatchlab.call.python_arg_parser import PythonArgParser, PythonSignature
from dispatchlab.codegen.kernels.lab import lab_functions
from dispatchlab.codegen.runtime.python_bindings import PythonFunctions
from dispatchlab.errors import ParseError
from tests.structured_lab import StructuredLab

ADD = (
    "add(Tensor input, Scalar alpha, Tensor other, *, Tensor out=None)|deprecated",
    "add(Tensor input, Tensor other, *, Scalar alpha=1, Tensor out=None)",
)


@pytest.fixture(scope="module")
def lab() -> StructuredLab:
    return StructuredLab()


@pytest.fixture(scope="module")
def python(lab: StructuredLab) -> PythonFunctions:
    return PythonFunctions(lab.dispatcher, lab_functions())


def test_a_signature_prints_as_messages_show_it() -> None:
    deprecated, modern = map(PythonSignature.parse, ADD)
    assert str(deprecated) == "(Tensor input, Number alpha, Tensor other, *, Tensor out = None)"
    assert str(modern) == "(Tensor input, Tensor other, *, Number alpha = 1, Tensor out = None)"
    assert (deprecated.deprecated, modern.deprecated) == (True, False)
    assert (modern.positional, modern.required) == (2, 2)
    with pytest.raises(ParseError, match="expected deprecated or hidden but found 'old'"):
        PythonSignature.parse("add(Tensor input)|old")


def test_the_first_signature_that_fits_is_taken() -> None:
    add = PythonArgParser("add", ADD)
    x, y = tensor([1.0]), tensor([2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        modern = add.bind((x, y), {"alpha": 2})
    assert (modern.signature.deprecated, list(modern.values)) == (False, ["input", "other", "alpha"])
    both_fit = PythonArgParser("f", ("f(Tensor input, Scalar a)", "f(Tensor input, Tensor b)"), numbers=True)
    assert [*both_fit.bind((x, 2), {}).values] == ["input", "a"]
    assert [*both_fit.bind((x, y), {}).values] == ["input", "b"]


def test_a_deprecated_signature_warns_with_the_one_to_use() -> None:
    add = PythonArgParser("add", ADD)
    x, y = tensor([1.0]), tensor([2.0])
    expected = (
        "This overload of add is deprecated:\n"
        "\tadd(Tensor input, Number alpha, Tensor other, *, Tensor out = None)\n"
        "Consider using one of the following signatures instead:\n"
        "\tadd(Tensor input, Tensor other, *, Number alpha = 1, Tensor out = None)"
    )
    with pytest.warns(UserWarning, match=re.escape(expected)):
        past = add.bind((x, 2, y), {})
    assert (past.signature.deprecated, past.values["alpha"]) == (True, 2)


def test_positional_keyword_default_and_out_arguments_reach_the_operator(python: PythonFunctions) -> None:
    x, y, out = tensor([1.0, 2.0]), tensor([3.0, 4.0]), tensor([0.0, 0.0])
    assert python.add(x, y).data.tolist() == [4.0, 6.0]
    assert python.add(x, other=y, alpha=2).data.tolist() == [7.0, 10.0]
    assert python.add(x, 5).data.tolist() == [6.0, 7.0]
    assert python.add(x, y, out=out) is out
    assert out.data.tolist() == [4.0, 6.0]
    with pytest.warns(UserWarning, match="deprecated"):
        assert python.add(x, 10, y, out=out) is out
    assert out.data.tolist() == [31.0, 42.0]
    values, indices = tensor(np.zeros(0, np.float32)), tensor(np.zeros(0, np.int64))
    assert python.max(tensor([[1.0, 5.0], [7.0, 2.0]]), 1, out=(values, indices)) == (values, indices)
    assert (values.data.tolist(), indices.data.tolist()) == ([5.0, 7.0], [1, 0])
    assert python.sum(tensor([[1.0, 5.0]]), 1, keepdim=True).data.tolist() == [[6.0]]
    assert python.clamp(x, max=1.5).data.tolist() == [1.0, 1.5]
    assert python.method("add_")(x, 1) is x
    assert x.data.tolist() == [2.0, 3.0]


X = tensor([1.0])
REFUSED: tuple[tuple[tuple[str, tuple[Any, ...], dict[str, Any]], str], ...] = (
    (("mul", (X, "y"), {}), "mul(): argument 'other' (position 2) must be Tensor, not str"),
    (("add", (X, "y"), {}), "add(): argument 'other' (position 2) must be Tensor, not str"),
    (("add", (X, X), {"alpha": "a"}), "add(): argument 'alpha' must be Number, not str"),
    (("add", (X, X), {"beta": 2}), "add() got an unexpected keyword argument 'beta'"),
    (("add", (X, X), {"input": X}), "add() got multiple values for argument 'input'"),
    (("cumsum", (X,), {}), 'cumsum() missing 1 required positional arguments: "dim"'),
    (("sin", (X, X, X), {}), "sin() takes 1 positional argument but 3 were given"),
    (("sum", (X, [0], 3), {}), "sum(): argument 'keepdim' (position 3) must be bool, not int"),
    (
        ("add", (X,), {}),
        "add() received an invalid combination of arguments - got (Tensor), but expected "
        "(Tensor input, Tensor other, *, Number alpha = 1, Tensor out = None)\n"
        '      didn\'t match because it is missing 1 required positional arguments: "other"',
    ),
)


@pytest.mark.parametrize(("call", "expected"), REFUSED)
def test_what_fits_no_signature_is_refused_in_pytorchs_words(
    python: PythonFunctions, call: tuple[str, tuple[object, ...], dict[str, object]], expected: str
) -> None:
    name, args, kwargs = call
    with pytest.raises(TypeError) as caught:
        getattr(python, name)(*args, **kwargs)
    assert str(caught.value) == expected


def test_every_signature_is_listed_with_the_reason_why_it_did_not_fit() -> None:
    clamp = PythonArgParser(
        "clamp",
        (
            "clamp(Tensor input, Tensor? min=None, Tensor? max=None, *, Tensor out=None)",
            "clamp(Tensor input, Scalar? min=None, Scalar? max=None, *, Tensor out=None)",
        ),
    )
    assert list(clamp.bind((X, None, 2), {}).values) == ["input", "min", "max"]
    with pytest.raises(TypeError) as caught:
        clamp.bind((X, "a"), {})
    assert str(caught.value) == (
        "clamp() received an invalid combination of arguments - got (Tensor, str), but expected one of:\n"
        " * (Tensor input, Tensor min = None, Tensor max = None, *, Tensor out = None)\n"
        "      didn't match because argument 'min' (position 2) must be Tensor, not str\n"
        " * (Tensor input, Number min = None, Number max = None, *, Tensor out = None)\n"
        "      didn't match because argument 'min' (position 2) must be Number, not str"
    )


def test_integers_may_be_given_one_by_one_where_only_a_list_of_them_is_taken() -> None:
    view = PythonArgParser("zeros", ("zeros(int[] size, *, ScalarType? dtype=None)",))
    assert view.bind((2, 3), {}).values == {"size": (2, 3)}
    assert view.bind(([2, 3],), {}).values == {"size": [2, 3]}
