"""Lines of a module that ask whether another package is there: `sys.modules`, and imports that may fail."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import NamedTuple

from dispatchlab.pytorch.introspection.table_uses import TableUse, table_uses

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

    Args:
        source: the source of the module.
        packages: the names of the packages.
    """
    if not any(package in source for package in packages):
        return
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    looks = any(isinstance(node, ast.Attribute | ast.alias) and _name(node) == "modules" for node in ast.walk(tree))
    imported = {id(node): name for each in ast.walk(tree) for node, name in _imports(each)}
    guarded = {id(node) for each in ast.walk(tree) for part in _guarded(each) for node in ast.walk(part)}
    for node in ast.walk(tree):
        for name in _imported_by(node) if id(node) in guarded else ():
            if _is_of(name, packages):
                yield ModuleUse("import", name, node.lineno)  # type: ignore[attr-defined]  # an import or a call
        match node:
            case ast.Constant(value=str(text)) if looks and id(node) not in imported and _is_of(text, packages):
                yield ModuleUse("sys.modules", text, node.lineno)


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
        case ast.Try(body=body, handlers=handlers) if any(_catches(one.type) for one in handlers):
            yield from body
        case ast.With(items=items, body=body):
            calls = [one.context_expr for one in items if isinstance(one.context_expr, ast.Call)]
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
