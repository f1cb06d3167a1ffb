"""List what the installed PyTorch can refuse, and whether `why` has a cause for it.

    python tools/refusals.py --output refusals.tsv
    python tools/refusals.py --before refusals.tsv --open
    python tools/refusals.py --sources ~/pytorch

A line is a `raise` or an `assert` of the modules about dispatch, or an entry of Dynamo's list of graph breaks. Words
stand for the values in a message, and `why` is asked about it as about a pasted traceback. With `--sources` the lines
are the checks of a checkout's C++ whose text is in the installed libraries (of Linux). The columns are: where,
exception, answer, text. An answer is the number of a cause, `not ours: KIND`, `named: REASON` for what cannot be asked
like this, or `open`.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.model.failure import OperatorFacts  # noqa: E402  # of this checkout
from dispatchlab.questions.why.cause import causes  # noqa: E402
from dispatchlab.questions.why.diagnose import diagnose  # noqa: E402
from dispatchlab.questions.why.pasted_traceback import RecordedFacts, failure_of_text  # noqa: E402
from dispatchlab.registries.file import newest_bundled, open_bundled  # noqa: E402

PYTHON: Final = (
    "library.py",
    "_library",
    "_ops.py",
    "_subclasses",
    "_functorch",
    "_higher_order_ops/auto_functionalize.py",
    "overrides.py",
    "utils/_python_dispatch.py",
    *(f"distributed/tensor/_{name}.py" for name in ("api", "dispatch", "dtensor_spec", "op_schema", "sharding_prop")),
)
CPP: Final = (
    "aten/src/ATen/core/dispatch",
    "aten/src/ATen/core/boxing",
    "aten/src/ATen/core/library.cpp",
    "aten/src/ATen/core/function_schema*",
    "aten/src/ATen/core/PythonFallbackKernel.cpp",
    "aten/src/ATen/core/VariableFallbackKernel.cpp",
    "aten/src/ATen/Function*",
    "aten/src/ATen/functorch",
    "aten/src/ATen/*BatchingRegistrations.cpp",
    "c10/core/DispatchKey*",
    "c10/core/impl",
    "torch/library.h",
    "torch/csrc/autograd/[!p]*",
    "torch/csrc/autograd/functions",
    "torch/csrc/autograd/python_[!v]*",
    "torch/csrc/functorch",
    "torch/csrc/jit/frontend/function_schema_parser.cpp",
    "torch/csrc/jit/frontend/schema_type_parser.cpp",
    "torch/csrc/jit/frontend/lexer.h",
    "torch/csrc/utils/python_dispatch.cpp",
)
GRAPH_BREAKS: Final = "_dynamo/graph_break_registry.json"
WORDS: Final[Mapping[str, str]] = {
    r"^context$": "When comparing the output of mylib.foo.default on FakeTensor and concrete Tensors, found",
    r"^(expected|mutates_args)$": "{'x'}",
    r"^k$": "DispatchKey.CPU",
    r"schema\.op$": "mylib.foo.default",
    r"alias_|aliasing|identity_eq": "True",
    r"\.size\(\)$|^len\(|_args$|^[ij]$": "2",
    r"operator_name|\.name\(\)|toString\(op": "mylib::foo",
    r"schema|declaration": "mylib::foo(Tensor x) -> Tensor",
    r"(^|[._])(func|op|op_call|overload|opoverload|self)(\(\))?$|str\((op|func)": "mylib.foo.default",
    r"overload_name": "default",
    r"^(self|.*\.)?_?(qual_?name|op_?name|name|self\._qualname|full_name|operator_name)(\(\))?$": "mylib::foo",
    r"\bns\b|namespace|^self\.name$": "mylib",
    r"^(\w*arg\w*|attr)\.?(name)?(\(\))?$": "x",
    r"toString\(kind": "TORCH_LIBRARY_IMPL",
    r"debug": "/registered/at.cpp:1",
    r"key": "CPU",
    r"device": "cpu",
    r"dtype": "torch.float32",
    r"type\(|__class__": "<class 'int'>",
    r"len\(|dims?\b|size|num|count|index|idx|\bi\b|level": "2",
    r"shape": "torch.Size([2])",
    r"func|fn|__name__": "foo",
}
"""The words that stand for a value, by an expression for the text of the code that gives it."""
INTERNAL: Final = (
    r"INTERNAL|[Ii]nternal(?:ly)?\b|should (?:never|not) (?:happen|reach|be)|unreachable|report (?:a|this) bug|"
    r"file (?:us )?an issue"
)
INSIDE: Final = "an internal check of PyTorch"
NOT_OURS: Final[Mapping[str, str]] = {
    r" $": "without a text",
    r"functorch/(BatchRules|Legacy|PyTorchOperatorHacks)|ATen/Legacy": "a check of values, in a batching rule",
    r"FunctionsManual|VariableTypeManual": "a check of values, in the formula of a derivative",
    r"_subclasses/(fake_impls|complex_tensor)": "a check of values, in a fake kernel or a class of PyTorch",
    r"ompiled.autograd|compiled_a\w+|apply_with_saved|key must be positive": "a part that compiled autograd lacks",
    r" ImportError ": "a package that is not installed",
    r"TORCH_CHECK_(TYPE|VALUE) |python_(arg|torch|legacy)|_library/fake_profile": "how a function of PyTorch is called",
    r"tensor/_api\.py:\d+ RuntimeError (Found|Unsup)": "how a function of DTensor is called",
    r" (runtime|logic|str)_error ": "an internal check of PyTorch, of C++ without a macro",
    r"(csrc/\w+|functions)/init\.cpp|csrc/utils/python_dispatch|NYI: mode=": "how a function of torch._C is called",
    r"python_function\.cpp.* _register_hook_dict": "how a function of torch._C is called",
    r"autograd/(variable|function)\.(h|cpp).*(undefined|only exist|Index|index|base of|should be false)": INSIDE,
    r"VariableTypeUtils.* creation_meta|SizesAndStrides|lexer\.h.* (invariant|indent)| idx=| new_size: ": INSIDE,
    r"distributed/tensor/.*([tT]ensor_?[mM]eta|tensor metadata|spec type|placement type|shard_order)": INSIDE,
    r"RuntimeError (Unable to directly set kernel|Unsupported (arg )?type|Unknown Random|NYI: PyDispatch)": INSIDE,
    r"RuntimeError (fx_node's target|cannot find x in tensor_tracker|could not find decomposition)": INSIDE,
    r"RuntimeError (Cannot safely fakify|FakeTensor cache crosscheck)": INSIDE,
}
"""Kinds that are recognised by where they stand, or by their text, where no cause answers."""
NAMED: Final[Mapping[str, str]] = {
    r"GB0112|GB4315|infer_schema\(func\): x |MetadataMismatchError 2": "its text is another refusal's, which is asked",
    r"DeviceMismatchError": "its class makes the text, which WHY407 answers",
    r"does not have a kernel registered for": "WHY306 answers, by the operators that a program made",
    r"Invalid attribute .* for '_OpNamespace'": "hasattr takes it for an answer: no program sees it",
    r"Zeros is not currently supported": "nested tensors have no sizes, which is refused first",
    r"schema_type_parser": "a schema has no such type: it is one of TorchScript's graphs",
}
"""Why nothing can be asked about a refusal, by an expression for where it stands and its text."""
TABLES: Final = {"not ours": NOT_OURS, "named": NAMED}
MACRO: Final = re.compile(
    r"\b(TORCH_CHECK\w*|TORCH_INTERNAL_ASSERT\w*|AT_ERROR|C10_THROW_ERROR|[rR]eportError|ErrorReport|\w+_error)\("
)
LITERAL: Final = re.compile(r'R"\w*\((.*?)\)\w*"|"((?:[^"\\\n]|\\.)*)"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What PyTorch can refuse: where, with which exception and text.

    `frame` is the function of Python that raises it; `longest` is the longest text of C++ without a value.
    """

    at: str
    exception: str
    text: str
    frame: str = ""
    longest: str = ""


