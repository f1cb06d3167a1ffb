"""`Scenario` values -> the text of a file, as a person would write it, which loads back to an equal value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.cpp_signature import cpp_signature
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    NameOnly,
    Registration,
    TorchLibraryCall,
    describe,
    shown_text,
)
from dispatchlab.model.schema import FunctionSchema, classes_in, clone_with_name, source_text
from dispatchlab.model.schema_parser import KNOWN_CLASSES
from dispatchlab.prover.result import Expectation
from dispatchlab.scenario.load import ScenarioError, module_texts, order_text, read_scenario
from dispatchlab.scenario.registrations import UNKNOWN, python_fields
from dispatchlab.scenario.scenario import Scenario, operators_named_by
from dispatchlab.scenario.yaml_fields import Context

Lines: TypeAlias = Iterator[str]


class UnwritableError(DispatchLabError):
    """A scenario made in Python has a value that cannot be written to a file."""

    scenario: Scenario
    reason: str

    template = "the scenario {scenario.claim!r} cannot be written as a file: {reason}"


def scenario_text(scenario: Scenario) -> str:
    """Return the scenario as the text of a file; `parse_scenario` makes an equal value of it.

    >>> from dispatchlab import DispatchKey, Impl, Scenario, parse_name, scenario_text
    >>> foo = parse_name("test::foo")
    >>> print(scenario_text(Scenario("A sentence.", (Impl(foo, DispatchKey.CPU, debug="fn"),), (foo,))), end="")
    claim: A sentence.
    registrations:
      - impl: foo
        dispatch: CPU
        debug: fn

    Raises:
        UnwritableError: it would load as another value or not at all, as a kernel that is a Python function without a
            reference would.
    """
    text = "\n".join((*_head(scenario), *_registrations(scenario.registrations, scenario.namespace, "  "), ""))
    try:
        again = read_scenario(text, Context("<written>", functions=_functions(scenario.registrations)))
    except ScenarioError as error:
        line = getattr(error.problems[0].where, "line", 1)
        raise UnwritableError(scenario, f"{error.problems[0]} in {text.splitlines()[line - 1].strip()!r}") from None
    if again != scenario:
        raise UnwritableError(scenario, _first_difference(scenario, again))
    return text


def _head(scenario: Scenario) -> Lines:
    yield f"claim: {scalar_text(scenario.claim)}"
    if scenario.namespace != "test":
        yield f"namespace: {scalar_text(scenario.namespace)}"
    if scenario.semantics is not None:
        yield f"semantics: {scalar_text(scenario.semantics)}"
    if scenario.registry is not None:
        yield f"registry: {scalar_text(scenario.registry)}"
    if scenario.packages:
        yield f"packages: {_flow(scenario.packages)}"
    if classes := _classes_named_by(scenario.registrations):
        yield f"classes: {_flow(classes)}"
    if scenario.operators != operators_named_by(scenario.registrations):
        yield f"operators: {_flow(_name(name, scenario.namespace) for name in scenario.operators)}"
    if scenario.keys:
        yield f"keys: {_flow(key.name for key in scenario.keys)}"
    if scenario.order:
        yield f"order: {order_text(scenario.order)}"
    if scenario.modules:
        yield "modules:"
        yield from (f"  {scalar_text(name)}: [{', '.join(body)}]" for name, body in module_texts(scenario.modules))
    if scenario.python:
        yield "python:"
        for one in scenario.python:
            start = "  - "
            for name, text in python_fields(one):
                yield f"{start}{name}: {scalar_text(text)}"
                start = "    "
    if scenario.expect is not Expectation.ORDER_INDEPENDENT:
        yield f"expect: {scenario.expect}"
    if scenario.snapshots:
        yield "snapshots: true"
    yield "registrations:" if scenario.registrations else "registrations: []"


def _registrations(
    registrations: Iterable[Registration], namespace: str, indent: str, debug: str | None = None
) -> Lines:
    for registration in registrations:
        start = f"{indent}- "
        for line in _registration(registration, namespace, debug):
            yield start + line
            start = f"{indent}  "


def _registration(registration: Registration, namespace: str, debug: str | None) -> Lines:
    """Return the lines of one registration; a debug text equal to `debug` is left out."""
    match registration:
        case Def():
            yield from _def(registration, namespace)
        case Impl():
            yield f"impl: {scalar_text(_name(registration.operator, namespace))}"
            if registration.key:
                yield f"dispatch: {registration.key}"
            if registration.kernel != Kernel():
                yield from _kernel(registration.kernel)
        case Fallback():
            yield f"fallback: {scalar_text(kernel_word(registration.kernel))}"
            if registration.key:
                yield f"dispatch: {registration.key}"
        case NameOnly():
            yield f"name: {scalar_text(_name(registration.operator, namespace))}"
            return
        case Claim():
            yield f"claim: {scalar_text(registration.namespace)}"
        case Block():
            yield f"library: {scalar_text(registration.namespace or '_')}"
            yield f"kind: {registration.kind}"
            if registration.key:
                yield f"dispatch: {registration.key}"
            if registration.made_by:
                yield "made_by:"
                yield from (f"  {line}" for line in _layer(registration.made_by))
    shown = shown_text(registration)
    if shown != debug:
        yield f"debug: {scalar_text(shown)}"
    if isinstance(registration, Def) and registration.kernel is not None and registration.debug != debug:
        yield f"def_debug: {scalar_text(registration.debug)}"
    if isinstance(registration, Block) and registration.registrations:
        yield "registrations:"
        yield from _registrations(registration.registrations, "", "  ", registration.debug)


def _layer(call: TorchLibraryCall) -> Lines:
    yield f"call: {call.function}"
    yield f"operator: {scalar_text(str(call.operator))}"
    if call.on:
        yield f"on: {_flow(call.on)}"
    if call.allow_override is not None:
        yield f"allow_override: {str(call.allow_override).lower()}"
    if call.parts:
        yield "parts:"
    for part in call.parts:
        yield f"  - call: {part.function}"
        if part.on:
            yield f"    on: {_flow(part.on)}"
        if part.debug:
            yield f"    debug: {scalar_text(part.debug)}"


def _def(registration: Def, namespace: str) -> Lines:
    schema = registration.schema
    if isinstance(schema, OperatorName):
        yield f"def: {scalar_text(_name(schema, namespace))}"
        usual = AliasKind.CONSERVATIVE
    else:
        yield f"def: {scalar_text(source_text(clone_with_name(schema, _short(schema.name, namespace))))}"
        usual = AliasKind.FROM_SCHEMA
    if registration.alias is not usual:
        yield f"alias: {registration.alias or 'default'}"
    if registration.tags:
        yield f"tags: {_flow(sorted(registration.tags))}"
    if registration.key:
        yield f"dispatch: {registration.key}"
    if registration.kernel:
        yield from _kernel(registration.kernel)


def _kernel(kernel: Kernel) -> Lines:
    yield f"kernel: {scalar_text(kernel_word(kernel))}"
    usual = None if kernel.inferred is None else cpp_signature(kernel.inferred)
    if kernel.signature != usual:
        yield f"signature: {scalar_text(UNKNOWN if kernel.signature is None else kernel.signature)}"


def kernel_word(kernel: Kernel) -> str:
    """Return a kernel as scenario files have it: `boxed`, an inferred schema, a reference."""
    if kernel.function is not None or kernel.reference is not None:
        return _reference(kernel)
    if kernel.form is KernelForm.UNBOXED and isinstance(kernel.inferred, FunctionSchema):
        return source_text(kernel.inferred)
    return str(kernel.form)


def _reference(kernel: Kernel) -> str:
    function = kernel.function
    made = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    return made if kernel.reference is None else kernel.reference


def _functions(registrations: Iterable[Registration]) -> dict[str, Callable[..., object] | None]:
    """Return the functions behind the kernels by reference, so that reading the text back imports nothing."""
    functions: dict[str, Callable[..., object] | None] = {}
    for registration in registrations:
        match registration:
            case Block():
                functions |= _functions(registration.registrations)
            case Def(kernel=Kernel() as one) | Impl(kernel=one) | Fallback(kernel=one) if one.function or one.reference:
                functions[_reference(one)] = one.function
    return functions


def _classes_named_by(registrations: Iterable[Registration]) -> tuple[str, ...]:
    """Return the custom classes in schemas, except PyTorch's own, sorted."""
    found: set[str] = set()
    for schema in _schemas(registrations):
        for argument in (*schema.arguments, *schema.returns):
            found |= classes_in(argument.type)
    return tuple(sorted(found - KNOWN_CLASSES))


