"""dispatchlab: what an operator dispatcher knows, and proof that the order of registrations does not matter.

The public names:

- check: `check_order` checks every order of a scenario, of registrations or of a live package and gives an `OrderCheck`
  (`Verdict`, `Expectation`, `Counterexample`, `Exploration`); `LabEngine` is the engine that it explores;
- register: `Dispatcher`, `Library`, `RegistrationHandle`; kernels by `boxed`, `unboxed`, `fallthrough`, `dispatch`,
  `dispatch_autograd`; `Listener`, `OverrideWarning`, `InvariantError`;
- registrations as values: `Def`, `Impl`, `Fallback`, `NameOnly`, `Claim`, `Block`, with `Kernel`, `KernelForm`,
  `AliasKind`, `BlockKind`; scenarios of them: `Scenario`, `load_scenario`, `parse_scenario`, `scenario_text`;
- call: `operator`, `ops`, `Operator`, `Tensor`, `tensor`, `trace`; `explain` gives an `ExplainedCall`; `Lab` is a
  dispatcher with autograd, batching and Meta;
- ask about packages and registries: `check`, `lint`, `coverage`, `certify`, `readiness` and `record` give a `Result`;
- look up: `dump` gives an `OperatorDump`, `diff` a `SourceDiff`; `open_registry`, `bundled_registries`; `DispatchKey`,
  `DispatchKeySet`, `OperatorName`, `FunctionSchema`, `parse_name`, `parse_schema`, `parse_schema_or_name`;
- errors: `DispatchLabError`, `RegistrationError`, `CallError`, `ParseError`, `ErrorKind`.

The packages, from the bottom; each has a map of its own:

- `errors`: what can go wrong, as one tree; `escape`: texts on their way out;
- `processes`: worker processes that end with their parent, deadlines, memory;
- `files`: the one reader, the one writer, kinds of files, journals, YAML with source locations;
- `model`: the field's terms as frozen values;
- `engine`: the lab engine; `prover`: walks over states, which know no engine;
- `registration_2020`: the registration APIs of C++ in 2020, `Import` and `RegisterOperators`;
- `call`, `layers`, `overrides`, `codegen`: calls, and what is built on them;
- `scenario`: scenario files; `records`: recorded registries;
- `pytorch`: the installed PyTorch; the only package that imports torch;
- `sources`: scenarios, registries and engines by the texts that name them;
- `views`: what all views share: lines for a terminal, JSON, HTML;
- `questions`: a room for each question of a user, with what it finds, its result and its views;
- `adopt`: the first steps of a new user: the example, what works here, the files for a package's checkout;
- `explorer_app`: the application of `dispatchlab explore`; `commands`, `cli`: the command line;
- `api`, `ask`: the public functions that tie packages together; `pytest_plugin`: scenarios as tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatchlab._lazy import lazy_names

if TYPE_CHECKING:
    from dispatchlab._version import __version__ as __version__
    from dispatchlab.api import (
        ExplainedCall,
        OperatorDump,
        OrderCheck,
        SourceDiff,
        bundled_registries,
        check_order,
        diff,
        dump,
        explain,
        open_registry,
        trace,
    )
    from dispatchlab.ask import Result, certify, check, coverage, lint, readiness, record
    from dispatchlab.call.operators import Operator, operator, ops
    from dispatchlab.call.tensor import Tensor, tensor
    from dispatchlab.engine.dispatcher import Dispatcher, InvariantError, OverrideWarning
    from dispatchlab.engine.handle import RegistrationHandle
    from dispatchlab.engine.kernel import boxed, dispatch, dispatch_autograd, fallthrough, unboxed
    from dispatchlab.engine.lab_engine import LabEngine
    from dispatchlab.engine.library import Library
    from dispatchlab.engine.listeners import Listener
    from dispatchlab.errors import CallError, DispatchLabError, ErrorKind, ParseError, RegistrationError
    from dispatchlab.layers.lab import Lab
    from dispatchlab.model.key_set import DispatchKeySet
    from dispatchlab.model.keys import DispatchKey
    from dispatchlab.model.names import OperatorName
    from dispatchlab.model.registration import (
        AliasKind,
        Block,
        BlockKind,
        Claim,
        Def,
        Fallback,
        Impl,
        Kernel,
        KernelForm,
        NameOnly,
    )
    from dispatchlab.model.schema import FunctionSchema
    from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name
    from dispatchlab.prover.result import Counterexample, Expectation, Exploration, Verdict
    from dispatchlab.scenario.load import load_scenario, parse_scenario
    from dispatchlab.scenario.scenario import Scenario
    from dispatchlab.scenario.write import scenario_text

_NAMES = {
    "._version": "__version__",
    ".api": "ExplainedCall OperatorDump OrderCheck SourceDiff bundled_registries "
    "check_order diff dump explain open_registry trace",
    ".ask": "Result certify check coverage lint readiness record",
    ".call.operators": "Operator operator ops",
    ".call.tensor": "Tensor tensor",
    ".engine.dispatcher": "Dispatcher InvariantError OverrideWarning",
    ".engine.listeners": "Listener",
    ".engine.handle": "RegistrationHandle",
    ".engine.kernel": "boxed dispatch dispatch_autograd fallthrough unboxed",
    ".engine.lab_engine": "LabEngine",
    ".engine.library": "Library",
    ".errors": "CallError DispatchLabError ErrorKind ParseError RegistrationError",
    ".prover.result": "Counterexample Expectation Exploration Verdict",
    ".layers.lab": "Lab",
    ".model.key_set": "DispatchKeySet",
    ".model.keys": "DispatchKey",
    ".model.names": "OperatorName",
    ".model.registration": "AliasKind Block BlockKind Claim Def Fallback Impl Kernel KernelForm NameOnly",
    ".model.schema": "FunctionSchema",
    ".model.schema_parser": "parse_name parse_schema parse_schema_or_name",
    ".scenario.load": "load_scenario parse_scenario",
    ".scenario.scenario": "Scenario",
    ".scenario.write": "scenario_text",
}

__all__ = [
    "AliasKind",
    "Block",
    "BlockKind",
    "CallError",
    "Claim",
    "Counterexample",
    "Def",
    "DispatchKey",
    "DispatchKeySet",
    "DispatchLabError",
    "Dispatcher",
    "ErrorKind",
    "Expectation",
    "ExplainedCall",
    "Exploration",
    "Fallback",
    "FunctionSchema",
    "Impl",
    "InvariantError",
    "Kernel",
    "KernelForm",
    "Lab",
    "LabEngine",
    "Library",
    "Listener",
    "NameOnly",
    "Operator",
    "OperatorDump",
    "OperatorName",
    "OrderCheck",
    "OverrideWarning",
    "ParseError",
    "RegistrationError",
    "RegistrationHandle",
    "Result",
    "Scenario",
    "SourceDiff",
    "Tensor",
    "Verdict",
    "boxed",
    "bundled_registries",
    "certify",
    "check",
    "check_order",
    "coverage",
    "diff",
    "dispatch",
    "dispatch_autograd",
    "dump",
    "explain",
    "fallthrough",
    "lint",
    "load_scenario",
    "open_registry",
    "operator",
    "ops",
    "parse_name",
    "parse_scenario",
    "parse_schema",
    "parse_schema_or_name",
    "readiness",
    "record",
    "scenario_text",
    "tensor",
    "trace",
    "unboxed",
]


__getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
