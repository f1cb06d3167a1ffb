"""Tensors over numpy arrays, with all that a dispatcher looks at: a device, a dtype, strides, a layout, and a key set.

A device is a label: a `cuda` tensor keeps an ordinary array. A `meta` tensor has a shape and no data at all.

A Python number where a tensor is wanted becomes a wrapped number; only the operators that PyTorch names take one.
Source: torch/csrc/utils/python_arg_parser.cpp (`should_allow_numbers_as_tensors`), c10/core/TensorImpl.h
(`is_wrapped_number`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from math import prod
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import ref

import numpy as np

from dispatchlab.call.local_key_set import is_inference_mode
from dispatchlab.call.tensor_keys import PYTHON_KEYS, compute_dispatch_key, tensor_key_set
from dispatchlab.call.tensor_options import (
    CPU,
    DEFAULT_DTYPE,
    Device,
    DeviceType,
    DType,
    Layout,
    device_of,
    dtype_of,
    stored,
)
from dispatchlab.call.torch_handlers import DisableTorchFunctionSubclass, default_torch_dispatch, python_bits
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor: the last dimension has stride 1."""
    return tuple(prod(max(size, 1) for size in shape[at + 1 :]) for at in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether every element has its own position in memory, without gaps, in some order of dimensions."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, strides, strict=True) if size != 1):
        if step != expected:
            return 0 in shape
        expected *= size
    return True


def is_viewable(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether elements in these strides can be viewed in another shape of equal size.

    Dimensions that follow each other in memory without a gap are one run; no dimension of the new shape may reach from
    one run into the next.
    """
    if 0 in shape:
        return True
    runs: list[int] = []
    before = 0
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and before == size * step:
            runs[-1] *= size
        else:
            runs.append(size)
        before = step
    rest = [size for size in wanted if size != 1]
    for run in runs:
        filled = 1
        while filled < run:
            filled *= rest.pop(0)
        if filled != run:
            return False
    return True


Array: TypeAlias = np.ndarray[Any, Any]


class VersionCounter:
    """A count of writes to the memory of a tensor, shared by all tensors that view it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def __repr__(self) -> str:
        return f"<VersionCounter at {self.value}>"


class History(Protocol):
    """The history of a view, as autograd keeps it."""

    def follow_base(self, view: Tensor) -> None:
        """Give the view the history of its base, because its memory was written."""


class Tensor:
    """A tensor.

    >>> import numpy as np
    >>> from dispatchlab import DispatchKey, Tensor
    >>> Tensor(np.ones(2, np.float32), device="cuda").key_set.has(DispatchKey.CUDA)
    True

    Args:
        data: its elements; only the shape of them is kept on `meta`.
        device: its declared device.
        dtype: the type of its elements; default: the dtype of `data`.
        layout: its declared layout.
        requires_grad: whether operations on it are recorded for `backward`.
        key_set: its key set, which replaces the backend key of device, layout and dtype.

    Attributes:
        elements: the array; None for a tensor without elements, as on `meta`. Then `data` raises.
        made_by: the node of the autograd graph that made it, as `grad_fn` shows it. Autograd keeps it here, as it keeps
            `grad_accumulator`, `hooks` and `view_history`, and calls know nothing of what they are.

    Raises:
        CallError: of kind `wrong_type`, when the elements are of no known type.
    """

    __slots__ = (
        *("__weakref__", "device", "dtype", "elements", "key_bits", "layout", "shape"),
        *(
            "base",
            "grad",
            "grad_accumulator",
            "made_by",
            "made_by_version",
            "output_nr",
            "requires_grad",
            "version_counter",
        ),
        *("hooks", "is_wrapped_number", "live_views", "view_history", "wrapped_strides"),
    )

    def __init__(
        self,
        data: Array,
        *,
        device: Device | str = CPU,
        dtype: DType | None = None,
        layout: Layout = Layout.strided,
        requires_grad: bool = False,
        key_set: DispatchKeySet | None = None,
    ) -> None:
        where = device_of(device)
        kind = dtype_of(data) if dtype is None else dtype
        self.device = where
        self.dtype = kind
        self.layout = layout
        self.shape: tuple[int, ...] = data.shape
        on_meta = where.type is DeviceType.META
        self.elements: Array | None = None if on_meta else stored(data, kind)
        base = DispatchKeySet.of(compute_dispatch_key(where.type, layout, kind)) if key_set is None else key_set
        self.key_bits = tensor_key_set(base, inference=is_inference_mode()).bits
        if type(self) is not Tensor:
            self.key_bits |= python_bits(type(self))
        self.start_history(VersionCounter(), requires_grad=requires_grad)

    def start_history(self, version_counter: VersionCounter, *, requires_grad: bool) -> None:
        """Make this tensor a leaf: without gradient and base, and with its own elements."""
        self.grad: Tensor | None = None
        self.grad_accumulator: ref[Any] | None = None
        self.made_by: object | None = None
        self.made_by_version = 0
        self.output_nr = 0
        self.base: Tensor | None = None
        self.version_counter = version_counter
        self.requires_grad = requires_grad
        self.wrapped_strides: tuple[int, ...] | None = None
        self.is_wrapped_number = False
        self.view_history: History | None = None
        self.hooks: Sequence[Callable[[], None]] | None = None
        self.live_views: MutableMapping[int, Tensor] | None = None

    @property
    def key_set(self) -> DispatchKeySet:
        """The keys that decide calls with this tensor."""
        return DispatchKeySet(self.key_bits)

    @property
    def data(self) -> Array:
        """The elements.

        Raises:
            CallError: of kind `wrong_type`: a tensor on `meta` has none.
        """
        if self.elements is None:
            message = f"this tensor of shape {list(self.shape)} is on {self.device} and has no elements to read"
            raise CallError(ErrorKind.WRONG_TYPE, message, {"device": str(self.device)})
        return self.elements

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance between neighbouring elements, by dimension; without elements, as for a contiguous tensor."""
        if self.wrapped_strides is not None:
            return self.wrapped_strides
        if self.elements is None:
            return contiguous_strides(self.shape)
        return tuple(step // self.elements.itemsize for step in self.elements.strides)

    @property
    def version(self) -> int:
        """The number of in-place writes to its memory, through any tensor that shares it."""
        return self.version_counter.value

    @property
    def grad_fn(self) -> object | None:
        """The node of the autograd graph that made it; None for a leaf.

        A view whose memory was written since, through another tensor or unrecorded, is then a view of what its base is
        now, and gets a node anew.

        Raises:
            AutogradError: this is not possible, because the view was made while nothing was recorded.
        """
        if self.view_history is not None and self.made_by_version != self.version_counter.value:
            self.view_history.follow_base(self)
        return self.made_by

    @grad_fn.setter
    def grad_fn(self, node: object | None) -> None:
        self.made_by, self.made_by_version = node, self.version_counter.value

    @property
    def is_leaf(self) -> bool:
        """True when it was not computed from tensors that require gradients."""
        return self.grad_fn is None

    def is_inference(self) -> bool:
        """Return whether it was made in inference mode; then calls with it never see autograd."""
        return is_inference_tensor(self)

    def numpy(self) -> Array:
        """Return the elements, as the array that the tensor works on."""
        return self.data

    def item(self) -> float | complex:
        """Return the only element, as a Python number."""
        number: float | complex = self.data.item()
        return number

    @classmethod
    def __torch_function__(cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Handle an overridable function like the default of a subclass: call it, and give its tensors this class.

        Returns NotImplemented if an argument has another type that is not a base class of this class.
        Source: torch/_tensor.py (`Tensor.__torch_function__`).
        """
        if not all(issubclass(cls, one) for one in types):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return result if cls is Tensor else _converted(result, cls, getattr(func, "alias", None))

    __torch_dispatch__ = staticmethod(default_torch_dispatch)

    def __repr__(self) -> str:
        values = "..." if self.elements is None else np.array2string(self.elements, separator=", ", threshold=20)
        device = "" if self.device == CPU else f", device='{self.device}'"
        dtype = "" if self.dtype == DEFAULT_DTYPE else f", dtype={self.dtype}"
        layout = "" if self.layout == Layout.strided else f", layout={self.layout}"
        size = f", size={self.shape}" if self.elements is None else ""
        grad = f", grad_fn={self.made_by}" if self.made_by else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({values}{size}{device}{dtype}{layout}{grad})"


T = TypeVar("T", bound=Tensor)
_COUNTS_WRITES = DispatchKeySet.of(DispatchKey.ADInplaceOrView).bits


def is_inference_tensor(tensor: Tensor) -> bool:
    """Return whether a tensor was made in inference mode; unlike its method, this asks no handler."""
    return not tensor.key_bits & _COUNTS_WRITES


def shallow_copy(tensor: Tensor, kind: type[T]) -> T:
    """Return another tensor with the same memory, keys, version and history, but its own gradient and views.

    Args:
        tensor: the tensor to copy.
        kind: the class of the copy; if it is the same class, the other slots are also copied.
    """
    made = object.__new__(kind)
    own = kind is type(tensor) and kind is not Tensor
    more = [name for one in kind.__mro__ for name in getattr(one, "__slots__", ())] if own else ()
    for name in (*Tensor.__slots__, *more):
        if name != "__weakref__" and hasattr(tensor, name):
            setattr(made, name, getattr(tensor, name))
    made.grad_accumulator = made.live_views = made.hooks = None
    return made


def of_class(tensor: Tensor, kind: type[T], alias: Callable[[Tensor], Tensor] | None = None) -> T:
    """Return a tensor of another class with the same memory; see `as_subclass` of `dispatchlab.lab.overrides`.

    Raises:
        CallError: a handler returned a tensor of its own class.
    """
    viewed = tensor if alias is None else alias(tensor)
    if alias is not None and viewed.key_bits & PYTHON_KEYS.bits and not issubclass(kind, type(viewed)):
        message = (
            f"a tensor of class {kind.__name__} cannot wrap a tensor whose handler returns "
            f"{type(viewed).__name__}: wrap its inner tensor"
        )
        raise CallError(ErrorKind.OTHER, message, {"class": kind.__name__})
    made = shallow_copy(viewed, kind)
    made.key_bits = viewed.key_bits & ~PYTHON_KEYS.bits | python_bits(kind)
    if alias is not None and made.base is not None and made.base.live_views is not None:
        made.base.live_views[id(made)] = made
    return made


def _converted(result: Any, kind: type[Tensor], alias: Callable[[Tensor], Tensor] | None) -> Any:
    if isinstance(result, Tensor):
        return result if isinstance(result, kind) else of_class(result, kind, alias)
    if isinstance(result, list | tuple):
        # Upstream, too, a class of named tuples has to take an iterable, as those of PyTorch's own functions do.
        return type(result)([_converted(one, kind, alias) for one in result])
    return result


Nested: TypeAlias = "float | complex | Sequence[Nested]"


def tensor(
    data: Nested | Array,
    *,
    device: Device | str = CPU,
    dtype: DType | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a new tensor with a copy of some numbers, as `torch.tensor` makes it: Python's floats are float32.

    >>> from dispatchlab import tensor
    >>> tensor([[1, 2], [3, 4]], device="cuda").shape
    (2, 2)

    Args:
        data: a number, lists of numbers, or an array.
        device: its declared device.
        dtype: the type of its elements.
        requires_grad: whether operations on it are recorded.
    """
    array = np.array(data)
    if dtype is None and not isinstance(data, np.ndarray | np.generic):
        dtype = {"f": DEFAULT_DTYPE, "c": DType.complex64, "i": DType.int64, "u": DType.int64}.get(array.dtype.kind)
    return Tensor(array, device=device, dtype=dtype, requires_grad=requires_grad)


class Generator:
    """A source of random numbers for one device; it carries the key of the device's backend.

    >>> from dispatchlab.call import Generator
    >>> Generator("cuda", seed=1)
    <Generator cuda>
    """

    __slots__ = ("device", "generator_bits", "random")

    def __init__(self, device: Device | str = CPU, *, seed: int = 0) -> None:
        self.device = device_of(device)
        self.generator_bits = DispatchKeySet.of(compute_dispatch_key(self.device.type)).bits
        self.random = np.random.default_rng(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start over from a seed."""
        self.random = np.random.default_rng(seed)
        return self

    def __repr__(self) -> str:
        return f"<Generator {self.device}>"


Number: TypeAlias = int | float | complex
NUMBERS = (int, float, complex)

_BASES = ("add", "div", "divide", "mul", "multiply", "sub", "subtract", "true_divide", "floor_divide")
_NAMES = frozenset(
    (*(f"{base}{form}" for base in _BASES for form in ("", "_", "_out")), "to", "_to_copy", "copy_", "copy", "_conj")
)


def takes_numbers(name: OperatorName) -> bool:
    """Return whether an operator takes Python numbers for its tensors."""
    return name.namespace == "prims" or (name.namespace == "aten" and name.name in _NAMES)


def wrapped_number(number: Number) -> Tensor:
    """Return a number as a tensor without dimensions, of the widest dtype of its kind."""
    made = Tensor(np.array(number))
    made.is_wrapped_number = True
    return made


def unwrapped_number(value: object) -> object:
    """Return the number of a tensor that wraps a number; every other value unchanged."""
    return value.item() if isinstance(value, Tensor) and value.is_wrapped_number else value
