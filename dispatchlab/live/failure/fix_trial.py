"""Try a fix: in a fork of the process that failed, apply it and make the failing call again in the user's frame."""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from types import FrameType, TracebackType
from typing import Any, Final, Literal

from dispatchlab.live.failure.program_watch import ProgramWatch, plain_text
from dispatchlab.live.introspection.process_copies import CopyEndedError, in_a_copy
from dispatchlab.model.failure import Fix, Trial

_LONGEST_S: Final = 30.0
_INTO_A_FAKE: Final = ("fake_impl", "meta_kernel", "_dispatch_impl")
"""The functions of PyTorch that call a fake kernel: a call inside of it cannot be made again alone."""
Outcome = Literal["works", "fails", "refused", "not tried"]


@dataclass(frozen=True, slots=True)
class FailingCall:
    """The expression that raised, in the user's innermost frame.

    Args:
        text: its source.
        frame: the frame with its variables.
        outer: the call of PyTorch that called the failing function of the user.
    """

    text: str
    frame: FrameType
    outer: FailingCall | None = None


def failing_call(error: BaseException, watch: ProgramWatch) -> FailingCall | None:
    """Return the expression that raised an exception; None if the source does not show it."""
    found: TracebackType | None = None
    outer: TracebackType | None = None
    at, between = error.__traceback__, False
    while at is not None and at.tb_frame.f_code.co_name not in _INTO_A_FAKE:
        users = watch.is_users(at.tb_frame.f_code.co_filename)
        if users:
            found, outer = at, found if between else outer
        between = not users
        at = at.tb_next
    if found is None:
        return None
    asserts = isinstance(error, AssertionError)  # an assertion is a statement
    text = None if asserts else _expression(found)
    if outer is not None and (led := _expression(outer)) is not None:
        return FailingCall(text or "", found.tb_frame, FailingCall(led, outer.tb_frame))
    return None if text is None else FailingCall(text, found.tb_frame)


def _expression(at: TracebackType) -> str | None:
    code = at.tb_frame.f_code
    line, end_line, column, end_column = next(islice(code.co_positions(), at.tb_lasti // 2, None), (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(line, end_line + 1)]
    if not all(lines):
        return None
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    text = b"".join(lines).decode()
    with suppress(SyntaxError):
        ast.parse(f"({text})", mode="eval")
        return text
    return None


def try_fix(fix: Fix, call: FailingCall | None) -> Trial:
    """Apply a fix in a fork of this process, and repeat the failing call there."""
    if fix.needs:
        return Trial(fix, "not tried", f"it needs {fix.needs}")
    if not fix.code and not fix.wrap and not fix.old:
        return Trial(fix, "not tried", "it is an edit of your program")
    call = call.outer if call is not None and fix.outer else call
    if call is None or not call.text or not hasattr(os, "fork"):
        return Trial(fix, "not tried", "the failing call cannot be made again here")
    expression = call.text
    if fix.wrap:
        wrapped = _wrapped(call, fix.wrap)
        if wrapped is None:
            return Trial(fix, "not tried", "it is an edit of your program")
        expression = wrapped
        fix = replace(fix, text=wrapped)
    if fix.old:
        # A word is not replaced inside of a longer one.
        word = re.escape(fix.old)
        word = (r"(?<!\w)" if fix.old[0].isalnum() else "") + word + (r"(?!\w)" if fix.old[-1].isalnum() else "")
        changed = re.sub(word, lambda _: fix.new, expression)
        if changed == expression:
            return Trial(fix, "not tried", "it is an edit of your program")
        expression = changed
        if "\n" not in expression:
            comment = fix.text.partition("  # ")[2]
            fix = replace(fix, text=f"{expression}  # {comment}" if comment else expression)
    frame = call.frame
    if re.search(r"\btorch\.", fix.text) and "torch" not in {**frame.f_globals, **frame.f_locals}:
        fix = replace(fix, text=f"import torch\n{fix.text}", code=f"import torch\n{fix.code}")
    try:  # a call that does not come back decides nothing, since threads of PyTorch end at a fork
        outcome, detail = in_a_copy(lambda: _call_again(fix.code, expression, frame), _LONGEST_S)
    except TimeoutError as late:
        return Trial(fix, "not tried", f"{late}")
    except CopyEndedError:
        return Trial(fix, "fails", "the process ended")
    if outcome == "fails" and fix.code and call.outer is not None:  # tensors of a transform that ended cannot be used
        return try_fix(replace(fix, outer=True), call)
    return Trial(fix, outcome, detail)


def _wrapped(call: FailingCall, template: str) -> str | None:
    """Return the failing call with a template around each argument that is a tensor."""
    tree = ast.parse(call.text.strip(), mode="eval").body
    import torch

    scope = {**call.frame.f_globals, **call.frame.f_locals}
    text = call.text.strip()
    edits: list[tuple[int, int, str]] = []
    for part in operands(tree):
        source = ast.get_source_segment(text, part)
        if source is None or not isinstance(part, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            continue
        with suppress(Exception):
            value = eval(source, scope)
            if isinstance(value, torch.Tensor) and _has(value, template):
                edits.append((part.col_offset, part.col_offset + len(source), template.format(source)))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text if edits and tree.lineno == tree.end_lineno else None


def operands(tree: ast.expr) -> list[ast.expr]:
    """Return the operands of a failing expression, including the tensor whose method it calls."""
    match tree:
        case ast.Call(func=ast.Attribute(value=own)):
            return [own, *tree.args, *(keyword.value for keyword in tree.keywords)]
        case ast.Call():
            return [*tree.args, *(keyword.value for keyword in tree.keywords)]
        case ast.BinOp():
            return [tree.left, tree.right]
        case ast.Subscript() | ast.Attribute():
            return [tree.value]
    return []


def _has(tensor: Any, template: str) -> bool:
    """Return whether a tensor has the layout that this conversion removes."""
    if ".to_dense(" in template:
        return str(tensor.layout) != "torch.strided"
    if template == "{}.clone()":
        return bool(tensor.is_inference())
    if ".dequantize(" in template:
        return bool(tensor.is_quantized)
    return "padded_tensor(" not in template or bool(tensor.is_nested)


def _call_again(code: str, expression: str, frame: FrameType) -> tuple[Outcome, str]:
    scope: dict[str, Any] = {**frame.f_globals, **frame.f_locals}
    if "torch" in sys.modules:
        with suppress(Exception):
            if "torch._dynamo" in sys.modules:
                sys.modules["torch._dynamo"].reset()
    try:
        exec(compile(code, "<fix>", "exec"), scope)
    except BaseException as error:
        return "refused", f"{type(error).__name__}: {plain_text(error)}"[:2000]
    try:
        eval(compile(f"({expression})", "<failing call>", "eval"), scope)
    except BaseException as error:
        return "fails", f"{type(error).__name__}: {plain_text(error)}"[:2000]
    return "works", ""
