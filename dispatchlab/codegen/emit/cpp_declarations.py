"""The C++ declarations of native functions: Functions.h, NativeFunctions.h, NativeMetaFunctions.h, Operators.h, and the
schemas of RegisterSchema.cpp, as PyTorch's build generates them, for reading and for tests.

Source: torchgen/api/cpp.py, native.py, structured.py, translate.py, torchgen/dest/native_functions.py, torchgen/gen.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dispatchlab.codegen.emit.generated_group import impl_arguments
from dispatchlab.codegen.read.groups import FunctionGroup, members_of
from dispatchlab.codegen.read.native_function import BackendKernel, NativeFunction, Precomputed, Variant
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import INT, OPTIONAL_TENSORS, SYM_INT, Argument, ListType, OptionalType, Type, source_text
from dispatchlab.model.schema import SimpleType as Simple

# Note [Four conventions]
# ~~~~~~~~~~~~~~~~~~~~~~~
# One schema has four forms in C++. The public API (`at::add`) packs dtype, layout, device and pin_memory into
# TensorOptions, puts out= arguments first and has defaults; its faithful form (`at::add_outf`) has neither, and a
# function that takes SymInt exists twice. The dispatcher (`at::_ops::add_Tensor::call`) has every argument by itself
# and no defaults. A kernel (`at::native::add`) is declared as the dispatcher calls it, with defaults. A structured
# kernel takes views of what the others hold: OptionalTensorRef, ITensorListRef.


class Binding(NamedTuple):
    """A parameter: `const at::Scalar & alpha=1`."""

    type: str
    name: str
    default: str | None = None

    def __str__(self) -> str:
        return f"{self.type} {self.name}{'' if self.default is None else f'={self.default}'}"


_NAMES = {"int": "int64_t", "float": "double", "bool": "bool", "str": "c10::string_view", "SymInt": "c10::SymInt"}
_NAMES |= {"SymBool": "c10::SymBool"}


def _value(type_: Type, *, symint: bool) -> str | None:
    """Return the type of a value that is always passed by value; None for tensors, scalars and most lists."""
    match type_:
        case Simple("Tensor" | "Scalar"):
            return None
        case Simple("SymInt") if not symint:
            return "int64_t"
        case Simple(name):
            return _NAMES.get(name, f"at::{name}")
        case OptionalType(element):
            inner = _value(element, symint=symint)
            return None if inner is None else f"::std::optional<{inner}>"
        case ListType(Simple("bool"), int(size)):
            return f"::std::array<bool,{size}>"
        case _:
            return None


class _Style(NamedTuple):
    """The options of a function that decide its types, besides the schema."""

    symint: bool
    const_refs: bool = False
    list_refs: bool = False
    native: bool = False

    def argument(self, type_: Type, *, written: bool) -> str:
        value = _value(type_, symint=self.symint)
        if value is not None:
            return value
        written = written and not self.const_refs
        match type_:
            case Simple("Tensor"):
                return "at::Tensor &" if written else "const at::Tensor &"
            case OptionalType(Simple("Tensor")) if written:
                return "::std::optional<at::Tensor> &" if self.native else "at::Tensor &"
            case OptionalType(Simple("Tensor" | "Scalar" as name)):
                return f"const ::std::optional<at::{name}> &"
            case OptionalType(ListType(Simple("SymInt"))) if self.symint:
                return "at::OptionalSymIntArrayRef"
            case OptionalType(ListType(element)) if element in (INT, SYM_INT):
                return "at::OptionalIntArrayRef"
            case ListType(Simple("SymInt")) if self.symint:
                return "c10::SymIntArrayRef"
            case ListType(element) if element in (INT, SYM_INT):
                return "at::IntArrayRef"
            case ListType(Simple("Tensor")):
                return "const at::ITensorListRef &" if self.list_refs else "at::TensorList"
            case ListType(Simple("Scalar")):
                return "at::ArrayRef<at::Scalar>"
            case ListType() if type_ == OPTIONAL_TENSORS:
                return "const c10::List<::std::optional<at::Tensor>> &"
            case OptionalType(element):
                return f"::std::optional<{self.argument(element, written=written)}>"
            case ListType(element):
                return f"at::ArrayRef<{self.argument(element, written=written)}>"
            case _:
                return f"const at::{type_} &"

    def result(self, type_: Type, *, written: bool) -> str:
        value = _value(type_, symint=True)  # results keep their SymInt
        match type_:
            case Simple("Tensor") if written:
                return "const at::Tensor &" if self.const_refs else "at::Tensor &"
            case ListType(element) if value is None:
                return f"::std::vector<{self.result(element, written=False)}>"
            case OptionalType(element) if value is None:
                return f"::std::optional<{self.result(element, written=written)}>"
            case _:
                return value or f"at::{type_}"

    def results(self, returns: Sequence[Argument]) -> str:
        types = [self.result(one.type, written=one.is_written) for one in returns]
        return "void" if not types else types[0] if len(types) == 1 else f"::std::tuple<{','.join(types)}>"


def _structured_type(type_: Type) -> str:
    value = _value(type_, symint=False)
    if value is not None:
        return value
    match type_:
        case OptionalType(Simple("Tensor" | "Scalar" as name)):
            return f"at::Optional{name}Ref"
        case OptionalType(ListType(Simple("int"))):
            return "at::OptionalIntArrayRef"
        case ListType(Simple("Tensor")):
            return "const at::ITensorListRef &"
        case ListType() if type_ == OPTIONAL_TENSORS:
            return "at::IOptTensorListRef"
        case ListType(Simple("int")):
            return "at::IntArrayRef"
        case OptionalType(element):
            return f"::std::optional<{_structured_type(element)}>"
        case ListType(element):
            return f"at::ArrayRef<{_structured_type(element)}>"
        case _:
            return f"const at::{type_} &"


# -- what the file says, to the character

_DEFAULTS = {"False": "false", "True": "true", "None": "::std::nullopt", "Mean": "at::Reduction::Mean", "[]": "{}"}
_DEFAULTS |= {"contiguous_format": "c10::MemoryFormat::Contiguous", "long": "at::kLong"}


def _default(text: str, type_: Type, *, symint: bool) -> str:
    """Return a default of the file as C++."""
    match type_:
        case OptionalType(Simple("Tensor")) if text == "None":
            return "{}"
        case OptionalType(element):
            return _DEFAULTS["None"] if text == "None" else _default(text, element, symint=symint)
        case Simple("str") if text[:1] == text[-1:] == "'":
            inner = re.sub(r"\\.|\"", lambda found: {'"': r"\"", r"\'": "'"}.get(found[0], found[0]), text[1:-1])
            return f'"{inner}"'
        case ListType() if text.startswith("["):
            return f"{{{text[1:-1]}}}"
        case ListType(Simple("SymInt")) if symint and text.isdigit():
            return f"c10::SymInt({text})"
        case _:
            return _DEFAULTS.get(text, text)


class CppFunction:
    """A function with its arguments as in the file: defaults are texts; DeviceIndex, elsewhere an int, is kept."""

    def __init__(self, function: NativeFunction) -> None:
        self.function, self.schema = function, function.own_schema
        self.written: dict[str, tuple[str, str | None]] = {}
        text = re.sub(r"\s*=\s*", "=", function.text)
        for one in re.split(r",\s*(?![^\[]*\])", text[text.find("(") + 1 : text.rfind("->")].rstrip(" )")):
            type_, _, named = one.rpartition(" ")
            name, equals, default = named.partition("=")
            self.written[name] = (type_, default if equals else None)

    def default(self, argument: Argument) -> str | None:
        """Return the text of the default, if the argument has one."""
        if argument.default is None:
            return None
        return self.written.get(argument.name, ("", None))[1] or str(argument.default.value)

    def type(self, argument: Argument) -> Type:
        """Return the type of an argument."""
        return Simple("DeviceIndex") if self.written.get(argument.name, ("",))[0] == "DeviceIndex" else argument.type

    def __str__(self) -> str:
        """Return the schema in the form of the file."""
        if not self.function.is_generated:
            return " ".join(self.function.text.split()).removeprefix(f"{self.function.name.namespace}::")
        # The default is printed as a part of the name, since that leaves it as it is written.
        arguments = (
            replace(one, name=f"{one.name}={self.default(one)}", default=None, type=self.type(one))
            if one.default is not None
            else replace(one, type=self.type(one))
            for one in self.schema.arguments
        )
        return source_text(replace(self.schema, arguments=tuple(arguments)))

    def style(self, *, symint: bool, native: bool = False) -> _Style:
        """Return the style of its types."""
        function = self.function
        return _Style(symint, function.use_const_ref_for_mutable_tensors, function.in_structured_group, native)

    def bind(self, argument: Argument, style: _Style, *, default: bool) -> Binding:
        """Return a parameter."""
        text = self.default(argument) if default else None
        type_ = self.type(argument)
        cpp = style.argument(type_, written=argument.is_written)
        return Binding(cpp, argument.name, None if text is None else _default(text, type_, symint=style.symint))

    def dispatcher_arguments(self) -> list[Binding]:
        """Return the parameters of at::_ops::name::call."""
        style, parts = self.style(symint=True), self.function.parts
        return [self.bind(one, style, default=False) for one in (*parts.inputs, *parts.outs)]


# -- Functions.h


class _Signature(NamedTuple):
    """A function of the public API."""

    of: CppFunction
    faithful: bool
    symint: bool

    def name(self, *, symint_suffix: bool = True) -> str:
        function = self.of.function
        suffix = "_symint" if self.symint and symint_suffix else ""
        out = "" if not function.parts.outs else "_outf" if self.faithful else "_out"
        return f"{'__dispatch_' if function.manual_cpp_binding else ''}{function.name.name}{suffix}{out}"

    def arguments(self) -> list[Binding]:
        function, style = self.of.function, self.of.style(symint=self.symint)
        parts, kept = function.parts, function.cpp_no_default_args
        if self.faithful:
            return [self.of.bind(one, style, default=False) for one in (*parts.inputs, *parts.outs)]
        found = [self.of.bind(one, style, default=False) for one in parts.outs]
        for one in parts.inputs:
            if one not in parts.options:
                found.append(self.of.bind(one, style, default=one.name not in kept))
            elif one is parts.options[0]:
                texts = [self.of.default(each) for each in parts.options]
                default = "{}" if {*texts} == {"None"} else "at::kLong" if texts[0] == "long" else None
                found.append(Binding("at::TensorOptions", "options", default))
        return found

    def declaration(self, *, symint_suffix: bool = True) -> str:
        result = self.of.style(symint=self.symint).results(self.of.schema.returns)
        return f"{result} {self.name(symint_suffix=symint_suffix)}({joined(self.arguments())})"

    def passed_on(self) -> str:
        """Return the arguments for at::_ops, made of the arguments of the function."""
        options = {one.name for one in self.of.function.parts.options} if not self.faithful else set()
        given = {one.name: one.type for one in self.arguments()}
        return ", ".join(_passed(one, given, options) for one in self.of.dispatcher_arguments())


_OF_OPTIONS = {
    "dtype": "c10::optTypeMetaToScalarType(options.dtype_opt())",
    "layout": "options.layout_opt()",
    "device": "options.device_opt()",
    "pin_memory": "options.pinned_memory_opt()",
}
_MEMORY_FORMAT = "::std::optional<at::MemoryFormat>"


def _passed(wanted: Binding, given: Mapping[str, str], options: Collection[str]) -> str:
    name = wanted.name
    if name in options:
        return _OF_OPTIONS[name]
    if options and name == "memory_format" and wanted.type == _MEMORY_FORMAT:
        return "c10::impl::check_tensor_options_and_extract_memory_format(options, memory_format)"
    if given[name] == wanted.type:
        return name
    match wanted.type:
        case "c10::SymIntArrayRef":
            return f"c10::fromIntArrayRefSlow({name})"
        case "::std::optional<c10::SymInt>":
            return f"{name}.has_value() ? ::std::make_optional(c10::SymInt(*{name})) : ::std::nullopt"
        case "at::OptionalSymIntArrayRef":
            return f"{name}.has_value() ? ::std::make_optional(c10::fromIntArrayRefSlow(*{name})) : ::std::nullopt"
        case _:
            return name


def function_declarations(function: NativeFunction) -> str:
    """Return the declarations of a function in Functions.h: each form of it, inline, which calls at::_ops."""
    of = CppFunction(function)
    forms = (False, True) if function.parts.options or function.parts.outs else (False,)
    lines = []
    for symint in (False, True) if function.has_symint else (False,):
        for faithful in forms:
            signature = _Signature(of, faithful, symint)
            body = f"{{\n    return at::_ops::{function.flat_name}::call({signature.passed_on()});\n}}"
            if Variant.FUNCTION in function.variants:
                lines.append(f"// {function.name.namespace}::{of}\ninline {signature.declaration()} {body}\n")
            if function.has_symint:
                number = "c10::SymInt" if symint else "int64_t"
                lines.append(
                    "namespace symint {\n"
                    f"  template <typename T, typename = std::enable_if_t<std::is_same_v<T, {number}>>>\n"
                    f"  {signature.declaration(symint_suffix=False)} {body}\n}}\n"
                )
    return "".join(lines)


# -- Operators.h, RegisterSchema.cpp


def operator_declaration(function: NativeFunction) -> str:
    """Return the declaration of a function in Operators.h: the class in at::_ops."""
    of = CppFunction(function)
    result, arguments = of.style(symint=True).results(of.schema.returns), of.dispatcher_arguments()
    return f"""\
