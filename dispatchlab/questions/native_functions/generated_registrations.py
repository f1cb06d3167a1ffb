"""What is generated for each native function, beside what a recorded PyTorch has: equal, or different by a named rule.

A debug text names the file that a kernel was registered in, and so shows whether that file is a generated one. Kernels
of generated files have to be the generated ones: at the same key, in the same file, with the same inferred schema.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dispatchlab._short_repr import WordEnum
from dispatchlab.codegen.emit.backend_files import backend_files, backend_scenario
from dispatchlab.codegen.emit.cpp_declarations import cpp_files
from dispatchlab.codegen.emit.layer_formulas import generated_formulas, not_generated_lines
from dispatchlab.codegen.emit.python_source import label
from dispatchlab.codegen.emit.registration_scenarios import by_base_name, first_line
from dispatchlab.codegen.emit.registration_source import registration_files
from dispatchlab.codegen.emit.registrations import (
    BY_HAND,
    FunctionRegistrations,
    GeneratedKernel,
    LeftOut,
    left_out,
    registrations_of,
)
from dispatchlab.codegen.read.backend_file import load_backend_file
from dispatchlab.codegen.read.derivatives import Derivatives, derivatives_beside, load_derivatives
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions
from dispatchlab.errors import DispatchLabError, UnknownOperatorError
from dispatchlab.model.keys import AUTOCAST_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.records.find import find_names
from dispatchlab.records.model import Recorded, RecordedKernel, RecordedOperator
from dispatchlab.scenario.scenario import Scenario


class Rule(WordEnum):
    """Why something is on one side only."""

    OTHER_BUILD = "generated for a backend that this build of PyTorch is without"
    BATCHING = "batching rules and modes of vmap, written by hand"
    AUTOCAST = "autocast, written by hand"
    VIEW_BITS = "kernels and fallthroughs of conjugated, negated and zero tensors, written by hand"
    AUTOGRAD = "kernels of Autograd and ADInplaceOrView that are written by hand"
    TRACER = "kernels of Tracer that are written by hand"
    FUNCTIONALIZATION = "kernels of Functionalize that are written by hand"
    BACKEND = "backend kernels that C++ registers by hand"
    PYTHON = "kernels that Python registers"
    OTHER_OPERATOR = "operators that are defined elsewhere"
    NONE = "no rule explains it"


@dataclass(frozen=True, slots=True)
class Difference:
    """One registration that is on one side only, or differs.

    Args:
        rule: why.
        operator: the operator.
        key: the key; None for a def.
        generated: what is generated; empty for nothing.
        recorded: what is recorded; empty for nothing.
    """

    rule: Rule
    operator: OperatorName
    key: DispatchKey | None
    generated: str
    recorded: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Generated registrations beside recorded ones.

    Args:
        registry: what the registry is called.
        defs: how many defs are equal: schema and tags.
        kernels: how many kernels are equal: key, file and inferred schema.
        differences: everything else.
    """

    registry: str
    defs: int
    kernels: int
    differences: tuple[Difference, ...]

    @property
    def by_rule(self) -> Mapping[Rule, int]:
        """How many differences each rule explains; only those that explain some."""
        counts = Counter(difference.rule for difference in self.differences)
        return {rule: counts[rule] for rule in Rule if rule in counts}

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """The differences that no rule explains."""
        return tuple(difference for difference in self.differences if difference.rule is Rule.NONE)


@dataclass(frozen=True, slots=True)
class RegistrationReport:
    """What is generated for the functions of a file.

    Args:
        file: the file of native functions.
        derivatives: the file of derivatives; empty for none.
        functions: how many functions the file has, those that are made from others included.
        kernels: how many kernels are generated, in each part of the generated code.
        left_out: what is not generated, and why.
        selected: the functions that were asked for, with their kernels.
        comparison: what differs from a registry; None when none was named.
    """

    file: str
    derivatives: str
    functions: int
    kernels: Mapping[str, int]
    left_out: tuple[LeftOut, ...]
    selected: tuple[FunctionRegistrations, ...]
    comparison: Comparison | None


