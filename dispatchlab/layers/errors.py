"""`AutogradError`, when a gradient cannot be had, and `TransformError`, when a transform cannot do what it should."""

from __future__ import annotations

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import DispatchLabError


class AutogradErrorKind(WordEnum):
    """Why a gradient cannot be had."""

    SAVED_VALUE_MODIFIED = "saved_value_modified"
    GRAPH_FREED = "graph_freed"
    LEAF_MODIFIED = "leaf_modified"
    NO_GRADIENT = "no_gradient"
    WRONG_GRADIENT = "wrong_gradient"
    NOT_DIFFERENTIABLE = "not_differentiable"
    INFERENCE_TENSOR = "inference_tensor"
    INPUT_REPLACED = "input_replaced"


class AutogradError(DispatchLabError):
    """A gradient cannot be computed, or a call would make one wrong.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.layers import AutogradError
    >>> try:
    ...     Lab().backward(tensor([1.0]))
    ... except AutogradError as error:
    ...     print(error.kind)
    no_gradient

    Attributes:
        kind: why.
        message: what was found, and what to do.
    """

    kind: AutogradErrorKind
    message: str

    template = "{kind}: {message}"


class TransformErrorKind(WordEnum):
    """Why a transform cannot go on."""

    WRONG_DIMS = "wrong_dims"
    WRONG_OUTPUT = "wrong_output"
    NO_BATCHING_RULE = "no_batching_rule"
    UNBATCHED_WRITE = "unbatched_write"
    CAPTURED_WRITE = "captured_write"
    RANDOMNESS = "randomness"
    ESCAPED_TENSOR = "escaped_tensor"
    WRONG_ARGUMENT = "wrong_argument"


class TransformError(DispatchLabError):
    """A transform, such as `vmap` or `grad`, cannot do what it was asked.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.layers import TransformError
    >>> lab = Lab()
    >>> try:
    ...     lab.vmap(lambda x: lab.randn([2]))(tensor([1.0]))
    ... except TransformError as error:
    ...     print(error.kind)
    randomness

    Attributes:
        kind: why.
        message: what was found, and what to do.
    """

    kind: TransformErrorKind
    message: str

    template = "{kind}: {message}"
