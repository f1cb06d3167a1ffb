"""`torch_function_dispatch` makes a function overridable: the check of signatures, and the compiled wrapper.

A handler gets the arguments as they were given, by position or by name, and none that were left out. So each shape,
such as one positional argument and `dim` by name, has a branch of its own, in which everything is called directly:

    def public(_0=_M, _1=_M, _2=_M, /, *_rest, dim=_M, **_named):
        if _special:
            return _general(args, kwargs)
        if not _named:
            if dim is _M:
                if _1 is _M and _0 is not _M:
                    try:
                        _found = _relevant(_0)
                        _number = _len(_found)
                    except TypeError:
                        return _general((_0,), {})
                    if _number == 1:
                        ...
                    return _overridden(_found, (_0,), {})
                ...
            else:
                ...
        elif len(_named) == 1:
            ...
        return _general(args, kwargs)

Where the code of a dispatcher shows what it returns, that stands in place of the call of `_relevant`; a tuple of
arguments is not made for plain tensors.

Of two arguments by name one has to be the first optional one, which alone is a parameter: CPython looks up the default
of each keyword-only parameter that is left out in a dictionary, so that three of them cost more than an empty one for
all the others.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import indent
from types import FunctionType, MethodType
from typing import Any, TypeVar, cast

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.torch_handlers import disabled, special
from dispatchlab.lab.overrides.errors import NoImplementationError, SignatureMismatchError, name_of, name_of_function
from dispatchlab.lab.overrides.handlers import PLAIN, call_handlers, leaving_handler, warn_of_plain_method

F = TypeVar("F", bound=Callable[..., Any])

_MISSING = object()

# Note [One type and tensors]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Nearly every call that is overridden has arguments of one type with a handler, and perhaps plain tensors. The default
# handler of tensors declines then, so only the one is called, and no order has to be found: this takes half the time.
# Arguments of one type alone, whose handler is a class method of its own, are told apart in the wrapper.
# Two such types, a type that tensors derive from, a guard or a mode in any thread, and an iterator go the general way.


def torch_function_dispatch(
    dispatcher: Callable[..., Iterable[object]],
    *,
    module: str | None = None,
    verify: bool = True,
    docs_from_dispatcher: bool = False,
) -> Callable[[F], F]:
    """Make a function overridable.

    The result is called as the function is. It has its name, docstring, signature and module, and the function itself
    as `_implementation`. Plain tensors go straight to the implementation; of all other arguments the
    `__torch_function__` is called first, in the order of `overloaded_args`.

    >>> from dispatchlab.lab.overrides import torch_function_dispatch
    >>> @torch_function_dispatch(lambda values: values)
    ... def total(values):
    ...     return sum(values)
    >>> class Shy:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return "I would rather not"
    >>> total([1, 2]), total([1, Shy()])
    (3, 'I would rather not')

    Args:
        dispatcher: takes the same arguments, with None for every default, and returns those whose handlers count.
        module: its `__module__`; that of the function when left out.
        verify: check that the dispatcher takes the same arguments.
        docs_from_dispatcher: take the docstring of the dispatcher.

    Raises:
        SignatureMismatchError: it takes others.
    """

    def decorate(implementation: F) -> F:
        if verify:
            _verify_matching_signatures(implementation, dispatcher)
        if docs_from_dispatcher:
            implementation.__doc__ = inspect.getdoc(dispatcher)
        public = _wrapped(implementation, dispatcher)
        functools.update_wrapper(public, implementation)
        if module is not None:
            public.__module__ = module
        public.__dict__["_implementation"] = implementation
        return cast("F", public)

    return decorate


def _wrapped(implementation: Callable[..., Any], dispatcher: Callable[..., Iterable[object]]) -> Callable[..., Any]:
    def overridden(relevant: Iterable[object], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        # See Note [One type and tensors]
        if type(relevant) is not tuple and type(relevant) is not list:
            # An iterator was used up when plain tensors were looked for, so the dispatcher is called again.
            relevant = dispatcher(*args, **kwargs)
            return call_handlers(public, implementation, relevant, args, kwargs)
        kind: type | None = None
        one: Any = None
        tensors = 0
        for each in relevant:
            found = type(each)
            if found is Tensor:
                tensors = tensors or (1 if kind is None else 2)
            elif found is not kind:
                if kind is not None or PLAIN in found.__dict__:
                    return call_handlers(public, implementation, relevant, args, kwargs)
                one, kind = each, found
        handler = getattr(kind, "__torch_function__", None)
        if kind is None or handler is None or handler is disabled or special or (tensors and issubclass(Tensor, kind)):
            return call_handlers(public, implementation, relevant, args, kwargs)
        if not tensors:
            types: tuple[type, ...] = (kind,)
        else:
            types = (Tensor, kind) if tensors == 1 and not issubclass(kind, Tensor) else (kind, Tensor)
        return asked(one, types, args, kwargs, 5)

    def asked(one: Any, types: Sequence[type], args: Sequence[object], kwargs: Mapping[str, object], depth: int) -> Any:
        try:
            handler = one.__torch_function__
            if type(handler) is MethodType and handler.__self__ is one:
                warn_of_plain_method(DeprecationWarning, depth)
            result = handler(public, types, args, kwargs)
        except Exception as error:
            leaving = leaving_handler(error, one, public)
            if leaving is error:
                raise
            raise leaving from None
        if result is NotImplemented:
            raise NoImplementationError(name_of_function(public), [name_of(kind) for kind in types])
        return result

    def general(args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        try:
            relevant = dispatcher(*args, **kwargs)
        except TypeError as error:
            raise blamed(error, args, kwargs) from None
        try:
            arguments = iter(relevant)
        except TypeError:
            name, found = name_of_function(implementation), type(relevant).__name__
            message = (
                f"the dispatcher of {name} has to return the arguments that count, as a tuple or a list, not {found}"
            )
            raise TypeError(message) from None
        if special:
            return call_handlers(public, implementation, [*arguments], args, kwargs)
        for one in arguments:
            if type(one) is not Tensor:
                return overridden(relevant, args, kwargs)
        return implementation(*args, **kwargs)

    def blamed(error: TypeError, args: Sequence[object], kwargs: Mapping[str, object]) -> TypeError:
        """The error of a wrong call, in the name of the function and not of its dispatcher."""
        try:
            inspect.signature(implementation).bind(*args, **kwargs)
        except TypeError as wrong:
            return TypeError(f"{implementation.__name__}() {wrong}")
        return error

    constants: dict[str, Any] = {
        "_M": _MISSING,
        "_T": Tensor,
        "_relevant": dispatcher,
        "_implementation": implementation,
        "_overridden": overridden,
        "_asked": asked,
        "_class_method": classmethod,
        "_general": general,
        "_len": len,
        "_map": map,
        "_type": type,
        "_special": special,
    }
    source = _wrapper_source(inspect.signature(implementation), dispatcher)
    exec(compile(source, f"<override of {implementation.__name__}>", "exec"), constants)
    public: Callable[..., Any] = constants["public"]
    return public


def _verify_matching_signatures(implementation: Callable[..., Any], dispatcher: Callable[..., Any]) -> None:
    """Check that a dispatcher takes exactly what its implementation takes, with None for every default.

    Raises:
        SignatureMismatchError: it does not; the message shows both signatures and the first difference.
    """
    wanted, found = inspect.signature(implementation), inspect.signature(dispatcher)
    difference = _difference(wanted, found)
    if difference:
        message = (
            f"the dispatcher of {name_of_function(implementation)} does not take what the implementation takes: "
            f"{difference}\n  implementation: {wanted}\n  dispatcher:     {found}"
        )
        raise SignatureMismatchError(message)


def _difference(wanted: inspect.Signature, found: inspect.Signature) -> str:
    ours, theirs = [*wanted.parameters.values()], [*found.parameters.values()]
    for one, other in zip(ours, theirs, strict=False):
        if one.name != other.name:
            return f"it has {other.name!r} where {one.name!r} stands"
        if one.kind != other.kind:
            return f"{one.name!r} is {other.kind.description} there and {one.kind.description} here"
        if (one.default is one.empty) != (other.default is other.empty):
            which = "no default" if other.default is other.empty else "a default"
            return f"{one.name!r} has {which} there"
        if other.default is not other.empty and other.default is not None:
            return f"the default of {one.name!r} has to be None there, and is {other.default!r}"
    if len(ours) != len(theirs):
        missing = len(ours) > len(theirs)
        names = [one.name for one in (ours if missing else theirs)[min(len(ours), len(theirs)) :]]
        return f"{', '.join(map(repr, names))} {'missing' if missing else 'too many'}"
    return ""


_POSITIONS = ("_0", "_1", "_2")
_NAMED = 6
_LONG = 12
_Kind = inspect.Parameter

_GIVEN = "() if _0 is _M else (_0,) if _1 is _M else (_0, _1) if _2 is _M else (_0, _1, _2, *_rest)"

_BRANCH = """\
if {test}:
    try:
        _found = {relevant}
        _number = _len(_found)
    except TypeError:
        return _general({values}, {named})
    if _number == 2:
        _one, _other = _found
        if _type(_one) is _T:
            if _type(_other) is _T:
                return _implementation({call})
        elif _type(_other) is _type(_one) and _type(_type(_one).__dict__.get("__torch_function__")) is _class_method:
            return _asked(_one, (_type(_one),), {values}, {named}, 4)
    elif _number == 1:
        [_one] = _found
        if _type(_one) is _T:
            return _implementation({call})
        if _type(_type(_one).__dict__.get("__torch_function__")) is _class_method:
            return _asked(_one, (_type(_one),), {values}, {named}, 4)
    elif _number > {long}:
        if [*_map(_type, _found)].count(_T) == _number:
            return _implementation({call})
    else:
        for _one in _found:
            if _type(_one) is not _T:
                break
        else:
            return _implementation({call})
    return _overridden(_found, {values}, {named})
