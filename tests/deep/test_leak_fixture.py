"""`dispatcher_leaks` on tests as PyTorch's are: 200 that leak nothing pass, 20 that leak fail.

Without `--whole` fewer of the 200 are tried, and fewest in two processes.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from tests.effort import share
from tests.plugin_options import PLUGIN_OPTIONS

pytest.importorskip("torch")

pytest_plugins = ["pytester"]

CONFTEST = """
import random

def pytest_collection_modifyitems(items):
    random.Random({seed}).shuffle(items)
"""

CLEAN = """
import pytest
import torch
from torch.library import Library, custom_op, opcheck

LIBRARY = Library("of_the_file", "FRAGMENT")
LIBRARY.define("scale(Tensor x, float s) -> Tensor")
LIBRARY.impl("scale", lambda x, s: x * s, "CompositeImplicitAutograd")

UNARY = ["sin", "cos", "exp", "tanh", "sigmoid", "relu", "abs", "sqrt", "log1p", "erf"][:{functions}]

@pytest.fixture
def made():
    name = "of_a_fixture::twice"
    op = custom_op(name, lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(torch.empty_like)
    op.register_autograd(lambda ctx, grad: grad * 2)
    yield op
    op._lib._destroy()
    del torch._library.custom_ops.OPDEFS[name], torch._library.custom_ops.OPDEF_TO_LIB[name]

@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16])
def test_assert_close(name, dtype):
    x = torch.rand(3, dtype=torch.float32).to(dtype)
    if name in ("relu", "erf", "abs") and dtype.is_complex:
        return
    torch.testing.assert_close(getattr(torch, name)(x), getattr(torch, name)(x.clone()))

@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("order", [1, 2])
def test_autograd(name, order):
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
    assert check(getattr(torch, name), (x + 1,))

@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("transform", ["vmap", "grad", "jacrev", "jvp"])
def test_transforms(name, transform):
    function, x = getattr(torch, name), torch.rand(4) + 1
    if transform == "vmap":
        torch.testing.assert_close(torch.vmap(function)(x), function(x))
    elif transform == "grad":
        torch.func.grad(lambda x: function(x).sum())(x)
    elif transform == "jacrev":
        torch.func.jacrev(function)(x)
    else:
        torch.func.jvp(function, (x,), (x,))

@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(name, backend):
    torch._dynamo.reset()
    x = torch.rand(3, requires_grad=True)
    out = torch.compile(lambda x: getattr(torch, name)(x) + 1, backend=backend)(x)
    torch.testing.assert_close(out, getattr(torch, name)(x) + 1)
    out.sum().backward()

@pytest.mark.parametrize("name", UNARY)
def test_opcheck(name):
    opcheck(getattr(torch.ops.aten, name).default, (torch.rand(3),))

@pytest.mark.parametrize("size", range(20))
def test_custom_op_of_a_fixture(made, size):
    x = torch.rand(size, requires_grad=True)
    torch.testing.assert_close(made(x), x * 2)
    made(x).sum().backward()
    if size < 3:
        opcheck(made, (x,))

@pytest.mark.parametrize("size", range(30))
def test_library_of_the_file(size):
    torch.testing.assert_close(torch.ops.of_the_file.scale(torch.ones(size), 2.0), torch.full((size,), 2.0))

@pytest.mark.parametrize("key", ["CPU", "Meta", "CUDA", "PrivateUse1", "Autograd"])
@pytest.mark.parametrize("again", range(4))
def test_scoped_library(key, again):
    with torch.library._scoped_library("scoped", "FRAGMENT") as library:
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", lambda x: x, key)
"""

LEAKING = """\
import pytest
import torch
from torch.library import Library, custom_op

LIBRARY = Library("of_the_leaking_file", "FRAGMENT")
LIBRARY.define("op(Tensor x) -> Tensor")
KEPT = []

def keep(library):
    KEPT.append(library)
    return library

def helper(library, name):
    library.define(name + "(Tensor x) -> Tensor")

