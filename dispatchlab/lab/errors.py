"""`AutogradError`, when a gradient cannot be had."""

from __future__ import annotations

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import DispatchLabError


class AutogradErrorKind(WordEnum):
    """The reason why there is no gradient."""

    SAVED_VALUE_MODIFIED = "saved_value_modified"
    GRAPH_FREED = "graph_freed"
    LEAF_MODIFIED = "leaf_modified"
    NO_GRADIENT = "no_gradient"
    WRONG_GRADIENT = "wrong_gradient"
    NOT_DIFFERENTIABLE = "not_differentiable"
    INFERENCE_TENSOR = "inference_tensor"


class AutogradError(DispatchLabError):
    """A gradient cannot be computed, or a call would make a gradient wrong.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.lab import AutogradError
    >>> try:
    ...     Lab().backward(tensor([1.0]))
    ... except AutogradError as error:
    ...     print(error.kind)
    no_gradient

    Attributes:
        kind: why.
        message: the problem, and what to do.
    """

    kind: AutogradErrorKind
    message: str

    template = "{kind}: {message}"
