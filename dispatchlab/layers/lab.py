"""`Lab`: a dispatcher with all layers, registered through the public API."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from dispatchlab.call.operators import Operator, operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import boxed, fallthrough
from dispatchlab.engine.library import Library
from dispatchlab.errors import RegistrationError
from dispatchlab.layers import autograd, backward, batching
from dispatchlab.layers.backend_select import backend_select, randn_kernel
from dispatchlab.layers.derivatives import DERIVATIVES
from dispatchlab.layers.kernels import BACKEND_KERNELS, EMPTY_KERNELS, META_KERNELS, clone_kernel, copy_, zeros_kernel
from dispatchlab.layers.lazy_elements import LAZY_KEYS, SEEN_THROUGH
from dispatchlab.layers.schemas import IN_PLACE, NAMESPACE, NOT_DIFFERENTIABLE, SCHEMAS, SHORT_NAMES, VIEWS
from dispatchlab.layers.tracing import tracer_fallback
from dispatchlab.layers.views import in_place_kernel, view_kernel


class Lab:
    """The operators, to be called by name: `lab.add(x, y)`, `lab("sum.dim_IntList")(x, [0])`.

    >>> from dispatchlab import Lab, tensor
    >>> lab, x = Lab(), tensor([1.0, 2.0], requires_grad=True)
    >>> lab.backward(lab.sum(lab.mul(x, x)))
    >>> x.grad
    tensor([2., 4.])

    Args:
        dispatcher: where to register them; a new, bare one when left out. It must not have these operators. It has
            the builtin fallbacks, or none at the keys that the layers use.

    Raises:
        RegistrationError: a registration is refused; all of them are gone then.
    """

    def __init__(self, dispatcher: Dispatcher | None = None) -> None:
        self.dispatcher = Dispatcher(builtin_fallbacks=False) if dispatcher is None else dispatcher
        self._operators: dict[str, Operator] = {}
        self._libraries: list[Library] = []
        try:
            for install in (
                self._define,
                self._backends,
                self._factories,
                self._views,
                self._autograd,
                self._fallbacks,
            ):
                install()
        except BaseException:
            self.release()
            raise

    def __call__(self, name: str) -> Operator:
        """An operator by its name with the overload."""
        found = self._operators.get(name)
        if found is None:
            found = self._operators[name] = operator(self.dispatcher, f"{NAMESPACE}::{name}")
        return found

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self(SHORT_NAMES.get(name, name))
        except RegistrationError as error:
            raise AttributeError(str(error)) from error

    def __repr__(self) -> str:
        return f"<Lab on {self.dispatcher!r}>"

    def release(self) -> None:
        """Take everything out again."""
        for library in reversed(self._libraries):
            library.release()
        self._libraries.clear()

    def backward(
        self, tensor: Tensor, gradient: Tensor | None = None, *, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Add the gradient of `tensor` to the `grad` of its leaves; see `backward.backward`."""
        backward.backward(self, tensor, gradient, retain_graph=retain_graph, create_graph=create_graph)

    def vmap(
        self, function: Callable[..., Any], in_dims: int | Sequence[int | None] = 0, out_dims: int = 0
    ) -> Callable[..., Any]:
        """A function that does for a whole batch what `function` does for one element; see `batching.vmap`."""
        return batching.vmap(self, function, in_dims, out_dims)

    # -- the layers, each a library or two

    def _library(self, kind: str, key: str = "", namespace: str = NAMESPACE) -> Library:
        library = Library(namespace, kind, key, dispatcher=self.dispatcher)
        self._libraries.append(library)
        return library

    def _made_elsewhere(self) -> Container[str]:
        """The operators whose defs and backend kernels somebody else registers."""
        return ()

    def _define(self) -> None:
        library = self._library("FRAGMENT")
        for schema in SCHEMAS:
            if schema.partition("(")[0] not in self._made_elsewhere():
                library.define(schema)

    def _backends(self) -> None:
        for key in ("CPU", "CUDA", "Meta"):
            library = self._library("IMPL", key)
            for name, kernel in EMPTY_KERNELS[key].items():
                library.impl(name, kernel)
            for name, kernel in (META_KERNELS if key == "Meta" else BACKEND_KERNELS).items():
                if name not in self._made_elsewhere():
                    library.impl(name, kernel)
        self._library("IMPL", "CompositeImplicitAutograd").impl("matmul", self._matmul)

    def _factories(self) -> None:
        randn = randn_kernel(self("empty.memory_format"), self("normal_"))
        composite = self._library("IMPL", "CompositeExplicitAutograd")
        composite.impl("randn", randn)
        composite.impl("zeros", zeros_kernel(self("empty.memory_format")))
        composite.impl("copy_", copy_)
        composite.impl("clone", clone_kernel(self("empty_strided"), self("copy_")))
        library = self._library("IMPL", "BackendSelect")
        for name in ("empty.memory_format", "empty_strided", "randn", "zeros"):
            library.impl(name, backend_select(self(name)))

    def _views(self) -> None:
        library = self._library("IMPL", "ADInplaceOrView")
        for name in VIEWS:
            library.impl(name, boxed(view_kernel, with_keyset=True))
        for name in IN_PLACE:
            library.impl(name, boxed(in_place_kernel, with_keyset=True))
        for key in LAZY_KEYS:
            library = self._library("IMPL", key.name)
            for name in (*VIEWS, *SEEN_THROUGH):
                library.impl(name, fallthrough)

    def _autograd(self) -> None:
        library = self._library("IMPL", "Autograd")
        for name, derivative in DERIVATIVES.items():
            kernel = autograd.autograd_kernel(self, derivative, writes=name in IN_PLACE, views=name in VIEWS)
            library.impl(name, boxed(kernel, with_keyset=True))
        without = boxed(autograd.autograd_kernel(self, None, detaches=True), with_keyset=True)
        for name in NOT_DIFFERENTIABLE:
            library.impl(name, without)

    def _fallbacks(self) -> None:
        self._library("IMPL", "Batched").impl("select.int", batching.select_rule(self))
        if self.dispatcher.builtin_fallbacks:
            return
        for key in ("BackendSelect", "ADInplaceOrView"):
            self._library("IMPL", key, "_").fallback(fallthrough)
        kernel = autograd.autograd_kernel(self, None)
        self._library("IMPL", "Autograd", "_").fallback(boxed(kernel, with_keyset=True))
        self._library("IMPL", "Batched", "_").fallback(boxed(batching.batched_fallback(self)))
        self._library("IMPL", "Tracer", "_").fallback(boxed(tracer_fallback, with_keyset=True))

    def _matmul(self, first: Tensor, second: Tensor) -> Tensor:
        """`matmul` of vectors, matrices and batches of them, made of `mm`, `view`, `select` and `stack`."""
        result: Tensor
        if first.dim == 1 or second.dim == 1:
            left = self.view(first, [1, *first.shape]) if first.dim == 1 else first
            right = self.view(second, [*second.shape, 1]) if second.dim == 1 else second
            whole = self._matmul(left, right)
            gone = {at for at, one in ((whole.dim - 2, first), (whole.dim - 1, second)) if one.dim == 1}
            result = self.view(whole, [size for at, size in enumerate(whole.shape) if at not in gone])
        elif first.dim == second.dim == 2:
            result = self.mm(first, second)
        else:
            result = self.stack([self._matmul(one, other) for one, other in self._batches(first, second)])
        return result

    def _batches(self, first: Tensor, second: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The pairs along the first dimension of the tensor that has more of them."""
        rank = max(first.dim, second.dim)
        size = max(one.shape[0] for one in (first, second) if one.dim == rank)
        for at in range(size):
            yield tuple(  # type: ignore[misc]  # two, for there are two
                self.select(one, 0, at if one.shape[0] > 1 else 0) if one.dim == rank else one
                for one in (first, second)
            )