"""
LEAKS = {
    "define": 'keep(Library("leak1", "FRAGMENT")).define("op(Tensor x) -> Tensor")',
    "def_library": 'keep(Library("leak2", "DEF")).define("op() -> ()")',
    "library_of_the_file": 'LIBRARY.impl("op", lambda x: x, "CPU")',
    "aten_kernel": 'keep(Library("aten", "IMPL")).impl("relu", lambda x: x, "PrivateUse1")',
    "aten_autograd": 'keep(Library("aten", "IMPL")).impl("lcm", lambda x, y: x, "AutogradPrivateUse1")',
    "custom_op": 'custom_op("leak3::op", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")',
    "torch_library_define": 'torch.library.define("leak4::op", "(Tensor x) -> Tensor")',
    "torch_library_impl": 'torch.library.impl("aten::hypot", "PrivateUse1", lambda x, y: x)',
    "register_fake": 'torch.library.register_fake("of_the_leaking_file::op", lambda x: x)',
    "register_autograd": 'torch.library.register_autograd("of_the_leaking_file::op", lambda ctx, grad: grad)',
    "register_vmap": 'torch.library.register_vmap("of_the_leaking_file::op", lambda info, dims, x: (x, 0))',
    "register_kernel": 'torch.library.register_kernel("of_the_leaking_file::op", "cuda", lambda x: x)',
    "register_autocast": 'torch.library.register_autocast("of_the_leaking_file::op", "xpu", torch.float16)',
    "fallback": 'keep(Library("_", "IMPL")).fallback(torch.library.fallthrough_kernel, "PrivateUse3")',
    "bindings": 'keep(torch._C._dispatch_library("FRAGMENT", "leak5", "")).define("op() -> ()")',
    "after_assert_close": 'torch.testing.assert_close(1, 1); torch.library.define("leak6::op", "() -> ()")',
    "after_compile": (
        'torch.compile(torch.sin, backend="eager")(torch.ones(1)); torch.library.define("leak7::op", "() -> ()")'
    ),
    "thread": (
        'import threading; t = threading.Thread(target=lambda: torch.library.define("leak8::op", "() -> ()")); '
        "t.start(); t.join()"
    ),
    "torchs_namespace": 'keep(Library("fsdp", "FRAGMENT")).define("mine(Tensor x) -> Tensor")',
}

_HELPED = '\ndef test_helped():\n    helper(keep(Library("leak9", "FRAGMENT")), "op")\n'


def leaking() -> str:
    """A file of 20 tests that leak."""
    tests = "".join(f"\ndef test_{name}():\n    {statement}\n" for name, statement in LEAKS.items())
    return LEAKING + tests + _HELPED


@pytest.mark.parametrize(
    ("seed", "functions", "arguments"),
    [
        (1, max(4, share(10)), ()),
        pytest.param(
            2, share(10), ("-n", "2"), marks=pytest.mark.skipif(find_spec("xdist") is None, reason="needs xdist")
        ),
    ],
)
def test_clean_tests_pass_and_leaking_ones_fail_in_any_order(
    pytester: pytest.Pytester, seed: int, functions: int, arguments: tuple[str, ...]
) -> None:
    pytester.makeini("[pytest]\ndispatchlab_leaks = true\n")
    pytester.makeconftest(CONFTEST.format(seed=seed))
    pytester.makepyfile(test_clean=CLEAN.replace("{functions}", str(functions)), test_leaking=leaking())
    result = pytester.runpytest_subprocess(*PLUGIN_OPTIONS, "-p", "no:cacheprovider", "--show-capture=no", *arguments)
    outcomes = result.parseoutcomes()
    failed = set(re.findall(r"ERROR at teardown of (\w+)", result.stdout.str()))
    assert failed == {f"test_{name}" for name in (*LEAKS, "helped")}
    assert (outcomes.get("failed", 0), outcomes["errors"]) == (0, 20)
    assert outcomes["passed"] == 70 + 13 * functions + 20  # the 20 that leak pass too, before the fixture looks
