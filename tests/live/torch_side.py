"""Generated calls on the running PyTorch: `TorchSide`, the other side of `tests.call_sequences`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from tests.call_sequences import Called, Line, Program, Side, unwrapped_call

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

_held: list[TorchSide] = []


class Wrapper(torch.Tensor):  # type: ignore[misc]  # torch is Any here
    """A tensor around another one, whose handler writes itself down and hands on what it wraps."""

    elem: Any
    __torch_function__ = C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        side = _held[-1]
        side.note("wrapper", side.name_of(func), *(one.__name__ for one in types))
        return unwrapped_call(cls, func, args, kwargs or {})


def _wrapper(elem: Any, *, requires_grad: bool = False) -> Any:
    made = torch.Tensor._make_wrapper_subclass(
        Wrapper, elem.size(), dtype=elem.dtype, device=elem.device, requires_grad=requires_grad
    )
    made.elem = elem
    return made


def _inference() -> Any:
    with torch.inference_mode():
        return torch.ones(2)


def _sparse() -> Any:
    return torch.sparse_coo_tensor([[0]], [1.0], (2,))


def _csr() -> Any:
    return torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 2))


KINDS: Mapping[str, Callable[[], Any]] = {
    "cpu": lambda: torch.ones(2),
    "cpu requires_grad": lambda: torch.ones(2, requires_grad=True),
    "cpu int": lambda: torch.ones(2, dtype=torch.int64),
    "meta": lambda: torch.ones(2, device="meta"),
    "meta requires_grad": lambda: torch.ones(2, device="meta", requires_grad=True),
    "cpu sparse": _sparse,
    "cpu sparse requires_grad": lambda: _sparse().requires_grad_(),
    "csr": _csr,
    "csr requires_grad": lambda: _csr().requires_grad_(),
    "cpu quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8),
    "mkldnn": lambda: torch.ones(2, 2).to_mkldnn(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2)]),
    "conj": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "conj requires_grad": lambda: torch.ones(2, dtype=torch.complex64).conj().requires_grad_(),
    "neg": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "neg requires_grad": lambda: torch.ones(2, dtype=torch.complex64).conj().imag.detach().requires_grad_(),
    "zero": lambda: C._VariableFunctions._efficientzerotensor(2),
    "inference": _inference,
    "wrapper": lambda: _wrapper(torch.ones(2)),
    "wrapper requires_grad": lambda: _wrapper(torch.ones(2), requires_grad=True),
    "wrapper of requires_grad": lambda: _wrapper(torch.ones(2, requires_grad=True)),
    "wrapper of wrapper": lambda: _wrapper(_wrapper(torch.ones(2)), requires_grad=True),
    "wrapper of meta": lambda: _wrapper(torch.ones(2, device="meta")),
}
"""Every kind of tensor that both sides can make."""


FAILURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        r"functorch.PlumbingHelper|BatchedFallback.cpp|[Bb]atching rule not implemented",
        ("FuncTorchBatched", "BatchedNestedTensor", "Batched"),
    ),
    (r"PythonDispatcherTLS was not set", ("PythonDispatcher",)),
    (r"Hit Python dispatch key but no arguments", ("Python",)),
    (r"dynamicLayerStack.empty", ("FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode")),
    (r"at least one dead wrapper", ("FuncTorchGradWrapper",)),
    (r"ZeroTensors are immutable", ("ZeroTensor",)),
    (r"is_same\(returned_output\) INTERNAL ASSERT", ("Conjugate", "Negative")),
    (r"custom \(non-ATen\) operator whose output has alias annotations", ("Functionalize",)),
)
"""What the builtin fallbacks say that cannot do their work, and whose words these are."""


def failure(text: str) -> tuple[str, str]:
    """What an error of PyTorch says, as the kind of ours and the key."""
    if "There were no tensor arguments" in text:
        return "no_tensor_arguments", "Undefined"
    if "attempted to run this operator with Meta tensors" in text:
        return "missing_kernel", "Meta"
    if "OperatorEntry.cpp" in text and "Canonical state" in text:
        return "broken", ""
    if "mapped to AutogradOther" in text:
        return "ambiguous_autogradother", "AutogradOther"
    if "fallthrough_kernel was executed" in text:
        return "fallthrough_executed", ""
    found = re.search(r"from the '(\w+)' backend", text)
    if found is not None:
        return "missing_kernel", found[1]
    if re.search(r"a (view of a )?leaf Variable", text):
        return "autograd", "leaf_modified"
    keys = next((keys for pattern, keys in FAILURES if re.search(pattern, text)), None)
    return ("error", text) if keys is None else ("fails", keys[0])


class TorchSide(Side):
    """The running PyTorch."""

    @contextmanager
    def register(self, program: Program, number: int) -> Iterator[list[Any]]:
        with ExitStack() as held:
            everywhere = torch.library.Library("_", "IMPL")
            held.callback(everywhere._destroy)
            for one in program.fallbacks:
                if one.does == "fallthrough":
                    everywhere.fallback(torch.library.fallthrough_kernel, one.key)
                else:
                    everywhere.fallback(self.kernel("fallback", one, 0), one.key, with_keyset=True)
            library = torch.library.Library("callseq", "FRAGMENT")
            held.callback(library._destroy)
            names = [f"p{number}_{at}" for at in range(len(program.operators))]
            for at, (name, defined) in enumerate(zip(names, program.operators, strict=True)):
                library.define(defined.schema(name))
                # NB: not `library.impl`, which does not let Meta stand beside a composite kernel.
                for one in defined.kernels:
                    skips = one.does == "fallthrough"
                    function = torch.library.fallthrough_kernel if skips else self.kernel("kernel", one, at)
                    library.m.impl(name, one.key, function, not skips)
            _held.append(self)
            held.callback(_held.pop)
            yield [getattr(torch.ops.callseq, name).default for name in names]

    def _called(self, one: Called) -> list[Line]:
        # After some errors PyTorch leaves keys excluded, which would change every later call.
        with C._ForceDispatchKeyGuard(C._dispatch_tls_local_include_set(), C._dispatch_tls_local_exclude_set()):
            return super()._called(one)

    def tensor(self, kind: str) -> Any:
        return KINDS[kind]()

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, torch.Tensor)

    def guard(self, name: str) -> AbstractContextManager[object]:
        what, _, detail = name.partition(" ")
        made: AbstractContextManager[object]
        match what:
            case "no_grad":
                made = torch.no_grad()
            case "enable_grad":
                made = torch.enable_grad()
            case "inference":
                made = torch.inference_mode(mode=detail == "on")
            case "below":
                made = C._AutoDispatchBelowAutograd() if detail == "autograd" else C._AutoDispatchBelowADInplaceOrView()
            case "include":
                made = C._IncludeDispatchKeyGuard(C._dispatch_key_parse(detail))
            case "exclude":
                made = C._ExcludeDispatchKeyGuard(C.DispatchKeySet(C._dispatch_key_parse(detail)))
            case _:
                assert what == "mode"
                made = self._mode(detail)
        return made

    def _mode(self, does: str) -> Any:
        def handler(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.handled("mode", does, func, types, args, kwargs)

        base = torch.utils._python_dispatch.TorchDispatchMode
        return type("Mode", (base,), {"__torch_dispatch__": handler})()

    def exclude(self, keys: Any) -> AbstractContextManager[object]:
        guard: AbstractContextManager[object] = C._ExcludeDispatchKeyGuard(
            C.DispatchKeySet(keys.highestPriorityTypeId())
        )
        return guard

    def bits(self, keys: Any) -> int:
        found: int = keys.raw_repr()
        return found

    def below(self, keys: Any) -> Any:
        return keys & C._dispatch_keyset_full_after(keys.highestPriorityTypeId())

    def removed(self, keys: Any) -> Any:
        return keys.remove(keys.highestPriorityTypeId())

    def is_empty(self, keys: Any) -> bool:
        return not keys.raw_repr() >> 16

    def name_of(self, called: Any) -> str:
        return str((called._schema.name + "." + called._schema.overload_name).rstrip("."))

    def keys_of(self, value: Any) -> int:
        found: int = C._dispatch_keys(value).raw_repr()
        return found

    def history_of(self, value: Any) -> str:
        made_by = "" if value.grad_fn is None else f" {value.grad_fn.name().rpartition('::')[2]}"
        version = "" if value.is_inference() else f" v{value._version}"
        return f"{value.requires_grad}{made_by}{version}"

    def failure(self, error: Exception) -> Line:
        text = str(error)
        what, key = failure(text)
        if what == "error" and re.search(r"Unable to cast|returned from|[Ee]xpected.*return", text):
            return ("wrong_value",)
        return (what, key)
