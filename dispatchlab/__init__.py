"""dispatchlab: what an operator dispatcher knows, and proof that the order of registrations does not matter.

The public names, and a map of the package:

- `Dispatcher`, `Library`, `RegistrationHandle`, `fallthrough`, `boxed`, `unboxed`: register and look (`engine`);
- `DispatchKey`, `DispatchKeySet`, `FunctionSchema`, `parse_schema`, `parse_name`: the words of the field (`model`);
- `LabEngine`: what `explore.explore.explore` proves a scenario on (`live` is the PyTorch you have);
- `load_scenario`: scenario files (`scenario`);
- `operator`, `ops`, `Tensor`, `tensor`: call what is registered (`call`; its guards, dtypes and layers are there);
- `trace`: record what calls do;
- `DispatchLabError`, `RegistrationError`, `CallError`, `ErrorKind`: what can go wrong (`errors`).

`cli` is the command line and `pytest_plugin` makes tests of scenarios; `render` turns results into text, JSON and
colour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatchlab._lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dispatchlab.call.operators import Operator, operator, ops
    from dispatchlab.call.tensor import Tensor, tensor
    from dispatchlab.call.trace import trace
    from dispatchlab.engine.dispatcher import Dispatcher, InvariantError, Listener, OverrideWarning
    from dispatchlab.engine.handle import RegistrationHandle
    from dispatchlab.engine.kernel import boxed, dispatch, dispatch_autograd, fallthrough, unboxed
    from dispatchlab.engine.lab_engine import LabEngine
    from dispatchlab.engine.library import Library
    from dispatchlab.errors import CallError, DispatchLabError, ErrorKind, ParseError, RegistrationError
    from dispatchlab.model.key_set import DispatchKeySet
    from dispatchlab.model.keys import DispatchKey
    from dispatchlab.model.names import OperatorName
    from dispatchlab.model.schema import FunctionSchema
    from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name
    from dispatchlab.scenario.load import load_scenario

_HOME = {
    "Operator": ".call.operators",
    "operator": ".call.operators",
    "ops": ".call.operators",
    "Tensor": ".call.tensor",
    "tensor": ".call.tensor",
    "trace": ".call.trace",
    "Dispatcher": ".engine.dispatcher",
    "InvariantError": ".engine.dispatcher",
    "Listener": ".engine.dispatcher",
    "OverrideWarning": ".engine.dispatcher",
    "RegistrationHandle": ".engine.handle",
    "boxed": ".engine.kernel",
    "dispatch": ".engine.kernel",
    "dispatch_autograd": ".engine.kernel",
    "fallthrough": ".engine.kernel",
    "unboxed": ".engine.kernel",
    "LabEngine": ".engine.lab_engine",
    "Library": ".engine.library",
    "CallError": ".errors",
    "DispatchLabError": ".errors",
    "ErrorKind": ".errors",
    "ParseError": ".errors",
    "RegistrationError": ".errors",
    "DispatchKeySet": ".model.key_set",
    "DispatchKey": ".model.keys",
    "OperatorName": ".model.names",
    "FunctionSchema": ".model.schema",
    "parse_name": ".model.schema_parser",
    "parse_schema": ".model.schema_parser",
    "parse_schema_or_name": ".model.schema_parser",
    "load_scenario": ".scenario.load",
}

__all__ = [
    "CallError",
    "DispatchKey",
    "DispatchKeySet",
    "DispatchLabError",
    "Dispatcher",
    "ErrorKind",
    "FunctionSchema",
    "InvariantError",
    "LabEngine",
    "Library",
    "Listener",
    "Operator",
    "OperatorName",
    "OverrideWarning",
    "ParseError",
    "RegistrationError",
    "RegistrationHandle",
    "Tensor",
    "boxed",
    "dispatch",
    "dispatch_autograd",
    "fallthrough",
    "load_scenario",
    "operator",
    "ops",
    "parse_name",
    "parse_schema",
    "parse_schema_or_name",
    "tensor",
    "trace",
    "unboxed",
]


__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
