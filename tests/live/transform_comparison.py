"""Programs under transforms, run by the lab and by PyTorch, and what differs between the two."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from dispatchlab import Dispatcher, DispatchKey, DispatchKeySet, Library, Tensor, operator, tensor
from dispatchlab.call import InferenceMode
from dispatchlab.call.local_key_set import excluded, included
from dispatchlab.layers import Lab, autocast, no_grad
from dispatchlab.overrides import PythonDispatch
from tests.live.transform_sides import OurSide, TheirSide, UndefinedError
from tests.transform_programs import Outcome, Program, program, run

UNDEFINED = "an unbatched result with a dimension that it has not: PyTorch reads memory that it does not own"
SCATTERED = (
    "select_scatter below vmap, which PyTorch makes of `scatter`: other calls, and gradients that are wrong there"
)
STRIDED = "a write to a view below grad, which PyTorch undoes by as_strided and the lab by the views: other calls"
MULTIPLIED = "which products of matrices a matmul is made of, where strides of dimensions of size one decide"
REFUSED_LATER = "a refusal that comes before or after what the rule calls first"
ADD_RETURNS = "what add_ returns inside of vmap: PyTorch's boxed rule returns another tensor, with the batch in front"


def compared(torch: Any, seeds: Sequence[int]) -> Counter[str]:
    """How many programs came to what: `equal`, `equal error`, or the name of a class of differences.

    Raises:
        AssertionError: a difference has no name.
    """
    lab = Lab()
    ours, theirs = OurSide(lab), TheirSide(torch)
    found: Counter[str] = Counter()
    with PythonDispatch(lab.dispatcher), _quiet(torch):
        for seed in seeds:
            made = program(seed)
            try:
                our = run(ours, made)
            except UndefinedError:
                found[UNDEFINED] += 1
                continue
            found[_difference(seed, made, our, run(theirs, made))] += 1
    return found


def _difference(seed: int, made: Program, ours: Outcome, theirs: Outcome) -> str:
    where = (seed, made)
    operators = {statement.operator for statement in made.body}
    scattered = any(call.startswith("scatter.src") for call in theirs.calls)
    added = any(name.startswith("add_.") for name in operators) and any(one.kind == "vmap" for one in made.levels)
    if scattered and (ours.error != theirs.error or any(one.kind == "grad" for one in made.levels)):
        return SCATTERED
    if added and theirs.error == "not_differentiable" != ours.error:
        return ADD_RETURNS  # it is a view, and what made it was recorded or was not
    assert ours.error == theirs.error, where
    assert ours.keys == theirs.keys, where
    assert len(ours.results) == len(theirs.results), where
    assert all(map(_equal, ours.results, theirs.results)), where
    assert all(map(_equal, ours.arguments, theirs.arguments)), where
    gradients = all(map(_equal, ours.gradients, theirs.gradients))
    if gradients and ours.calls == theirs.calls:
        return "equal error" if ours.error else "equal"
    if scattered:
        return SCATTERED
    assert gradients, where
    if any(call.startswith("as_strided") for call in theirs.calls):
        return STRIDED
    if ours.error and (_begins(ours.calls, theirs.calls) or _begins(theirs.calls, ours.calls)):
        return REFUSED_LATER
    if added:
        return ADD_RETURNS
    assert operators & {"matmul", "mm", "mv", "dot", "bmm"}, where
    return MULTIPLIED


@contextmanager
def _quiet(torch: Any) -> Iterator[None]:
    """Without the warnings of the slow fallback."""
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)  # noqa: FBT003 - C++ takes it by position
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)  # noqa: FBT003


def _begins(longer: Sequence[str], shorter: Sequence[str]) -> bool:
    return list(longer[: len(shorter)]) == list(shorter)


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    loose = "16" in one[0]
    return (
        one[0] == other[0]
        and one[1].shape == other[1].shape
        and np.allclose(one[1], other[1], rtol=2e-2 if loose else 1e-4, atol=1e-2 if loose else 1e-5, equal_nan=True)
    )


# -- what kernels of a custom operator see at each key of a nest of transforms

KEYS = (
    *("AutogradCPU", "ADInplaceOrView", "FuncTorchBatched", "FuncTorchVmapMode", "FuncTorchGradWrapper"),
    *("Functionalize", "AutocastCPU", "Tracer", "Python", "CompositeExplicitAutograd", "CompositeImplicitAutograd"),
)
CONTEXTS = ("vmap", "grad", "functionalize", "autocast", "no_grad", "inference", "plain")
SCHEMAS = ("(Tensor x) -> Tensor", "(Tensor(a!) x) -> Tensor(a!)")

Seen = tuple[str, int, int, int, int]
"""The key, the set that the kernel got, what was included and excluded, and the keys of the tensor."""


def registrations() -> Iterator[tuple[str, tuple[str, ...]]]:
    """A schema and the keys of its kernels."""
    for schema in SCHEMAS:
        yield schema, ("CPU",)
        yield from ((schema, ("CPU", key)) for key in KEYS)
        yield schema, ("CompositeImplicitAutograd",)
        yield schema, ("CompositeExplicitAutograd",)
        yield schema, ("CompositeExplicitAutograd", "FuncTorchBatched")


def compared_keys(torch: Any, given: Sequence[tuple[str, tuple[str, ...]]], namespace: str) -> tuple[int, int]:
    """How many nests of two contexts show kernels the same in both, and in how many of them a call fails.

    Raises:
        AssertionError: a kernel saw something else, or a call failed in one alone.
    """
    lab, equal, failed = Lab(Dispatcher()), 0, 0
    array = np.ones((2, 3, 2), np.float32)
    with ExitStack() as undo, _quiet(torch):
        for number, (schema, keys) in enumerate(given):
            ours: list[Seen] = []
            theirs: list[Seen] = []
            our = _our_operator(undo, lab, f"{namespace}::f{number}", schema, keys, ours.append)
            their = _their_operator(undo, torch, f"{namespace}::f{number}", schema, keys, theirs.append)
            for names in itertools.product(CONTEXTS, repeat=2):
                ours.clear()
                theirs.clear()
                failures = (
                    _failed(lambda: _nested(_ours(lab), names, our)(tensor(array))),  # noqa: B023 - called at once
                    _failed(lambda: _nested(_theirs(torch), names, their)(torch.from_numpy(array.copy()))),  # noqa: B023
                )
                assert ours == theirs, (schema, keys, names)
                assert failures[0] == failures[1], (schema, keys, names)
                equal += 1
                failed += failures[0]
    return equal, failed


def _failed(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception:
        return True
    return False


def _our_operator(
    undo: ExitStack, lab: Lab, name: str, schema: str, keys: Sequence[str], write: Callable[[Seen], None]
) -> Any:
    namespace, _, local = name.partition("::")
    library = Library(namespace, "FRAGMENT", dispatcher=lab.dispatcher)
    undo.callback(library.release)
    library.define(f"{local}{schema}")

    def at(key: str) -> Any:
        def kernel(keys: DispatchKeySet, x: Tensor) -> Any:
            write((key, keys.bits, included().bits, excluded().bits, x.key_bits))
            if key in ("CPU", "CompositeExplicitAutograd"):
                return x if "!" in schema else lab.clone(x)
            if key == "CompositeImplicitAutograd":
                return lab.sin(x)
            return found.redispatch(keys & DispatchKeySet.full_after(DispatchKey[key]), x)

        return kernel

    for key in keys:
        library.impl(local, at(key), key, with_keyset=True)
    found = operator(lab.dispatcher, name)
    return found


def _their_operator(
    undo: ExitStack, torch: Any, name: str, schema: str, keys: Sequence[str], write: Callable[[Seen], None]
) -> Any:
    core = torch._C
    namespace, _, local = name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    undo.callback(library._destroy)
    library.define(f"{local}{schema}")
    found = getattr(getattr(torch.ops, namespace), local).default

    def at(key: str) -> Any:
        def kernel(keys: Any, x: Any) -> Any:
            sets = (
                *(keys, core._dispatch_tls_local_include_set(), core._dispatch_tls_local_exclude_set()),
                core._dispatch_keys(x),
            )
            bits = [one.raw_repr() for one in sets]
            write((key, bits[0], bits[1], bits[2], bits[3]))
            if key in ("CPU", "CompositeExplicitAutograd"):
                return x if "!" in schema else x.clone()
            if key == "CompositeImplicitAutograd":
                return torch.sin(x)
            return found.redispatch(keys & core._dispatch_keyset_full_after(getattr(core.DispatchKey, key)), x)

        return kernel

    for key in keys:
        library.impl(local, at(key), key, with_keyset=True)
    return found


Wrap = Callable[[str, Any], Any]


def _nested(wrap: Wrap, names: Sequence[str], function: Any) -> Any:
    for name in reversed(names):
        function = wrap(name, function)
    return function


def _within(context: Callable[[], AbstractContextManager[object]], function: Any) -> Any:
    def inside(x: Any) -> Any:
        with context():
            return function(x)

    return inside


def _ours(lab: Lab) -> Wrap:
    def wrap(name: str, function: Any) -> Any:
        match name:
            case "vmap":
                return lab.vmap(function, randomness="same")
            case "grad":
                return lab.grad(lambda x: lab.sum(function(x)))
            case "functionalize":
                return lab.functionalize(function)
            case "autocast":
                return _within(lambda: autocast("cpu"), function)
            case "no_grad":
                return _within(no_grad, function)
            case "inference":
                return _within(InferenceMode, function)
            case _:
                return function

    return wrap


def _theirs(torch: Any) -> Wrap:
    def wrap(name: str, function: Any) -> Any:
        match name:
            case "vmap":
                return torch.func.vmap(function, randomness="same")
            case "grad":
                return torch.func.grad(lambda x: function(x).sum())
            case "functionalize":
                return torch.func.functionalize(function)
            case "autocast":
                return _within(lambda: torch.autocast("cpu"), function)
            case "no_grad":
                return _within(torch.no_grad, function)
            case "inference":
                return _within(torch.inference_mode, function)
            case _:
                return function

    return wrap
