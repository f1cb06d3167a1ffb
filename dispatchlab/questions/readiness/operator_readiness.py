"""Readiness for PyTorch 2: what each operator of a package has of what its users expect, and which call closes a gap.

A cell is a pure function of facts: the kernels and tags of the operator, its schema, what Python registers for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.keys import AUTOCAST_KEYS, AUTOGRAD_KEY_OF_BACKEND, BACKENDS, DEVICE_OF_BACKEND, DispatchKey
from dispatchlab.model.operator_runs import FunctionParameter, refuses_all, refuses_defaults
from dispatchlab.model.python_layer import EVERY_OVERLOAD, PythonLayer, PythonRegistration
from dispatchlab.model.registration import TorchLibraryFunction
from dispatchlab.model.schema import Argument, FunctionSchema
from dispatchlab.model.schema_types import TENSOR, ListType, OptionalType, Type
from dispatchlab.records.backend_coverage import Filled, Way
from dispatchlab.records.model import RecordedOperator

# Note [What a cell may say]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# Without a run, "registered" is said where all is registered that PyTorch's own rules ask for, and "no" where these
# rules refuse every call. What code does is not seen: whether a fake implementation gives the right shape, whether a
# composite runs on tensors without data, whether a schema names all that a kernel writes. Where not even a
# registration answers, a cell is "unknown" and says why. Only a run on inputs says "yes", but for `tags`, which are a
# fact.


class Answer(WordEnum):
    """What a cell says."""

    YES = "yes"
    REGISTERED = "registered"  # what it needs; no run has shown that it works
    NO = "no"
    NOT_NEEDED = "not needed"
    UNKNOWN = "unknown"


class Aspect(WordEnum):
    """What a user of PyTorch 2 expects of an operator; a column."""

    CPU = "cpu"
    CUDA = "cuda"
    BACKENDS = "backends"  # other ones
    FAKE = "fake"
    DYNAMIC_SHAPES = "dynamic_shapes"
    AUTOGRAD = "autograd"
    SECOND_ORDER = "second_order"
    FUNCTIONALIZE = "functionalize"
    VMAP = "vmap"
    AUTOCAST = "autocast"
    DTENSOR = "dtensor"
    EXPORT = "export"
    EXPORT_DYNAMIC = "export_dynamic"
    INDUCTOR = "inductor"
    AOT_PACKAGE = "aot_package"
    REPEAT = "repeat"
    STRIDES = "strides"
    EMPTY = "empty"
    TEST_SCHEMA = "test_schema"
    TEST_AUTOGRAD_REGISTRATION = "test_autograd_registration"
    TEST_FAKETENSOR = "test_faketensor"
    TEST_AOT_DISPATCH_DYNAMIC = "test_aot_dispatch_dynamic"
    TAGS = "tags"


COMPILED = (Aspect.FAKE, Aspect.FUNCTIONALIZE, Aspect.EXPORT, Aspect.INDUCTOR)
"""What torch.compile and torch.export need; gaps there are found unless other columns are named."""

RUN_ONLY = {
    Aspect.DYNAMIC_SHAPES: "what its fake gives with symbols for the sizes",
    Aspect.SECOND_ORDER: "whether its gradient has a derivative",
    Aspect.EXPORT_DYNAMIC: "whether an export takes symbols for the sizes",
    Aspect.AOT_PACKAGE: "whether compiled code can be saved as a package",
    Aspect.REPEAT: "whether two calls give the same",
    Aspect.STRIDES: "whether it reads tensors that are not contiguous by their strides",
    Aspect.EMPTY: "what it does on tensors without elements",
    Aspect.TEST_SCHEMA: "what opcheck's test_schema finds",
    Aspect.TEST_AUTOGRAD_REGISTRATION: "what opcheck's test_autograd_registration finds",
    Aspect.TEST_FAKETENSOR: "what opcheck's test_faketensor finds",
    Aspect.TEST_AOT_DISPATCH_DYNAMIC: "what opcheck's test_aot_dispatch_dynamic finds",
}
"""The columns of which registrations say nothing, with what a run tries."""

_OPCHECK = tuple(one for one in RUN_ONLY if one.startswith("test_"))

RUN = (*COMPILED, Aspect.REPEAT, Aspect.STRIDES, Aspect.EMPTY, *_OPCHECK)
"""The gaps that are found by default where operators are run: also what opcheck finds, and results that are wrong."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one operator has of one thing.

    Args:
        aspect: the column.
        answer: what is said.
        reason: through what, or because of what.
        closes: the call that closes the gap; empty where there is none.
        link: the documentation of that call.
        by_run: whether a run on inputs decided it.
    """

    aspect: Aspect
    answer: Answer
    reason: str
    closes: str = ""
    link: str = ""
    by_run: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One operator.

    Args:
        operator: its name.
        cells: in the order of `Aspect`.
        source: where it is defined; empty when that is not known.
    """

    operator: str
    cells: tuple[Cell, ...]
    source: str = ""

    def cell(self, aspect: Aspect) -> Cell:
        """The cell of a column."""
        return next(cell for cell in self.cells if cell.aspect is aspect)

    def answers(self, aspects: Iterable[Aspect]) -> frozenset[Answer]:
        """What is said in some columns."""
        return frozenset(self.cell(aspect).answer for aspect in aspects)


