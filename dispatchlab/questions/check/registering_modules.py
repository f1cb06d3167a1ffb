"""Find the modules of a package that register operators when they are imported; this only reads files."""

from __future__ import annotations

import ast
import mmap
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import resolve_name
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from dispatchlab.files import module_spec
from dispatchlab.views.formatting import first_of

_CALLS: Final = "(?:custom_op|triton_op|register_\\w+|impl|impl_abstract|define|Library)"
_LIBRARY: Final = "torch.library.Library"
_REGISTERS: Final = re.compile(rf"torch\.library\.{_CALLS}|torch\.(?:ops|classes)\.load_library|custom_op|triton_op")
_MENTIONS: Final = ("torch.library", "custom_op", "triton_op", "Library(", "load_library", ".define(", ".impl(")
_DEPTH: Final = 3
"""How deep a function of a package may call another one that registers."""

_LIBRARY_METHODS: Final = ("define", "impl")
_OUTSIDE: Final = re.compile(r"(^|\.)(tests?|test_\w+|\w+_test|conftest|__main__|setup)(\.|$)")
_FOR_OTHERS: Final = ("TYPE_CHECKING", "__name__")


def registering_modules(package: str) -> tuple[str, ...]:
    """Return the modules of a package that register operators when imported, sorted, without importing them.

    A module registers if its body calls torch.library, `load_library`, or a function of the package that calls one of
    them. A compiled module registers if it has a TORCH_LIBRARY block. Tests are left out.

    Args:
        package: a module, such as `my_package`. The result is empty if it is not an installed package.
    """
    sources, found = dict[str, str](), set[str]()
    for name, file in _files(package.partition(".")[0]):
        if _OUTSIDE.search(name):
            continue
        if file.suffix == ".py":
            sources[name] = file.read_text(encoding="utf-8", errors="replace")
        elif _has_block(file, name.rpartition(".")[2]):
            found.add(name)
    packages = {name.rpartition(".")[0] for name in sources}
    trees, bodies, helpers = dict[str, ast.Module | None](), dict[str, _Body](), set[str]()

    def read(words: Collection[str]) -> None:
        for name, source in sources.items():
            if _has_word(source, words):
                if name not in trees:
                    trees[name] = _parsed(source)
                if (tree := trees[name]) is not None:
                    bodies[name] = _body(name, tree, source, {*words, *_MENTIONS}, is_package=name in packages)

    def more_helpers() -> set[str]:
        more = {
            (name, function)
            for name, body in bodies.items()
            for function, calls in body.functions.items()
            if f"{name}.{function}" not in helpers and _registers(calls, helpers)
        }
        helpers.update(name for module, function in more for name in _exported(module, function))
        return {function for _, function in more}

    words: Collection[str] = _MENTIONS
    for _ in range(_DEPTH + 1):
        read(words)
        words = more_helpers()
    found |= {name for name, body in bodies.items() if _registers(body.calls, helpers)}
    return tuple(name for name in sorted(found) if f"{name}.".startswith(f"{package}."))


