"""Lines of a module that ask whether another package is there, and uses of Python-side registries by their names."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from types import ModuleType
from typing import NamedTuple

from dispatchlab.model.python_layer import EVERY_REGISTRY, PRIVATEUSE1_NAME

# Note [Questions about modules]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `sys.modules` is a dictionary that the interpreter itself holds, so nobody can see who looks into it: the source of a
# module is read instead. `"b" in sys.modules`, `sys.modules.get(name)` with a name from a list, and a dictionary under
# another name have one thing in common: the module says `modules`, and has the name `"b"` somewhere as a text. Each
# such text is taken for a question, but for one that names what is imported. Nobody knows whether a function that asks
# is called.
#
# An import in a `try` that catches its error, or in `suppress`, is a question as well.


class ModuleUse(NamedTuple):
    """A question about a module.

    Args:
        how: `sys.modules` or `import`.
        module: the name of the module.
        line: the line in the source, from 1.
    """

    how: str
    module: str
    line: int


@functools.cache
def module_source(module: ModuleType) -> str:
    """The source of a module that ran; empty where there is none."""
    try:
        return inspect.getsource(module)
    except (OSError, TypeError, SyntaxError, UnicodeError):
        return ""


@functools.cache
def tables_used_in(module: ModuleType) -> tuple[TableUse, ...]:
    """The uses of registries in the source of a module that ran; see `table_uses`."""
    return tuple(table_uses(module_source(module)))


_CATCHING = frozenset(("ImportError", "ModuleNotFoundError", "Exception", "BaseException"))
_IMPORTING = frozenset(("import_module", "__import__", "find_spec"))


def module_uses(source: str, packages: Collection[str]) -> Iterator[ModuleUse]:
    """The questions that a module asks about modules of packages; none in what Python cannot read.

    See Note [Questions about modules].
    """
    if not _may_name(source, packages):
        return
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return
    looks = any(isinstance(node, ast.Attribute | ast.alias) and _name(node) == "modules" for node in nodes)
    imported = {id(node): name for each in nodes for node, name in _imports(each)}
    guarded = {id(node) for each in nodes for part in _guarded(each) for node in ast.walk(part)}
    for node in nodes:
        for name in _imported_by(node) if id(node) in guarded else ():
            if _is_of(name, packages):
                yield ModuleUse("import", name, node.lineno)  # type: ignore[attr-defined]  # an import or a call
        match node:
            case ast.Constant(value=str(text)) if looks and id(node) not in imported and _is_of(text, packages):
                yield ModuleUse("sys.modules", text, node.lineno)


def _may_name(source: str, packages: Collection[str]) -> bool:
    """Whether a source imports one of the packages on a line, or has a text that begins with its name; costs no parse.

    A text begins after a quote, after an escaped end of line, and after a field of an f-string.
    """
    if not any(package in source for package in packages):
        return False
    names = "|".join(map(re.escape, packages))
    found = re.search(rf"""\b(?:from|import)\b(?:\\\n|[^\n])*?\b(?:{names})\b|["'}}\n](?:{names})\b""", source)
    return found is not None


def _name(node: ast.Attribute | ast.alias) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.name


