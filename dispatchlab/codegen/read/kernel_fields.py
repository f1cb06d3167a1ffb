"""Read the fields about kernels: `dispatch`, `ufunc_inner_loop` and `precomputed`.

    precomputed:
    - kernel_size -> int poolSizeT, int poolSizeH, int poolSizeW
    - int numBatch, int numPlanes          # the last line may add values beside the arguments

Source: torchgen/model.py (`NativeFunction.from_yaml`, `Precompute`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dispatchlab.codegen.read.fields import DISPATCH, FUNC, PRECOMPUTED, UFUNC_INNER_LOOP, Fields
from dispatchlab.codegen.read.native_function import (
    COMPOSITE_KEYS,
    NATIVE_NAMESPACE,
    STRUCTURED_KEYS,
    UFUNC_KEYS,
    BackendKernel,
    Precompute,
    Precomputed,
    ScalarKind,
    UfuncKey,
    UfuncLoop,
)
from dispatchlab.codegen.read.problems import Rule
from dispatchlab.codegen.read.schema_parts import SchemaParts, is_tensor_like
from dispatchlab.errors import ParseError, did_you_mean
from dispatchlab.model.keys import DispatchKey, UnknownKeyError, parse_key
from dispatchlab.model.schema import FunctionSchema, SimpleType
from dispatchlab.model.schema_parser import parse_inferred
from dispatchlab.scenario.yaml_tree import Listing, Mapping, Scalar, quoted

SUPPORTED_KEYS: tuple[DispatchKey, ...] = tuple(
    DispatchKey[name]
    for name in (
        *("CPU", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "CUDA", "MPS", "XPU", "SparseXPU", "SparseCsrXPU"),
        *("SparseCUDA", "SparseCsrCUDA", "SparseMPS", "SparseCsrMPS", "QuantizedCPU", "QuantizedCUDA"),
        *("CompositeImplicitAutograd", "CompositeImplicitAutogradNestedTensor", "CompositeExplicitAutograd"),
        *("CompositeExplicitAutogradNonFunctional", "NestedTensorCPU", "NestedTensorCUDA", "NestedTensorXPU"),
        *("NestedTensorHPU", "Meta", "SparseMeta", "SparseCsrMeta", "QuantizedMeta", "NestedTensorMeta", "ZeroTensor"),
        "MTIA",
    )
)
"""The keys that a `dispatch` can name."""

_IMPLICIT = DispatchKey.CompositeImplicitAutograd
_NESTED = DispatchKey.CompositeImplicitAutogradNestedTensor
_NON_FUNCTIONAL = DispatchKey.CompositeExplicitAutogradNonFunctional
_KERNEL = re.compile(r"(?:[^\W\d]\w*::){0,3}[^\W\d]\w*", re.ASCII)
_KEYS = {key.name: key for key in SUPPORTED_KEYS}


def native_name(schema: FunctionSchema, parts: SchemaParts) -> str:
    """Return the name of a kernel that the file does not name: `add_out` for add.out, `add_` for add_.Tensor."""
    return schema.name.name + ("_out" if parts.outs else "")


def read_dispatch(
    fields: Fields, schema: FunctionSchema, parts: SchemaParts, *, structured: bool, delegates: bool, manual: bool
) -> tuple[BackendKernel, ...]:
    """Return the kernels in `dispatch`, or the composite kernel of a function without `dispatch`."""
    node = fields.get(DISPATCH)
    if node is None:
        if structured or delegates:
            return ()
        _check_factory(fields, schema, parts)
        return (BackendKernel(_IMPLICIT, native_name(schema, parts)),)
    if not isinstance(node, Mapping):
        fields.report(Rule.WRONG_VALUE, node, "dispatch should be a mapping from keys to kernels")
        return ()
    if manual:
        fields.report(
            Rule.MANUAL_DISPATCH,
            node,
            "manual_kernel_registration says that nothing is registered, and dispatch says what",
            "leave one of the two out",
        )
    found: dict[DispatchKey, BackendKernel] = {}
    first_at: dict[DispatchKey, int] = {}
    count = 0
    for keys, value in node.pairs:
        if not isinstance(keys, Scalar):
            fields.report(Rule.WRONG_VALUE, keys, "found a key of dispatch that is not text")
            continue
        kernel = fields.text(value, f"the name of a kernel for {keys.text}")
        if kernel is None:
            continue
        if not _KERNEL.fullmatch(kernel.text):
            fields.report(
                Rule.KERNEL_NAME,
                kernel,
                f"{quoted(kernel.text)} is not the name of a kernel",
                "write a C++ name, in three namespaces at most: custom::add_out",
            )
            continue
        for key in _keys(fields, keys):
            count += 1
            if key in found:
                fields.report(
                    Rule.REPEATED_KEY,
                    keys,
                    f"{key} has a kernel already, {found[key].name} on line {first_at[key]}",
                    "keep one of them",
                )
                continue
            namespace, _, name = kernel.text.rpartition("::")
            inside = f"{namespace}::native" if namespace else NATIVE_NAMESPACE
            found[key] = BackendKernel(key, name, structured and key in STRUCTURED_KEYS, inside)
            first_at[key] = keys.line
    kernels = tuple(found.values())
    _check_composites(fields, schema, parts, kernels, count, delegates=delegates)
    if structured:
        _check_structured(fields, kernels)
    if delegates:
        for one in kernels:
            if one.key in STRUCTURED_KEYS:
                fields.report_field(
                    Rule.DELEGATE_DISPATCH,
                    DISPATCH,
                    f"the kernel of {one.key} comes from the delegate, and dispatch gives {one.name}",
                    "leave it out, or give it to the delegate",
                )
    return kernels


def _keys(fields: Fields, node: Scalar) -> Iterator[DispatchKey]:
    at = 0
    for part in node.text.split(","):
        word = part.strip()
        column = node.column_of(at + len(part) - len(part.lstrip()))
        at += len(part) + 1
        known = _KEYS.get(word)
        if known is not None:
            yield known
            continue
        try:
            key = parse_key(word)
        except UnknownKeyError:
            hint = did_you_mean(word, DispatchKey.__members__).removeprefix("; ")
            fields.report(Rule.UNKNOWN_KEY, node, f"{quoted(word)} is not a dispatch key", hint, column=column)
            continue
        fields.report(
            Rule.UNSUPPORTED_KEY,
            node,
            f"no kernel is generated for {key}",
            f"the keys are {', '.join(map(str, SUPPORTED_KEYS))}",
            column=column,
        )


def _check_composites(
    fields: Fields,
    schema: FunctionSchema,
    parts: SchemaParts,
    kernels: tuple[BackendKernel, ...],
    count: int,
    *,
    delegates: bool,
) -> None:
    name = native_name(schema, parts)
    if count == 1 and len(kernels) == 1 and kernels[0].key is _IMPLICIT:
        only = kernels[0]
        if only.name == name and only.namespace == NATIVE_NAMESPACE:
            fields.report_field(
                Rule.NEEDLESS_DISPATCH,
                DISPATCH,
                f"{only.name} is the composite kernel that the function has without a dispatch",
                "leave dispatch out",
            )
        elif not delegates and not only.takes_symint:
            fields.report_field(
                Rule.LONE_COMPOSITE,
                DISPATCH,
                f"the only kernel is composite and called {only.name}, where {name} is expected",
                f"rename it to {name} and leave dispatch out",
            )
    composites = [kernel.key for kernel in kernels if kernel.key in COMPOSITE_KEYS]
    if len(composites) > 1 and (len(composites) > 2 or _NON_FUNCTIONAL in composites or _NESTED not in composites):
        fields.report_field(
            Rule.TWO_COMPOSITES,
            DISPATCH,
            f"{' and '.join(map(str, composites))} each serve all backends",
            "keep CompositeExplicitAutograd if autograd has a formula, else CompositeImplicitAutograd",
        )


def _check_structured(fields: Fields, kernels: tuple[BackendKernel, ...]) -> None:
    for kernel in kernels:
        if kernel.key in (DispatchKey.Meta, _NON_FUNCTIONAL):
            fields.report_field(
                Rule.STRUCTURED_META,
                DISPATCH,
                f"the kernel of {kernel.key} is generated from meta, and dispatch gives {kernel.name}",
                "leave it out",
            )
        elif kernel.key in (_IMPLICIT, _NESTED):
            fields.report_field(
                Rule.STRUCTURED_COMPOSITE,
                DISPATCH,
                f"a structured function has meta and impl, and dispatch gives the composite kernel {kernel.name}",
                "leave it out, or take `structured` off",
            )


def _check_factory(fields: Fields, schema: FunctionSchema, parts: SchemaParts) -> None:
    name = schema.name.name
    makes = parts.options and not any(is_tensor_like(one.type) for one in parts.inputs)
    if name.startswith("new_") or name.endswith("_like") or makes:
        fields.report_field(
            Rule.FACTORY_WITHOUT_DISPATCH,
            FUNC,
            f"{name} makes a tensor and has no dispatch, so it would be decomposed into other operators",
            "add `dispatch:` with CompositeExplicitAutograd",
        )


_WITH_TYPES = re.compile(r"(\S+) \((.+)\)")
_CLASSES: dict[str, tuple[str, ...]] = {
    "Integral": ("Byte", "Char", "Int", "Long", "Short"),
    "Floating": ("Float", "Double"),
    "Complex": ("ComplexFloat", "ComplexDouble"),
}
_CLASSES["All"] = (*_CLASSES["Integral"], *_CLASSES["Floating"])
_CLASSES["AllAndComplex"] = (*_CLASSES["All"], *_CLASSES["Complex"])
_CLASSES["FloatingAndComplex"] = (*_CLASSES["Floating"], *_CLASSES["Complex"])


def read_ufunc(fields: Fields, *, structured: bool) -> tuple[UfuncLoop, ...]:
    """Return the inner loops of a pointwise kernel, in the order of the file."""
    node = fields.get(UFUNC_INNER_LOOP)
    if node is None:
        return ()
    if not structured:
        fields.report(
            Rule.UFUNC_UNSTRUCTURED, node, "ufunc_inner_loop makes structured kernels", "add `structured: True`"
        )
    if isinstance(node, Scalar):
        loops = [_loop(fields, node, UfuncKey.GENERIC)]
    elif isinstance(node, Mapping):
        loops = []
        for key, value in node.pairs:
            text = key.text if isinstance(key, Scalar) else ""
            if text not in _UFUNC_KEYS:
                hint = did_you_mean(text, _UFUNC_KEYS) or f"; they are {', '.join(_UFUNC_KEYS)}"
                fields.report(Rule.UNKNOWN_WORD, key, f"{quoted(text)} is not a kind of inner loop", hint[2:])
            elif (found := fields.text(value, f"a function and its element types for {text}")) is not None:
                loops.append(_loop(fields, found, UfuncKey(text)))
    else:
        fields.report(Rule.WRONG_VALUE, node, "ufunc_inner_loop should be one inner loop or a mapping of them")
        return ()
    return tuple(loop for loop in loops if loop is not None)


_UFUNC_KEYS = tuple(map(str, UfuncKey))


def _loop(fields: Fields, node: Scalar, key: UfuncKey) -> UfuncLoop | None:
    match = _WITH_TYPES.fullmatch(node.text)
    if match is None:
        fields.report(
            Rule.UFUNC_FORM,
            node,
            f"{quoted(node.text)} is not an inner loop",
            "write the function and its element types: add (AllAndComplex, Half)",
        )
        return None
    kinds: dict[ScalarKind, None] = {}
    at = match.start(2)
    for word in match[2].split(", "):
        for name in _CLASSES.get(word, (word,)):
            if name in ScalarKind.__members__:
                kinds[ScalarKind[name]] = None
            else:
                hint = did_you_mean(word, (*_CLASSES, *ScalarKind.__members__)).removeprefix("; ")
                message = f"{quoted(word)} is not an element type"
                fields.report(Rule.UFUNC_ELEMENT_TYPE, node, message, hint, column=node.column_of(at))
        at += len(word) + 2
    return UfuncLoop(key, match[1], tuple(kinds))


def with_ufunc_kernels(
    fields: Fields, schema: FunctionSchema, kernels: tuple[BackendKernel, ...]
) -> tuple[BackendKernel, ...]:
    """Return the kernels and those that `ufunc_inner_loop` makes for CPU and CUDA."""
    for kernel in kernels:
        if kernel.key in UFUNC_KEYS:
            fields.report_field(
                Rule.UFUNC_DISPATCH,
                DISPATCH,
                f"the kernel of {kernel.key} is made from ufunc_inner_loop, and dispatch gives {kernel.name}",
                "leave one of the two out",
            )
    made = (BackendKernel(key, f"ufunc_{schema.name.name}_{key}", structured=True) for key in UFUNC_KEYS)
    return (*kernels, *made)


_VALUE = re.compile(r"(\S+) ([^\W\d]\w*)", re.ASCII)
_FORM = "write `argument -> type name, type name`, and on the last line alone `type name`"


def read_precomputed(fields: Fields, parts: SchemaParts, *, structured: bool) -> Precompute | None:
    """Return the field `precomputed`; None when it is not there."""
    node = fields.get(PRECOMPUTED)
    if node is None:
        return None
    if not structured:
        fields.report(
            Rule.PRECOMPUTED_UNSTRUCTURED,
            node,
            "precomputed hands values from meta to impl, which only structured functions have",
            "add `structured: True`",
        )
    if not isinstance(node, Listing) or not node.items:
        fields.report(Rule.WRONG_VALUE, node, "precomputed should be a list of replacements", _FORM)
        return None
    known = {argument.name for argument in parts.inputs}
    replace: dict[str, tuple[Precomputed, ...]] = {}
    add: tuple[Precomputed, ...] = ()
    for at, item in enumerate(node.items):
        line = fields.text(item, "a replacement")
        if line is None:
            continue
        argument, arrow, values = line.text.rpartition(" -> ")
        if not arrow and at < len(node.items) - 1:
            fields.report(
                Rule.PRECOMPUTED_FORM, line, f"{quoted(line.text)} replaces nothing and is not the last line", _FORM
            )
        elif not arrow:
            add = _values(fields, line, values)
        elif argument not in known:
            hint = did_you_mean(argument, known).removeprefix("; ")
            fields.report(
                Rule.PRECOMPUTED_ARGUMENT, line, f"{quoted(argument)} is not an argument of the function", hint or _FORM
            )
        elif argument in replace:
            fields.report(Rule.PRECOMPUTED_ARGUMENT, line, f"{argument} was replaced before", "keep one of the lines")
        else:
            replace[argument] = _values(fields, line, values)
    return Precompute(tuple(replace.items()), add)


def _values(fields: Fields, line: Scalar, text: str) -> tuple[Precomputed, ...]:
    found = []
    for part in text.split(","):
        match = _VALUE.fullmatch(part.strip())
        value = None if match is None else _value(match[1], match[2])
        if value is None:
            fields.report(Rule.PRECOMPUTED_FORM, line, f"{quoted(part.strip())} is not a type and a name", _FORM)
        elif value.name == value.name.upper():
            fields.report(
                Rule.PRECOMPUTED_UPPERCASE,
                line,
                f"{value.name} is written in capitals, as the names that generated code gives to types are",
                "use a small letter somewhere",
            )
        else:
            found.append(value)
    return tuple(found)


def _value(type_: str, name: str) -> Precomputed | None:
    # NB: a DimVector is what C++ keeps an int[] in; no schema has it
    if type_ == "DimVector":
        return Precomputed(SimpleType(type_), name)
    try:
        return Precomputed(parse_inferred(f"({type_} {name}) -> ()").arguments[0].type, name)
    except ParseError:
        return None
