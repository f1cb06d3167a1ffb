"""Find the part of a program on which a failing line depends: its lines alone, without comments and docstrings."""

from __future__ import annotations

import ast
import io
import linecache
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dispatchlab.model.failure import Position

_OPERATOR = re.compile(r"(?:\w+(?:::|\.))?(\w+)(?:\.\w+)?(?:\(|$)")
_SETS = re.compile("::(set_|_?register|rename_)")
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINES = _FUNCTIONS | ast.ClassDef


class _Unit(NamedTuple):
    """A statement with the names that it reads, those that it assigns, and the operators that it registers.

    A name that is assigned again counts as another name, `x@1`. `::area@0` may be an operator.
    """

    statement: ast.stmt
    reads: set[str]
    writes: set[str]
    registers: set[str]


def failing_part(frames: Sequence[Position]) -> str:
    """Return the lines on which the failing lines depend, of the files of the user's frames, the innermost last."""
    texts: dict[str, str] = {}
    for file in dict.fromkeys(frame.file for frame in frames):
        texts[file] = "".join(linecache.getlines(file))
        try:
            texts[file] = _Part(texts[file], [frame for frame in frames if frame.file == file]).text()
        except (SyntaxError, ValueError, RecursionError):  # the whole file, then
            continue
    return "\n" + "".join(texts.values())