def _imports(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The text that a call names a module to import with."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(text)), *_]):
            if name in _IMPORTING:
                yield node.args[0], text


def _imported_by(node: ast.AST) -> Iterator[str]:
    """The modules that a line imports by name."""
    match node:
        case ast.Import(names=names):
            yield from (one.name for one in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name != "find_spec":
            yield from (text for _, text in _imports(node))


def _guarded(node: ast.AST) -> Iterator[ast.AST]:
    """The lines after whose failed import the module goes on."""
    match node:
        case ast.Try(body=body, handlers=handlers) if any(_catches(handler.type) for handler in handlers):
            yield from body
        case ast.With(items=items, body=body):
            calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
            if any(_catches(argument) for call in calls for argument in call.args):
                yield from body


def _catches(kind: ast.expr | None) -> bool:
    """Whether a handler catches the error of an import."""
    match kind:
        case None:
            return True
        case ast.Tuple(elts=kinds):
            return any(map(_catches, kinds))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _CATCHING
        case _:
            return False


def _is_of(name: str, packages: Collection[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


# Note [Uses of tables]
# ~~~~~~~~~~~~~~~~~~~~~
# Registries of Python are dictionaries, and whoever holds one may look an entry up, take it out, or put it back. What
# leaves a table as it was, such as `table.pop(op, None)` where there is no entry, is seen by no comparison of the
# table before and after, and in another order of imports it may take out the entry of somebody else; and code that
# looks an entry up may do something else when it finds another one. So the source of a module is read: a table that it
# names anywhere but in `table[...] = function`, in `table.update(...)` and as the registry of `register_decomposition`
# may be used in such a way. What the code does with it is not asked, nor whether it runs while the module is imported.


class TableUse(NamedTuple):
    """A use of a registry.

    Args:
        registry: the name of the registry.
        line: the line in the source, from 1.
    """

    registry: str
    line: int


def _registries_by_name() -> dict[str, tuple[str, ...]]:
    """Names of tables, and of functions that take entries out, with the registries behind them."""
    names: dict[str, tuple[str, ...]] = {}
    for registry in EVERY_REGISTRY:
        if registry.name == PRIVATEUSE1_NAME:
            continue  # asked by a call, which is noted when it runs
        for name in registry.names_in_code:
            names[name] = (*names.get(name, ()), registry.name)
    return names


_REGISTRIES = _registries_by_name()
_UNIQUE = {name: registries for name, registries in _REGISTRIES.items() if "_" in name}
"""The names that nothing else has. One word, such as `lowerings`, counts where the module has it from PyTorch."""

_IN_ALL = [name for name in _UNIQUE if not any(other != name and other in name for other in _UNIQUE)]
"""One of these is in every source that names a table by a name that nothing else has."""

_ONE_WORD = [name for name in _REGISTRIES if name not in _UNIQUE]
_WORDS = "|".join(_ONE_WORD)
_IS_ATTRIBUTE = re.compile(rf"\.[\s\\]*(?:{_WORDS})\b")
_IS_IMPORTED = re.compile(rf"(?:\bimport|[,(\n])[^\S\n]*(?:{_WORDS})\b")  # prose has another word before it
_FROM_TORCH = re.compile(r"\bfrom[\s\\]+torch\b")
_ALL_FROM_TORCH = re.compile(r"\bfrom[\s\\]+torch[\s\\.\w]+\bimport[\s\\]*\*")

_WRITERS = ("update",)


def table_uses(source: str) -> Iterator[TableUse]:
    """The uses of registries in the source of a module, by line; none in what Python cannot read.

    See Note [Uses of tables].
    """
    if not _may_use_tables(source):
        return
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return
    names, modules = _from_pytorch(nodes)
    registering = {id(node) for each in nodes for node in _registering(each)}
    for node in nodes:
        found: tuple[str, ...] = ()
        if id(node) in registering:
            continue
        match node:
            case ast.Name(id=name):
                found = names.get(name, ())
            case ast.Attribute(value=owner, attr=name):
                found = (_REGISTRIES if _root(owner) in modules else _UNIQUE).get(name, ())
            case ast.Constant(value=str(text)):
                found = _UNIQUE.get(text.rpartition(".")[2], ())
        for registry in found:
            yield TableUse(registry, node.lineno)  # type: ignore[attr-defined]  # each of these has a line


def _may_use_tables(source: str) -> bool:
    """Whether a source has what each use of a table has. To read a whole source takes a hundred times as long."""
    if any(name in source for name in _IN_ALL):
        return True
    if "torch" not in source or not any(name in source for name in _ONE_WORD):
        return False
    return bool(
        _IS_ATTRIBUTE.search(source)
        or _ALL_FROM_TORCH.search(source)
        or (_IS_IMPORTED.search(source) and _FROM_TORCH.search(source))
    )


def _from_pytorch(nodes: Iterable[ast.AST]) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """The names of tables that a module imports, with their registries, and its names of modules of PyTorch."""
    names: dict[str, tuple[str, ...]] = {}
    modules = {"torch"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for one in node.names:
                if one.name in _REGISTRIES:
                    names[one.asname or one.name] = _REGISTRIES[one.name]
                modules.add(one.asname or one.name)
                if one.name == "*":
                    names |= _REGISTRIES
        elif isinstance(node, ast.Import):
            modules |= {one.asname for one in node.names if one.asname and one.name.partition(".")[0] == "torch"}
    return names, modules


def _registering(node: ast.AST) -> Iterator[ast.AST]:
    """The tables that a piece of code registers in."""
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                if isinstance(target, ast.Subscript):
                    yield target.value
        case ast.Call(func=ast.Attribute(value=table, attr=attr)) if attr in _WRITERS:
            yield table
        case ast.Call(keywords=keywords):
            yield from (one.value for one in keywords if one.arg == "registry")


def _root(node: ast.AST) -> str:
    """The name that a chain of attributes begins with; empty where it does not begin with one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
