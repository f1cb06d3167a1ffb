"""Python functions of the formulas of derivatives.yaml, as far as all that they call is there.

A formula is typed from its leaves upward: the types of arguments decide which overload of an operator a method or a
function means, as they do for the C++ compiler. What calls something that is not there is named. What a formula needs
of the forward call is found as torchgen finds it: `self.sym_sizes()` keeps the sizes and `self` the whole tensor.
Source: torchgen/packaged/autograd/load_derivatives.py (`saved_variables`), gen_autograd_functions.py,
gen_variable_type.py (`emit_save_inputs`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from dispatchlab.codegen.emit.generated_group import python_name
from dispatchlab.codegen.emit.python_text import INDENT, bracketed, text_literal
from dispatchlab.codegen.read.derivatives import Formula, KeyFormulas
from dispatchlab.codegen.read.formula import (
    Binary,
    Braces,
    Call,
    Choice,
    Expression,
    Index,
    Method,
    Name,
    Number,
    Text,
    Unary,
    parse_formula,
)
from dispatchlab.codegen.read.matched_derivatives import Match
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.schema_parts import SchemaKind
from dispatchlab.errors import ParseError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_types import ListType, OptionalType, SimpleType, Type

TENSOR = "Tensor"


@dataclass(frozen=True, slots=True)
class Helper:
    """A function by hand that formulas may call.

    Args:
        python: what it is called in Python; it takes the operators in front of its arguments.
        name: what formulas call it.
        arguments: the types of its arguments.
        result: the type of its result.
    """

    python: str
    name: str
    arguments: tuple[str, ...]
    result: str


_SIGNATURE = re.compile(r"(\w+)\((.*)\) -> (\S+)")


def helpers_of(signatures: Mapping[str, str]) -> tuple[Helper, ...]:
    """The helpers with these signatures, by their names in Python."""
    found = []
    for python, signature in signatures.items():
        match = _SIGNATURE.fullmatch(signature)
        assert match is not None, signature
        types = tuple(each.rpartition(" ")[0] for each in match[2].split(", "))
        found.append(Helper(python, match[1], types, match[3]))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class MissingCall:
    """A formula that is not generated.

    Args:
        function: the function.
        formula: the formula.
        missing: what it calls that is not there, or why it cannot be read.
    """

    function: NativeFunction
    formula: Formula
    missing: str

    def __str__(self) -> str:
        return f"{self.formula.location}: {self.function.short_name}: {self.missing}"


@dataclass(frozen=True, slots=True)
class _Value:
    """A piece of Python and its type."""

    code: str
    type: str
    loose: bool = False
    """It needs brackets inside of another expression."""

    @property
    def tight(self) -> str:
        return f"({self.code})" if self.loose else self.code


class _Missing(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


_PROPERTIES = {
    "sym_sizes": ("int[]", "{}.shape"),
    "scalar_type": ("ScalarType", "{}.dtype"),
    "layout": ("Layout", "{}.layout"),
    "sym_strides": ("int[]", "{}.strides"),
    "options": ("TensorOptions", "options_of({})"),
    "dim": ("int", "{}.dim"),
}
"""What a formula may ask of a tensor without keeping it. Source: `saved_variables`."""
_OF_LISTS = {"to_args_scalartypes": ("ScalarType[]", "[one.dtype for one in {}]")}


class Translator:
    """Formulas as Python, over some operators and helpers.

    Args:
        operators: the schemas of the operators that there are, without namespace.
        helpers: the functions by hand.

    Attributes:
        taken: the names that generated code uses, so that arguments cannot have them.
    """

    def __init__(self, operators: Iterable[FunctionSchema], helpers: Iterable[Helper]) -> None:
        self._operators: dict[str, list[FunctionSchema]] = {}
        for schema in operators:
            self._operators.setdefault(schema.name.name, []).append(schema)
        self._helpers: dict[str, list[Helper]] = {}
        self.taken = set(_TAKEN)
        for helper in helpers:
            self._helpers.setdefault(helper.name, []).append(helper)
            self.taken.add(helper.python)

    def calls(self, name: str, values: Sequence[_Value]) -> _Value:
        """The call of a helper or an operator; the types of the arguments choose among those of the name."""
        bare = name.removeprefix("at::").removesuffix("_symint")
        types = [each.type for each in values]
        for helper in self._helpers.get(bare, ()):
            if len(types) == len(helper.arguments) and all(map(_fits, types, helper.arguments)):
                arguments = ", ".join(("calls", *(each.code for each in values)))
                return _Value(f"{helper.python}({arguments})", helper.result)
        for schema in self._operators.get(bare, ()):
            positional = [argument for argument in schema.arguments if not argument.kwarg_only]
            wanted = [_type_text(one.type) for one in positional]
            needed = sum(one.default is None for one in positional)
            if needed <= len(types) <= len(wanted) and all(map(_fits, types, wanted)) and len(schema.returns) == 1:
                arguments = ", ".join(f"list({each.code})" if each.type == "int[]" else each.code for each in values)
                found = text_literal(str(schema.name.without_namespace))
                return _Value(f"calls({found})({arguments})", _type_text(schema.returns[0].type))
        raise _Missing(f"{bare}({', '.join(types)})")


def _fits(given: str, wanted: str) -> bool:
    if given == wanted or f"{given}?" == wanted:
        return True
    match wanted.removesuffix("?"):
        case "Scalar" | "float":
            return given in ("int", "float", "Scalar")
        case _:
            return False


def _type_text(type_: Type) -> str:
    match type_:
        case OptionalType(element):
            return f"{_type_text(element)}?"
        case ListType(element):
            return f"{_type_text(element)}[]"
        case SimpleType("SymInt"):
            return "int"
        case _:
            return str(type_)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a formula needs of the forward call.

    Args:
        name: under which name it is kept.
        code: what is kept, in terms of `values`.
        tensor: it is a tensor, whose version is checked; otherwise any value.
        is_result: it is the result of the call.
    """

    name: str
    code: str
    tensor: bool = False
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class TranslatedFormula:
    """One formula as Python.

    Args:
        formula: where it comes from.
        code: the expression, in which tensors that were kept are variables.
        type: its type: a tensor or a list of them.
        saved: what it needs.
    """

    formula: Formula
    code: str
    type: str
    saved: tuple[Saved, ...]


