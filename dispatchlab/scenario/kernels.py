"""What can stand after `kernel:`, and how a Python function gets into a scenario: only when importing is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module

from dispatchlab.model.registration import Kernel, KernelForm
from dispatchlab.model.signature import cpp_signature, is_symint_schema
from dispatchlab.scenario.problems import quoted
from dispatchlab.scenario.shapes import Context, Shape, Wrong, anonymous_schema, did_you_mean, expected, scalar
from dispatchlab.scenario.tree import Node, Scalar

FORMS = {
    "boxed": Kernel(KernelForm.BOXED),
    "fallthrough": Kernel(KernelForm.FALLTHROUGH),
    "unboxed": Kernel(KernelForm.UNBOXED),
}
"""The kernels that have a word of their own; `unboxed` is one whose schema nobody knows."""

FALLBACK_FORMS = {word: kernel for word, kernel in FORMS.items() if word != "unboxed"}
"""The same for fallbacks, which serve every schema and so are never unboxed."""

_REFERENCE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*(\.[^\W\d]\w*)*)")


def _kernel(node: Node, context: Context) -> Kernel:
    wanted = "boxed, fallthrough, an inferred schema such as (Tensor _0) -> Tensor _0, or package.module:function"
    value = scalar(node, wanted)
    if value.text in FORMS:
        return FORMS[value.text]
    if value.text.lstrip().startswith("("):
        inferred = anonymous_schema(value, context)
        symint = is_symint_schema(inferred)
        return Kernel(KernelForm.UNBOXED, inferred=inferred, signature=cpp_signature(inferred), symint=symint)
    return _function_kernel(value, context, wanted, FORMS)


def _fallback(node: Node, context: Context) -> Kernel:
    wanted = "fallthrough, boxed or package.module:function"
    value = scalar(node, wanted)
    if value.text in FALLBACK_FORMS:
        return FALLBACK_FORMS[value.text]
    if value.text.lstrip().startswith("("):
        raise expected(wanted, node, "a fallback serves every operator, so its kernel has no schema of its own")
    return _function_kernel(value, context, wanted, FALLBACK_FORMS)


def _function_kernel(node: Scalar, context: Context, wanted: str, forms: Iterable[str]) -> Kernel:
    match = _REFERENCE.fullmatch(node.text)
    if match is None:
        raise expected(wanted, node, did_you_mean(node.text, forms))
    if node.text in context.functions:
        return Kernel(KernelForm.BOXED, function=context.functions[node.text], reference=node.text)
    if not context.allow_import:
        message = f"{quoted(node.text)} imports {match['module']}, which runs its code"
        raise Wrong(
            node, message, "allow it with --allow-import (load_scenario(..., allow_import=True)) if you trust it"
        )
    function = _import(node, match["module"], match["function"])
    return Kernel(KernelForm.BOXED, function=function, reference=node.text)


def _import(node: Scalar, module: str, path: str) -> Callable[..., object]:
    try:
        value: object = import_module(module)
    except (Exception, SystemExit) as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise Wrong(node, f"importing {module} failed with {told}") from None
    column = node.column_of(len(module) + 1)
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except Exception:
            raise Wrong(node, f"{module} has no {path}", did_you_mean(name, dir(value)), column) from None
    if not callable(value):
        raise Wrong(node, f"expected a function but {node.text} is of type {type(value).__name__}", column=column)
    return value


_REFERENCE_SCHEMA = {"type": "string", "pattern": r"^[^\s():]+:[^\s():]+$"}
KERNEL = Shape(
    "a kernel",
    _kernel,
    {"anyOf": [{"enum": list(FORMS)}, {"type": "string", "pattern": r"^\s*\("}, _REFERENCE_SCHEMA]},
)
FALLBACK = Shape("a kernel", _fallback, {"anyOf": [{"enum": list(FALLBACK_FORMS)}, _REFERENCE_SCHEMA]})