def registration_report(
    native_functions: str,
    *,
    derivatives: str | None = None,
    only: Sequence[str] = (),
    against: Recorded | None = None,
    name: str = "",
) -> RegistrationReport:
    """Read the files, and find out what is generated.

    Args:
        native_functions: the file of native functions.
        derivatives: the file of derivatives; the one that belongs to the other file when left out, if there is one.
        only: operators, names without overload or globs.
        against: a registry to compare with.
        name: what the registry is called.

    Raises:
        NativeYamlError, DerivativesError: with every problem of a file.
        UnknownOperatorError: one of `only` is not there.
    """
    natives, formulas, path = _read(native_functions, derivatives)
    registrations = registrations_of(natives, formulas)
    selected = selected_functions(registrations, only, source=native_functions)
    comparison = None
    if against is not None:
        compared = selected if only else registrations
        comparison = compare_with_registry(compared, against, name=name, whole=not only)
    return RegistrationReport(
        native_functions,
        "" if path is None else str(path),
        len(registrations),
        Counter(str(kernel.part) for registered in registrations for kernel in registered.kernels),
        tuple(_within(left_out(natives, formulas), selected if only else registrations)),
        selected,
        comparison,
    )


@dataclass(frozen=True, slots=True)
class GeneratedScenarios:
    """Modules and scenarios of what is generated for functions.

    Args:
        files: the texts by the names of the files.
        first_line: the line that each text begins with.
        functions: how many functions they are about.
        left_out: what is not generated, a sentence each.
    """

    files: Mapping[str, str]
    first_line: str
    functions: int
    left_out: tuple[str, ...]


def generated_scenarios(
    native_functions: str, *, derivatives: str | None = None, only: Sequence[str] = ()
) -> GeneratedScenarios:
    """A module and a scenario for each name that functions have in common.

    Args:
        native_functions: the file of native functions.
        derivatives: as for `registration_report`.
        only: as for `registration_report`; all functions that share a name with one of them are selected.

    Raises:
        NativeYamlError, DerivativesError: with every problem of a file.
        UnknownOperatorError: one of `only` is not there.
    """
    natives, formulas, _ = _read(native_functions, derivatives)
    registrations = registrations_of(natives, formulas)
    if only:
        chosen = selected_functions(registrations, only, source=native_functions)
        selected = {registered.function.name for registered in chosen}
        groups = by_base_name(registrations).values()
        names = [group for group in groups if any(registered.function.name in selected for registered in group)]
        registrations = tuple(registered for group in names for registered in group)
    file = label(Path(native_functions).name)
    left = _within(left_out(natives, formulas), registrations)
    sentences = (f"not generated: {without.why}: {len(without.functions):,}" for without in left)
    translated = () if formulas is None else generated_formulas(natives, formulas).generated
    files = registration_files(registrations, file, translated)
    return GeneratedScenarios(files, first_line(file), len(registrations), tuple(sentences))


@dataclass(frozen=True, slots=True)
class FormulasOfFile:
    """The formulas of a file as Python.

    Args:
        module: the text of the module.
        left_out: what is not generated, a sentence each.
    """

    module: str
    left_out: tuple[str, ...]