@dataclass(frozen=True, slots=True)
class TranslatedFunction:
    """The formulas of one function as Python.

    Args:
        function: the function.
        match: where its formulas come from.
        formulas: each as Python.
    """

    function: NativeFunction
    match: Match
    formulas: tuple[TranslatedFormula, ...]

    @property
    def node(self) -> str:
        """What the node is called."""
        at = self.match.keys.index(DispatchKey.Autograd)
        return self.match.nodes[at] or ""


class _Scope:
    """The variables of one formula."""

    def __init__(self, translator: Translator, function: NativeFunction) -> None:
        self._translator, self._function = translator, function
        self._arguments = {argument.name: _type_text(argument.type) for argument in function.schema.arguments}
        self.saved: dict[str, Saved] = {}

    def translate(self, expression: Expression) -> _Value:
        match expression:
            case Number(text):
                plain = text.rstrip("fFlLuU")
                return _Value(plain, "int" if plain.isdigit() else "float")
            case Text(text):
                return _Value(text_literal(text), "str")
            case Name(name):
                return self._name(name)
            case Call(function, _, (Name(argument),)) if function in _OF_LISTS and argument in self._arguments:
                type_, code = _OF_LISTS[function]
                return self._keep(f"{argument}_{function.removeprefix('to_')}", type_, code, argument)
            case Call("zeros_like", _, (Name(name),)) if name in self._arguments:
                if self._arguments[name] != TENSOR:
                    raise _Missing(f"zeros like {name}, {self._arguments[name]}")
                info = self._keep(f"{name}_info", "TypeAndSize", "type_and_size({})", name)
                return self._translator.calls("zeros", [info])
            case Call(function, template, items):
                if template:
                    raise _Missing(f"{function}<{', '.join(template)}>")
                return self._translator.calls(function, [self.translate(item) for item in items])
            case Method(Name(name), property_, (), False) if property_ in _PROPERTIES and name in self._arguments:
                type_, code = _PROPERTIES[property_]
                if self._arguments[name] != TENSOR:
                    raise _Missing(f"{self._arguments[name]}.{property_}()")
                return self._keep(f"{name}_{property_}", type_, code, name)
            case Method(target, name, items, pointer):
                if pointer:
                    raise _Missing(f"->{name}()")
                return self._method(self.translate(target), name, [self.translate(item) for item in items])
            case Unary("-", value):
                return self._negated(self.translate(value))
            case Unary("!", value):
                found = self.translate(value)
                if found.type != "bool":
                    raise _Missing(f"!{found.type}")
                return _Value(f"not {found.tight}", "bool", loose=True)
            case Unary(sign, _):
                raise _Missing(f"{sign} of an optional")
            case Binary(sign, left, right):
                return self._binary(sign, self.translate(left), self.translate(right))
            case Choice(condition, yes, no):
                return self._choice(*map(self.translate, (condition, yes, no)))
            case Braces(items):
                values = [self.translate(item) for item in items]
                if any(each.type != "int" for each in values):
                    raise _Missing("{...} of other values than numbers")
                return _Value(f"[{', '.join(each.code for each in values)}]", "int[]")
            case Index(_, _):
                raise _Missing("an element of a list")

    def _name(self, name: str) -> _Value:
        if name == "grad":
            return _Value("grad", TENSOR)
        if name in ("true", "false"):
            return _Value(name.title(), "bool")
        if name == "result" and len(self._function.schema.returns) == 1:
            self.saved["result"] = Saved("result", "", tensor=True, is_result=True)
            return _Value("result", _type_text(self._function.schema.returns[0].type))
        type_ = self._arguments.get(name)
        if type_ is None:
            raise _Missing(name)
        if type_ == TENSOR:
            self.saved[name] = Saved(name, f'values["{name}"]', tensor=True)
            return _Value(python_name(name), TENSOR)
        if TENSOR in type_:
            raise _Missing(f"{name}, {type_}")
        return self._keep(name, type_, "{}", name)

    def _keep(self, kept: str, type_: str, code: str, argument: str) -> _Value:
        self.saved[kept] = Saved(kept, code.format(f'values["{argument}"]'))
        return _Value(f'stash["{kept}"]', type_)

    def _method(self, target: _Value, name: str, values: list[_Value]) -> _Value:
        if name == "conj" and target.type in ("Scalar", "float", "int") and not values:
            return _Value(f"{target.tight}.conjugate()", target.type)
        if target.type == TENSOR and name in _PROPERTIES and not values:
            type_, code = _PROPERTIES[name]
            return _Value(code.format(target.tight), type_)
        return self._translator.calls(name, [target, *values])

    def _negated(self, value: _Value) -> _Value:
        if value.type == TENSOR:
            return self._translator.calls("neg", [value])
        if value.type in ("Scalar", "float", "int"):
            return _Value(f"-{value.tight}", value.type, loose=True)
        raise _Missing(f"-{value.type}")

    def _binary(self, sign: str, left: _Value, right: _Value) -> _Value:
        if TENSOR in (left.type, right.type):
            name = _OPERATORS.get(sign)
            if name is None:
                raise _Missing(f"{left.type} {sign} {right.type}")
            if left.type != TENSOR and sign in "+*":
                left, right = right, left
            return self._translator.calls(name, [left, right])
        numbers = ("Scalar", "float", "int")
        if left.type in numbers and right.type in numbers:
            type_ = "Scalar" if "Scalar" in (left.type, right.type) else "float"
            exact = "int" if left.type == right.type == "int" and sign != "/" else type_
            result = "bool" if sign in ("==", "!=", "<", "<=", ">", ">=") else exact
            return _Value(f"{left.tight} {sign} {right.tight}", result, loose=True)
        if left.type == right.type == "bool" and sign in ("&&", "||"):
            word = "and" if sign == "&&" else "or"
            return _Value(f"{left.tight} {word} {right.tight}", "bool", loose=True)
        raise _Missing(f"{left.type} {sign} {right.type}")

    def _choice(self, condition: _Value, yes: _Value, no: _Value) -> _Value:
        if condition.type != "bool" or yes.type != no.type:
            raise _Missing(f"{condition.type} ? {yes.type} : {no.type}")
        return _Value(f"{yes.tight} if {condition.tight} else {no.tight}", yes.type, loose=True)


