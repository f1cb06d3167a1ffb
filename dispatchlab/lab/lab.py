"""`Lab`: a dispatcher with all layers, registered through the public API."""

from __future__ import annotations

from collections.abc import Container

from dispatchlab.call.operators import Operator, operator
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import KernelFunction, boxed, fallthrough
from dispatchlab.engine.library import Library
from dispatchlab.errors import RegistrationError
from dispatchlab.lab import autograd, backward, batching, composites
from dispatchlab.lab.builtin_kernels import tracer
from dispatchlab.lab.composites import backend_select, randn_kernel
from dispatchlab.lab.derivatives import Derivative
from dispatchlab.lab.formulas import FORMULAS
from dispatchlab.lab.kernels import BACKEND_KERNELS, EMPTY_KERNELS, META_KERNELS, clone_kernel, copy_, zeros_kernel
from dispatchlab.lab.lazy_elements import LAZY_KEYS, SEEN_THROUGH
from dispatchlab.lab.schemas import IN_PLACE, NAMESPACE, NOT_DIFFERENTIABLE, SCHEMAS, SHORT_NAMES, VIEWS
from dispatchlab.lab.views import in_place_kernel, view_kernel
from dispatchlab.model.keys import AUTOCAST_KEYS


class Lab:
    """The operators, to be called by name: `lab.add(x, y)`, `lab("sum.dim_IntList")(x, [0])`.

    >>> from dispatchlab import Lab, tensor
    >>> lab, x = Lab(), tensor([1.0, 2.0], requires_grad=True)
    >>> lab.backward(lab.sum(lab.mul(x, x)))
    >>> x.grad
    tensor([2., 4.])

    Args:
        dispatcher: the dispatcher; default: a new one without fallbacks. It must not have these operators. It has
            the builtin fallbacks, or none at the keys that the layers use.

    Raises:
        RegistrationError: a registration is refused; then all of them are released.
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
                self._batching,
                self._fallbacks,
            ):
                install()
        except BaseException:
            self.release()
            raise

    def __call__(self, name: str) -> Operator:
        """Return an operator by its name with the overload."""
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

    def __dir__(self) -> list[str]:
        names = [str(name.without_namespace) for name in self.dispatcher.operators() if name.namespace == NAMESPACE]
        return sorted({*super().__dir__(), *SHORT_NAMES, *(one for one in names if "." not in one)})

    def __repr__(self) -> str:
        return f"<Lab on {self.dispatcher!r}>"

    def release(self) -> None:
        """Take everything out again."""
        for library in reversed(self._libraries):
            library.release()
        self._libraries.clear()

    backward = backward.backward
    vmap = batching.vmap

    # -- the layers, each a library or two

    def _library(self, kind: str, key: str = "", namespace: str = NAMESPACE) -> Library:
        library = Library(namespace, kind, key, dispatcher=self.dispatcher)
        self._libraries.append(library)
        return library

    def _made_elsewhere(self) -> Container[str]:
        """Return the operators with defs and backend kernels that are registered elsewhere."""
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
        self._library("IMPL", "CompositeImplicitAutograd").impl("matmul", composites.matmul(self))

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
        for name, derivative in FORMULAS.items():
            library.impl(name, self._autograd_kernel(derivative, writes=name in IN_PLACE, views=name in VIEWS))
        # A factory has nothing to record; its kernel writes what it makes, which counts nowhere.
        library.impl("zeros", self._autograd_kernel(None))
        without = self._autograd_kernel(None, detaches=True)
        for name in NOT_DIFFERENTIABLE:
            library.impl(name, without)

    def _autograd_kernel(self, derivative: Derivative | None, **known: bool) -> KernelFunction:
        return boxed(autograd.autograd_kernel(self, derivative, **known), with_keyset=True)

    def _batching(self) -> None:
        self._library("IMPL", "Batched").impl("select.int", batching.select_rule(self))

    def _fallbacks(self) -> None:
        if self.dispatcher.builtin_fallbacks:
            return
        for key in ("BackendSelect", "ADInplaceOrView", *map(str, AUTOCAST_KEYS)):
            self._library("IMPL", key, "_").fallback(fallthrough)
        self._library("IMPL", "Autograd", "_").fallback(self._autograd_kernel(None))
        self._library("IMPL", "Batched", "_").fallback(boxed(batching.batched_fallback(self)))
        self._library("IMPL", "Tracer", "_").fallback(boxed(tracer, with_keyset=True))
