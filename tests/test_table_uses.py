"""Tests of the lines of a module that use a registry of Python in another way than by registering in it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the module lies beside what needs PyTorch")

from dispatchlab.pytorch.introspection.module_uses import module_uses, table_uses

REGISTERING = """\
import torch
import torch._inductor.lowering as low
from torch._decomp import decomposition_table as table, register_decomposition
from mine import lowerings, fallbacks as decompositions

table[op] = f
table.update({op: f})
low.lowerings[op] = f
op.py_kernels[key] = f
register_decomposition(op, registry=table)
lowerings.pop(op)
decompositions.clear()
self.decompositions.pop(op)
"""


def test_what_registers_and_what_is_not_of_pytorch_is_no_use() -> None:
    assert list(table_uses(REGISTERING)) == []


@pytest.mark.parametrize(
    ("code", "registry"),
    [
        ("table.pop(op, None)", "decompositions"),
        ("del table[op]", "decompositions"),
        ("if op in table: pass", "decompositions"),
        ("f = table[op]", "decompositions"),
        ("table[op], other = other, None", "decompositions"),
        ("table[op] += f", "decompositions"),
        ("also = table", "decompositions"),
        ("patch.dict('torch._decomp.decomposition_table')", "decompositions"),
        ("getattr(torch._decomp, 'meta_table')", "meta_functions"),
        ("low.lowerings.pop(op)", "inductor_lowerings"),
        ("torch._inductor.lowering.fallbacks.discard(op)", "inductor_fallbacks"),
        ("for key in op.py_kernels: pass", "py_kernels"),
        ("def later():\n    torch._decomp.remove_decompositions(mine, ops)", "inductor_decompositions"),
        ("JAGGED_OPS_TABLE.clear()", "jagged"),
    ],
)
def test_anything_else_is_a_use_with_its_line(code: str, registry: str) -> None:
    head = REGISTERING + "from torch.nested._internal.ops import *\n"
    found = {use.registry: use.line for use in table_uses(head + code)}
    assert registry in found
    assert found[registry] == head.count("\n") + 1 + code.count("\n")


@pytest.mark.parametrize(
    "code",
    [
        "from torch._inductor.lowering import lowerings\n{}",
        "from torch._inductor.lowering import (\n    a,  # the others (all)\n    lowerings\n)\n{}",
        "from torch._inductor.lowering import a, \\\n  lowerings as b\n{}",
        "from \\\n torch._inductor.lowering import *\nthe = {}",
        "import torch._inductor.lowering as low\nlow.\\\n lowerings.pop(op)",
    ],
)
def test_one_word_is_a_use_however_it_was_imported(code: str) -> None:
    name = "b" if " as b" in code else "lowerings"
    assert {use.registry for use in table_uses(code.format(f"{name}.pop(op)"))} == {"inductor_lowerings"}


def test_what_python_cannot_read_has_no_uses() -> None:
    assert list(table_uses("decomposition_table (")) == []


@pytest.mark.parametrize(
    "asked",
    [
        "sys.modules.get('left')",
        "'''left.part''' in sys.modules",
        "f'{here}left' in sys.modules",
        "'\\\nleft' in sys.modules",
        "('' 'left') in sys.modules",
        "\ntry:\n    import other, left.part\nexcept ImportError:\n    pass",
        "\ntry:\n    import other, \\\n        left\nexcept ImportError:\n    pass",
        "\ntry:\n    from left import part\nexcept ImportError:\n    pass",
        "\nwith suppress(ImportError): part = import_module('left')",
    ],
)
def test_a_module_is_asked_for_however_that_is_written(asked: str) -> None:
    (use,) = module_uses(f"import sys\n{asked}\n", ["left"])
    assert use.module.partition(".")[0] == "left"


def test_a_word_that_is_no_module_is_none() -> None:
    assert [*module_uses("import sys  # what is left\nleft = 'the left' in sys.modules\n", ["left"])] == []
