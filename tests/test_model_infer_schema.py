"""The schema that a function's annotations give, and what is said when they give none."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Annotated, Any, List, Optional, Tuple, Union  # noqa: UP035 - the old spellings are read, too

import pytest

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.infer_schema import infer_schema


class Tensor:
    pass


class DispatchKeySet:
    pass


class Scalar:
    pass


class dtype:
    __module__ = "torch"


class Unknown:
    pass


Tensors = list[Tensor]


def text_of(function: Callable[..., object], **annotations: object) -> str:
    function.__annotations__ = dict(annotations)
    return str(infer_schema(function))


def one(x):  # type: ignore[no-untyped-def]
    return x


@pytest.mark.parametrize(
    ("annotation", "type_"),
    [
        (Tensor, "Tensor"),
        ("Tensor", "Tensor"),
        ("torch.Tensor", "Tensor"),
        (int, "int"),
        (float, "float"),
        (bool, "bool"),
        (str, "str"),
        (complex, "complex"),
        (Scalar, "Scalar"),
        (numbers.Number, "Scalar"),
        ("SymInt", "SymInt"),
        ("torch.SymInt", "SymInt"),
        ("ScalarType", "ScalarType"),
        (dtype, "ScalarType"),
        ("torch.dtype", "ScalarType"),
        ("torch.device", "Device"),
        ("torch.layout", "Layout"),
        ("torch.memory_format", "MemoryFormat"),
        ("torch.Generator | None", "Generator?"),
        (Any, "Any"),
        (list[Tensor], "Tensor[]"),
        (List[Tensor], "Tensor[]"),  # noqa: UP006
        (Sequence[int], "int[]"),
        ("list[Tensor]", "Tensor[]"),
        ("Sequence[Optional[Tensor]]", "Tensor?[]"),
        ("typing.List[int] | None", "int[]?"),
        (Optional[Tensor], "Tensor?"),  # noqa: UP045
        (Tensor | None, "Tensor?"),
        (None | Tensor, "Tensor?"),
        ("None | Tensor", "Tensor?"),
        ("Union[Tensor, None]", "Tensor?"),
        (Union[int, str], "Union(int, str)"),  # noqa: UP007
        ("int | str", "Union(int, str)"),
        (dict[str, Tensor], "Dict(str, Tensor)"),
        ("dict[str, int]", "Dict(str, int)"),
        (tuple[int, Tensor], "(int, Tensor)"),
        (Annotated[Tensor, "of floats"], "Tensor"),
        ("Annotated[Tensor, 3]", "Tensor"),
        ("'Tensor'", "Tensor"),
        ("Tensors", "Tensor[]"),
        (list["Tensor"], "Tensor[]"),
        (List["Tensor"], "Tensor[]"),  # noqa: UP006
    ],
    ids=str,
)
def test_an_annotation_is_this_type(annotation: object, type_: str) -> None:
    assert text_of(one, x=annotation, **{"return": None}) == f"({type_} _0) -> ()"


@pytest.mark.parametrize(
    ("annotation", "returns"),
    [
        (None, "()"),
        ("None", "()"),
        (Tensor, "Tensor _0"),
        (tuple[Tensor], "Tensor _0"),
        ("tuple[Tensor]", "Tensor _0"),
        (tuple[Tensor, int], "(Tensor _0, int _1)"),
        (Tuple[Tensor, int], "(Tensor _0, int _1)"),  # noqa: UP006
        ("tuple[Tensor, list[int]]", "(Tensor _0, int[] _1)"),
        (tuple[()], "()"),
        (list[Tensor], "Tensor[] _0"),
        (tuple[tuple[int, int]], "((int, int) _0)"),
    ],
    ids=str,
)
def test_a_return_annotation_is_these_returns(annotation: object, returns: str) -> None:
    assert text_of(one, x="Tensor", **{"return": annotation}) == f"(Tensor _0) -> {returns}"


def test_annotations_of_this_very_module_are_text_and_are_read() -> None:
    def kernel(x: Tensor, size: list[int], *, scale: float = 1.0) -> tuple[Tensor, Tensor | None]: ...  # type: ignore[empty-body]

    assert str(infer_schema(kernel)) == "(Tensor _0, int[] _1, float _2) -> (Tensor _0, Tensor? _1)"


def test_a_leading_key_set_is_no_argument() -> None:
    def with_keys(keys: DispatchKeySet, x: Tensor) -> Tensor:
        return x

    def later(x: Tensor, keys: DispatchKeySet) -> Tensor:
        return x

    assert str(infer_schema(with_keys)) == "(Tensor _0) -> Tensor _0"
    with pytest.raises(RegistrationError, match="parameter 'keys'"):
        infer_schema(later)


def test_methods_partials_and_callables_have_schemas_too() -> None:
    class Kernel:
        def method(self, x: Tensor) -> Tensor:
            return x

        def __call__(self, x: Tensor, n: int) -> Tensor:
            return x

    assert str(infer_schema(Kernel().method)) == "(Tensor _0) -> Tensor _0"
    assert str(infer_schema(Kernel())) == "(Tensor _0, int _1) -> Tensor _0"
    assert str(infer_schema(functools.partial(Kernel(), Tensor()))) == "(int _0) -> Tensor _0"


def refused(function: Callable[..., object]) -> RegistrationError:
    with pytest.raises(RegistrationError) as error:
        infer_schema(function)
    assert error.value.kind is ErrorKind.CANNOT_INFER_SCHEMA
    return error.value


def kernel_without(x: Tensor, y) -> Tensor:  # type: ignore[no-untyped-def]
    return x


def kernel_with_unknown(x: Tensor, y: list[Unknown]) -> Tensor:
    return x


def kernel_with_typo(x: Tensr) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def kernel_without_return(x: Tensor):  # type: ignore[no-untyped-def]
    return x


def kernel_with_many(*xs: Tensor) -> Tensor:
    return xs[0]


def kernel_with_bare_list(x: list) -> None: ...  # type: ignore[type-arg]


def kernel_with_endless_tuple(x: tuple[int, ...]) -> None: ...


def test_the_refusal_names_the_parameter_and_says_what_to_do() -> None:
    assert str(refused(kernel_without)) == (
        "cannot_infer_schema: cannot infer a schema from kernel_without: parameter 'y' has no annotation; "
        "annotate every parameter and the return (Tensor, int, list[Tensor], Scalar | None, ...) or give the schema"
    )
    assert dict(refused(kernel_without).facts) == {
        "function": "kernel_without",
        "where": "parameter y",
        "annotation": "",
    }


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            kernel_with_unknown,
            "parameter 'y' is annotated with 'list[Unknown]', in which 'test_model_infer_schema.Unknown' is "
            "not a type of schemas",
        ),
        (
            kernel_with_typo,
            "annotated with 'Tensr', in which 'Tensr' is not a type of schemas; did you mean Tensor?",
        ),
        (kernel_without_return, "the return has no annotation"),
        (kernel_with_many, "parameter 'xs' takes any number of values"),
        (kernel_with_bare_list, "parameter 'x' is annotated with 'list', in which 'list' is not a type of schemas"),
        (kernel_with_endless_tuple, "in which 'tuple' of any length is not a type of schemas"),
    ],
)
def test_the_refusal_says_what_was_found(function: Callable[..., object], said: str) -> None:
    assert said.replace("test_model_infer_schema.", f"{__name__}.") in str(refused(function))


def test_what_cannot_be_inspected_is_refused() -> None:
    assert "has no signature" in str(refused(max))
