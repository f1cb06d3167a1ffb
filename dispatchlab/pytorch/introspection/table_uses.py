"""Lines of a module that use a Python-side registry of PyTorch in another way than by registering in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from dispatchlab.model.python_layer import EVERY_REGISTRY, PRIVATEUSE1_NAME

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

_IN_ALL = [name for name in _REGISTRIES if not any(other != name and other in name for other in _REGISTRIES)]
"""One of these is in every source that names a table."""

_WRITERS = ("update",)


def table_uses(source: str) -> Iterator[TableUse]:
    """The uses of registries in the source of a module, by line; none in what Python cannot read.

    See Note [Uses of tables].
    """
    if not any(name in source for name in _IN_ALL):
        return
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    names, modules = _from_pytorch(tree)
    registering = {id(node) for each in ast.walk(tree) for node in _registering(each)}
    for node in ast.walk(tree):
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


def _from_pytorch(tree: ast.AST) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """The names of tables that a module imports, with their registries, and its names of modules of PyTorch."""
    names: dict[str, tuple[str, ...]] = {}
    modules = {"torch"}
    for node in ast.walk(tree):
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
