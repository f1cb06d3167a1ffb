"""The registration APIs of C++ in 2020: the `import` blocks of PR #35061, and `RegisterOperators`, which they replaced.

`Import` is `torch::import`, `schema` is `torch::schema`, and `RegisterOperators` is `c10::RegisterOperators`. They
work on every dispatcher; under `pr35061` it behaves as the pull request proposed.

The namespace of a block is filled in where a name has none, and a name that has one keeps it:

    >>> from dispatchlab import Dispatcher
    >>> from dispatchlab.registration_2020 import Import, Options, RegisterOperators, dispatch_autograd, schema, unboxed
    >>> dispatcher = Dispatcher("pr35061", builtin_fallbacks=False)
    >>> block = Import("ns1", dispatcher=dispatcher, debug="a.cpp:1").def_("ns2::blah(Tensor x) -> Tensor")
    >>> dispatcher.operators()
    (parse_name('ns2::blah'),)

An impl needs no schema; `dispatch_autograd` is the kernel of all autograd keys:

    >>> def kernel(x: "Tensor") -> "Tensor": ...
    >>> block = block.impl("foo", "CPU", kernel).impl("foo", dispatch_autograd(unboxed(kernel).debug("fn_autograd")))
    >>> print(dispatcher.dump("ns1::foo"), end="")
    name: ns1::foo
    schema: (none)
    CPU: a.cpp:1 :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]
    Autograd[alias]: fn_autograd :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]

An explicit alias kind may be followed by a def without one, and not the other way round:

    >>> from dispatchlab import AliasKind
    >>> block = block.def_(schema("foo(Tensor x) -> Tensor", AliasKind.PURE_FUNCTION))
    >>> older = RegisterOperators(dispatcher=dispatcher).op("ns1::foo(Tensor x) -> Tensor", Options())
    >>> dispatcher.def_count("ns1::foo")
    2
"""

from __future__ import annotations

from dispatchlab.engine.import_api_2020 import DeclaredSchema as DeclaredSchema
from dispatchlab.engine.import_api_2020 import Import as Import
from dispatchlab.engine.import_api_2020 import dispatch as dispatch
from dispatchlab.engine.import_api_2020 import dispatch_autograd as dispatch_autograd
from dispatchlab.engine.import_api_2020 import schema as schema
from dispatchlab.engine.kernel import boxed as boxed
from dispatchlab.engine.kernel import fallthrough as fallthrough
from dispatchlab.engine.kernel import unboxed as unboxed
from dispatchlab.engine.register_operators import Options as Options
from dispatchlab.engine.register_operators import RegisterOperators as RegisterOperators
