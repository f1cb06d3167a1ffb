"""Which registrations a call of a library of the bindings makes, read from its arguments.

`READERS` has a function for each method that registers: it takes the dispatch key of the library, and then what the
method takes, under the same names. Operators come out as they were named, without a namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dispatchlab.live.expressible import T_T
from dispatchlab.live.torch import torch
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_inferred, parse_schema

Made: TypeAlias = list[Def | Impl | Fallback]


def _key(given: object) -> DispatchKey | None:
    text = given if isinstance(given, str) else str(getattr(given, "name", given))
    return (parse_key(text) or None) if text else None


def _name(text: str) -> OperatorName:
    name, _, overload = text.rpartition("::")[2].partition(".")
    return OperatorName("", name, overload)


def _define(key: str, schema: str, alias_analysis: str = "", tags: object = ()) -> Made:
    parsed = parse_schema(schema)
    names = tags if isinstance(tags, tuple | list) else (tags,)
    kind = AliasKind(alias_analysis) if alias_analysis else AliasKind.FROM_SCHEMA
    return [Def(parsed, kind, frozenset(tag.name for tag in names))]


def _def(key: str, schema: str, alias: str = "") -> Made:
    return _define(key, schema, alias)


def _legacy(key: str, schema: str) -> Made:
    return [Def(parse_schema(schema), None)]


def _impl(key: str, name: str, dispatch: object, func: Any, with_keyset: bool = False) -> Made:  # noqa: FBT001, FBT002  # as the bindings have it
    fallthrough = func is torch().library.fallthrough_kernel
    kernel = Kernel(KernelForm.FALLTHROUGH if fallthrough else KernelForm.BOXED)
    return [Impl(_name(name), _key(dispatch) or _key(key), kernel)]


def _impl_t_t(key: str, name: str, dispatch: object = "", debug: str = "") -> Made:
    return [Impl(_name(name), _key(dispatch) or _key(key), Kernel(KernelForm.UNBOXED, parse_inferred(T_T)))]


def _fallback(key: str, dispatch: object, func: Any, with_keyset: bool = False) -> Made:  # noqa: FBT001, FBT002  # as the bindings have it
    fallthrough = func is torch().library.fallthrough_kernel
    return [Fallback(_key(dispatch) or _key(key), Kernel(KernelForm.FALLTHROUGH if fallthrough else KernelForm.BOXED))]


def _fallthrough(key: str, dispatch: object = "") -> Made:
    return [Fallback(_key(dispatch) or _key(key), Kernel(KernelForm.FALLTHROUGH))]


def _views(key: str, name: str) -> Made:
    return [Impl(_name(name), DispatchKey.ADInplaceOrView, Kernel())]


def _aoti(key: str, ns: str, op_name_with_overload: str, dispatch: object) -> Made:
    return [Impl(_name(op_name_with_overload), _key(dispatch) or _key(key), Kernel())]


READERS: dict[str, Callable[..., Made]] = {
    "define": _define,
    "def_": _def,
    "def_legacy": _legacy,
    "impl": _impl,
    "impl_t_t": _impl_t_t,
    "fallback": _fallback,
    "fallback_fallthrough": _fallthrough,
    "register_ad_inplace_or_view_fallback": _views,
    "impl_with_aoti_compile": _aoti,
}