"""

_LISTED = """\
if {test}:
    if {plain}:
        return _implementation({call})
    if {alike}_type(_type({first}).__dict__.get("__torch_function__")) is _class_method:
        return _asked({first}, (_type({first}),), {values}, {named}, 4)
    return _overridden({relevant}, {values}, {named})
"""


_JUMPS = {f"POP_JUMP{way}_IF{no}_NONE": no for way in ("", "_FORWARD") for no in ("", "_NOT")}


class _Dispatcher:
    """What a dispatcher returns, where its code shows it: calling it takes a fifth of a call with plain tensors.

    Code that does more than to look whether an argument was given is called.
    """

    def __init__(self, dispatcher: object) -> None:
        self.steps: tuple[dis.Instruction, ...] = ()
        if type(dispatcher) is FunctionType and not dispatcher.__dict__:
            self.code = dispatcher.__code__
            self.steps = (*dis.get_instructions(dispatcher),)
            self.parameters = inspect.signature(dispatcher).parameters

    def relevant(self, given: Sequence[str], named: Mapping[str, str]) -> str | tuple[str | None, ...] | None:
        """The expression of what it returns for these, or a tuple of those in it; None where it has to be called."""
        if not self.steps:
            return None
        code, names = self.code, self.code.co_varnames
        count, more = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        values: dict[str, Any] = {name: None for name, one in self.parameters.items() if one.default is None}
        values |= {**dict(zip(names[:count], given, strict=False)), **named}
        if code.co_flags & inspect.CO_VARARGS:
            values[names[more]] = (*given[count:],)
        elif len(given) > count:
            return None
        by_name = {*names[max(code.co_posonlyargcount, len(given)) : more]}
        if not named.keys() <= by_name or not values.keys() >= self.parameters.keys():
            return None
        found = self._returned(values)
        is_listed = type(found) is tuple and all(one is None or isinstance(one, str) for one in found)
        return found if is_listed or isinstance(found, str) else None

    def _returned(self, values: Mapping[str, Any]) -> Any:
        stack: list[Any] = []
        target = 0
        for step in self.steps:
            name = step.opname
            if step.offset < target or name in ("RESUME", "NOP", "NOT_TAKEN"):
                continue
            if name.startswith("LOAD_FAST"):
                names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
                if not values.keys() >= {*names}:
                    return None
                stack += [values[one] for one in names]
            elif name == "BUILD_TUPLE":
                stack[len(stack) - step.argval :] = [(*stack[len(stack) - step.argval :],)]
            elif name == "JUMP_FORWARD" or (name in _JUMPS and not isinstance(stack[-1], str)):
                if name == "JUMP_FORWARD" or (stack.pop() is None) is not bool(_JUMPS[name]):
                    target = step.argval
            else:
                return stack.pop() if name == "RETURN_VALUE" else None
        return None


def _wrapper_source(signature: inspect.Signature, dispatcher: object) -> str:
    """The text of the code that defines `public` for an implementation with that signature.

    The names `_M`, `_T`, `_relevant`, `_implementation`, `_overridden`, `_asked`, `_general` and `_special` have to be
    there when it runs, and `_len`, `_map`, `_type` and `_class_method`, since an argument may be called `len`.
    """
    relevant = _Dispatcher(dispatcher)
    parameters = signature.parameters.values()
    positional = [one.name for one in parameters if one.kind in (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)]
    optional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY)
        if parameter.default is not _Kind.empty and not parameter.name.startswith("_")
    ]
    first, *others = optional[:_NAMED] or [""]
    variadic = any(parameter.kind is _Kind.VAR_POSITIONAL for parameter in parameters)
    most = len(_POSITIONS) if variadic else min(len(_POSITIONS), len(positional))
    first_value = [(first, first)] if first else []
    none_named, one_named = _branches(most, [], positional, relevant), ""
    both_named = _branches(most, first_value, positional, relevant)
    one_more = ""
    for name in others:
        fetched = f"_value = _named[{name!r}]\n"
        one_named += _block(
            f"if {name!r} in _named", fetched + _branches(most, [(name, "_value")], positional, relevant)
        )
        named = [*first_value, (name, "_value")]
        one_more += _block(f"if {name!r} in _named", fetched + _branches(most, named, positional, relevant))
    named_text = "_named"
    if first:
        none_named = _block(f"if {first} is _M", none_named) + _block("else", both_named)
        one_named = _block(f"if {first} is _M", one_named) + _block("else", one_more)
        named_text = f"_named if {first} is _M else {{{first!r}: {first}, **_named}}"
    heads = [
        *(f"{position}=_M" for position in _POSITIONS),
        "/",
        "*_rest",
        *([f"{first}=_M"] if first else []),
        "**_named",
    ]
    return _block(
        f"def public({', '.join(heads)})",
        _block("if _special", f"return _general({_GIVEN}, {named_text})\n")
        + _block("if not _named", none_named)
        + _block("elif _len(_named) == 1", one_named)
        + f"return _general({_GIVEN}, {named_text})\n",
    )


def _block(head: str, body: str) -> str:
    inside = indent(body or "pass\n", "    ")
    return f"{head}:\n{inside}"


def _branches(most: int, named: Sequence[tuple[str, str]], positional: Sequence[str], relevant: _Dispatcher) -> str:
    """A branch for each number of positional arguments, up to that, and these by name, each with its expression.

    A name whose position is taken is left to the general way; one whose position is the next is passed on by position,
    which is faster.
    """
    text = ""
    taken = [positional.index(name) for name, _ in named if name in positional]
    for number in range(1, min([most, *taken]) + 1):
        given = _POSITIONS[:number]
        passed_on = [*given]
        for name, value in named:
            is_next = name in positional and positional.index(name) == len(passed_on)
            passed_on.append(value if is_next else f"{name}={value}")
        known = relevant.relevant(given, dict(named))
        listed = [one for one in known if one] if isinstance(known, tuple) else []
        found = known if isinstance(known, str) else f"_relevant({', '.join(passed_on)})"
        more = f"{_POSITIONS[number]} is _M" if number < len(_POSITIONS) else "not _rest"
        text += (_LISTED if listed else _BRANCH).format(
            plain=" and ".join(f"_type({one}) is _T" for one in listed),
            first=listed[0] if listed else "",
            alike="".join(f"_type({one}) is _type({listed[0]}) and " for one in listed[1:]),
            relevant=f"({''.join(f'{one}, ' for one in known or ())})" if listed else found,
            test=f"{more} and {given[-1]} is not _M",
            call=", ".join(passed_on),
            values=f"({''.join(f'{one}, ' for one in given)})",
            named=f"{{{', '.join(f'{name!r}: {value}' for name, value in named)}}}",
            long=_LONG,
        )
    return text