class Registry(RecordedFacts):
    """The newest recorded registry, in which `mylib::foo` is an operator, too."""

    def operator(self, name: str) -> OperatorFacts | None:
        """Return the facts of an overload."""
        if name.partition(".")[0] == "mylib::foo":
            return OperatorFacts(name, schema="mylib::foo(Tensor x) -> Tensor", custom_op=True)
        return super().operator(name)


def word(code: str) -> str:
    """Return what may stand for the value of an expression."""
    return next((value for pattern, value in WORDS.items() if re.search(pattern, code)), "x")


def filled(node: ast.expr | None, names: Mapping[str, ast.expr]) -> str:
    """Return the text of an expression, with words for its values."""
    match node:
        case None:
            return ""
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(filled(value, {}) for value in node.values)
        case ast.FormattedValue(value=ast.IfExp(body=body)) | ast.IfExp(body=body):
            return filled(body, names)
        case ast.FormattedValue():
            return word(ast.unparse(node.value))
        case ast.BinOp(op=ast.Mod(), left=left):
            return re.sub(r"%[srd]", "x", filled(left, names))
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return filled(left, names) + filled(right, names)
        case ast.Call(func=ast.Attribute(attr="format" | "join" | "strip", value=ast.Constant() as value)):
            return re.sub(r"\{(\w*)[^}]*\}", lambda field: word(field[1]), filled(value, names))
        case ast.Call(args=[inner]) if ast.unparse(node.func).endswith("lazy_format"):
            return filled(inner, names)
        case ast.Name(id=name) if name in names:
            return filled(names[name], {})
    return word(ast.unparse(node))