def what_to_name(package: str, imported: Collection[str] = (), failed: Collection[str] = ()) -> str:
    """Return the advice for a package that registers nothing: the modules to name, if there are any.

    Args:
        package: the package.
        imported: modules that were imported, too.
        failed: modules whose import failed.
    """
    found = registering_modules(package)
    if not found and [*_files(package.partition(".")[0])]:
        return "none of its modules calls torch.library, or has a TORCH_LIBRARY block"
    if others := [one for one in found if one not in {package, *imported, *failed}]:
        return f"name a module that registers: {first_of(others, 3)}"
    if failed:
        return f"cannot import {first_of(sorted(failed), 3)}"
    return f"the import of {first_of(found or [package], 3)} defines no operator"


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Return the files in the top folder of a package, each with the name of its module."""
    spec = module_spec(package)
    for folder in (Path(each) for each in (spec.submodule_search_locations or ())) if spec else ():
        for file in sorted(folder.rglob("*")):
            suffix = next((each for each in (".py", *EXTENSION_SUFFIXES) if file.name.endswith(each)), None)
            if suffix is None:
                continue
            names = [*file.relative_to(folder).parts[:-1], file.name.removesuffix(suffix)]
            if all(name.isidentifier() for name in names):
                yield ".".join([package, *names]).removesuffix(".__init__"), file


def _has_block(file: Path, name: str) -> bool:
    """Return whether a shared library is a Python module that registers operators."""
    if not file.stat().st_size:
        return False
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(f"PyInit_{name}".encode()) >= 0 and data.find(b"TORCH_LIBRARY_") >= 0


class _Body(NamedTuple):
    """The full names of the calls in a module: the calls at import, and the calls in each of its functions."""

    calls: frozenset[str]
    functions: Mapping[str, frozenset[str]]


def _registers(calls: Collection[str], helpers: Collection[str]) -> bool:
    return any(one in helpers or _REGISTERS.fullmatch(one) for one in calls)


def _exported(module: str, function: str) -> Iterator[str]:
    """Return the names of a function in its module and in the packages around it, which may export it."""
    while module:
        yield f"{module}.{function}"
        module = module.rpartition(".")[0]


def _has_word(text: str, words: Collection[str]) -> bool:
    return any(word in text and (word in _MENTIONS or re.search(rf"\b{re.escape(word)}\b", text)) for word in words)


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _body(name: str, tree: ast.Module, source: str, words: Collection[str], *, is_package: bool) -> _Body:
    """Return the calls in a module. Only functions that mention one of the words are read.

    An alias is a function that calls its value. The methods of a variable call the function that made its value.
    """
    lines, run = source.split("\n"), list(_run(tree))
    package = name if is_package else name.rpartition(".")[0]
    classes = [node for node in run if isinstance(node, ast.ClassDef)]
    methods = {id(node): f"{each.name}.{node.name}" for each in classes for node in each.body if _is_function(node)}
    functions = {methods.get(id(node), node.name): node for node in run if _is_function(node)}
    values = [
        (target.id, node.value)
        for node in run
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    aliases = [(one, value) for one, value in values if isinstance(value, ast.Attribute | ast.Name)]
    made = [(one, value.func) for one, value in values if isinstance(value, ast.Call)]
    own = (*functions, *(each.name for each in classes), *(one for one, _ in (*aliases, *made)))
    names = {one: f"{name}.{one}" for one in own} | _imported_names(run, package)

    def calls(nodes: Iterable[ast.AST], names: Mapping[str, str] = names) -> Iterator[str]:
        return (_dotted(node.func, names) for node in nodes if isinstance(node, ast.Call))

    found: dict[str, set[str]] = {}
    for one, node in functions.items():
        if _has_word("\n".join(lines[node.lineno - 1 : node.end_lineno]), words):
            nodes = list(ast.walk(node))
            found.setdefault(one, set()).update(calls(nodes, names | _imported_names(nodes, package)))
            taken = (leaf for each in nodes if isinstance(each, ast.arg) and each.annotation for leaf in ast.walk(each))
            found[one].update(
                _LIBRARY for leaf in taken if isinstance(leaf, ast.expr) and _dotted(leaf, names) == _LIBRARY
            )
    for one, value in aliases:
        found.setdefault(one, set()).add(_dotted(value, names))
    for one, maker in made:
        for method in _LIBRARY_METHODS:
            found.setdefault(f"{one}.{method}", set()).add(_dotted(maker, names))
    return _Body(frozenset(calls(run)), {one: frozenset(called) for one, called in found.items()})


def _is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that run at import, without bodies of functions, and code for type checkers or scripts."""
    if isinstance(node, ast.If) and any(word in ast.unparse(node.test) for word in _FOR_OTHERS):
        children: list[ast.AST] = [*node.orelse]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        children = [*node.decorator_list, *node.args.defaults]
    elif isinstance(node, ast.Lambda):
        children = []
    else:
        children = [*ast.iter_child_nodes(node)]
    for child in children:
        yield child
        yield from _run(child)


def _imported_names(run: Iterable[ast.AST], package: str) -> dict[str, str]:
    """Return the full names behind the names that a module imports."""
    names: dict[str, str] = {}
    for node in run:
        if isinstance(node, ast.Import):
            names |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            except ImportError:
                continue
            names |= {each.asname or each.name: f"{base}.{each.name}" for each in node.names}
    return names


def _dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return the full name of the called function, such as `torch.library.custom_op`; empty without a name."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value, names)
        return f"{before}.{node.attr}" if before else ""
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""
