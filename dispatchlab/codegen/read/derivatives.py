"""Read derivatives.yaml: the formulas of gradients, entry by entry, or every problem of the file.

    - name: mul.Tensor(Tensor self, Tensor other) -> Tensor
      self: mul_tensor_backward(grad, other, self.scalar_type())
      other: mul_tensor_backward(grad, self, other.scalar_type())
      result: other_t * self_p + self_t * other_p              # a formula of forward mode

Formulas are kept as the C++ text that they are. Source: torchgen/packaged/autograd/load_derivatives.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import auto
from functools import cached_property
from pathlib import Path

from dispatchlab._gc_pause import collector_paused
from dispatchlab._short_repr import WordEnum
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.codegen.read.schema_parts import signature_of
from dispatchlab.errors import ParseError, did_you_mean
from dispatchlab.files.bounded_read import ReadError, read_file
from dispatchlab.files.source_location import SourceLocation
from dispatchlab.files.yaml_tree import Listing, Node, Problem, Scalar, YamlError, compose, in_order, quoted
from dispatchlab.files.yaml_tree import Mapping as YamlMapping
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_schema


class DerivativeRule(WordEnum):
    """Each rule that a file of derivatives can break."""

    NOT_YAML = auto()
    NOT_A_LIST = auto()
    NOT_A_MAPPING = auto()
    REPEATED_FIELD = auto()
    WRONG_VALUE = auto()
    NO_NAME = auto()
    UNREADABLE_SCHEMA = auto()
    NO_OPERATOR = auto()
    OTHER_SCHEMA = auto()
    REPEATED_ENTRY = auto()
    UNKNOWN_KEY = auto()
    UNKNOWN_ARGUMENT = auto()
    REPEATED_ARGUMENT = auto()
    RESERVED_ARGUMENT = auto()
    NO_SUCH_GRADIENT = auto()
    MIXED_GRADIENTS = auto()
    ONLY_FIRST_GRADIENT = auto()


class DerivativesError(YamlError):
    """A derivatives.yaml cannot be used: all its problems, one a line, as `file:line:column: message`.

    The `rule` of each is a `DerivativeRule`.
    """


@dataclass(frozen=True, slots=True)
class Formula:
    """One formula.

    Args:
        text: the C++ expression.
        names: the arguments whose gradients it gives; in forward mode the results whose tangents it gives.
        location: where it is written.
    """

    text: str
    names: tuple[str, ...]
    location: SourceLocation


@dataclass(frozen=True, slots=True)
class KeyFormulas:
    """The formulas of one operator at one key.

    Args:
        key: the key of the autograd kernel; `Autograd` for what the file calls Default.
        formulas: those of backward mode, in the order of their names, which is that of torchgen.
        forward: those of forward mode.
        non_differentiable: arguments that no gradient goes to.
    """

    key: DispatchKey
    formulas: tuple[Formula, ...]
    forward: tuple[Formula, ...] = ()
    non_differentiable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DerivativeEntry:
    """One entry of the file.

    Args:
        name: the operator that the entry names.
        function: the variant of it that formulas are written for.
        keys: the formulas, key by key, in the order of the file.
        nodes: what the nodes are called, such as `MulBackward0`, key by key; None where there is no formula.
        output_differentiability: which results are differentiable; None where the file does not say.
        condition: a C++ expression for whether the only result is differentiable; empty where it always is.
        location: where the entry is written.
    """

    name: OperatorName
    function: NativeFunction
    keys: tuple[KeyFormulas, ...]
    nodes: tuple[str | None, ...]
    output_differentiability: tuple[bool, ...] | None
    condition: str
    location: SourceLocation

    @property
    def has_derivatives(self) -> bool:
        """Whether a gradient can go anywhere."""
        return any(each.formulas for each in self.keys)

    def at(self, key: DispatchKey) -> KeyFormulas | None:
        """The formulas at one key."""
        return next((each for each in self.keys if each.key is key), None)


@dataclass(frozen=True)
class Derivatives:
    """The content of a file of derivatives.

    Args:
        entries: in the order of the file.
    """

    entries: tuple[DerivativeEntry, ...]

    @cached_property
    def by_function(self) -> Mapping[OperatorName, DerivativeEntry]:
        """The entries by the operators whose formulas they are."""
        return {entry.function.name: entry for entry in self.entries}


MAX_BYTES = 8 * 2**20
"""Larger files are refused unread; that of PyTorch has 0.2 MiB."""

BESIDE = ("derivatives.yaml", "../../autograd/derivatives.yaml", "../../../../tools/autograd/derivatives.yaml")
"""Where derivatives.yaml is, seen from native_functions.yaml: beside it, in torchgen, in the sources of PyTorch."""


def derivatives_beside(native_functions: str | os.PathLike[str]) -> Path | None:
    """The derivatives.yaml that belongs to a file of native functions; None when there is none."""
    folder = Path(native_functions).absolute().parent
    found = (Path(os.path.normpath(folder / each)) for each in BESIDE)
    return next((each for each in found if each.is_file()), None)


def load_derivatives(path: str | os.PathLike[str], natives: NativeFunctions) -> Derivatives:
    """Read a file of derivatives.

    Raises:
        DerivativesError: with every problem of the file.
    """
    try:
        data = read_file(Path(path), limit=MAX_BYTES, what="files of derivatives")
    except ReadError as error:
        raise DerivativesError((Problem(str(path), error.reason, rule=DerivativeRule.NOT_YAML),)) from None
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror or error}"
        raise DerivativesError((Problem(str(path), reason, rule=DerivativeRule.NOT_YAML),)) from None
    return read_derivatives(data, natives, file=os.fspath(path))


def read_derivatives(data: bytes | str, natives: NativeFunctions, *, file: str = "<text>") -> Derivatives:
    """The formulas that a file gives.

    Args:
        data: the content.
        natives: the functions that it gives formulas of.
        file: what source locations call it.

    Raises:
        DerivativesError: with every problem of the content.
    """
    with collector_paused():
        try:
            root = compose(data, file)
        except YamlError as error:
            raise DerivativesError(
                tuple(Problem(each.where, each.message, each.hint, DerivativeRule.NOT_YAML) for each in error.problems)
            ) from None
        return _Reader(natives, file).read(root)


_DEFAULT = "Default"
_KEYS = {
    _DEFAULT: DispatchKey.Autograd,
    **{each.name: each for each in DispatchKey if each.name.startswith("Autograd") and each.name != "Autograd"},
}
_TAKEN = ("grad_input_mask", "result")
_INDEX = re.compile(r"(?<!\w)grads\[(\d+)\]")
_ALL_GRADIENTS = re.compile(r"(?<!\w)grads(?!\w)")
_FIRST_GRADIENT = re.compile(r"(?<!\w)grad(?!\w)")


class _Reader:
    def __init__(self, natives: NativeFunctions, file: str) -> None:
        self._natives, self._file = natives, file
        self._problems: list[Problem] = []
        self._nodes: dict[str, int] = {}
        self._variants: dict[object, list[NativeFunction]] = {}
        for function in natives.functions:
            self._variants.setdefault(signature_of(function.schema, function.parts), []).append(function)

    def read(self, root: Node) -> Derivatives:
        if not isinstance(root, Listing):
            self._report(DerivativeRule.NOT_A_LIST, root, "found no list of derivatives", "start with `- name:`")
            raise DerivativesError(tuple(self._problems))
        entries: dict[OperatorName, DerivativeEntry] = {}
        for node in root.items:
            entry = self._entry(node)
            if entry is None:
                continue
            if entry.function.name in entries:
                first = entries[entry.function.name].location.line
                message = f"{entry.function.short_name} has formulas already, on line {first}"
                self._report(DerivativeRule.REPEATED_ENTRY, node, message, "keep one of the entries")
                continue
            entries[entry.function.name] = entry
        if self._problems:
            raise DerivativesError(in_order(self._problems))
        return Derivatives(tuple(entries.values()))

    def _report(self, rule: DerivativeRule, node: Node, message: str, hint: str = "", column: int = 0) -> None:
        where = SourceLocation(self._file, node.line, column or node.column)
        self._problems.append(Problem(where, message, hint, rule))

    def _fields(self, node: Node, what: str) -> dict[str, tuple[Scalar, Node]] | None:
        if not isinstance(node, YamlMapping):
            self._report(DerivativeRule.NOT_A_MAPPING, node, f"found no mapping for {what}")
            return None
        found: dict[str, tuple[Scalar, Node]] = {}
        for key, value in node.pairs:
            if not isinstance(key, Scalar):
                self._report(DerivativeRule.WRONG_VALUE, key, "found a field whose name is not text")
            elif key.text in found:
                first = found[key.text][0].line
                self._report(
                    DerivativeRule.REPEATED_FIELD, key, f"{quoted(key.text)} is given twice, first on line {first}"
                )
            else:
                found[key.text] = (key, value)
        return found

    def _entry(self, node: Node) -> DerivativeEntry | None:
        fields = self._fields(node, "an entry")
        if fields is None:
            return None
        name = fields.pop("name", None)
        if name is None or not isinstance(name[1], Scalar) or name[1].is_missing:
            message = "found an entry without a name"
            self._report(DerivativeRule.NO_NAME, node, message, "write the schema of the operator: `- name: ...`")
            return None
        schema = name[1]
        named = self._named(schema)
        if named is None:
            return None
        function = self._canonical(named)
        for one in function.schema.arguments:
            if one.name in _TAKEN:
                message = f"{function.short_name} has an argument {one.name}, which formulas use for something else"
                self._report(DerivativeRule.RESERVED_ARGUMENT, schema, message, "give it another name")
        outputs, condition = self._differentiability(fields.pop("output_differentiability", None), function)
        dispatch = fields.pop("dispatch", None)
        keys: list[KeyFormulas] = []
        if dispatch is None:
            keys.append(self._formulas(DispatchKey.Autograd, fields, function))
        else:
            for key, _ in fields.values():
                message = f"{quoted(key.text)} stands beside dispatch"
                self._report(DerivativeRule.WRONG_VALUE, key, message, "move it below a key of dispatch")
            keys += self._by_key(dispatch[1], function)
        nodes = tuple(self._node_name(function, named, each) for each in keys)
        location = SourceLocation(self._file, schema.line, schema.column)
        return DerivativeEntry(named.name, function, tuple(keys), nodes, outputs, condition, location)

    def _by_key(self, node: Node, function: NativeFunction) -> list[KeyFormulas]:
        found: list[KeyFormulas] = []
        for text, (key, value) in (self._fields(node, "dispatch") or {}).items():
            known = _KEYS.get(text)
            if known is None:
                hint = did_you_mean(text, _KEYS).removeprefix("; ") or "the keys are Default and those of autograd"
                self._report(DerivativeRule.UNKNOWN_KEY, key, f"{quoted(text)} is not a key of formulas", hint)
                continue
            fields = self._fields(value, f"the formulas of {text}")
            if fields is not None:
                found.append(self._formulas(known, fields, function))
        return found

    def _named(self, node: Scalar) -> NativeFunction | None:
        """The function that an entry names: the schema has to be the one that the function has."""
        try:
            schema = parse_schema(node.text)
        except ParseError as error:
            column = node.column_of(error.at)
            self._report(DerivativeRule.UNREADABLE_SCHEMA, node, error.sentence, column=column)
            return None
        name = schema.name.within("aten")
        function = self._natives.by_name.get(name)
        if function is None:
            known = [each.short_name for each in self._natives.functions]
            hint = did_you_mean(str(schema.name), known).removeprefix("; ")
            message = f"{schema.name} is not in the file of native functions"
            self._report(DerivativeRule.NO_OPERATOR, node, message, hint or "write the schema that it has there")
            return None
        found = FunctionSchema(name, schema.arguments, schema.returns, schema.is_vararg, schema.is_varret)
        if found != function.schema:
            message = f"{schema.name} has another schema in the file of native functions"
            self._report(DerivativeRule.OTHER_SCHEMA, node, message, f"write {_without_namespace(function.schema)}")
            return None
        return function

    def _canonical(self, named: NativeFunction) -> NativeFunction:
        """The variant that formulas are written for: the one with that very name, else the first.

        Source: `canonical_function` in load_derivatives.py.
        """
        variants = self._variants[signature_of(named.schema, named.parts)]
        wanted = named.name.name
        for one in variants:
            if "functional" not in one.name.overload and not one.parts.outs and one.name.name == wanted:
                return one
        return variants[0]

    def _differentiability(
        self, field: tuple[Scalar, Node] | None, function: NativeFunction
    ) -> tuple[tuple[bool, ...] | None, str]:
        if field is None:
            return None, ""
        node = field[1]
        hint = "write a list of True and False, one for each result"
        if isinstance(node, Listing) and all(isinstance(item, Scalar) for item in node.items):
            texts = [item.text for item in node.items if isinstance(item, Scalar)]
            if all(text in ("True", "False") for text in texts):
                if len(texts) > len(function.schema.returns):
                    message = f"{function.short_name} has {len(function.schema.returns)} results, and this names more"
                    self._report(DerivativeRule.WRONG_VALUE, node, message, hint)
                return tuple(text == "True" for text in texts), ""
            if len(texts) == 1 and len(function.schema.returns) == 1:
                return (True,), texts[0]
            hint = "a condition stands alone, for the only result"
        self._report(DerivativeRule.WRONG_VALUE, node, "output_differentiability does not say which results are", hint)
        return None, ""

    def _formulas(
        self, key: DispatchKey, fields: Mapping[str, tuple[Scalar, Node]], function: NativeFunction
    ) -> KeyFormulas:
        arguments = {argument.name for argument in function.schema.arguments}
        results = _result_names(function)
        backward: list[Formula] = []
        forward: list[Formula] = []
        without: list[str] = []
        given: set[str] = set()
        for text in sorted(fields):
            at, value = fields[text]
            names = tuple(one.strip() for one in text.split(","))
            if not isinstance(value, Scalar) or value.is_missing:
                self._report(DerivativeRule.WRONG_VALUE, value, f"{quoted(text)} has no formula", "write an expression")
                continue
            for name in names:
                if name in given:
                    message = f"{name} has a formula and is given another one, or is called non_differentiable"
                    self._report(DerivativeRule.REPEATED_ARGUMENT, at, message, "keep one")
                elif name not in arguments and name not in results:
                    hint = did_you_mean(name, (*arguments, *results)).removeprefix("; ")
                    message = f"{quoted(name)} is no argument and no result of {function.short_name}"
                    self._report(DerivativeRule.UNKNOWN_ARGUMENT, at, message, hint)
                given.add(name)
            formula = Formula(value.text, names, SourceLocation(self._file, value.line, value.column))
            if names[0] not in arguments:
                forward.append(formula)
            elif value.text.lower().strip() == "non_differentiable":
                without += names
            else:
                self._check_indices(formula, value, function)
                backward.append(formula)
        self._check_gradients(backward, function, fields)
        return KeyFormulas(key, tuple(backward), tuple(forward), tuple(without))

    def _check_indices(self, formula: Formula, node: Scalar, function: NativeFunction) -> None:
        for match in _INDEX.finditer(formula.text):
            if int(match[1]) >= len(function.schema.returns):
                count = len(function.schema.returns)
                message = f"{match[0]} is the gradient of a result that {function.short_name} does not have"
                column = node.column_of(match.start())
                self._report(DerivativeRule.NO_SUCH_GRADIENT, node, message, f"it has {count}", column)

    def _check_gradients(
        self, formulas: list[Formula], function: NativeFunction, fields: Mapping[str, tuple[Scalar, Node]]
    ) -> None:
        """The mistakes that only a second derivative would show. Source: `check_grad_usage`."""
        if not formulas:
            return
        texts = " , ".join(each.text for each in formulas)
        first = bool(_FIRST_GRADIENT.search(texts))
        every, indices = len(_ALL_GRADIENTS.findall(texts)), {int(one) for one in _INDEX.findall(texts)}
        by_name = any(
            re.search(rf"(?<!\w)grad_{re.escape(one.name)}(?!\w)", texts) for one in function.schema.returns if one.name
        )
        node = next(iter(fields.values()))[0]
        name = function.short_name
        if (first and every) or (by_name and (first or every)):
            message = f"the formulas of {name} mix grad, grads and the gradients of named results"
            self._report(DerivativeRule.MIXED_GRADIENTS, node, message, "use one of them")
        elif every == len(_INDEX.findall(texts)) and indices == {0}:
            message = f"the formulas of {name} use grads[0] alone"
            self._report(DerivativeRule.ONLY_FIRST_GRADIENT, node, message, "write grad")

    def _node_name(self, function: NativeFunction, named: NativeFunction, formulas: KeyFormulas) -> str | None:
        """`MulBackward0`: counted through the file. Source: `_create_op_prefix`."""
        if not formulas.formulas:
            return None
        title = "".join(part.title() for part in named.name.name.split("_"))
        prefix = f"{title}Backward".replace("ForwardBackward", "Backward")
        if formulas.key is not DispatchKey.Autograd:
            prefix += formulas.key.name
        number = self._nodes[prefix] = self._nodes.get(prefix, -1) + 1
        return f"{prefix}{number}"


def _result_names(function: NativeFunction) -> tuple[str, ...]:
    count = len(function.schema.returns)
    names = [one.name for one in function.schema.returns if one.name]
    return (*names, "result", *(f"result{at}" for at in range(count)))


def _without_namespace(schema: FunctionSchema) -> str:
    return str(schema).partition("::")[2]
