"""Find the modules of a package that register operators when they are imported; this only reads files."""

from __future__ import annotations

import ast
import mmap
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Final, NamedTuple

from dispatchlab.views.formatting import first_of

_CALLS: Final = "(?:custom_op|triton_op|register_\\w+|impl|impl_abstract|define|Library)"
_REGISTERS: Final = re.compile(rf"torch\.library\.{_CALLS}|torch\.(?:ops|classes)\.load_library")
_MENTIONS: Final = re.compile(r"torch\.library|custom_op|triton_op|Library\(|load_library")
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
    helpers = set[str]()
    bodies = {
        name: _body(name, source, is_package=name in packages)
        for name, source in sources.items()
        if _MENTIONS.search(source)
    }
    helpers.update(one for body in bodies.values() for one, calls in body.functions.items() if _registers(calls, ()))
    if helpers:
        uses = re.compile(rf"\b(?:{'|'.join(re.escape(one.rpartition('.')[2]) for one in sorted(helpers))})\b")
        bodies |= {
            name: _body(name, source, is_package=name in packages)
            for name, source in sources.items()
            if name not in bodies and uses.search(source)
        }
    found |= {name for name, body in bodies.items() if _registers(body.calls, helpers)}
    return tuple(name for name in sorted(found) if f"{name}.".startswith(f"{package}."))


def what_to_name(package: str) -> str:
    """Return the advice for a package that registers nothing: the modules to name, if there are any."""
    found = registering_modules(package)
    if not found:
        return "none of its modules calls torch.library, or has a TORCH_LIBRARY block"
    return f"name a module that registers: {first_of(found, 3)}"


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Return the files in the top folder of a package, each with the name of its module."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return
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
    """The calls in a module, by full names: the calls at import, and the calls in each function."""

    calls: frozenset[str] = frozenset()
    functions: Mapping[str, frozenset[str]] = {}


def _registers(calls: Collection[str], helpers: Collection[str]) -> bool:
    return any(one in helpers or _REGISTERS.fullmatch(one) for one in calls)


def _body(name: str, source: str, *, is_package: bool) -> _Body:
    """Return the calls in a module; empty if it cannot be read. Only functions that mention a name are read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return _Body()
    lines, run = source.split("\n"), list(_run(tree))
    functions = [node for node in run if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    aliases = {
        target.id: node.value
        for node in run
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute | ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names = {one: f"{name}.{one}" for one in (*(node.name for node in functions), *aliases)}
    names |= _imported_names(run, name if is_package else name.rpartition(".")[0])

    def calls(nodes: Iterable[ast.AST]) -> frozenset[str]:
        return frozenset(_dotted(node.func, names) for node in nodes if isinstance(node, ast.Call))

    found = {
        f"{name}.{node.name}": calls(ast.walk(node))
        for node in functions
        if _MENTIONS.search("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    }
    found |= {f"{name}.{one}": frozenset((_dotted(value, names),)) for one, value in aliases.items()}
    return _Body(calls(run), found)


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