_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def translated(
    function: NativeFunction, match: Match, translator: Translator
) -> TranslatedFunction | tuple[MissingCall, ...]:
    """The formulas of a function as Python, or all that they miss.

    Args:
        function: the function.
        match: the formulas that it has.
        translator: the operators and helpers that there are.
    """
    formulas = formulas_of(match)
    assert formulas is not None, f"{function.short_name} has no formulas at Autograd"
    found: list[TranslatedFormula] = []
    missing: list[MissingCall] = []
    for formula in formulas.formulas:
        scope = _Scope(translator, function)
        try:
            _check_function(function, formula, translator.taken)
            value = scope.translate(parse_formula(formula.text))
            if value.type not in (TENSOR, "Tensor[]") or len(formula.names) > 1:
                raise _Missing(f"{value.type} for {', '.join(formula.names)}")
        except ParseError as error:
            missing.append(MissingCall(function, formula, f"it cannot be read: {error.sentence}"))
        except _Missing as error:
            missing.append(MissingCall(function, formula, error.what))
        else:
            found.append(TranslatedFormula(formula, value.code, value.type, tuple(scope.saved.values())))
    return tuple(missing) if missing else TranslatedFunction(function, match, tuple(found))


_TAKEN = frozenset(
    (
        *("calls", "enumerate", "grad", "list", "node", "one", "options_of", "result", "stash", "type_and_size"),
        "values",
    )
)
"""Names of generated code, which no argument may have."""


