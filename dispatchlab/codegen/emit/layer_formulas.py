"""Formulas over the operators of the layers: those of any functions, and the table that the layers have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dispatchlab.codegen.emit.formula_source import (
    MissingCall,
    TranslatedFunction,
    Translator,
    formulas_of,
    helpers_of,
    kept_values,
    module_of_formulas,
    tensor_arguments,
    translated,
)
from dispatchlab.codegen.emit.generated_group import python_name
from dispatchlab.codegen.read.derivatives import Derivatives
from dispatchlab.codegen.read.matched_derivatives import matched_derivatives
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.codegen.read.schema_parts import SchemaKind
from dispatchlab.layers.derivatives import HELPERS
from dispatchlab.layers.schemas import NAMESPACE, SCHEMAS
from dispatchlab.model.schema_parser import parse_schema

_PACKAGE = "dispatchlab.layers"


@dataclass(frozen=True, slots=True)
class GeneratedFormulas:
    """The formulas of some functions.

    Args:
        generated: the functions all of whose formulas are within the operators of the layers and the helpers.
        missing: of the others each formula that calls something else, and what.
        without: the functions that have no formulas.
    """

    generated: tuple[TranslatedFunction, ...]
    missing: tuple[MissingCall, ...]
    without: tuple[NativeFunction, ...]

    @property
    def not_generated(self) -> tuple[NativeFunction, ...]:
        """The functions that miss something, each once."""
        return tuple({each.function.name: each.function for each in self.missing}.values())

    def module(self, *, first_line: str, file: str) -> str:
        """A Python module with the formulas that are generated."""
        return module_of_formulas(self.generated, first_line=first_line, file=file, package=_PACKAGE)


def generated_formulas(
    natives: NativeFunctions, derivatives: Derivatives, functions: Iterable[NativeFunction] | None = None
) -> GeneratedFormulas:
    """The formulas of functions as Python over the operators of the layers.

    Args:
        natives: the content of native_functions.yaml.
        derivatives: that of derivatives.yaml.
        functions: some of the functions; all when left out. Out variants never have formulas.
    """
    translator = Translator(map(parse_schema, SCHEMAS), helpers_of(HELPERS))
    matches = matched_derivatives(natives, derivatives)
    generated: list[TranslatedFunction] = []
    missing: list[MissingCall] = []
    without: list[NativeFunction] = []
    for function in natives.functions if functions is None else functions:
        match = matches.get(function.name)
        formulas = None if match is None else formulas_of(match)
        if match is None or formulas is None or not formulas.formulas or function.kind is SchemaKind.OUT:
            without.append(function)
            continue
        found = translated(function, match, translator)
        if isinstance(found, TranslatedFunction):
            generated.append(found)
        else:
            missing += found
    return GeneratedFormulas(tuple(generated), tuple(missing), tuple(without))


def formulas_of_the_layers(natives: NativeFunctions, derivatives: Derivatives) -> GeneratedFormulas:
    """The formulas of the operators of the layers."""
    names = [parse_schema(text).name.within(NAMESPACE) for text in SCHEMAS]
    functions = [natives.by_name[name] for name in names if name in natives.by_name]
    return generated_formulas(natives, derivatives, functions)


def rows_of_the_layers(natives: NativeFunctions, derivatives: Derivatives) -> dict[str, object]:
    """The content of `dispatchlab/layers/formulas.json`: by operator, what its node keeps, and its formulas."""
    return {each.function.short_name: _row(each) for each in formulas_of_the_layers(natives, derivatives).generated}


def _row(each: TranslatedFunction) -> dict[str, object]:
    tensors = tensor_arguments(each.function)
    return {
        "node": each.node,
        "tensors": len(tensors),
        "keeps": [
            {"name": name, "code": code, "tensor": is_tensor, "needed_by": needed_by}
            for name, code, is_tensor, needed_by in kept_values(each)
        ],
        "saves_result": each.saves_result,
        "gradients": [
            {
                "of": tensors.index(one.formula.names[0]),
                "unpacks": {python_name(saved.name): saved.name for saved in one.saved if saved.tensor},
                "code": one.code,
                "line": one.formula.location.line,
            }
            for one in each.formulas
        ],
    }


def not_generated_lines(found: GeneratedFormulas, *, most: int) -> Sequence[str]:
    """What is not generated, a sentence each: the calls that most formulas miss, and how many functions it concerns."""
    if not found.missing:
        return ()
    counts: dict[str, int] = {}
    for each in found.missing:
        counts[each.missing] = counts.get(each.missing, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{what} in {number:,}" for what, number in ordered[:most])
    left = f", and {len(ordered) - most:,} more" if len(ordered) > most else ""
    functions = len(found.not_generated)
    return (
        f"not generated: the formulas of {functions:,} function{'' if functions == 1 else 's'}, of which "
        f"{len(found.missing):,} call what is not among the operators of the layers: {shown}{left}",
    )