def of_python(file: Path, name: str) -> Iterator[Refusal]:
    """Return the refusals of a module."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    module = "torch." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def walk(parent: ast.AST, frame: str, names: dict[str, ast.expr]) -> Iterator[Refusal]:
        for node in ast.iter_child_nodes(parent):
            at = f"{name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from walk(node, node.name, {})
                continue
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names[node.targets[0].id] = node.value
            raised = node.exc.func if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) else None
            raised = node.exc if isinstance(node, ast.Raise) and raised is None else raised
            kind = "" if raised is None else ast.unparse(raised)
            if isinstance(node, ast.Assert):
                yield Refusal(at, "AssertionError", filled(node.msg, names), frame)
            elif isinstance(node, ast.Raise) and kind.rpartition(".")[2][:1].isupper():
                given = node.exc.args[0] if isinstance(node.exc, ast.Call) and node.exc.args else None
                local = f"{module}.{kind}" if kind in classes and not hasattr(builtins, kind) else kind
                yield Refusal(at, local, filled(given, names), frame)
            yield from walk(node, frame, names)

    yield from walk(tree, "<module>", {})


def python_refusals(torch: Path) -> Iterator[Refusal]:
    """Return the refusals of PyTorch's modules and of its list of graph breaks."""
    for given in PYTHON:
        for file in sorted((torch / given).rglob("*.py")) if (torch / given).is_dir() else [torch / given]:
            yield from of_python(file, file.relative_to(torch).as_posix())
    for code, (entry, *_) in json.loads((torch / GRAPH_BREAKS).read_text(encoding="utf-8")).items():
        hints = "".join(f"\n  Hint: {hint}" for hint in entry["Hints"])
        text = f"{entry['Gb_type']}\n  Explanation: {entry['Explanation']}{hints}\n\n  Context: {entry['Context']}"
        text = re.sub(r"\{([^{}]*)\}", lambda field: word(field[1]), text)
        yield Refusal(f"{GRAPH_BREAKS}:{code}", "torch._dynamo.exc.Unsupported", text, "unimplemented")


