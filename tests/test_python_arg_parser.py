"""The argument parser of Python functions: which signature fits, and the message when none does."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

from dispatchlab.call import tensor
from dispatchlab.call.python_arg_parser import NUMBERS_AS_TENSORS, PythonArgParser, PythonSignature
from dispatchlab.errors import ParseError

ADD = (
    "add(Tensor input, Scalar alpha, Tensor other, *, Tensor out=None)|deprecated",
    "add(Tensor input, Tensor other, *, Scalar alpha=1, Tensor out=None)",
)


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


SIGNATURES = {
    "add": ADD,
    "mul": ("mul(Tensor input, Tensor other, *, Tensor out=None)",),
    "cumsum": ("cumsum(Tensor input, int dim, *, ScalarType? dtype=None, Tensor out=None)",),
    "sin": ("sin(Tensor input, *, Tensor out=None)",),
    "sum": ("sum(Tensor input, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor out=None)",),
}
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
    call: tuple[str, tuple[object, ...], dict[str, object]], expected: str
) -> None:
    name, args, kwargs = call
    with pytest.raises(TypeError) as caught:
        PythonArgParser(name, SIGNATURES[name], numbers=name in NUMBERS_AS_TENSORS).bind(args, kwargs)
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