struct TORCH_API {function.flat_name} {{
  using schema = {result} ({", ".join(one.type for one in arguments)});
  using ptr_schema = schema*;
  static constexpr const char* name = "{function.name.namespace}::{function.name.name}";
  static constexpr const char* overload_name = "{function.name.overload}";
  static constexpr const char* schema_str = {_cpp_string(str(of))};
  static {result} call({joined(arguments)});
  static {result} redispatch({joined(["c10::DispatchKeySet dispatchKeySet", *arguments])});
}};
"""


def schema_registrations(functions: Iterable[NativeFunction]) -> Iterator[str]:
    """Return a `m.def` for each function; lists of tags that several have are declared by the first."""
    known: dict[str, int] = {}
    for function in functions:
        tags = ", ".join(f"at::Tag::{tag}" for tag in sorted(function.tags))
        declared = ""
        if tags and tags not in known:
            declared = f"const std::vector<at::Tag> tags_{len(known)} = {{{tags}}};\n"
        named = f"tags_{known.setdefault(tags, len(known))}" if tags else "{}"
        yield f"{declared}m.def({_cpp_string(str(CppFunction(function)))}, {named});\n"


def _cpp_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def joined(parameters: Iterable[object]) -> str:
    """Return parameters or arguments with commas between them."""
    return ", ".join(map(str, parameters))


# -- NativeFunctions.h, NativeMetaFunctions.h


def kernel_declarations(group: FunctionGroup | NativeFunction, key: DispatchKey) -> list[str]:
    """Return the declarations in NativeFunctions.h for the kernels of a group or a function at a key."""
    if isinstance(group, NativeFunction):
        kernel = group.kernel_at(key)
        return [] if kernel is None else [_kernel_declaration(group, kernel)]
    kernel = group.out.kernel_at(key)
    if kernel is None or not kernel.structured:
        functions = [(one, one.kernel_at(key)) for one in group.functions]
        return [_kernel_declaration(one, found) for one, found in functions if found is not None]
    visible = "TORCH_XPU_API" if key is DispatchKey.XPU else "TORCH_API"
    base = f"at::meta::structured_{group.functional.flat_name}"
    arguments = joined(Binding(_structured_type(one.type), one.name) for one in impl_arguments(group.out))
    return [f"struct {visible} structured_{kernel.name} : public {base} {{\nvoid impl({arguments});\n}};\n"]


def _kernel_declaration(function: NativeFunction, kernel: BackendKernel) -> str:
    of, parts = CppFunction(function), function.parts
    style = of.style(symint=kernel.takes_symint, native=True)
    default = not parts.outs
    arguments = [
        Binding(f"::std::optional<{_OPTION_TYPES.get(one.name)}>", one.name, "{}" if default else None)
        if one in parts.options
        else of.bind(one, style, default=default)
        for one in (*parts.inputs, *parts.outs)
    ]
    return f"TORCH_API {style.results(of.schema.returns)} {kernel.name}({joined(arguments)});"


_OPTION_TYPES = {"dtype": "at::ScalarType", "layout": "at::Layout", "device": "at::Device", "pin_memory": "bool"}


def meta_declaration(group: FunctionGroup) -> str:
    """Return the declaration of a structured group in NativeMetaFunctions.h: the class of its meta function."""
    out, inputs = group.out, group.functional.parts.inputs
    arguments = joined(Binding(_structured_type(one.type), one.name) for one in inputs)
    values = out.precomputed.values if out.precomputed else ()
    inside = f"    {_precompute_struct(values)}\n" if values else ""
    result = "meta_return_ty" if values else "void"
    base = out.structured_inherits or "at::impl::MetaBase"
    return (
        f"struct TORCH_API structured_{group.functional.flat_name} : public {base} {{\n"
        f"{inside}    {result} meta({arguments});\n}};\n"
    )


def _precompute_struct(values: Sequence[Precomputed]) -> str:
    """Return the class of the values that meta hands to impl; its template parameters allow to set each value once."""
    names = [one.name.upper() for one in values]
    types = [re.sub(r"^const | &$", "", _structured_type(one.type)) for one in values]
    setters = ""
    for at, (one, type_) in enumerate(zip(values, types, strict=True)):
        returned = f"precompute_out<{', '.join([*names[:at], 'true', *names[at + 1 :]])}>"
        kept = "".join(f"ret.{each.name} = {'value' if each is one else f'this->{each.name}'};\n" for each in values)
        setters += (
            f"{returned} set_{one.name}({type_} value) {{\n"
            f'static_assert({names[at]} == false, "{one.name} already set");\n'
            f"{returned} ret;\n{kept}return ret;\n}}\n"
        )
    members = ";\n".join(f"{type_} {one.name}" for one, type_ in zip(values, types, strict=True))
    return (
        f"template <{', '.join(f'bool {name} = false' for name in names)}>\n"
        f"struct TORCH_API precompute_out {{\n{setters}{members};\n}};\n"
        f"using meta_return_ty = precompute_out <{', '.join('true' for _ in names)}>;"
    )


# -- the files


def cpp_files(natives: NativeFunctions, *, file: str, only: Collection[OperatorName]) -> dict[str, str]:
    """Return the five files, without the includes of their templates.

    Args:
        natives: the functions.
        file: the name of the source file, for the first line.
        only: the functions that are declared, with the kernels of their groups.
    """
    functions = [one for one in natives.functions if one.name in only]
    groups = [each for each in natives.groups if any(one.name in only for one in members_of(each))]
    structured = [each for each in groups if isinstance(each, FunctionGroup) and each.structured]
    kernels: dict[str, dict[str, None]] = {}
    for group in groups:
        for key in natives.backends:
            named = next((found for one in members_of(group) if (found := one.kernel_at(key))), None)
            if named is not None:
                kernels.setdefault(named.namespace, {}).update(dict.fromkeys(kernel_declarations(group, key)))
    schemas: dict[str, list[NativeFunction]] = {}
    for one in functions:
        schemas.setdefault(one.name.namespace, []).append(one)
    parts = {
        "Functions.h": within_namespace("at", "\n".join(map(function_declarations, functions))),
        "NativeFunctions.h": "".join(within_namespace(name, "\n".join(found)) for name, found in kernels.items()),
        "NativeMetaFunctions.h": within_namespace("at::meta", "\n".join(map(meta_declaration, structured))),
        "Operators.h": within_namespace("at::_ops", "\n".join(map(operator_declaration, functions))),
        "RegisterSchema.cpp": "".join(
            f"TORCH_LIBRARY({name}, m) {{\n{''.join(schema_registrations(found))}}}\n"
            for name, found in schemas.items()
        ),
    }
    mark = f"// Generated by `dispatchlab codegen --cpp` from {file}; change that file and generate this one again."
    return {name: f"{mark}\n{text}" for name, text in parts.items()}


def within_namespace(namespace: str, text: str) -> str:
    """Return the text in a C++ namespace, which may be nested: `torch::lazy`."""
    names = namespace.split("::")
    opened = "\n".join(f"namespace {name} {{" for name in names)
    closed = "\n".join(f"}} // namespace {name}" for name in reversed(names))
    return f"{opened}\n\n{text}\n{closed}\n"