class _Part:
    """The statements of a file, in the order in which they ran, and where it fails."""

    def __init__(self, source: str, frames: Iterable[Position]) -> None:
        self.source, self.tree = source, ast.parse(source)
        self.lines = {frame.line for frame in frames}
        self.stopped = max((frame.line for frame in frames if frame.function == "<module>"), default=sys.maxsize)
        self.imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = (alias.asname or alias.name for node in self.imports for alias in node.names)
        self.imported = {name.partition(".")[0] for name in names}
        self.versions: Counter[str] = Counter()
        self.failed: list[_Unit] = []
        self.headers: list[ast.stmt] = []
        self.units = list(self._units(self.tree.body))
        self.defined = {name: u for u in self.units if isinstance(u.statement, _DEFINES) for name in u.writes}
        for unit in self.defined.values():  # a function sees the last value of a global name
            unit.reads.clear()
            unit.reads.update(self._now(_names(unit.statement) - _own(unit.statement)))

    def _now(self, names: set[str]) -> set[str]:
        return {f"{name}@{self.versions[name]}" for name in names - self.imported}

    def _units(self, body: Iterable[ast.stmt]) -> Iterator[_Unit]:
        """Return the statements before the failing line; the statements inside of one that contains the line."""
        for statement in body:
            never = (
                isinstance(statement, ast.If) and isinstance(statement.test, ast.Constant) and not statement.test.value
            )
            if never or _start(statement) > self.stopped:
                continue
            failing = [line for line in self.lines if _start(statement) <= line <= (statement.end_lineno or 0)]
            inner = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
            is_header = (
                failing and inner and not isinstance(statement, ast.ClassDef) and inner[0].lineno <= min(failing)
            )
            unit = self._unit(statement, inner if is_header else [])
            if is_header:
                self.headers.append(statement)
                self.failed += [unit] if isinstance(statement, ast.If | ast.While) else []
                yield from () if isinstance(statement, _FUNCTIONS) else (unit,)
                yield from self._units(child for child in inner if child.lineno <= max(failing))
                continue
            self.failed += [unit] if failing and not isinstance(statement, _FUNCTIONS) else []
            yield unit

    def _unit(self, statement: ast.stmt, inner: Sequence[ast.stmt]) -> _Unit:
        """Return a statement without the statements inside of it."""
        reads = [child for child in ast.iter_child_nodes(statement) if child not in inner]
        registers: list[ast.AST] = []
        writes: set[str] = set()
        match statement:
            case ast.Assign() | ast.AnnAssign():
                given = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                targets = [part for target in given for part in getattr(target, "elts", [target])]
                writes = {target.id for target in targets if isinstance(target, ast.Name)}
                reads = [statement.value or statement, *(part for part in targets if not isinstance(part, ast.Name))]
            case ast.FunctionDef(name=name, decorator_list=parts) | ast.ClassDef(name=name, decorator_list=parts):
                writes, registers = {name}, [*parts]
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="define" | "impl"), args=[first, *_])):
                registers = [first]
        read = self._now(set().union(*map(_names, reads)))
        self.versions.update(() if isinstance(statement, _DEFINES) else writes)
        texts = [node for part in registers for node in ast.walk(part) if isinstance(node, ast.Constant)]
        return _Unit(statement, read, self._now(writes), self._now(set().union(*map(_names, texts))))

    def _chosen(self) -> list[_Unit]:
        """Return the statements on which the failing statements depend."""
        needed = set().union(*(unit.reads | unit.writes for unit in self.failed))
        changing, derived = _values(needed), set[str]()
        reached = self._reached()
        chosen, size = list(self.failed), -1
        while size != len(chosen) + len(derived):
            size = len(chosen) + len(derived)
            for unit in self.units:
                if any(unit is other for other in chosen):
                    continue
                takes = bool(unit.writes & needed or unit.registers & needed)
                if isinstance(unit.statement, _DEFINES):
                    if unit.writes & reached and unit.reads & changing - self.defined.keys():
                        takes = True
                        changing |= unit.writes
                elif unit.writes:
                    takes = takes or bool(unit.reads & self.defined.keys() and unit.reads & changing)
                    derived |= unit.writes if unit.reads & (changing | derived) else set()
                elif not unit.registers:
                    takes = bool(unit.reads & (changing | derived)) or any(map(_SETS.match, unit.reads))
                if takes:
                    chosen.append(unit)
                    needed |= unit.reads | unit.writes
                    changing |= _values(unit.reads | unit.writes) - self.defined.keys()
        return chosen

    def _reached(self) -> set[str]:
        """Return the functions and classes that a statement outside of them names, directly or through others."""
        todo = [name for unit in self.units if not isinstance(unit.statement, _DEFINES) for name in unit.reads]
        reached: set[str] = set()
        for name in todo:
            if name not in reached and name in self.defined:
                reached.add(name)
                todo += self.defined[name].reads
        return reached

    def text(self) -> str:
        """Return the lines of the statements, of what they are in, and of imports."""
        kept: set[int] = set()
        for header in self.headers:
            first = next(child for child in ast.iter_child_nodes(header) if isinstance(child, ast.stmt))
            kept.update(range(_start(header), first.lineno))
        for statement in (*self.imports, *(unit.statement for unit in self._chosen())):
            if statement not in self.headers:
                kept.update(range(_start(statement), (statement.end_lineno or 0) + 1))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                kept.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
        lines = self.source.splitlines(keepends=True)
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
        return "".join(line for number, line in enumerate(lines, 1) if number in kept)


def _start(statement: ast.stmt) -> int:
    """Return the first line of a statement, with its decorators."""
    return min((node.lineno for node in getattr(statement, "decorator_list", ())), default=statement.lineno)


def _own(statement: ast.stmt) -> set[str]:
    """Return the local names of a function or a class."""
    nodes = list(ast.walk(statement))
    outer = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} - outer


def _values(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("::")}


def _names(node: ast.AST) -> set[str]:
    """Return the names in a statement, and what may name an operator: `::area` for `boxes.area` and "boxes::area"."""
    names = set[str]().union(*map(_names, ast.iter_child_nodes(node)))
    match node:
        case ast.Name():
            names.add(node.id)
        case ast.Attribute():
            names.add(f"::{node.attr}")
        case ast.Constant(value=str(text)) if (operator := _OPERATOR.match(text)) is not None:
            names.add(f"::{operator[1]}")
        case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef():
            names -= {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            targets = [each.target for each in node.generators]
            names -= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names
