"""The Python source of one structured group: what its kernels need, the kernels, and their registrations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.codegen.kernel_source import kernels_source
from dispatchlab.codegen.layout import bracketed, long_text, text_literal
from dispatchlab.codegen.plan import GroupPlan, python_name
from dispatchlab.codegen.source_words import banner, debug_text, def_debug_text, mark, schema_text, written_at

RUNTIME = "dispatchlab.codegen.runtime"


def module_text(plan: GroupPlan, file: str) -> str:
    """The module of a group.

    Args:
        plan: what is generated.
        file: what the source file is called in the text.
    """
    body = [*kernels_source(plan, file), *_registrations(plan, file)]
    lines = [*_head(plan, file), *_imports(plan, body), *_by_hand(plan), "", "", *body]
    return "\n".join(_without_trailing(lines)) + "\n"


def _without_trailing(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _head(plan: GroupPlan, file: str) -> Iterator[str]:
    group = plan.group
    yield mark(file)
    yield f'"""{group.functional.name}: {len(group.functions)} variants from one meta and one impl.'
    yield ""
    width = max(len(each.short_name) for each in group.functions)
    for function in group.functions:
        yield f"- {function.kind!s:<10}  {function.short_name:<{width}}  {written_at(function, file)}"
    yield '"""'
    yield ""


def _imports(plan: GroupPlan, body: Sequence[str]) -> Iterator[str]:
    code = "\n".join(body)
    yield "from __future__ import annotations"
    yield ""
    yield "from contextlib import ExitStack"
    yield "from functools import partial"
    if plan.group.out.precomputed is not None:
        yield "from typing import NamedTuple"
    yield ""
    yield f"from {RUNTIME} import ("
    for name in _RUNTIME_NAMES:
        if name in ("Dispatcher", "ExitStack", "Kernels", "Library", "link", "unboxed") or _is_used(name, code):
            yield f"    {name},"
    yield ")"
    yield ""


_RUNTIME_NAMES = (
    *("Device", "Dispatcher", "Generator", "Kernels", "Layout", "Library", "MemoryFormat", "MetaBase", "Options"),
    *("Scalar", "ScalarType", "Sizes", "SymInt", "Tensor", "TensorIteratorBase", "check_inplace"),
    *("check_same_device", "copy_proxies", "create_out", "link", "maybe_create_proxy", "one_device"),
    *("resize_out", "unboxed"),
)


def _is_used(name: str, code: str) -> bool:
    at = code.find(name)
    while at >= 0:
        before, after = code[at - 1 : at], code[at + len(name) : at + len(name) + 1]
        if not (before.isalnum() or before in ("_", '"')) and not (after.isalnum() or after == "_"):
            return True
        at = code.find(name, at + 1)
    return False


def hand_written(plan: GroupPlan) -> dict[str, str]:
    """What somebody has to write for the group: the name of each function, and how it is called."""
    meta = ", ".join(("op", *(python_name(one.name) for one in plan.meta_arguments)))
    impl = ", ".join(("op", *(python_name(one.name) for one in plan.impl_arguments)))
    found = {plan.meta_function: f"{plan.meta_function}({meta})"}
    for kernel in plan.impl_kernels:
        name = python_name(kernel.name)
        found[name] = f"{name}({impl})"
    for key in plan.keys:
        for wrapper in key.wrappers:
            if wrapper.calls:
                arguments = ", ".join(python_name(one.name) for one in wrapper.function.schema.arguments)
                found.setdefault(wrapper.calls, f"{wrapper.calls}({arguments})")
    return found


def _by_hand(plan: GroupPlan) -> Iterator[str]:
    yield "# What is written by hand and handed to `register`: a module or an object with these functions."
    yield "BY_HAND = {"
    for name, call in hand_written(plan).items():
        entry = f"    {text_literal(name)}: {text_literal(call)},"
        if len(entry) <= 120:
            yield entry
        else:
            yield f"    {text_literal(name)}: ("
            yield from long_text(call, indent=2)
            yield "    ),"
    yield "}"


def _registrations(plan: GroupPlan, file: str) -> Iterator[str]:
    namespace = text_literal(plan.group.out.name.namespace)
    yield from banner("registrations: nothing is registered when one of them is refused")
    yield "def register(dispatcher: Dispatcher, kernels: object) -> ExitStack:"
    yield "    linked = link(dispatcher, kernels, BY_HAND)"
    yield "    with ExitStack() as undo:"
    yield f'        m = undo.enter_context(Library({namespace}, "FRAGMENT", dispatcher=dispatcher))'
    for function in plan.group.functions:
        yield "        m.define("
        yield from long_text(schema_text(function), indent=3, tail=",")
        tags = [text_literal(tag) for tag in sorted(function.tags)]
        if tags:
            yield from bracketed("tags=(", tags, "),", indent=3, loose=True)
        yield from _debug_lines(def_debug_text(plan, function, file))
        yield "        )"
    for key in plan.keys:
        if not key.wrappers:
            continue
        library = f'Library({namespace}, "IMPL", "{key.key}", dispatcher=dispatcher)'
        yield f"        m = undo.enter_context({library})"
        for wrapper in key.wrappers:
            yield "        m.impl("
            yield f"            {text_literal(wrapper.function.short_name)},"
            yield from bracketed("unboxed(", [f"partial({wrapper.name}, linked)"], "),", indent=3, single=True)
            yield from _debug_lines(debug_text(plan, wrapper, file))
            yield "        )"
    yield "        return undo.pop_all()"


def _debug_lines(debug: str) -> Iterator[str]:
    line = f"            debug={text_literal(debug)},"
    if len(line) <= 120:
        yield line
        return
    first, _, second = debug.partition(" (")
    yield f"            debug={text_literal(f'{first} ')}"
    yield f"            {text_literal(f'({second}')},"
