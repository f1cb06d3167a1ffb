"""Write the functions that PyTorch says are overridable, with what its parsers take, for a laboratory without it.

    python tools/override_signatures.py

The signatures of C functions are the texts that the parsers of the library were made of; a check compares them with
those that PyTorch lists when it refuses a call. Of functions in Python the part that asks handlers is taken from their
source.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.overrides import get_testing_overrides, resolve_name

from dispatchlab.call.python_arg_parser import PythonSignature

FILE = Path(__file__).parents[1] / "dispatchlab" / "overrides" / "data" / "torch_functions.txt"
_HEAD = "# The overridable functions of torch {version}; made by tools/override_signatures.py\n"
_TYPES = (
    (r"c10::List<::std::optional<Tensor>>", "Tensor?[]"),
    (r"ArrayRef<double>", "float[]"),
    (r"\bSymIntArrayRef(\[\d\])?", lambda found: f"SymInt{found[1] or '[]'}"),
    (r"\bIntArrayRef(\[\d\])?", lambda found: f"int{found[1] or '[]'}"),
    (r"\bTensorList(\[\d\])?", lambda found: f"Tensor{found[1] or '[]'}"),
    (r"\bScalarList\b", "Scalar[]"),
    (r"\bint64_t\b", "int"),
    (r"\bdouble\b", "float"),
    (r"(c10|std)::string(_view)?", "str"),
    (r"PyObject\*", "Any"),
    (r"([\w\]]) (\w+)=None\b", r"\1? \2=None"),
    (r"=\{(.*?)\}", r"=[\1]"),
    (r"at::Reduction::Mean", "Mean"),
)


METHOD_WRAPPER = type(property().__get__)


class ToolError(Exception):
    """A function of which something is not known."""


class _Handled:
    """Stands for any argument, and notes what its handler is asked."""

    seen: list[Any] = []  # noqa: RUF012 - emptied before each call

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _Handled.seen.append(func)
        return "handled"


class _HandledTensor(torch.Tensor):
    __torch_function__ = _Handled.__torch_function__


_SAME = {"torch.spmm": "torch.mm", "torch.hsmm": "torch.hspmm", "torch.saddmm": "torch.sspaddmm"}
"""Functions that equal others; the table has the others."""


def full_name(function: Any) -> str:
    """A function as the file names it, without `torch.`."""
    found = _SAME.get(resolve_name(function), resolve_name(function))
    if found is None:
        module = "" if "_VariableFunctions" in function.__qualname__ else function.__module__
        found = f"{module.replace('.distributed_c10d', '')}.{function.__name__}"
    return str(found).removeprefix("torch.").removeprefix(".")


def parser_texts() -> dict[str, list[str]]:
    """The texts that parsers are made of, by the name of the function, in the order of the library."""
    library = (Path(torch.__file__).parent / "lib" / "libtorch_python.so").read_bytes()
    found: dict[str, list[str]] = {}
    for match in re.finditer(rb"\0(\w+)(\([^\0\n]*\))(\|deprecated|\|hidden)?(?=\0)", library):
        name, rest, mark = (part.decode() if part else "" for part in match.groups())
        for pattern, by in _TYPES:
            rest = re.sub(pattern, by, rest)
        found.setdefault(name, []).append(rest + mark)
    return found


def without_defaults(text: str) -> str:
    """A signature as messages show it, without the defaults, which are spelled in several ways."""
    return re.sub(r" = (\[[^\]]*\]|\{[^}]*\}|[^,)]*)", "", text)


def signatures_of(function: Any, texts: list[str], first: list[Any]) -> list[str]:
    """The texts of one function: those that a refusal lists, or the only one that can be meant."""
    name = "f"
    shown: dict[str, str] = {}
    for text in texts:
        try:
            shown.setdefault(without_defaults(str(PythonSignature.parse(f"{name}{text}"))), text)
        except Exception as error:
            raise ToolError(f"{name}{text}: {error}") from error
    message = ""
    try:
        function(*first, *[object()] * 40)
    except (TypeError, RuntimeError) as error:
        message = str(error)
    listed = re.findall(r"^ \* (\(.*\))$", message, re.MULTILINE) or re.findall(
        r"but expected (\(.*\))$", message, re.M
    )
    listed = [*map(without_defaults, listed)]
    if "takes no arguments" in message:
        return []
    if listed:
        missing = [one for one in listed if one not in shown]
        if missing:
            raise ToolError(f"{function.__name__}: {missing} is not among {[*shown]}")
        marked = [one for one in texts if one.endswith(("|deprecated", "|hidden"))]
        chosen = [one for one in marked if bool(re.search(r"Tensor (input|self)\b", one)) != bool(first)]
        return [*map(shown.__getitem__, listed), *dict.fromkeys(chosen)]
    unmarked = [*dict.fromkeys(one for one in texts if not one.endswith(("|deprecated", "|hidden")))]
    if len(unmarked) > 1:
        of_methods = [one for one in unmarked if not re.search(r"\bTensor (input|self)\b", one)]
        others = [one for one in unmarked if one not in of_methods]
        unmarked = (of_methods if first else others) if message else of_methods
    if len(unmarked) != 1 and message:  # an operator in Python returns NotImplemented for any wrong argument
        raise ToolError(f"{function.__name__}: which of {unmarked} is meant ({message})")
    return unmarked


def asked(function: Any, first: list[Any], signature: str | None) -> Any:
    """What a handler gets as the function that was called."""
    count, named = 0, {}
    if signature is not None:
        parsed = PythonSignature.parse(f"f{signature}")
        count = max(1 - len(first), sum(not one.by_name and not one.optional for one in parsed.parameters))
        named = {one.name: _Handled() for one in parsed.parameters if one.by_name and not one.optional}
    for number in (count, *range(4)):
        _Handled.seen.clear()
        try:
            function(*first, *(_Handled() for _ in range(number)), **named)
        except (TypeError, RuntimeError):
            continue
        if _Handled.seen:
            return _Handled.seen[0]
    return None


def c_lines(function: Any, texts: dict[str, list[str]], names: dict[Any, str]) -> Iterator[str]:
    """The lines of a function, method or property of C."""
    name = names[function]
    is_method = isinstance(function, type(torch.Tensor.add) | type(torch.Tensor.__getitem__))
    first = [torch.Tensor._make_subclass(_HandledTensor, torch.ones(2))] if is_method else []
    if isinstance(function, METHOD_WRAPPER):
        first = [torch.Tensor._make_subclass(_HandledTensor, torch.ones(2))]
        handled = asked(function, first, None)
        yield f"{name.removesuffix('.__get__')} @{'' if handled == function else full_name(handled)}"
        return
    found = texts.get(function.__name__) or texts.get(name)  # `dsmm` is `mm`
    signatures = [] if found is None else signatures_of(function, found, first)
    if name == "Tensor.apply_":  # it has no parser
        signatures = ["(Any callable)"]
    handled = asked(function, first, signatures[0] if signatures else None)
    if handled is None:
        yield f"{name} -"
    elif handled != function:
        yield f"{name} = {full_name(handled)}"
    elif not signatures:
        yield name
    for one in signatures if handled == function else ():
        yield f"{name}{one}"


def _literal(value: Any) -> str:
    if isinstance(value, torch.memory_format):
        return f"MemoryFormat.{str(value).removeprefix('torch.')}"
    if isinstance(value, torch.dtype):
        return f"DType.{str(value).removeprefix('torch.')}"
    return repr(value) if isinstance(value, str | int | float | tuple | None) else repr(str(value))


def _parameters(function: Callable[..., Any]) -> str:
    parts: list[str] = []
    was: Any = None
    for one in inspect.signature(function).parameters.values():
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        if parts and one.kind is not one.POSITIONAL_ONLY and was is one.POSITIONAL_ONLY:
            parts.append("/")
        was = one.kind
        default = "" if one.default is one.empty else f"={_literal(one.default)}"
        parts.append(f"{stars}{one.name}{default}")
    return ", ".join([*parts, *(["/"] if was is inspect.Parameter.POSITIONAL_ONLY else [])])


def python_lines(function: Any, names: dict[Any, str]) -> Iterator[str]:
    """The line of a function in Python: its parameters, the arguments that count, and what handlers get."""
    name = names[function]
    inner = inspect.unwrap(function)
    if name in _BY_HAND:
        yield f"{name} {_BY_HAND[name]}"
    elif name in _ASKS_INSIDE:
        yield python_line(name, *_ASKS_INSIDE[name], "")
    elif function in torch._jit_internal.boolean_dispatched:
        facts = torch._jit_internal.boolean_dispatched[function]
        inside = name.rpartition(".")[0]
        ways = [(f"{inside}.{facts[one].__name__}", facts[one]) for one in ("if_true", "if_false")]
        yield f"{name} ? {facts['arg_name']}, {facts['index']}, {facts['default']}, {', '.join(one for one, _ in ways)}"
        for way, asks in ways:
            if asks not in names:
                yield python_line(way, asks, asks, name)
    else:
        yield python_line(name, function, inner, "")


_LIST = "[tensors] if isinstance(tensors, Tensor) else tensors"
_BY_HAND = {
    # A call that begins with a tensor is another form; the file has the form that begins with the equation.
    "functional.einsum": ":(*args) -> args[1:] -> *args",
    "distributed.all_reduce_coalesced": ":(tensors, op='RedOpType.SUM', group=None, async_op=False) -> "
    "tuple(tensors) if isinstance(tensors, (list, tuple)) else (tensors,) -> "
    f"{_LIST}, op=op, group=group, async_op=async_op",
}
"""Functions that assign before they ask."""

_ASKS_INSIDE: dict[str, tuple[Any, Any]] = {
    "functional.meshgrid": (torch.functional.meshgrid, torch.functional._meshgrid),
    "functional.unique": (torch.functional._unique_impl, torch.functional._unique_torch_function),
    "functional.unique_consecutive": (
        torch.functional._unique_consecutive_impl,
        torch.functional._unique_consecutive_torch_function,
    ),
}
"""Functions whose source does not ask: what has their parameters, and what asks."""


def python_line(name: str, function: Any, inner: Any, asks_as: str) -> str:
    """The line of one function, which asks in the name of another perhaps."""
    if function.__code__.co_name == "wrapped":  # `_handle_torch_function_and_wrap_type_error_to_not_implemented`
        return f"{name} !"
    defined = ast.parse(textwrap.dedent(inspect.getsource(inner))).body[0]
    assigned: dict[str, ast.expr] = {}
    for node in ast.walk(defined):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, node.value)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("handle_torch_function"):
            call = node
            break
    else:
        raise ToolError(f"{name} does not ask")
    relevant = _spelled(call.args[1], assigned, inner)
    given = [_spelled(one, assigned, inner) for one in call.args[2:]]
    given += [
        f"{one.arg}={ast.unparse(one.value)}" if one.arg else f"**{_spelled(one.value, assigned, inner)}"
        for one in call.keywords
    ]
    return f"{name} :({_parameters(function)}) -> {relevant} -> {', '.join(given)}{f' -> {asks_as}' if asks_as else ''}"


def _spelled(node: ast.expr, assigned: dict[str, ast.expr], inner: Any) -> str:
    parameters = inspect.signature(inner).parameters

    class _Inline(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.AST:
            return assigned[name.id] if name.id in assigned and name.id not in parameters else name

    return ast.unparse(_Inline().visit(node))


def lines() -> Iterator[str]:
    """The lines of the file but the first."""
    functions = get_testing_overrides()
    names = {function: full_name(function) for function in functions}
    texts = parser_texts()
    wrong: list[str] = []
    for function in functions:
        try:
            is_python = inspect.isfunction(function)
            yield from python_lines(function, names) if is_python else c_lines(function, texts, names)
        except ToolError as error:
            wrong.append(str(error))
    if wrong:
        raise SystemExit("\n".join(wrong))


def text() -> str:
    """The file."""
    head = _HEAD.format(version=torch.__version__.partition("+")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sorted(dict.fromkeys(lines()), key=lambda one: re.split(r"[ (]", one)[0])
    return head + "".join(f"{one}\n" for one in found)


def main() -> None:
    """Write the file."""
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