Failure: TypeAlias = tuple[str, Aspect]
"""An operator, and the column in which it fails."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """All operators of some packages.

    Args:
        packages: what was imported.
        torch: the version of PyTorch.
        rows: the operators, by name.
        required: the columns where a gap is not as expected.
        notes: what could not be read, a sentence each.
        known: the failures that a baseline accepts; None when there is none.
    """

    packages: tuple[str, ...]
    torch: str
    rows: tuple[Row, ...]
    required: tuple[Aspect, ...] = COMPILED
    notes: tuple[str, ...] = ()
    known: frozenset[Failure] | None = None

    @property
    def new_failures(self) -> tuple[Failure, ...]:
        """What fails in a column that is required, and is not known to."""
        return tuple(
            (row.operator, aspect)
            for row in self.rows
            for aspect in self.required
            if row.cell(aspect).answer is Answer.NO and (row.operator, aspect) not in (self.known or ())
        )

    @property
    def fixed(self) -> tuple[Failure, ...]:
        """The known failures that fail no more."""
        rows = {row.operator: row for row in self.rows}
        return tuple(
            (operator, aspect)
            for operator, aspect in sorted(self.known or ())
            if operator in rows and rows[operator].cell(aspect).answer not in (Answer.NO, Answer.UNKNOWN)
        )

    def worst(self, answer: Answer) -> tuple[Row, ...]:
        """The operators of whose answers in the columns that are required this is the most harmful."""
        order = (Answer.NO, Answer.UNKNOWN, Answer.REGISTERED)
        answers = ((row, row.answers(self.required)) for row in self.rows)
        return tuple(row for row, given in answers if next((one for one in order if one in given), None) is answer)

    @property
    def with_gaps(self) -> tuple[Row, ...]:
        """The operators with a "no" in a column that is required."""
        return self.worst(Answer.NO)

    @property
    def undecided(self) -> tuple[Row, ...]:
        """Those without, that have an "unknown" there."""
        return self.worst(Answer.UNKNOWN)

    @property
    def registered(self) -> tuple[Row, ...]:
        """Those with neither, where no run has shown that what is registered works."""
        return self.worst(Answer.REGISTERED)

    @property
    def ready(self) -> int:
        """How many operators have none of these."""
        return len(self.rows) - len(self.with_gaps) - len(self.undecided) - len(self.registered)

    @property
    def exit_code(self) -> int:
        """1 when an operator has a gap in a column that is required, and the baseline does not know it."""
        return 1 if self.new_failures else 0


_OTHERS = {
    DispatchKey[name]: autograd
    for name, autograd in zip(BACKENDS, AUTOGRAD_KEY_OF_BACKEND, strict=True)
    if name not in ("CPU", "CUDA", "Lazy", "Meta")
}
"""The keys of other backends, each with its autograd key."""


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """What the cells of one operator are derived from.

    Args:
        operator: its kernels and tags.
        schema: its schema.
        python: what Python registers for it.
        functions: the functions of `torch.library` that were called for it.
        fill: what fills a slot of its table.
        has_kernels_for: whether the build that was read has kernels of a backend.
        without: the registries that could not be read.
        refuses_backward: whether the backward that was registered raises, whatever it is given.
        fake_parameters: those of its fake implementation; None when they are not known.
        offered: the functions that this PyTorch has to register things; None when they are not known.
        privateuse1: the name of the device at PrivateUse1; empty for PyTorch's own.
    """

    operator: RecordedOperator
    schema: FunctionSchema
    python: tuple[PythonRegistration, ...]
    functions: frozenset[TorchLibraryFunction]
    fill: Callable[[DispatchKey], Filled]
    has_kernels_for: Callable[[str], bool]
    without: frozenset[str] = frozenset()
    refuses_backward: bool = False
    fake_parameters: tuple[FunctionParameter, ...] | None = None
    offered: frozenset[str] | None = None
    privateuse1: str = ""

    @property
    def name(self) -> str:
        """The operator."""
        return str(self.operator.name)

    @property
    def backends(self) -> tuple[DispatchKey, ...]:
        """The backends that a kernel is there for, by whatever way; CUDA first."""
        keys = (DispatchKey.CUDA, DispatchKey.CPU, *_OTHERS)
        return tuple(key for key in keys if self.fill(key).way in (Way.DIRECT, Way.COMPOSITE))

    @property
    def is_custom_op(self) -> bool:
        """Whether `torch.library.custom_op` made it, which registers at Meta and Autograd whatever it is given."""
        return TorchLibraryFunction.CUSTOM_OP in self.functions

    @property
    def is_composite(self) -> bool:
        """Whether calls decompose before autograd, so that nothing below sees the operator."""
        return any(
            self.fill(key).source is DispatchKey.CompositeImplicitAutograd
            for key in (DispatchKey.AutogradCPU, DispatchKey.AutogradCUDA, DispatchKey.AutogradOther)
        )

    @property
    def takes_tensors(self) -> bool:
        """Whether an argument can be a tensor."""
        return any(_has_tensor(argument.type) for argument in self.schema.arguments)

    @property
    def writes(self) -> tuple[Argument, ...]:
        """The arguments that its schema says it writes to."""
        return tuple(one for one in self.schema.arguments if one.is_written)

    @property
    def aliases(self) -> bool:
        """Whether its schema says that a result is an argument, or a view of one."""
        return any(one.alias is not None for one in self.schema.returns)

    def has(self, *registries: str) -> PythonRegistration | None:
        """What the first of some registries has for it, or for all overloads of its name."""
        return next((one for one in self.python if one.registry in registries and one.active), None)

    def kernel_at(self, key: DispatchKey) -> bool:
        """Whether a kernel that is no fallthrough is registered at the key itself."""
        kernel = self.operator.active_at(key)
        return kernel is not None and not kernel.is_fallthrough

    def has_python_kernel(self, key: str) -> bool:
        """Whether the Python dispatcher has a kernel at a key."""
        return any(one.registry == "py_kernels" and one.key == key for one in self.python)


def python_for(layer: PythonLayer | None, operator: str) -> tuple[PythonRegistration, ...]:
    """What a layer has for an operator, and for all overloads of its name."""
    if layer is None:
        return ()
    return (*layer.of(operator), *layer.of(f"{operator.partition('.')[0]}.{EVERY_OVERLOAD}"))


def row_of(facts: OperatorFacts) -> Row:
    """All cells of one operator."""
    return Row(facts.name, tuple(cell_of(facts, aspect) for aspect in Aspect), facts.operator.debug or "")


def cell_of(facts: OperatorFacts, aspect: Aspect) -> Cell:
    """One cell, which names no call that this PyTorch does not have. See Note [What a cell may say]."""
    if aspect in RUN_ONLY:
        return Cell(aspect, Answer.UNKNOWN, f"only a run shows {RUN_ONLY[aspect]}")
    cell = Cell(aspect, *_JUDGES[aspect](facts))
    if cell.answer is Answer.YES and aspect is not Aspect.TAGS:
        cell = replace(cell, answer=Answer.REGISTERED)
    function, called, _ = cell.closes.partition("(")
    if facts.offered is None or not called or function in facts.offered:
        return cell
    return replace(cell, closes="", link="")


class _Judgement(NamedTuple):
    """What is said of an operator in a column; the fields of `Cell`."""

    answer: Answer
    reason: str
    closes: str = ""
    link: str = ""


_yes = partial(_Judgement, Answer.YES)
_no = partial(_Judgement, Answer.NO)
_not_needed = partial(_Judgement, Answer.NOT_NEEDED)
_unknown = partial(_Judgement, Answer.UNKNOWN)


_LIBRARY = "https://docs.pytorch.org/docs/stable/library.html"
_REGISTER_SHARDING = (
    "https://docs.pytorch.org/docs/stable/distributed.tensor.html"
    "#torch.distributed.tensor.experimental.register_sharding"
)
_BY_REGISTER_SHARDING = "register_sharding.<locals>"
_FOR_ALL = "every backend runs its kernel at"
_NO_KERNEL = "no kernel of a backend is registered here, so nothing could run"
_NEVER_SEEN = "calls decompose by its kernel at CompositeImplicitAutograd"


def _gap(facts: OperatorFacts, reason: str, call: str) -> _Judgement:
    """A "no" that a function of torch.library closes."""
    function = call.partition("(")[0]
    return _no(reason, call.replace("OP", f'"{facts.name}"'), f"{_LIBRARY}#{function}")


def _open_gap(facts: OperatorFacts, reason: str, call: str) -> _Judgement:
    """A gap for some inputs, which a run alone knows."""
    return _gap(facts, reason, call)._replace(answer=Answer.UNKNOWN)


def _has_tensor(type_: Type) -> bool:
    match type_:
        case OptionalType(element=element) | ListType(element=element):
            return _has_tensor(element)
    return type_ == TENSOR


# -- backends


def _backend(key: DispatchKey, facts: OperatorFacts) -> _Judgement:
    filled = facts.fill(key)
    if not facts.takes_tensors and not facts.kernel_at(DispatchKey.BackendSelect):
        return _without_tensors(facts)
    match filled.way:
        case Way.DIRECT if not filled.fallthrough:
            return _yes(f"its kernel at {key}")
        case Way.COMPOSITE if not filled.fallthrough:
            return _unknown(f"{_FOR_ALL} {filled.source}: a run shows whether it can")
        case Way.FALLBACK if not filled.fallthrough:
            return _unknown(f"the backend fallback of {key} runs, and what it does is its own")
        case Way.AMBIGUOUS:
            return _no("two kernels could be meant, and a call raises")
        case _ if filled.fallthrough:
            return _unknown(f"calls fall through {key} to a later key")
    if not facts.has_kernels_for(str(key)):
        return _unknown(f"this PyTorch is built without {key}: read it with a build that has it")
    return _gap(
        facts, f"nothing is registered for {key}", f'torch.library.register_kernel(OP, "{key.name.lower()}", ...)'
    )


def _without_tensors(facts: OperatorFacts) -> _Judgement:
    """What calls with no tensor come to, which have no backend."""
    if facts.fill(DispatchKey.Undefined).way in (Way.DIRECT, Way.COMPOSITE):
        return _not_needed("no argument is a tensor, and its kernel runs without a backend")
    return _unknown("no argument is a tensor, so calls find a backend by a mode or not at all")


def _other_backends(facts: OperatorFacts) -> _Judgement:
    filled = {key: facts.fill(key) for key in _OTHERS}
    runs = [key for key, one in filled.items() if one.way is Way.DIRECT and not one.fallthrough]
    composite = {str(one.source) for one in filled.values() if one.way is Way.COMPOSITE and not one.fallthrough}
    if not facts.takes_tensors and not facts.kernel_at(DispatchKey.BackendSelect):
        return _without_tensors(facts)
    if runs:
        return _yes(f"its kernels at {', '.join(map(str, runs))}")
    if composite:
        return _unknown(f"{_FOR_ALL} {' and '.join(sorted(composite))}: a run shows whether it can")
    without = [str(key) for key in _OTHERS if not facts.has_kernels_for(str(key))]
    if without:
        return _unknown(f"nothing is registered here, and this PyTorch is built without {without[0]}")
    return _gap(facts, "nothing is registered for another backend", 'torch.library.register_kernel(OP, "xpu", ...)')


# -- tracing

_UNSAFE_FALLBACK = frozenset(("debugprims", "prims", "aten", "xla", "vision", "torchtext", "torchaudio", "quantized"))
"""The namespaces whose operators FakeTensorMode runs on zeros when nothing else answers."""


def _fake(facts: OperatorFacts) -> _Judgement:
    """As FakeTensorMode asks: a fake of torch.library, its own rules, a Meta kernel, then what it makes itself."""
    if facts.is_composite:
        return _unknown(f"{_NEVER_SEEN}, which has to run on tensors without data: a run shows it")
    if TorchLibraryFunction.REGISTER_FAKE in facts.functions:
        return _fake_that_refuses(facts) or _yes("torch.library.register_fake")
    if facts.is_custom_op:
        return _trivial_fake(facts) or _no_fake(facts, "custom_op got no fake implementation")
    rule = facts.has("fake_rules", "fake_checks")
    if rule is not None:
        return _yes(f"a fake-tensor rule, {rule.function}")
    if facts.has_python_kernel("Meta"):
        return _yes("its Python kernel at Meta")
    filled = facts.fill(DispatchKey.Meta)
    if filled.way is Way.DIRECT and not filled.fallthrough:
        return _yes("its kernel at Meta")
    if filled.way is not Way.MISSING:
        source = filled.source if filled.way is Way.COMPOSITE else "Meta"
        return _unknown(f"its kernel at {source} has to run on tensors without data: a run shows it")
    trivial = _trivial_fake(facts)
    if trivial is not None:
        return trivial
    if facts.operator.name.namespace in _UNSAFE_FALLBACK:
        return _unknown("FakeTensorMode may run operators of this namespace on zeros: a run shows it")
    return _no_fake(facts, "nothing is registered for Meta, and there is no fake implementation")


def _fake_that_refuses(facts: OperatorFacts) -> _Judgement | None:
    """A fake implementation that cannot take the calls of its schema. See Note [Defaults are left out]."""
    if facts.fake_parameters is None:
        return None
    text = refuses_defaults(facts.fake_parameters, facts.schema)
    if text:
        return _no_fake(facts, f"its fake implementation raises where arguments have their defaults: {text}")
    text = refuses_all(facts.fake_parameters, facts.schema)
    if text:
        return _unknown(f"its fake implementation does not take all arguments of the schema: {text}")
    return None


def _trivial_fake(facts: OperatorFacts) -> _Judgement | None:
    if "out" in facts.operator.tags or "inplace" in facts.operator.tags:
        return _yes("PyTorch makes it: the results are the arguments that are written")
    if facts.writes and not facts.schema.returns:
        return _yes("PyTorch makes it: the operator writes to arguments and returns nothing")
    return None


def _no_fake(facts: OperatorFacts, reason: str) -> _Judgement:
    return _gap(facts, reason, "torch.library.register_fake(OP, ...)")


def _functionalize(facts: OperatorFacts) -> _Judgement:
    """As `torch.compile` makes an operator functional that writes."""
    if not facts.writes and not facts.aliases:
        return _not_needed("its schema says that it writes to no argument and returns none")
    if facts.is_composite:
        return _unknown(f"{_NEVER_SEEN}, and what it calls is made functional by itself")
    if facts.kernel_at(DispatchKey.Functionalize) or facts.has_python_kernel("Functionalize"):
        return _yes("its kernel at Functionalize")
    if not facts.writes:
        return _no(
            "its schema says that a result is a view of an argument, which functionalization refuses of operators "
            "that are not PyTorch's",
            "return a copy, and leave the alias out of the schema",
            f"{_LIBRARY}#torch.library.define",
        )
    if not all(_is_written_tensor(argument.type) for argument in facts.writes):
        return _no("it writes to an argument that is no tensor and no list of tensors")
    if {"out", "inplace"} & facts.operator.tags:
        return _yes("auto_functionalized, as its tag says what it returns")
    if any(one.alias is not None or one.type != TENSOR for one in facts.schema.returns):
        return _no(
            "it writes to an argument and returns something that is no new tensor, which auto_functionalized refuses",
            "return nothing, or new tensors alone",
            f"{_LIBRARY}#torch.library.custom_op",
        )
    return _yes("auto_functionalized, which torch.compile puts in its place")


def _is_written_tensor(type_: Type) -> bool:
    match type_:
        case OptionalType(element=element):
            return _is_written_tensor(element)
        case ListType(element=OptionalType(element=element)) | ListType(element=element):
            return element == TENSOR
    return type_ == TENSOR


def _traced(facts: OperatorFacts) -> _Judgement | None:
    """Why an operator cannot be traced into a graph, or why that is not known; None when it can be."""
    for column, needed in ((Aspect.FAKE, _fake(facts)), (Aspect.FUNCTIONALIZE, _functionalize(facts))):
        if needed.answer is Answer.NO:
            return _no(f"{column} is missing: {needed.reason}", needed.closes, needed.link)
        if needed.answer is Answer.UNKNOWN:
            return _unknown(needed.reason)
    if "__torch__" in str(facts.operator.schema):
        return _unknown("an argument or result is an object of a class of its own")
    return None


def _export(facts: OperatorFacts) -> _Judgement:
    return _traced(facts) or _yes(f"the graph has a node of it; fake: {_fake(facts).reason}")


def _inductor(facts: OperatorFacts) -> _Judgement:
    missing = _traced(facts)
    if missing is not None:
        return missing
    if facts.takes_tensors and not facts.backends:
        return _unknown(_NO_KERNEL)
    if facts.schema.returns and not any(_has_tensor(one.type) for one in facts.schema.returns):
        return _unknown("it returns no tensor, at which torch.compile may break the graph")
    if facts.has("inductor_user_lowerings") is not None:
        return _yes("a lowering of a user")
    if facts.has("inductor_decompositions") is not None:
        return _unknown("Inductor decomposes it, and what that calls is compiled")
    if facts.has("inductor_fallbacks") is not None:
        return _yes("a fallback that is registered: the kernel is called as the dispatcher does")
    if facts.has("inductor_lowerings") is not None:
        return _yes("its lowering")
    return _yes("the fallback that Inductor makes: the kernel is called as the dispatcher does")


# -- transforms


def _autograd(facts: OperatorFacts) -> _Judgement:
    returned = any(_has_tensor(one.type) for one in facts.schema.returns)
    if not facts.takes_tensors:
        return _not_needed("no argument is a tensor")
    if not returned and not facts.writes:
        return _not_needed("it returns no tensor, and writes to none")
    if facts.is_composite:
        return _unknown(f"{_NEVER_SEEN}, and a gradient comes from the operators that it calls")
    if facts.refuses_backward:
        return _not_needed("no gradient on purpose: its backward raises, whatever it is given")
    if TorchLibraryFunction.REGISTER_AUTOGRAD in facts.functions:
        return _yes("torch.library.register_autograd")
    keys = (DispatchKey.AutogradCPU, DispatchKey.AutogradCUDA, *sorted({*_OTHERS.values()}, reverse=True))
    with_kernel = [key for key in keys if facts.fill(key).way in (Way.DIRECT, Way.COMPOSITE)]
    if facts.is_custom_op or not with_kernel:
        what = "custom_op got no backward" if facts.is_custom_op else "nothing is registered for Autograd"
        reason = f"{what}, which is a gap where a result has a floating-point type: a run shows it"
        if facts.writes or facts.aliases:  # register_autograd refuses these
            return _unknown(f"{what}, and what its kernel calls may be recorded: a run shows it")
        return _open_gap(facts, reason, "torch.library.register_autograd(OP, backward, ...)")
    filled = facts.fill(with_kernel[0])
    if filled.fallthrough:
        return _not_needed("no gradient on purpose: its kernel at Autograd falls through")
    return _unknown(f"its kernel at {filled.source}, and what gradient it gives a run shows")


def _vmap(facts: OperatorFacts) -> _Judgement:
    if not facts.takes_tensors:
        return _not_needed("no argument is a tensor")
    if facts.kernel_at(DispatchKey.FuncTorchBatched):
        return _yes("its kernel at FuncTorchBatched, as torch.library.register_vmap registers")
    filled = facts.fill(DispatchKey.FuncTorchBatched)
    if filled.way is Way.COMPOSITE:
        return _unknown(f"{_NEVER_SEEN}, and what it calls needs batching rules")
    call = "torch.library.register_vmap(OP, ...)"
    if facts.writes or facts.aliases:
        if _is_in_place(facts.schema):
            return _unknown("the fallback runs it for each slice where all that is written is batched")
        return _gap(facts, "the fallback refuses operators that write or return views", call)
    if not facts.schema.returns:
        return _gap(facts, "the fallback refuses operators that return nothing", call)
    if any(one.type != TENSOR for one in facts.schema.returns):
        objects = any("__torch__" in str(one.type) for one in facts.schema.returns)
        reason = "the fallback refuses operators that return something else than tensors"
        return _no(f"{reason}, and no batching rule gives such an object") if objects else _gap(facts, reason, call)
    if any(_is_tensor_list(one.type) for one in facts.schema.arguments):
        return _gap(facts, "the fallback refuses operators that take lists of tensors", call)
    if not facts.backends:
        return _unknown(_NO_KERNEL)
    if filled.way is not Way.FALLBACK:
        return _unknown("no batching rule is registered, and this PyTorch shows no fallback")
    return _yes("the slow fallback, a call for each slice: torch.library.register_vmap is faster")


def _is_tensor_list(type_: Type) -> bool:
    match type_:
        case OptionalType(element=element):
            return _is_tensor_list(element)
        case ListType():
            return _has_tensor(type_)
    return False


def _is_in_place(schema: FunctionSchema) -> bool:
    """Whether it writes to its first argument alone and returns that."""
    if not schema.arguments or len(schema.returns) != 1:
        return False
    first, *others = schema.arguments
    return (
        first.alias is not None
        and first.alias.is_write
        and schema.returns[0].alias is not None
        and all(one.alias is None for one in others)
    )


def _autocast(facts: OperatorFacts) -> _Judgement:
    if not facts.takes_tensors:
        return _not_needed("no argument is a tensor")
    keys = [key for key in AUTOCAST_KEYS if facts.kernel_at(key)]
    if keys:
        return _yes(f"its kernel at {', '.join(map(str, keys))}")
    if facts.is_composite:
        return _not_needed(f"{_NEVER_SEEN}, and autocast sees what it calls")
    backends = facts.backends or (DispatchKey.CUDA,)
    backend = DispatchKey.CPU if DispatchKey.CPU in backends else backends[0]  # what a run tries
    dtype = "bfloat16" if backend is DispatchKey.CPU else "float16"
    own = facts.privateuse1 if backend is DispatchKey.PrivateUse1 else ""
    device = own or DEVICE_OF_BACKEND.get(backend.name, backend.name.lower())
    return _open_gap(
        facts,
        "autocast does not cast its arguments, which is a gap where one has a floating-point type: a run shows it",
        f'torch.library.register_autocast(OP, "{device}", torch.{dtype})',
    )


def _dtensor(facts: OperatorFacts) -> _Judgement:
    if not facts.takes_tensors:
        return _not_needed("no argument is a tensor")
    rule = facts.has("dtensor_rules", "dtensor_handlers")
    # NB: `register_sharding` goes by the returns of the schema, and DTensor by the tensors in a list
    returns_list = any(_is_tensor_list(one.type) for one in facts.schema.returns)
    refused = "torch.distributed.tensor.experimental.register_sharding takes no operator that returns a list"
    if rule is not None and returns_list and _BY_REGISTER_SHARDING in rule.function:
        return _no(f"its sharding rule refuses every call: {refused}")
    if rule is not None:
        return _yes(f"its sharding rule, {rule.function}")
    if {"dtensor_rules", "dtensor_handlers"} & facts.without:
        return _unknown("the rules of DTensor cannot be read here")
    if facts.is_composite or facts.has("decompositions") is not None:
        return _unknown("it decomposes, and what it calls needs sharding rules")
    if returns_list:
        return _no(f"no sharding rule is registered, and {refused}")
    return _no(
        "no sharding rule is registered",
        f"torch.distributed.tensor.experimental.register_sharding({_overload(facts)})",
        _REGISTER_SHARDING,
    )


def _overload(facts: OperatorFacts) -> str:
    name = facts.operator.name
    return f"torch.ops.{name.namespace}.{name.name}.{name.overload or 'default'}"


# -- declarations


def _tags(facts: OperatorFacts) -> _Judgement:
    tags = ", ".join(sorted(facts.operator.tags))
    if "pt2_compliant_tag" in facts.operator.tags:
        return _yes(tags)
    return _gap(
        facts,
        f"it lacks pt2_compliant_tag{f'; it has {tags}' if tags else ''}",
        "torch.library.define(OP, ..., tags=torch.Tag.pt2_compliant_tag)",
    )


_JUDGES: Mapping[Aspect, Callable[[OperatorFacts], _Judgement]] = {
    Aspect.CPU: partial(_backend, DispatchKey.CPU),
    Aspect.CUDA: partial(_backend, DispatchKey.CUDA),
    Aspect.BACKENDS: _other_backends,
    Aspect.FAKE: _fake,
    Aspect.AUTOGRAD: _autograd,
    Aspect.FUNCTIONALIZE: _functionalize,
    Aspect.VMAP: _vmap,
    Aspect.AUTOCAST: _autocast,
    Aspect.DTENSOR: _dtensor,
    Aspect.EXPORT: _export,
    Aspect.INDUCTOR: _inductor,
    Aspect.TAGS: _tags,
}
"""What decides each column without a run."""


def readiness(
    packages: Sequence[str],
    torch: str,
    facts: Iterable[OperatorFacts],
    *,
    required: Sequence[Aspect] = COMPILED,
    notes: Sequence[str] = (),
) -> Readiness:
    """The readiness of the operators that facts are about."""
    return Readiness(tuple(packages), torch, tuple(map(row_of, facts)), tuple(required), tuple(notes))