def _schemas(registrations: Iterable[Registration]) -> Iterator[FunctionSchema]:
    for registration in registrations:
        match registration:
            case Block():
                yield from _schemas(registration.registrations)
            case Def() | Impl():
                if isinstance(registration, Def) and isinstance(registration.schema, FunctionSchema):
                    yield registration.schema
                if registration.kernel and isinstance(registration.kernel.inferred, FunctionSchema):
                    yield registration.kernel.inferred


def _name(name: OperatorName, namespace: str) -> str:
    return str(_short(name, namespace))


def _short(name: OperatorName, namespace: str) -> OperatorName:
    return OperatorName("", name.name, name.overload) if namespace and name.namespace == namespace else name


def _flow(texts: Iterable[str]) -> str:
    return f"[{', '.join(scalar_text(text, flow=True) for text in texts)}]"


_PLAIN = re.compile(r"[A-Za-z_(/](?:[ -~]*[!-9;-~])?")
_PLAIN_IN_FLOW = re.compile(r"[A-Za-z_](?:[\w:.-]*[\w.-])?|0|[1-9][0-9]*", re.ASCII)
_NOT_TEXT_ELSEWHERE = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_TO_LOOK_AT = re.compile('["\\\\]|[^ -~]')
_IN_YAML = re.compile("[ -~\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def scalar_text(text: str, *, flow: bool = False) -> str:
    """Return the text as a one-line YAML scalar: plain where every YAML reader sees text, else in double quotes."""
    broken = not flow and (": " in text or " #" in text)
    plain = None if broken else (_PLAIN_IN_FLOW if flow else _PLAIN).fullmatch(text)
    if plain and text.lower() not in _NOT_TEXT_ELSEWHERE:
        return text
    return f'"{_TO_LOOK_AT.sub(lambda found: _escape(found.group()), text)}"'


def _escape(character: str) -> str:
    """Return the character, escaped if YAML lacks it or a terminal would obey it."""
    if character.isprintable() and character not in _ESCAPES and _IN_YAML.match(character):
        return character
    code = ord(character)
    wide = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else wide)


def _first_difference(scenario: Scenario, again: Scenario) -> str:
    for at, (mine, other) in enumerate(zip(scenario.registrations, again.registrations, strict=True)):
        if mine != other:
            names = (field.name for field in fields(mine) if type(mine) is type(other))
            what = next((name for name in names if getattr(mine, name) != getattr(other, name, None)), "kind")
            return f"registration {at}, {describe(mine)}, would load with another {what}"
    heads = (field.name for field in fields(scenario) if field.name != "registrations")
    name = next(name for name in heads if getattr(scenario, name) != getattr(again, name))
    return f"`{name}` would load as {getattr(again, name)!r}"