def _check_function(function: NativeFunction, formula: Formula, taken: Set[str]) -> None:
    """Nodes have one result here, and a formula is for tensors of the function itself, not for elements of lists."""
    if len(function.schema.returns) != 1:
        raise _Missing(f"a node with {len(function.schema.returns)} results")
    types = {argument.name: _type_text(argument.type) for argument in function.schema.arguments}
    for name in types:
        if name in taken or name.endswith("_gradient"):
            raise _Missing(f"an argument {name}, which is the name of something else in generated code")
    for name in formula.names:
        if types.get(name) not in (TENSOR, "Tensor[]") or function.parts.name.base.startswith("_foreach_"):
            raise _Missing(f"the gradient of {name}, {types.get(name, 'no argument')}")


def formulas_of(match: Match) -> KeyFormulas | None:
    """The formulas at Autograd, which is where all backends have them."""
    return match.entry.at(DispatchKey.Autograd)


# -- a module


def module_of_formulas(functions: Sequence[TranslatedFunction], *, first_line: str, file: str, package: str) -> str:
    """A Python module with a `Derivative` of each function.

    Args:
        functions: the functions.
        first_line: the line that says where it comes from.
        file: what derivatives.yaml is called in it.
        package: the package with `autograd_graph` and `derivatives`.
    """
    body = formula_body(functions, file=file)
    lines = [
        first_line,
        f'"""The gradients of {len(functions)} operators: what each saves, and its formulas as {file} has them."""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping",
        "from typing import Any",
        "",
        *formula_imports(body, package=package),
        "",
        "",
        *body,
    ]
    return "\n".join(lines) + "\n"


def formula_imports(body: Iterable[str], *, package: str) -> Iterator[str]:
    """The imports that the lines of formulas need."""
    yield "from dispatchlab.call.tensor import Tensor"
    yield f"from {package}.autograd_graph import Gradients, Node"
    yield f"from {package}.derivatives import ("
    yield from (f"    {name}," for name in ("Calls", "Derivative", "Values", *_helpers_in(body)))
    yield ")"


def formula_body(functions: Sequence[TranslatedFunction], *, file: str) -> list[str]:
    """The functions of formulas, and the table of them."""
    names: dict[tuple[str, ...], str] = {}  # by the lines of a function, which several operators may have in common
    rows: list[str] = []
    for translated in functions:
        flat, save = translated.function.flat_name, tuple(_save_source(translated))
        backward = names.setdefault(tuple(_backward_source(translated, file)), f"_{flat}")
        rows += _row(translated, backward, names.setdefault(save, f"_save_{flat}") if save else "")
    body = [line for lines, name in names.items() for line in (f"def {name}{lines[0]}", *lines[1:], "", "")]
    return [*body, "FORMULAS: Mapping[str, Derivative] = {", *rows, "}", '"""By operator."""']


