"""What is the source of the kernels of a group: the classes for meta, impl and outputs, and the wrappers?

The classes are those of torchgen's RegisterCPU.cpp, and so are their names. What somebody has to write by hand is
reached through `op.kernels`. Source: torchgen/dest/register_dispatch_key.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.codegen.layout import bracketed, indented, text_literal
from dispatchlab.codegen.native_function import Precomputed
from dispatchlab.codegen.plan import (
    GUARDED,
    Form,
    GroupPlan,
    KeyPlan,
    Wrapper,
    checked_arguments,
    comes_from,
    python_name,
)
from dispatchlab.codegen.schema_parts import SchemaKind
from dispatchlab.codegen.source_words import annotation, banner, python_names, python_parameters, written_at

_OPTIONS = "index: int, sizes: Sizes, strides: Sizes, options: Options"


def kernels_source(plan: GroupPlan, file: str) -> Iterator[str]:
    """The classes and wrappers of a group, key by key.

    Args:
        plan: what is generated.
        file: what the source file is called in the text.
    """
    yield from _meta_class(plan, file)
    yield from _impl_classes(plan, file)
    for key in plan.keys:
        yield from _key_section(plan, key, file)


def _meta_class(plan: GroupPlan, file: str) -> Iterator[str]:
    out = plan.group.out
    yield from banner(f"meta: shapes, dtypes and checks, for all backends; {out.short_name} at {written_at(out, file)}")
    gives = out.precomputed is not None
    returns = f"{plan.name}_precompute" if gives else "None"
    if out.precomputed is not None:
        yield f"class {returns}(NamedTuple):"
        for value in out.precomputed.values:
            yield f"    {value.name}: {annotation(value.type)}"
        yield ""
        yield ""
    yield from bracketed(f"class {plan.meta_class}(", [plan.inherits], "):", single=True)
    yield from bracketed("def meta(", ["op", *python_parameters(plan.meta_arguments)], f") -> {returns}:", indent=1)
    call = ["op", *python_names(plan.meta_arguments)]
    yield from bracketed(f"{'values = ' if gives else ''}op.kernels.{plan.meta_function}(", call, ")", indent=2)
    if gives:
        yield f"        return {returns}(*values)"
    yield ""
    yield ""


def _impl_classes(plan: GroupPlan, file: str) -> Iterator[str]:
    kernels = plan.impl_kernels
    if not kernels:
        return
    out = plan.group.out
    yield from banner(f"impl: the computation, one class for each kernel in the dispatch of {out.short_name}")
    for kernel in kernels:
        keys = [str(each.key) for each in plan.keys if each.kernel is kernel or _same_kernel(each, kernel.name)]
        yield from bracketed(f"class structured_{kernel.name}(", [plan.meta_class], "):", single=True)
        yield f"    # {comes_from(kernel)}, for {', '.join(keys)}"
        yield from bracketed("def impl(", ["op", *python_parameters(plan.impl_arguments)], ") -> None:", indent=1)
        call = ["op", *python_names(plan.impl_arguments)]
        yield from bracketed(f"op.kernels.{python_name(kernel.name)}(", call, ")", indent=2)
        yield ""
        yield ""


def _same_kernel(each: KeyPlan, name: str) -> bool:
    return each.form is Form.STRUCTURED and each.kernel is not None and each.kernel.name == name


_FORM_BANNERS = {
    Form.STRUCTURED: "{key}: meta, then impl",
    Form.META: "Meta: meta alone, which is all that there is to tensors without elements",
    Form.DEFAULT: "{key}: what every other backend falls back to, by way of its out variant",
    Form.PLAIN: "{key}: kernels that do everything by themselves",
}


def _key_section(plan: GroupPlan, key: KeyPlan, file: str) -> Iterator[str]:
    yield from banner(_FORM_BANNERS[key.form].format(key=key.key))
    for wrapper in key.wrappers:
        if wrapper.class_name:
            yield from _output_class(plan, key, wrapper)
        yield from _wrapper(plan, key, wrapper, file)


def _output_class(plan: GroupPlan, key: KeyPlan, wrapper: Wrapper) -> Iterator[str]:
    function, kind = wrapper.function, wrapper.function.kind
    count = len(plan.group.out.parts.outs)
    yield from bracketed(f"class {wrapper.class_name}(", [key.parent], "):", single=True)
    if kind is SchemaKind.FUNCTIONAL:
        yield "    def __init__(op, kernels: Kernels) -> None:"
        yield "        op.kernels = kernels"
        yield f"        op.outputs = [None]{f' * {count}' if count > 1 else ''}"
    else:
        given = ["self"] if kind is SchemaKind.INPLACE else python_names(function.parts.outs)
        yield from bracketed(
            "def __init__(", ["op", "kernels: Kernels", *(f"{name}: Tensor" for name in given)], ") -> None:", indent=1
        )
        yield "        op.kernels = kernels"
        yield f"        op.outputs = [{', '.join(given)}]"
        yield f"        op.proxies = [None]{f' * {count}' if count > 1 else ''}"
    if key.key in GUARDED:
        yield "        op.device = None"
    yield ""
    for name, with_proxy in (("set_output_strided", True), ("set_output_raw_strided", False)):
        yield f"    def {name}(op, {_OPTIONS}) -> None:"
        yield from indented(_set_output(plan, key, kind, with_proxy=with_proxy), 2)
        yield ""
    yield "    def maybe_get_output(op, index: int = 0) -> Tensor:"
    if kind is SchemaKind.FUNCTIONAL:
        yield "        return op.outputs[index]"
    else:
        yield "        return op.outputs[index] if op.proxies[index] is None else op.proxies[index]"
    yield ""
    yield ""


def _set_output(plan: GroupPlan, key: KeyPlan, kind: SchemaKind, *, with_proxy: bool) -> Iterator[str]:
    if key.key in GUARDED:
        yield "op.device = one_device(op.device, options)"
    if kind is SchemaKind.FUNCTIONAL:
        on_meta = ", on_meta=True" if key.form is Form.META else ""
        yield f"op.outputs[index] = create_out(sizes, strides, options{on_meta})"
    else:
        yield "out = op.outputs[index]"
        if kind is SchemaKind.INPLACE:
            yield "check_inplace(out, sizes, options)"
        else:
            yield "resize_out(out, sizes, strides, options)"
        if with_proxy:
            yield "op.proxies[index] = maybe_create_proxy(out, sizes, strides, options)"
    if plan.inherits != "MetaBase":
        yield "super().set_output_raw_strided(index, sizes, strides, options)"


def _wrapper(plan: GroupPlan, key: KeyPlan, wrapper: Wrapper, file: str) -> Iterator[str]:
    function = wrapper.function
    parts = function.parts
    parameters = ["kernels: Kernels", *python_parameters(parts.positional)]
    by_name = (*parts.keywords, *parts.outs)
    if by_name:
        parameters += ["*", *python_parameters(by_name)]
    returns = [annotation(one.type) for one in function.schema.returns]
    told = "None" if not returns else returns[0] if len(returns) == 1 else f"tuple[{', '.join(returns)}]"
    yield from bracketed(f"def {wrapper.name}(", parameters, f") -> {told}:")
    yield f"    # {function.short_name}, {written_at(function, file)}"
    if wrapper.checks_device:
        pairs = [f"{python_name(one.name)}={python_name(one.name)}" for one in checked_arguments(function)]
        yield from bracketed("check_same_device(", [text_literal(wrapper.name), *pairs], ")", indent=1)
    if key.form is Form.PLAIN:
        yield from bracketed(f"return kernels.{wrapper.calls}(", python_names(function.schema.arguments), ")", indent=1)
    else:
        yield from _structured_body(plan, key, wrapper)
    yield ""
    yield ""


# Note [Where impl writes in place]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# torchgen hands `op.outputs_[0]` to the impl of an in-place variant, and copies the proxy over it afterwards, although
# nothing has been written to the proxy unless the impl asked `maybe_get_output` for its output, as those that inherit
# from TensorIteratorBase do. PyTorch's other in-place kernels get by because their meta calls set_output_raw_strided,
# which makes no proxy. Here both the out and the in-place variant hand over `op.maybe_get_output(0)`.


def _structured_body(plan: GroupPlan, key: KeyPlan, wrapper: Wrapper) -> Iterator[str]:
    function, kind = wrapper.function, wrapper.function.kind
    out = plan.group.out
    given = {SchemaKind.INPLACE: ["self"], SchemaKind.OUT: python_names(function.parts.outs)}.get(kind, [])
    yield from bracketed(f"op = {wrapper.class_name}(", ["kernels", *given], ")", indent=1)
    meta = python_names(plan.meta_arguments)
    computed = () if out.precomputed is None or key.form is not Form.STRUCTURED else out.precomputed.values
    if computed:
        yield from bracketed("precompute = op.meta(", meta, ")", indent=1)
    else:
        yield from bracketed("op.meta(", meta, ")", indent=1)
    count = len(out.parts.outs)
    # See Note [Where impl writes in place]
    ask = "op.outputs[{}]" if kind is SchemaKind.FUNCTIONAL else "op.maybe_get_output({})"
    places = [ask.format(at) for at in range(count)]
    if key.form is Form.STRUCTURED:
        yield from bracketed("op.impl(", [*_impl_inputs(plan), *places], ")", indent=1)
    elif key.form is Form.DEFAULT:
        by_name = [f"{python_name(one.name)}={python_name(one.name)}" for one in out.parts.keywords]
        by_name += [f"{one.name}={place}" for one, place in zip(out.parts.outs, places, strict=True)]
        called = text_literal(str(out.name))
        yield from bracketed("kernels.call(", [called, *python_names(out.parts.positional), *by_name], ")", indent=1)
    if kind is SchemaKind.FUNCTIONAL:
        yield f"    return {', '.join(f'op.outputs[{at}]' for at in range(count))}"
        return
    yield "    copy_proxies(op)"
    yield f"    return {', '.join(given)}"


def _impl_inputs(plan: GroupPlan) -> Iterator[str]:
    """What is handed to impl in front of the outputs: an argument, or a value that meta computed."""
    count = len(plan.group.out.parts.outs)
    for one in plan.impl_arguments[:-count]:
        yield f"precompute.{one.name}" if isinstance(one, Precomputed) else python_name(one.name)
