"""Watch what packages register in Python beside the dispatch tables, with the line of the package that did."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dispatchlab.live.bridge.call_sites import CallSites
from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.introspection.package_paths import package_path
from dispatchlab.live.introspection.python_registries import key_text, operator_text, read_python_layer
from dispatchlab.live.recording.wrapped_functions import WrappedFunctions
from dispatchlab.model.python_layer import PythonLayer, PythonRegistration, by_slot
from dispatchlab.registry.builds import bundled_for
from dispatchlab.registry.file import bundled_names, open_bundled, python_layer_of

# Note [What a package registers in Python]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The registries are plain dictionaries, so they are read before and after the import. Not of the package is
#
# - what PyTorch itself brings, when the package imports Inductor, say: the bundled registries of this version have it,
#   and where there are none, it is what lies in PyTorch and is for operators of PyTorch's;
# - what a call of torch.library that is a registration of the record left behind it: the fake implementation, the parts
#   of a custom operator, a kernel of its own. A torch_dispatch rule reaches no dispatch table, so it is listed.
#
# What a package writes over is gone afterwards, so the registries are read between the packages as well, and what an
# earlier one had written into a slot is listed before what is there at the end.
#
# The site is the line of the package that made the call, where the call goes through a function that can be wrapped
# before the package is imported; else the line of the function, which for a decorator is the same.


Slot: TypeAlias = tuple[str, str, str]
"""The registry, the operator and the key of a registration in Python."""


class PythonWatch:
    """Reads the Python-side registries before and after an import, and notes who registers meanwhile.

    Args:
        roots: the folders in which packages are found.
    """

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots
        self._before = frozenset[PythonRegistration]()
        self._sites = CallSites()
        self._lines: dict[tuple[str, str], str] = {}
        self._wrapped = WrappedFunctions()
        self._kept: dict[PythonRegistration, None] = {}

    def __enter__(self) -> PythonWatch:
        self._before = frozenset(read_python_layer())
        base = torch()._ops.OperatorBase
        self._wrapped.wrap(base, "py_impl", self._py_impl)
        for module, name in (
            ("torch._decomp", "register_decomposition"),
            ("torch._subclasses.fake_impls", "register_op_impl"),
        ):
            if module in sys.modules:
                self._wrapped.wrap(sys.modules[module], name, self._decorator)
        return self

    def __exit__(self, *error: object) -> None:
        self._wrapped.put_back()

    def _py_impl(self, original: Callable[..., Any], operator: Any, key: Any) -> object:
        def note(function: Any) -> None:
            self._note(f"{operator_text(operator)} {key_text(key)}", function)

        return self._noting(original(operator, key), note)

    def _decorator(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> object:
        return self._noting(original(*arguments, **named), lambda function: self._note("", function))

    def _noting(self, decorator: Callable[[Any], Any], note: Callable[[Any], None]) -> Callable[[Any], Any]:
        @functools.wraps(decorator)
        def noting(function: Any) -> Any:
            note(function)
            return decorator(function)

        return noting

    def _note(self, slot: str, function: Any) -> None:
        """Keep the line that registers a function now."""
        code = getattr(function, "__code__", None)
        if code is None:
            return
        site = self._sites.here()
        if not site.by_torch:
            place = f"{package_path(code.co_filename, self._roots)}:{code.co_firstlineno}"
            chain = " via ".join(package_path(at, self._roots) for at in (str(site), *site.via))
            self._lines[slot, place] = chain

    def keep(self) -> None:
        """Keep what is registered now, for what is imported later may write over it."""
        self._kept |= dict.fromkeys(one for one in read_python_layer() if one not in self._before)

    def found(self, called: Collection[str]) -> tuple[PythonRegistration, ...]:
        """What was registered since, without what is PyTorch's own. See Note [What a package registers in Python].

        Args:
            called: the operators for which functions of torch.library were called that the record has.
        """
        own = _own_layers(str(torch().__version__))

        def of_packages(registrations: Iterable[PythonRegistration]) -> Iterator[PythonRegistration]:
            for one in registrations:
                if one not in self._before and not _is_left_by(one, called) and not _is_own(one, own):
                    yield self._placed(one)._replace(active=True)  # the order says it

        last = by_slot(of_packages(read_python_layer()))
        there = {one for some in last.values() for one in some}
        over = by_slot(one for one in dict.fromkeys(of_packages(self._kept)) if one not in there)
        return tuple(one for slot, some in last.items() for one in (*over.get(slot, ()), *some))

    def changed(self) -> dict[Slot, tuple[PythonRegistration, ...]]:
        """What each slot that is not as it was has now, PyTorch's own included; nothing where it is empty now."""
        now: dict[Slot, list[PythonRegistration]] = {}
        for one in read_python_layer():
            now.setdefault(one.slot, []).append(one)
        entries = frozenset(one for each in now.values() for one in each)
        slots = sorted({one.slot for one in entries ^ self._before})
        return {slot: tuple(self._placed(one) for one in now.get(slot, ())) for slot in slots}

    def by_torch(self, changed: Mapping[Slot, Sequence[PythonRegistration]]) -> frozenset[Slot]:
        """Those slots that have nothing but what PyTorch itself registers when a part of it is loaded."""
        own = _own_layers(str(torch().__version__))
        return frozenset(slot for slot, has in changed.items() if has and all(_is_own(one, own) for one in has))

    def _placed(self, one: PythonRegistration) -> PythonRegistration:
        """With the line that made the call in place of that of the function."""
        slot = f"{one.operator} {one.key}"
        line = self._lines.get((slot, one.site)) or self._lines.get(("", one.site))
        return one if line is None else one._replace(site=line)


def _is_left_by(one: PythonRegistration, called: Collection[str]) -> bool:
    """Whether a call of torch.library left this, which is a registration by itself."""
    if one.operator not in called or one.key.startswith("torch_dispatch"):
        return False
    if one.function.startswith(_OF_TORCH_LIBRARY):  # `register_autocast` puts such a kernel into `py_kernels`
        return True
    return one.registry == "custom_ops" or (one.registry == "torch_library" and one.key == "fake")


_OF_TORCH_LIBRARY = ("torch.library:", "torch._library.")


def _own_layers(version: str) -> Sequence[PythonLayer]:
    """The Python layers that are bundled of a version of PyTorch, of any build."""
    name = bundled_for(version)
    if name is None:
        return ()
    names = {name, name.removesuffix("-cpu"), f"{name}-cpu"}
    layers = (python_layer_of(open_bundled(each)) for each in bundled_names() if each in names)
    return [layer for layer in layers if layer is not None]


_PYTORCH = ("torch/", "functorch/", "torchgen/")
_NAMESPACES = frozenset(("aten", "higher_order", "prim", "prims", "python", "quantized"))


def is_in_pytorch(one: PythonRegistration) -> bool:
    """Whether what registered this lies in PyTorch."""
    return one.site.startswith(_PYTORCH)


def _is_own(one: PythonRegistration, layers: Sequence[PythonLayer]) -> bool:
    """Whether PyTorch registers this by itself."""
    if not is_in_pytorch(one):
        return False
    for layer in layers:
        if any((other.slot, other.function) == (one.slot, one.function) for other in layer.of(one.operator)):
            return True
    return not layers and one.operator.partition("::")[0] in _NAMESPACES