_CALLED = re.compile(r"(?<![\w.\"])([a-z]\w+)\(")


def _helpers_in(body: Iterable[str]) -> list[str]:
    """The helpers that the lines call."""
    called = {name for line in body if not line.startswith("def ") for name in _CALLED.findall(line)}
    return sorted(called - {"calls", "list", "enumerate"})


def _tensor_arguments(function: NativeFunction) -> list[str]:
    """The tensor arguments, in the order of the inputs of a node."""
    return [argument.name for argument in function.schema.arguments if TENSOR in _type_text(argument.type)]


def _backward_source(each: TranslatedFunction, file: str) -> Iterator[str]:
    tensors = _tensor_arguments(each.function)
    gradients = {name: one for one in each.formulas for name in one.formula.names}
    yield "(calls: Calls, node: Node, grad: Tensor) -> Gradients:"
    if any("stash[" in one.code for one in each.formulas):
        yield "    stash: Any = node.stash"
    is_list = len(tensors) == 1 and gradients[tensors[0]].type == "Tensor[]"
    if len(tensors) > 1:
        yield f"    {' = '.join(f'{name}_gradient' for name in tensors)} = None"
    for one in each.formulas:
        (name,) = one.formula.names
        at = tensors.index(name)
        yield f"    # {file}:{one.formula.location.line}"
        depth = 1
        if len(tensors) > 1:
            yield f"    if node.needs({at}):"
            depth = 2
        for saved in one.saved:
            if saved.tensor:
                yield f'{INDENT * depth}{python_name(saved.name)} = node.unpack("{saved.name}")'
        yield from _assigned(f"{name}_gradient", one.code, depth)
    if is_list:
        yield f"    return [one if node.needs(at) else None for at, one in enumerate({tensors[0]}_gradient)]"
    else:
        gradients_text = ", ".join(f"{name}_gradient" for name in tensors)
        yield f"    return {gradients_text}" if len(tensors) > 1 else f"    return ({gradients_text},)"


def _assigned(name: str, code: str, depth: int) -> Iterator[str]:
    """An assignment; a call that is too long for its line breaks between its arguments."""
    head, bracket, rest = f"{name} = {code}".partition("(")
    if not bracket or not code.endswith(")") or code.startswith("calls("):
        yield f"{INDENT * depth}{name} = {code}"
        return
    yield from bracketed(f"{head}(", _arguments(rest[:-1]), ")", indent=depth)


def _arguments(text: str) -> list[str]:
    """The arguments of a call, which stand between commas outside of all brackets."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [each.strip() for each in found]


def _save_source(each: TranslatedFunction) -> Iterator[str]:
    kept = [(saved, one) for one in each.formulas for saved in one.saved if not saved.is_result]
    if kept:
        yield "(calls: Calls, node: Node, values: Values) -> None:"
    for saved in {saved.name: saved for saved, _ in kept}.values():
        if not saved.tensor:
            yield f'    node.stash["{saved.name}"] = {saved.code}'
            continue
        using = [one for other, one in kept if other.name == saved.name]
        code = saved.code
        if each.function.kind is SchemaKind.INPLACE and saved.name == "self":
            code = f'calls("clone")({code})'
        guard = _guard(each, using)
        yield f'    node.save("{saved.name}", {code}{f" if {guard} else None" if guard else ""})'


def _guard(each: TranslatedFunction, using: Sequence[TranslatedFormula]) -> str:
    """When a tensor has to be kept: when the gradient is wanted that needs it. Source: `guard_for`."""
    differentiable = [name for one in each.formulas for name in one.formula.names]
    if len(differentiable) <= 1 or "backward" in each.match.entry.name.name or len(using) > 1:
        return ""
    (name,) = using[0].formula.names
    return f"node.needs({_tensor_arguments(each.function).index(name)})"


def _row(each: TranslatedFunction, backward: str, save: str) -> Iterator[str]:
    items = [text_literal(each.node), backward, *([save] if save else [])]
    if any(one.is_result for formula in each.formulas for one in formula.saved):
        items.append("saves_result=True")
    yield from bracketed(f"{text_literal(each.function.short_name)}: Derivative(", items, "),", indent=1)