def cpp_refusals(sources: Path, torch: Path) -> Iterator[Refusal]:
    """Return the checks of a checkout whose longest piece of text is in the installed libraries."""
    libraries = ((torch / "lib" / name).read_bytes() for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so"))
    held = "\n".join(text.decode() for data in libraries for text in re.findall(rb"[\x20-\x7e\n]{8,}", data))
    given = (path for each in CPP for path in sorted(sources.glob(each)))
    files = dict.fromkeys(file for path in given for file in ([path] if path.is_file() else sorted(path.rglob("*"))))
    for file in (file for file in files if file.suffix in (".cpp", ".h")):
        code = re.sub(r"^\s*//.*|^\s*#\s*define\b.*", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for found in MACRO.finditer(code):
            end = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"|[^";])*').match(code, found.end())
            statement = code[found.start() : end.end() if end else None]
            parts = [raw or ast.literal_eval(f'"{text}"') for raw, text in LITERAL.findall(statement)]
            if parts and max(parts, key=len) in held:
                at = f"{file.relative_to(sources).as_posix()}:{code[: found.start()].count(chr(10)) + 1}"
                pieces = LITERAL.split(statement)
                values = [re.sub(r"^[\s,<)]+|[\s,<(]+$", "", piece) for piece in pieces[3::3][:-1]]
                last = word(pieces[-1]) if re.search(r"\w", pieces[-1]) else ""
                between = [word(value) if value else "" for value in values] + [last]
                text = "".join(part + value for part, value in zip(parts, between, strict=False))
                parsed = ":\nfoo(Tensr x) -> Tensor\n    ~~~~~ <--- HERE" if "jit/frontend" in at else ""
                called = "mylib::foo" if text.startswith(("()", " ")) else ""
                yield Refusal(at, found[1], called + text + parsed, longest=max(parts, key=len))


def answer(refusal: Refusal, registry: Registry) -> str:
    """Return the number of the cause of a refusal, `not ours: KIND`, `named: REASON`, or `open`."""
    kind = refusal.exception if refusal.frame else "RuntimeError"
    file, _, line = refusal.at.rpartition(":")
    called = f'  File "/lib/python3/site-packages/torch/{file}", line {line}, in {refusal.frame}\n'
    head = 'Traceback (most recent call last):\n  File "program.py", line 3, in <module>\n    y = define(x)\n'
    text = head + (called if refusal.frame else "") + f"{kind}: {refusal.text}".removesuffix(": ")
    asked = (diagnose(failure_of_text(one, registry)).code for one in (text, text.replace("mylib::foo", "foo")))
    known = {cause.code: cause for cause in causes() if cause.code != "WHY919"}  # which says that the program raised
    cause = next((known[code] for code in asked if code in known), None)
    if "INTERNAL" in refusal.exception or (cause is None and ("AssertionError" in kind or re.search(INTERNAL, text))):
        return f"not ours: {INSIDE}"
    if cause is not None:
        return cause.code if cause.dispatcher else f"not ours: {cause.code} {cause.title}"
    where = f"{refusal.at} {refusal.exception} {refusal.text}"
    rules = ((f"{name}: {said}", rule) for name, given in TABLES.items() for rule, said in given.items())
    return next((said for said, rule in rules if re.search(rule, where, re.DOTALL)), "open")


def main() -> int:
    """Write the table, and print the counts and what is new."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sources", type=Path, help="list the C++ of this checkout of PyTorch, not the Python")
    parser.add_argument("--output", type=Path, help="write the table to this file")
    parser.add_argument("--before", type=Path, help="a table of another PyTorch: print what is new since")
    parser.add_argument("--open", action="store_true", help="print what is open")
    options = parser.parse_args()
    torch = Path(next(iter(getattr(find_spec("torch"), "submodule_search_locations", None) or ["/no PyTorch"])))
    registry = Registry(open_bundled(newest_bundled()))
    refusals = cpp_refusals(options.sources, torch) if options.sources else python_refusals(torch)
    table = [(one.at, one.exception, answer(one, registry), " ".join(one.text.split())) for one in refusals]
    if options.output:
        options.output.write_text("".join("\t".join(row) + "\n" for row in table), encoding="utf-8")
    old = options.before.read_text(encoding="utf-8").splitlines() if options.before else []
    known = {line.split("\t")[3] for line in old}
    for row in table:
        if (options.open and row[2] == "open") or (options.before and row[3] not in known):
            print("\t".join(row))  # noqa: T201
    counts = Counter("answered" if answer.startswith("WHY") else answer.partition(":")[0] for _, _, answer, _ in table)
    kinds = ("answered", "not ours", "named", "open")
    print(f"{len(table)} refusals:", ", ".join(f"{counts[kind]} {kind}" for kind in kinds))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
