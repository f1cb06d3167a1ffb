"""Compiled calls: code for one schema, so that what is known beforehand is not decided in each call.

For `add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor` this writes

    def call(self=_M, other=_M, /, *_extra, alpha=_D2, **_unknown):
        try:
            _bits = self.key_bits | other.key_bits
            _stale = _dispatcher.state[_name] is not _entry
        except (AttributeError, KeyError, TypeError):
            return _general((self, other, alpha), _extra, _unknown)
        if _stale or _observers or _extra or _unknown:
            return _general((self, other, alpha), _extra, _unknown)
        if alpha is _D2:
            if _guards: ...
            else: _kernel = _plain_short.get(_bits) or _resolve_plain_short(_bits)
            _result = _kernel(self, other)
        ...

Whatever is unusual goes to `_general`, which checks, converts and refuses; the rest has paid for one dictionary.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType
from typing import Any, TypeAlias

from dispatchlab.call.call_observer import observers
from dispatchlab.call.call_signature import MISSING, CallSignature
from dispatchlab.call.dispatch_table import CACHES, CallTable
from dispatchlab.call.local_key_set import open_guards, thread
from dispatchlab.call.tensor import Tensor
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_types import INT, SYM_INT, TENSOR, ListType, OptionalType, SimpleType, Type

Function: TypeAlias = Callable[..., Any]

# Note [What a call looks at]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A call must see every registration that was done before it, and a registration must not wait for calls. The entry of
# an operator is an immutable value, slots and all, so one comparison by identity shows whether the code still fits. The
# code holds the entry, so that no other one can take its address.
# Guards are rare among calls, so a list that is empty while no thread has one open stands in front of the look at the
# thread. Whether calls are observed is asked in the same way.
# The checks of arguments are exact (`type(x) is int`) or left to the attribute that only tensors and generators have;
# what fails them is not wrong, it is unusual. So are positional arguments by name, which may also come twice.


@dataclass(frozen=True, slots=True)
class General:
    """Where unusual calls go: (the arguments, positional ones beyond the schema, those by other names)."""

    call: Function
    redispatch: Function


def compiled(table: CallTable, general: General) -> tuple[Function, Function]:
    """`call` and `redispatch` of an operator, for as long as its entry stays the same."""
    # See Note [What a call looks at]
    signature = table.signature
    constants: dict[str, object] = {
        "_M": MISSING,
        "_T": Tensor,
        "_name": signature.name,
        "_dispatcher": table.dispatcher,
        "_entry": table.entry,
        "_observers": observers,
        "_guards": open_guards,
        "_thread": thread,
        "_general": general.call,
        "_general_redispatch": general.redispatch,
        "_finish": table.finish_call,
        "_finish_redispatch": table.finish_redispatch,
        "_bits_of_list": _bits_of_list,
        "_is_int_list": _is_int_list,
        "_is_scalar": _SCALARS.__contains__,
        **{f"_{cache}": table.caches[cache] for cache in CACHES},
        **{f"_resolve_{cache}": partial(table.resolve, cache) for cache in CACHES},
        **{f"_D{at}": default for at, default in enumerate(signature.defaults) if default is not MISSING},
    }
    exec(_code(signature.schema), constants)
    call, redispatch = constants["call"], constants["redispatch"]
    assert callable(call)
    assert callable(redispatch)
    return call, redispatch


_SCALARS = frozenset((int, float, bool, complex))


@lru_cache(maxsize=4096)
def _code(schema: FunctionSchema) -> CodeType:
    return compile(source(schema), f"<call of {schema.name}>", "exec")


def source(schema: FunctionSchema) -> str:
    """The text of both functions of an operator."""
    signature = CallSignature(schema)
    names = [_parameter(argument.name, at) for at, argument in enumerate(schema.arguments)]
    values = "(" + "".join(f"{name}, " for name in names) + ")"
    return "\n".join(
        [
            f"def call({_parameters(signature, names, [])}):",
            *_head(signature, names, f"_general({values}, _extra, _unknown)", bits=True),
            *_body(signature, names, values, redispatch=False),
            f"def redispatch({_parameters(signature, names, ['_keys=_M'])}):",
            *_head(signature, names, f"_general_redispatch(_keys, {values}, _extra, _unknown)", bits=False),
            *_body(signature, names, values, redispatch=True),
        ]
    )


def _parameter(name: str, at: int) -> str:
    """An argument's name, if a parameter can have it; else one that is surely free."""
    return name if _is_usable(name) else f"_argument{at}"


