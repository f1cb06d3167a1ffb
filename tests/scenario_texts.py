"""Scenarios that tests of commands and views share."""

from __future__ import annotations

FIVE = """\
claim: Five registrations of one operator do not care who comes first.
semantics: strict
keys: [Undefined, CPU, CUDA, AutogradCPU]
registrations:
  - def: foo(Tensor x) -> Tensor
    debug: registered at /dev/null:0
  - impl: foo
    dispatch: CompositeImplicitAutograd
    kernel: (Tensor _0) -> Tensor _0
    debug: fn_math
  - impl: foo
    dispatch: CPU
    debug: fn_cpu
  - impl: foo
    dispatch: Autograd
    debug: fn_autograd
  - impl: foo
    dispatch: AutogradCPU
    debug: fn_autograd_cpu
"""

COMPOSITES = """\
claim: A composite implicit kernel and a composite explicit one.
semantics: torch-2.13
expect: order-dependent
registrations:
  - impl: foo
    dispatch: CompositeImplicitAutograd
    debug: fn_implicit
  - impl: foo
    dispatch: CompositeExplicitAutograd
    debug: fn_explicit
"""

TWICE = """\
claim: Of two kernels at one key the newest is used.
semantics: strict
expect: order-dependent
keys: [CPU]
registrations:
  - impl: foo
    dispatch: CPU
    debug: fn_a
  - impl: foo
    dispatch: CPU
    debug: fn_b
"""

TWO_DEFS = """\
claim: Two defs exclude one another.
expect: refused
registrations:
  - def: foo(Tensor x) -> Tensor
    debug: def_a
  - def: foo(Tensor x, Tensor y) -> Tensor
    debug: def_b
  - impl: foo
    dispatch: CPU
    debug: fn_cpu
"""

OVERLOADS = """\
claim: Two overloads and another operator.
registrations:
  - def: foo(Tensor x) -> Tensor
    debug: a
  - def: foo.out(Tensor x, Tensor y) -> Tensor
    debug: b
  - def: bar.one(Tensor x) -> Tensor
    debug: c
  - def: baz.one(Tensor x) -> Tensor
    debug: d
  - def: baz.two(Tensor x) -> Tensor
    debug: e
"""


def many(count: int) -> str:
    """A scenario of so many kernels of one operator, 16 at most for each of two families of keys."""
    backends = (
        *("CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU"),
        *("VE", "Lazy", "MTIA", "MAIA", "PrivateUse1", "PrivateUse2", "PrivateUse3", "Meta"),
    )
    keys = [*backends, *(f"Sparse{backend}" for backend in backends)][:count]
    impls = "".join(f"  - impl: foo\n    dispatch: {key}\n    debug: fn_{key}\n" for key in keys)
    return f"claim: Many kernels.\nsemantics: strict\nregistrations:\n{impls}"


STAYS = """\
claim: A composite kernel that comes first stays on the autograd slots.
keys: [AutogradCPU]
registrations:
  - def: foo(Tensor x) -> Tensor
    debug: def_foo
  - impl: foo
    dispatch: CompositeImplicitAutograd
    debug: fn_implicit
  - impl: foo
    dispatch: CompositeExplicitAutograd
    debug: fn_explicit
"""


MODULES = """\
claim: Two modules of a package override each other.
namespace: shop
modules:
  shop.one: [0-1]
  shop.two: [2, 3]
registrations:
  - def: foo(Tensor x) -> Tensor
  - impl: foo
    dispatch: CPU
    debug: fn_one
  - impl: foo
    dispatch: CPU
    debug: fn_two
  - impl: foo
    dispatch: CUDA
    debug: fn_cuda
"""