class NoFormulaError(DispatchLabError):
    """Nothing is generated for the functions that were asked for."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(("no formula is generated:", *self.reasons))


class NoDerivativesError(DispatchLabError):
    """There is no derivatives.yaml with the formulas."""

    native_functions: str

    template = "no derivatives.yaml belongs to {native_functions}: name one with --derivatives"


def formulas_of_file(
    native_functions: str, *, derivatives: str | None = None, only: Sequence[str] = ()
) -> FormulasOfFile:
    """The formulas of functions over the operators of the layers.

    Args:
        native_functions: the file of native functions.
        derivatives: as for `registration_report`.
        only: operators, names without overload or globs; with them, everything that is missing has a sentence.

    Raises:
        NativeYamlError, DerivativesError: with every problem of a file.
        UnknownOperatorError: one of `only` is not there.
        NoDerivativesError: there is no file with formulas.
        NoFormulaError: nothing is generated.
    """
    natives, formulas, path = _read(native_functions, derivatives)
    if formulas is None or path is None:
        raise NoDerivativesError(native_functions)
    functions = _named(natives.functions, only, source=native_functions) if only else natives.functions
    made = generated_formulas(natives, formulas, functions)
    reasons: tuple[str, ...] = tuple(not_generated_lines(made, most=_NAMED))
    if only:
        without = (f"{function.short_name} has no formula in {path}" for function in made.without)
        reasons = (*(f"{name} is not among the operators of the layers" for name in made.missing), *without)
    if not made.generated:
        raise NoFormulaError(reasons)
    file = label(path.name)
    line = f"# Generated by `dispatchlab codegen --formulas` from {file}; change that file and generate this again."
    return FormulasOfFile(made.module(first_line=line, file=file), reasons)


_NAMED = 8


def cpp_declarations(native_functions: str, *, only: Sequence[str] = ()) -> Mapping[str, str]:
    """The C++ declarations of the functions of a file, by the names of the files that have them.

    Args:
        native_functions: the file of native functions.
        only: operators, names without overload or globs; of their kernels, those of all variants are declared.

    Raises:
        NativeYamlError: with every problem of the file.
        UnknownOperatorError: one of `only` is not there.
    """
    natives = load_native_functions(native_functions)
    chosen = _named(natives.functions, only, source=native_functions) if only else natives.functions
    return cpp_files(natives, file=label(Path(native_functions).name), only={function.name for function in chosen})


def backend_code(
    backend_file: str, native_functions: str, *, golden: Callable[[Scenario], tuple[object, str]]
) -> Mapping[str, str]:
    """The code of a backend: C++, a test, a scenario and its golden file, by the names of the files.

    Args:
        backend_file: the file of the backend.
        native_functions: the file of native functions.
        golden: explores a scenario, and gives its golden file.

    Raises:
        NativeYamlError, BackendFileError: with every problem of a file.
    """
    natives = load_native_functions(native_functions)
    backend, file = load_backend_file(backend_file, natives), label(Path(backend_file).name)
    files = backend_files(backend, natives, file=file)
    scenario = next(name for name in files if name.endswith(".yaml"))
    expect = f"expect/{Path(scenario).stem}.txt"
    return {**files, expect: golden(backend_scenario(backend, file))[1]}


def _named(functions: Sequence[NativeFunction], only: Sequence[str], *, source: str) -> tuple[NativeFunction, ...]:
    names = [str(function.name) for function in functions]
    selected: set[str] = set()
    for asked in only:
        meant = find_names(names, asked)
        if not meant:
            raise UnknownOperatorError(asked, tuple(names), source)
        selected.update(meant)
    return tuple(function for function in functions if str(function.name) in selected)


def _within(left: Iterable[LeftOut], registrations: Iterable[FunctionRegistrations]) -> Iterator[LeftOut]:
    """What is left out of some functions."""
    names = {registered.function.name for registered in registrations}
    for without in left:
        functions = tuple(name for name in without.functions if name in names)
        if functions:
            yield LeftOut(without.why, functions)


def _read(native_functions: str, derivatives: str | None) -> tuple[NativeFunctions, Derivatives | None, Path | None]:
    """Both files, and which one has the derivatives."""
    natives = load_native_functions(native_functions)
    path = derivatives_beside(native_functions) if derivatives is None else Path(derivatives)
    return natives, None if path is None else load_derivatives(path, natives), path


def selected_functions(
    registrations: Sequence[FunctionRegistrations], only: Sequence[str], *, source: str
) -> tuple[FunctionRegistrations, ...]:
    """The functions that names, names without overload and globs mean, in the order of the file; none for none.

    Args:
        registrations: the functions that there are.
        only: the texts; one without a namespace is of aten.
        source: what the file is called in the error.

    Raises:
        UnknownOperatorError: one of the texts means nothing.
    """
    functions = _named([registered.function for registered in registrations], only, source=source)
    names = {function.name for function in functions}
    return tuple(registered for registered in registrations if registered.function.name in names)


def compare_with_registry(
    generated: Sequence[FunctionRegistrations], recorded: Recorded, *, name: str, whole: bool = True
) -> Comparison:
    """What differs between what is generated and what is recorded.

    Args:
        generated: the functions.
        recorded: the registry.
        name: what the registry is called.
        whole: the functions are all that there are, so that other operators of their namespaces are differences.
    """
    differences: list[Difference] = []
    defs = kernels = 0
    backends = _backends(recorded)
    for registered in generated:
        function = registered.function
        operator = recorded.operator(str(function.name))
        if operator is None or not (operator.schema == str(function.schema) and operator.tags == function.tags):
            differences.append(_of_def(function, operator))
        else:
            defs += 1
        equal, different = _of_kernels(registered, () if operator is None else operator.kernels, backends)
        kernels += equal
        differences += different
    if whole:
        known = {str(registered.function.name) for registered in generated}
        namespaces = {registered.function.name.namespace for registered in generated}
        for operator in recorded:
            if operator.name.namespace in namespaces and str(operator.name) not in known:
                text = operator.schema or "kernels without a def"
                differences.append(Difference(Rule.OTHER_OPERATOR, operator.name, None, "", text))
    return Comparison(name, defs, kernels, tuple(differences))


def _of_def(function: NativeFunction, operator: RecordedOperator | None) -> Difference:
    tags = ", ".join(sorted(function.tags))
    recorded = "" if operator is None else f"{operator.schema}, {', '.join(sorted(operator.tags))}"
    return Difference(Rule.NONE, function.name, None, f"{function.schema}, {tags}", recorded)


_GENERATED = re.compile(r"(?:/build/aten/src/ATen|torch/csrc/autograd/generated)/(\w+\.cpp):\d+$")
_LINE = re.compile(r":\d+$")


def generated_file(debug: str) -> str:
    """The generated file that a debug text names: `RegisterCPU_0.cpp`; empty for a file that is written by hand."""
    named = _GENERATED.search(debug)
    return named[1] if named else ""


def _backends(recorded: Recorded) -> frozenset[int | None]:
    """The backends that generated backend kernels of the registry are for; None stands for keys of no backend.

    NB: an autograd kernel of a backend, such as AutogradCUDA, is in every build.
    """
    backends = {
        kernel.key.backend
        for operator in recorded
        for kernel in operator.kernels
        if generated_file(kernel.debug).startswith(f"Register{kernel.key}_")
    }
    return frozenset((None, *backends))


def _of_kernels(
    registered: FunctionRegistrations, recorded: Iterable[RecordedKernel], backends: frozenset[int | None]
) -> tuple[int, list[Difference]]:
    expected = {(kernel.key, kernel.file): kernel for kernel in registered.kernels}
    differences: list[Difference] = []
    equal = 0
    for kernel in recorded:
        file = generated_file(kernel.debug)
        mine = expected.pop((kernel.key, file), None)
        if mine is not None and _inferred(mine) == kernel.inferred:
            equal += 1
            continue
        rule = Rule.NONE if file or mine is not None else _rule(registered, kernel)
        text = f"{kernel.inferred or 'boxed'} {kernel.debug}"
        differences.append(
            Difference(rule, registered.function.name, kernel.key, "" if mine is None else _text(mine), text)
        )
    for mine in expected.values():
        rule = Rule.NONE if mine.key.backend in backends else Rule.OTHER_BUILD
        differences.append(Difference(rule, registered.function.name, mine.key, _text(mine), ""))
    return equal, differences


def _inferred(kernel: GeneratedKernel) -> str | None:
    return None if kernel.inferred is None else str(kernel.inferred)


def _text(kernel: GeneratedKernel) -> str:
    return f"{_inferred(kernel) or 'boxed'} {kernel.name} ({kernel.file})"


_VMAP = frozenset(
    (
        *(DispatchKey.FuncTorchBatched, DispatchKey.FuncTorchBatchedDecomposition, DispatchKey.BatchedNestedTensor),
        *(DispatchKey.Batched, DispatchKey.VmapMode, DispatchKey.FuncTorchVmapMode),
        *(DispatchKey.FuncTorchDynamicLayerBackMode, DispatchKey.FuncTorchDynamicLayerFrontMode),
    )
)
_BY_HAND_IN: Mapping[str, tuple[Rule, Collection[DispatchKey]]] = {
    "aten/src/ATen/LegacyBatchingRegistrations.cpp": (Rule.BATCHING, _VMAP),
    "aten/src/ATen/VmapModeRegistrations.cpp": (Rule.BATCHING, _VMAP),
    "aten/src/ATen/functorch/": (Rule.BATCHING, _VMAP),
    "aten/src/ATen/autocast_mode.cpp": (Rule.AUTOCAST, AUTOCAST_KEYS),
    "aten/src/ATen/cudnn/AutocastRNN.cpp": (Rule.AUTOCAST, AUTOCAST_KEYS),
    "aten/src/ATen/ConjugateFallback.cpp": (Rule.VIEW_BITS, (DispatchKey.Conjugate,)),
    "aten/src/ATen/native/NegateFallback.cpp": (Rule.VIEW_BITS, (DispatchKey.Negative,)),
    "aten/src/ATen/ZeroTensorFallback.cpp": (Rule.VIEW_BITS, (DispatchKey.ZeroTensor,)),
    "torch/csrc/autograd/VariableTypeManual.cpp": (
        Rule.AUTOGRAD,
        (DispatchKey.Autograd, DispatchKey.ADInplaceOrView),
    ),
    "torch/csrc/autograd/TraceTypeManual.cpp": (Rule.TRACER, (DispatchKey.Tracer,)),
    "aten/src/ATen/FunctionalizeFallbackKernel.cpp": (Rule.FUNCTIONALIZATION, (DispatchKey.Functionalize,)),
    "aten/src/ATen/native/": (Rule.BACKEND, frozenset(DispatchKey)),
}
"""The files and folders in which C++ registers by hand, with the keys that each may have; the first that fits."""

_IN_PLACE_OF_GENERATED = (Rule.AUTOGRAD, Rule.TRACER, Rule.FUNCTIONALIZATION, Rule.BACKEND)

_SOURCES = ("aten/src/ATen/", "torch/csrc/")


def _rule(registered: FunctionRegistrations, kernel: RecordedKernel) -> Rule:
    """The rule by which a kernel is registered by hand: its file, its key and what is generated have to agree."""
    path, key = _source(kernel.debug), kernel.key
    if path.startswith("torch/") and path.endswith(".py"):
        return Rule.PYTHON
    rule, keys = next((found for start, found in _BY_HAND_IN.items() if path.startswith(start)), (Rule.NONE, ()))
    fits = key in keys
    if rule in _IN_PLACE_OF_GENERATED:
        fits = fits and key not in {made.key for made in registered.kernels}
    if rule in (Rule.AUTOGRAD, Rule.TRACER):
        fits = fits and registered.function.short_name.partition(".")[0] in BY_HAND
    return rule if fits else Rule.NONE


def _source(debug: str) -> str:
    """The path of a file from the root of PyTorch's repository."""
    path = _LINE.sub("", debug.removeprefix("registered at "))
    if path.endswith(".py"):
        return path
    starts = [path.rfind(root) for root in _SOURCES if root in path]
    return path[min(starts) :] if starts else path
