"""dispatchlab: inspect an operator dispatcher, and prove that the order of registrations does not matter.

The public names:

- check: `check_order` checks every order of a scenario, of registrations or a package, and returns an `OrderCheck`
  (`Verdict`, `Expectation`, `Counterexample`, `Exploration`); `explore` checks a predicate in every state, returns a
  `StateCheck`; `LabEngine` is the engine that both explore;
- register: `Dispatcher`, `Library`, `RegistrationHandle`; kernels by `boxed`, `unboxed`, `fallthrough`, `dispatch`,
  `dispatch_autograd`; `OverrideWarning`, `InvariantError`;
- registrations as values: `Def`, `Impl`, `Fallback`, `NameOnly`, `Claim`, `Block`, with `Kernel`, `KernelForm`,
  `AliasKind`, `BlockKind`; scenarios of them: `Scenario`, `load_scenario`, `parse_scenario`, `scenario_text`;
- call: `operator`, `ops`, `Operator`, `Tensor`, `tensor`, `trace`; `explain` returns an `ExplainedCall`; `Lab` is a
  dispatcher with autograd, batching and Meta;
- ask about packages and registries: `check`, `lint`, `coverage`, `certify`, `diff` and `record` return a `Result`;
  `why` returns one for an exception, and `watch_exceptions` shows it below each exception;
- look up: `dump` returns an `OperatorDump`; `open_registry`, `bundled_registries`; `DispatchKey`,
  `DispatchKeySet`, `OperatorName`, `FunctionSchema`, `parse_name`, `parse_schema`, `parse_schema_or_name`;
- errors: `DispatchLabError`, `RegistrationError`, `CallError`, `ParseError`, `ErrorKind`.

The packages, from the bottom; each has a map of its own:

- `errors`: all errors, as one tree; `escape`: escaping of all output;
- `processes`, `files`: worker processes, and the one reader and writer of files;
- `model`: the field's terms as frozen values;
- `engine`: the lab engine; `prover`: walks over states, which know no engine;
- `registration_2020`: the registration APIs of C++ in 2020, `Import` and `RegisterOperators`;
- `call`, `lab`, `codegen`: calls, and the layers above them;
- `scenario`: scenario files; `registries`: recorded registries;
- `live`: the installed PyTorch; the only package that imports torch;
- `views`: the common parts of all formats: documents for a terminal, JSON, HTML, Markdown;
- `questions`: a package for each question of a user, with its result and its document;
- `commands`, `cli`: the command line;
- `api`: the public functions that tie packages together; `pytest_plugin`: scenarios as tests; `strategies`:
  generated scenarios for tests with hypothesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatchlab._lazy import lazy_names

if TYPE_CHECKING:  # what `_NAMES` imports on first use, for type checkers
    from dispatchlab._version import __version__ as __version__
    from dispatchlab.api import ExplainedCall as ExplainedCall
    from dispatchlab.api import OperatorDump as OperatorDump
    from dispatchlab.api import OrderCheck as OrderCheck
    from dispatchlab.api import Result as Result
    from dispatchlab.api import StateCheck as StateCheck
    from dispatchlab.api import bundled_registries as bundled_registries
    from dispatchlab.api import certify as certify
    from dispatchlab.api import check as check
    from dispatchlab.api import check_order as check_order
    from dispatchlab.api import coverage as coverage
    from dispatchlab.api import diff as diff
    from dispatchlab.api import dump as dump
    from dispatchlab.api import explain as explain
    from dispatchlab.api import explore as explore
    from dispatchlab.api import lint as lint
    from dispatchlab.api import open_registry as open_registry
    from dispatchlab.api import record as record
    from dispatchlab.api import trace as trace
    from dispatchlab.api import why as why
    from dispatchlab.call.operators import Operator as Operator
    from dispatchlab.call.operators import operator as operator
    from dispatchlab.call.operators import ops as ops
    from dispatchlab.call.tensor import Tensor as Tensor
    from dispatchlab.call.tensor import tensor as tensor
    from dispatchlab.engine.dispatcher import Dispatcher as Dispatcher
    from dispatchlab.engine.dispatcher import InvariantError as InvariantError
    from dispatchlab.engine.dispatcher import OverrideWarning as OverrideWarning
    from dispatchlab.engine.handle import RegistrationHandle as RegistrationHandle
    from dispatchlab.engine.kernel import boxed as boxed
    from dispatchlab.engine.kernel import dispatch as dispatch
    from dispatchlab.engine.kernel import dispatch_autograd as dispatch_autograd
    from dispatchlab.engine.kernel import fallthrough as fallthrough
    from dispatchlab.engine.kernel import unboxed as unboxed
    from dispatchlab.engine.lab_engine import LabEngine as LabEngine
    from dispatchlab.engine.library import Library as Library
    from dispatchlab.errors import CallError as CallError
    from dispatchlab.errors import DispatchLabError as DispatchLabError
    from dispatchlab.errors import ErrorKind as ErrorKind
    from dispatchlab.errors import ParseError as ParseError
    from dispatchlab.errors import RegistrationError as RegistrationError
    from dispatchlab.lab.lab import Lab as Lab
    from dispatchlab.model.key_set import DispatchKeySet as DispatchKeySet
    from dispatchlab.model.keys import DispatchKey as DispatchKey
    from dispatchlab.model.names import OperatorName as OperatorName
    from dispatchlab.model.registration import AliasKind as AliasKind
    from dispatchlab.model.registration import Block as Block
    from dispatchlab.model.registration import BlockKind as BlockKind
    from dispatchlab.model.registration import Claim as Claim
    from dispatchlab.model.registration import Def as Def
    from dispatchlab.model.registration import Fallback as Fallback
    from dispatchlab.model.registration import Impl as Impl
    from dispatchlab.model.registration import Kernel as Kernel
    from dispatchlab.model.registration import KernelForm as KernelForm
    from dispatchlab.model.registration import NameOnly as NameOnly
    from dispatchlab.model.schema import FunctionSchema as FunctionSchema
    from dispatchlab.model.schema_parser import parse_name as parse_name
    from dispatchlab.model.schema_parser import parse_schema as parse_schema
    from dispatchlab.model.schema_parser import parse_schema_or_name as parse_schema_or_name
    from dispatchlab.prover.result import Counterexample as Counterexample
    from dispatchlab.prover.result import Expectation as Expectation
    from dispatchlab.prover.result import Exploration as Exploration
    from dispatchlab.prover.result import Verdict as Verdict
    from dispatchlab.questions.why.exception import watch_exceptions as watch_exceptions
    from dispatchlab.scenario.load import load_scenario as load_scenario
    from dispatchlab.scenario.load import parse_scenario as parse_scenario
    from dispatchlab.scenario.scenario import Scenario as Scenario
    from dispatchlab.scenario.write import scenario_text as scenario_text

_NAMES = {
    "._version": "__version__",
    ".api": "ExplainedCall OperatorDump OrderCheck Result StateCheck bundled_registries certify check coverage lint "
    "record check_order diff dump explain explore open_registry trace why",
    ".call.operators": "Operator operator ops",
    ".call.tensor": "Tensor tensor",
    ".engine.dispatcher": "Dispatcher InvariantError OverrideWarning",
    ".engine.handle": "RegistrationHandle",
    ".engine.kernel": "boxed dispatch dispatch_autograd fallthrough unboxed",
    ".engine.lab_engine": "LabEngine",
    ".engine.library": "Library",
    ".errors": "CallError DispatchLabError ErrorKind ParseError RegistrationError",
    ".prover.result": "Counterexample Expectation Exploration Verdict",
    ".questions.why.exception": "watch_exceptions",
    ".lab.lab": "Lab",
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

__all__ = sorted({name for names in _NAMES.values() for name in names.split()} - {"__version__"})

__getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