def _is_usable(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _nameless(signature: CallSignature, names: list[str]) -> list[str]:
    """What is by name alone and cannot be a parameter: it is found among the unknown ones."""
    arguments = enumerate(signature.arguments)
    return [names[at] for at, one in arguments if one.kwarg_only and not _is_usable(one.name)]


def _parameters(signature: CallSignature, names: list[str], first: list[str]) -> str:
    # A positional argument may also come by name, as an unknown one: only `_M` says that it did not come by position.
    by_place = [f"{name}=_M" for name in names[: signature.positional]]
    by_name = [
        f"{name}={'_M' if signature.defaults[at] is MISSING else f'_D{at}'}"
        for at, name in enumerate(names)
        if at >= signature.positional and _is_usable(signature.arguments[at].name)
    ]
    first = [*first, *by_place]
    return ", ".join([*first, *(["/"] if first else []), "*_extra", *by_name, "**_unknown"])


def _head(signature: CallSignature, names: list[str], general: str, *, bits: bool) -> list[str]:
    terms = [_bits_term(signature.arguments[at].type, names[at]) for at in signature.dispatched]
    terms += [f"({names[at]}.generator_bits if {names[at]} is not None else 0)" for at in signature.generators]
    known = ["_stale", "_observers", "_extra", "_unknown"]
    for at, argument in enumerate(signature.arguments):
        if at in signature.dispatched or at in signature.generators:
            continue
        is_default = "" if signature.defaults[at] is MISSING else _left_out(signature, names, at)
        parts = [part for part in (is_default, _exactly(argument.type, names[at])) if part]
        known.append(f"not ({' or '.join(parts)})" if parts else "True")
    looks = [f"        {term}" for term in terms]
    return [
        *(f"    {name} = _M" for name in _nameless(signature, names)),
        "    try:",
        *([f"        _bits = {' | '.join(terms) or '0'}"] if bits else ["        _bits = _keys.bits", *looks]),
        "        _stale = _dispatcher.state[_name] is not _entry",
        "    except (AttributeError, KeyError, TypeError):",
        f"        return {general}",
        f"    if {' or '.join(known)}:",
        f"        return {general}",
    ]


def _body(signature: CallSignature, names: list[str], values: str, *, redispatch: bool) -> list[str]:
    defaulted = [
        f"({_left_out(signature, names, at)})"
        for at, default in enumerate(signature.defaults)
        if default is not MISSING
    ]
    everything = ", ".join(_filled(signature, names, at) for at in range(len(names)))
    full = [*_lookup("", redispatch=redispatch), f"_result = _kernel({everything})"]
    if not signature.required_come_first:
        lines = full
    elif not defaulted:
        lines = [*_lookup("_short", redispatch=redispatch), f"_result = _kernel({everything})"]
    else:
        lines = [
            f"if {' and '.join(defaulted)}:",
            *(f"    {line}" for line in _lookup("_short", redispatch=redispatch)),
            f"    _result = _kernel({', '.join(names[: signature.required])})",
            "else:",
            *(f"    {line}" for line in full),
        ]
    return [
        f"    {line}"
        for line in (*lines, *_return(signature, names, values, "_finish_redispatch" if redispatch else "_finish"))
    ]


def _left_out(signature: CallSignature, names: list[str], at: int) -> str:
    """A condition under which an argument that has a default surely has its default."""
    name = names[at]
    by_name = at >= signature.positional and _is_usable(signature.arguments[at].name)
    return f"{name} is _D{at}" if by_name else f"{name} is _M or {name} is _D{at}"


def _filled(signature: CallSignature, names: list[str], at: int) -> str:
    """An argument with its default in place; a kernel gets a list of its own."""
    name, default = names[at], signature.defaults[at]
    if default is MISSING:
        return name
    if isinstance(default, list):
        return f"([*_D{at}] if {_left_out(signature, names, at)} else {name})"
    return f"(_D{at} if {name} is _M else {name})"


def _lookup(form: str, *, redispatch: bool) -> list[str]:
    if redispatch:
        return _cached(f"redispatched{form}", "_bits")
    return [
        "if _guards:",
        "    _included, _kept = _thread.masks",
        "    _base = (_bits | _included) & _kept",
        *(f"    {line}" for line in _cached(f"guarded{form}", "_base")),
        "else:",
        *(f"    {line}" for line in _cached(f"plain{form}", "_bits")),
    ]


def _cached(cache: str, bits: str) -> list[str]:
    return [
        f"_kernel = _{cache}.get({bits})",
        "if _kernel is None:",
        f"    _kernel = _resolve_{cache}({bits})",
    ]


def _return(signature: CallSignature, names: list[str], values: str, function: str) -> list[str]:
    finish = f"return {function}({values}, _result, _bits)"
    if signature.writes is not None and len(signature.writes) == 1:
        name = names[signature.writes[0]]
        nothing = "" if signature.written is None else " or _result is None"
        return [f"if _result is {name}{nothing}:", f"    return {name}", finish]
    returns = signature.schema.returns
    if not returns:
        return ["if _result is None:", "    return None", finish]
    if signature.writes is None and len(returns) == 1 and returns[0].type == TENSOR:
        return ["if _result.__class__ is _T:", "    return _result", finish]
    return [finish]


def _bits_term(type_: Type, name: str) -> str:
    if isinstance(type_, OptionalType):
        return f"({name}.key_bits if {name} is not None else 0)"
    return f"_bits_of_list({name})" if isinstance(type_, ListType) else f"{name}.key_bits"


def _bits_of_list(tensors: list[Tensor | None]) -> int:
    """The keys of a list; a TypeError sends what is no list, or holds None, the general way."""
    if type(tensors) is not list:
        raise TypeError
    bits = 0
    for tensor in tensors:
        bits |= tensor.key_bits  # type: ignore[union-attr]  # None has none: the AttributeError goes the general way
    return bits


def _is_int_list(value: object) -> bool:
    return type(value) is list and {*map(type, value)} <= {int}


_EXACT = {
    "int": "type({0}) is int",
    "SymInt": "type({0}) is int",
    "float": "type({0}) is float",
    "bool": "type({0}) is bool",
    "str": "type({0}) is str",
    "Scalar": "_is_scalar(type({0}))",
}


def _exactly(type_: Type, name: str) -> str:
    """A condition under which a value is what kernels expect, as it stands; empty for no such condition."""
    match type_:
        case OptionalType(element):
            inner = _exactly(element, name)
            return f"{name} is None or {inner}" if inner else f"{name} is None"
        case ListType(element) if element in (INT, SYM_INT):
            return f"_is_int_list({name})"
        case SimpleType(type_name):
            return _EXACT.get(type_name, "").format(name)
        case _:
            return ""
