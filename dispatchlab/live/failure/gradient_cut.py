"""Find the expression that cuts a loss off from its parameters: a copy of the process evaluates parts of the loss."""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType, FunctionType, MethodType
from typing import Final

from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.failure.fix_trial import FailingCall, operands
from dispatchlab.live.failure.program_watch import position_of
from dispatchlab.live.introspection.process_copies import CopyEndedError, in_a_copy
from dispatchlab.model.failure import Event

_LONGEST_S: Final = 15.0
_WITHOUT_GRADIENTS: Final = re.compile(r"\b(?:no_grad|inference_mode)\b|set_grad_enabled\(False\)")
_FROZEN: Final = re.compile(r"\brequires_grad(?:_\(| *= *)False")


def gradient_cut(error: BaseException, call: FailingCall | None) -> tuple[Event, ...]:
    """Return the expression that cuts a loss off, the line that turns gradients off, or the module that is frozen."""
    if call is None or "does not require grad and does not have a grad_fn" not in str(error) or not hasattr(os, "fork"):
        return ()
    with suppress(TimeoutError, CopyEndedError, SyntaxError):
        found = in_a_copy(lambda: next(_Search(call.frame).cuts(call.text), None), _LONGEST_S)
        if found is not None:
            subject, detail, line = found
            at = position_of(call.frame.f_code.co_filename, line, call.frame.f_code.co_name) if line else None
            return (Event("gradient cut", subject, detail, at),)
    return ()


class _Search:
    """Evaluates expressions of a frame, from the loss back to its operands."""

    def __init__(self, frame: FrameType) -> None:
        self.scope = {**frame.f_globals, **frame.f_locals}
        self.lines = linecache.getlines(frame.f_code.co_filename)
        self.last = frame.f_lineno
        self.statements = list(_statements(ast.parse("".join(self.lines)), frame.f_code.co_name, self.last))
        self.frozen: list[str] = []

    def cuts(self, call: str) -> Iterator[tuple[str, str, int]]:
        """Return each such expression or module, its effect and its line; the nearest to the loss first."""
        todo = [(node, self.last) for node in operands(ast.parse(call.strip(), mode="eval").body)]
        with torch().inference_mode(mode=False), torch().enable_grad():
            for node, line in todo:
                found: list[tuple[str, str, int]] = []
                connected = self._connected(node, found)
                yield from ((text, how, line + at - node.lineno) for text, how, at in found)
                if connected:
                    yield from self._without_gradients(ast.unparse(node), line)
                todo += [made for made in self._made(node, line) if made not in todo]
        frozen = next((number for number, text in enumerate(self.lines, 1) if _FROZEN.search(text)), 0)
        yield from ((name, "frozen", frozen) for name in self.frozen)

    def _connected(self, node: ast.expr, found: list[tuple[str, str, int]]) -> bool:
        """Return whether the value of an expression requires gradients, and note the expressions that lose them."""
        parts = [child.value if isinstance(child, ast.keyword) else child for child in ast.iter_child_nodes(node)]
        inner = [part for part in parts if isinstance(part, ast.expr) and self._connected(part, found)]
        try:
            value = eval(ast.unparse(node), self.scope)
            called = eval(ast.unparse(node.func), self.scope) if isinstance(node, ast.Call) else None
        except Exception:
            return False
        wanted = [p.requires_grad for p in called.parameters()] if isinstance(called, torch().nn.Module) else []
        if wanted and not any(wanted):
            self.frozen.append(ast.unparse(node.func) if isinstance(node, ast.Call) else "")
        leaves = torch().utils._pytree.tree_leaves(value)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch().Tensor)]
        if any(tensor.requires_grad for tensor in tensors):
            return True
        if isinstance(node, ast.Attribute) and not tensors:
            return bool(inner) and callable(value)
        number = isinstance(value, float | complex | list) or type(value).__module__ == "numpy"
        if (inner or any(wanted)) and (tensors or number or ast.unparse(node).endswith(".item()")):
            ours = isinstance(called, torch().nn.Module | FunctionType | MethodType)
            module = str(getattr(called, "__module__", "")).partition(".")[0]
            found.append((ast.unparse(node), "cuts inside" if ours and module != "torch" else "cuts", node.lineno))
        return False

    def _made(self, node: ast.expr, before: int) -> Iterator[tuple[ast.expr, int]]:
        """Return the values that were assigned to the names in an expression above a line, the last first."""
        names = {ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)}
        for statement in reversed(self.statements):
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.lineno < before:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                written = {ast.unparse(part) for target in targets for part in ast.walk(target)}
                if statement.value is not None and names & written:
                    yield statement.value, statement.lineno

    def _without_gradients(self, text: str, line: int) -> Iterator[tuple[str, str, int]]:
        """Return the context or the decorator around a line that turns gradients off."""
        for statement in self.statements:
            items: list[ast.expr] = []
            if isinstance(statement, ast.With):
                items = [item.context_expr for item in statement.items]
            elif isinstance(statement, ast.FunctionDef):
                items = statement.decorator_list
            if statement.lineno <= line <= (statement.end_lineno or 0):
                off = (item for item in items if _WITHOUT_GRADIENTS.search(ast.unparse(item)))
                yield from ((text, ast.unparse(item), item.lineno) for item in off)


def _statements(tree: ast.AST, function: str, line: int) -> Iterator[ast.stmt]:
    """Return the statements of the function that contains a line, without statements of inner functions."""
    around: list[ast.AST] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function and node.lineno <= line <= (node.end_lineno or 0)
    ]
    todo = around[-1:] or [tree]
    for node in todo:
        if isinstance(node, ast.stmt):
            yield node
        if node is todo[0] or not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
