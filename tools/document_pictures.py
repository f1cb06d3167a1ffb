"""Draw the figures of the design documents: `python tools/document_pictures.py` writes docs/pictures/documents/*.svg.

Each graph is made of the code that the figure is about, so that a change of the code asks for the picture to be drawn
again: the classes of a generated module, the bits of a tensor's key set, the frames of a call, the kernels of a trace.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402  # of this checkout, as the others

from dispatchlab import (  # noqa: E402
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    Library,
    Operator,
    Tensor,
    boxed,
    operator,
    tensor,
    trace,
    unboxed,
)
from dispatchlab.call import IncludeDispatchKeyGuard  # noqa: E402
from dispatchlab.codegen import load_native_functions  # noqa: E402
from dispatchlab.codegen.emit.generate import generated_modules  # noqa: E402
from dispatchlab.model.keys import BACKENDS  # noqa: E402
from dispatchlab.questions.native_functions.lab_frames import walk_call  # noqa: E402
from tools import pictures  # noqa: E402

FOLDER = ROOT / "docs" / "pictures" / "documents"
FILE = ROOT / "tests" / "data" / "codegen" / "operators.yaml"


def class_hierarchy() -> str:
    """The classes of the structured kernel of add on the CPU."""
    (module,) = generated_modules(load_native_functions(FILE), file=FILE.name, only=["add.Tensor"]).values()
    leaves = [one for name, one in vars(module).items() if name.startswith("structured_ufunc_add_CPU_")]
    edges = {(base, one) for leaf in leaves for one in leaf.__mro__ for base in one.__bases__ if base is not object}
    text = "  rankdir=TB\n"
    for one in sorted({each for edge in edges for each in edge}, key=lambda each: each.__name__):
        own = [name for name in ("meta", "impl", "set_output_strided", "maybe_get_output") if name in vars(one)]
        kind = "good" if one in leaves else "mark" if own else ""
        lines = "".join(f"\\n{name}" for name in own)
        text += f'  {one.__name__} [label="{one.__name__}{lines}"{f", class={kind}" if kind else ""}]\n'
    return text + _edges(sorted((base.__name__, one.__name__) for base, one in edges))


def key_set_bits() -> str:
    """The bits of a CUDA tensor's key set, and the keys that they stand for."""
    keys = tensor([1.0], device="cuda").key_set
    text, edges = "  rankdir=LR; nodesep=0.15\n", []
    bits: dict[int, str] = {}
    for key in keys:
        for bit in [bit for bit in range(64) if DispatchKeySet.of(key).bits >> bit & 1]:
            bits[bit] = BACKENDS[bit] if bit < len(BACKENDS) else str(key.functionality)
            edges.append((f"b{bit}", str(key)))
    for bit, name in sorted(bits.items()):
        kind = "mark" if bit < len(BACKENDS) else ""
        text += f'  b{bit} [label="bit {bit}\\n{name}"{f", class={kind}" if kind else ""}]\n'
    text += "".join(f'  {key} [label="{key}", class=good]\n' for key in map(str, keys))
    assert sum(1 << bit for bit in bits) == keys.bits
    return text + _edges(sorted(edges))


def walk_of_frames() -> str:
    """The frames of `torch.add`, as a debugger numbers them: a box for each layer, with its functions."""
    frames = walk_call("torch.add").numbered[::-1]
    boxes: list[tuple[str, list[str]]] = []
    for number, frame in frames:
        if not boxes or boxes[-1][0] != str(frame.layer):
            boxes.append((str(frame.layer), []))
        boxes[-1][1].append(f"#{number} {frame.function}")
    text = "  rankdir=TB; ranksep=0.25\n"
    for at, (layer, functions) in enumerate(boxes):
        lines = "".join(f"\\n{name}" for name in functions)
        text += f'  f{at} [label="{layer}{lines}"{", class=good" if at == len(boxes) - 1 else ""}]\n'
    return text + _edges((f"f{at}", f"f{at + 1}") for at in range(len(boxes) - 1))


def _samples(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    value = stack.pop()
    assert isinstance(value, Tensor)
    below = keys & DispatchKeySet.full_after(DispatchKey.ADInplaceOrView)
    results = []
    for sample in value.data:
        inner: list[object] = [Tensor(sample)]
        called.redispatch_boxed(below, inner)
        results.append(inner.pop())
    stack.append(Tensor(np.stack([one.data for one in results if isinstance(one, Tensor)])))


def _sin(x: Tensor) -> Tensor:
    return Tensor(np.sin(x.data))


def boxing() -> str:
    """The kernels that `sin` of two samples runs, and what is done to the arguments for each."""
    dispatcher = Dispatcher()
    with Library("test", "DEF", dispatcher=dispatcher) as library:
        library.define("sin(Tensor x) -> Tensor")
        library.impl("sin", unboxed(_sin), "CPU")
        library.impl("sin", boxed(_samples, with_keyset=True), "Batched")
        with IncludeDispatchKeyGuard(DispatchKey.Batched), trace() as seen:
            operator(dispatcher, "test::sin")(tensor([0.0, 1.0]))
    text = '  rankdir=LR\n  k0 [label="test::sin(x)\\nx by itself", class=mark]\n'
    edges = []
    for at, call in enumerate(seen.calls, 1):
        assert call.kernel is not None
        kernel = {"boxed": "_samples\\ntakes the stack", "unboxed": "_sin\\ntakes x by itself"}[call.kernel.conversion]
        text += f'  k{at} [label="slot {call.kernel.source}\\n{kernel}"{", class=good" if at > 1 else ""}]\n'
        edges.append((f"k{0 if at == 1 else 1}", f"k{at}", call.kernel.conversion))
    return text + "".join(f'  {one} -> {other} [label="{label}"]\n' for one, other, label in edges)


def _edges(edges: Iterable[tuple[str, str]]) -> str:
    return "".join(f"  {one} -> {other}\n" for one, other in edges)


GRAPHS = {
    "class_hierarchy": class_hierarchy,
    "key_set_bits": key_set_bits,
    "walk_of_frames": walk_of_frames,
    "boxing": boxing,
}
"""The name of each figure -> what makes its graph."""


def sources() -> dict[str, str]:
    """The name of each figure -> its graph as Graphviz takes it."""
    return {name: pictures.source(name, graph()) for name, graph in GRAPHS.items()}


if __name__ == "__main__":
    pictures.write(FOLDER, sources())
