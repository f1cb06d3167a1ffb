"""The C++ signature of a schema: the hidden signature of an unboxed kernel, as PyTorch prints it.

The types are those that PyTorch's own kernels have (torchgen/api/cpp.py), spelled as the C++ runtime demangles them on
Linux. A kernel may well take other types that infer to the same schema, by value instead of by reference for one;
then its registration says so.
"""

from __future__ import annotations

from dispatchlab.model.schema import (
    Argument,
    ClassType,
    DictType,
    FunctionSchema,
    ListType,
    OptionalType,
    SimpleType,
    TupleType,
    Type,
    TypeVariable,
    UnionType,
    WrapperType,
    is_symint_type,
)


def cpp_signature(schema: FunctionSchema) -> str:
    """Return the C++ type of an unboxed kernel with this schema: `at::Tensor (at::Tensor const&)`."""
    returns = [_return(argument) for argument in schema.returns]
    result = "void" if not returns else returns[0] if len(returns) == 1 else _template("std::tuple", *returns)
    return f"{result} ({', '.join(_argument(argument) for argument in schema.arguments)})"


def is_symint_schema(schema: FunctionSchema) -> bool:
    """Whether a kernel with this schema is a SymInt kernel: an argument is SymInt, SymInt?, SymInt[] or SymInt[]?.

    NB: returns do not count. `sym_size.int(Tensor self, int dim) -> SymInt` has plain kernels.
    Source: `fn_has_symint` in aten/src/ATen/core/boxing/KernelFunction.h.
    """
    return any(is_symint_type(argument.type) for argument in schema.arguments)


_STRING = "std::basic_string_view<char, std::char_traits<char> >"
_VALUES = {"int": "long", "float": "double", "bool": "bool", "complex": "c10::complex<double>"}
_AT = frozenset(("Tensor", "Generator"))
_BY_REFERENCE = frozenset(("Tensor", "Scalar", "Quantizer"))
_OPTIONAL_BY_REFERENCE = frozenset(("Tensor", "Scalar"))
_IVALUES = frozenset(("Any", "NoneType", "AnyClassType", "AnyEnumType", "Capsule"))


def _argument(argument: Argument) -> str:
    writes = argument.is_written
    match argument.type:
        case SimpleType("Tensor") if writes:
            return "at::Tensor&"
        case SimpleType("str"):
            return _STRING
        case SimpleType(name) as type_:
            return f"{_value(type_)} const&" if name in _BY_REFERENCE else _value(type_)
        case OptionalType(SimpleType("str")):
            return _template("std::optional", _STRING)
        case OptionalType(SimpleType(name)) as type_ if name in _OPTIONAL_BY_REFERENCE:
            return f"{_value(type_)} const&"
        case OptionalType(ListType(SimpleType("int" | "SymInt" as name))):
            return _template("c10::OptionalArrayRef", _value(SimpleType(name)))
        case OptionalType(ListType() as type_):
            return _template("std::optional", _list(type_).removesuffix(" const&"))
        case ListType() as type_:
            return _list(type_)
        case type_:
            return _value(type_)


def _list(type_: ListType) -> str:
    match type_:
        case ListType(SimpleType("bool"), int(size)):
            return _template("std::array", "bool", f"{size}ul")
        case ListType(OptionalType(SimpleType("Tensor")) as element):
            return f"{_template('c10::List', _value(element))} const&"
        case ListType(SimpleType() as element):
            return _template("c10::ArrayRef", _STRING if element.name == "str" else _value(element))
        case ListType(element):
            return _template("c10::List", _value(element))


def _return(argument: Argument) -> str:
    writes = argument.is_written
    match argument.type:
        case SimpleType("Tensor") if writes:
            return "at::Tensor&"
        case ListType(element):
            value = _value(element)
            return _template("std::vector", value, _template("std::allocator", value))
        case type_:
            return _value(type_)


def _value(type_: Type) -> str:
    match type_:
        case SimpleType("str"):
            return "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
        case SimpleType("Quantizer"):
            null = "c10::detail::intrusive_target_default_null_type<at::Quantizer>"
            return _template("c10::intrusive_ptr", "at::Quantizer", null)
        case SimpleType(name) if name in _IVALUES:
            return "c10::IValue"
        case SimpleType(name):
            return _VALUES.get(name) or f"{'at' if name in _AT else 'c10'}::{name}"
        case TypeVariable() | UnionType():
            return "c10::IValue"
        case ClassType(name):
            cpp = name.replace(".", "::")
            return _template("c10::intrusive_ptr", cpp, f"c10::detail::intrusive_target_default_null_type<{cpp}>")
        case OptionalType(element):
            return _template("std::optional", _value(element))
        case ListType(element):
            return _template("c10::List", _value(element))
        case DictType(key, value):
            return _template("c10::Dict", _value(key), _value(value))
        case TupleType(elements):
            return _template("std::tuple", *map(_value, elements))
        case WrapperType(wrapper):
            return _template("c10::intrusive_ptr", f"c10::ivalue::{wrapper}")


def _template(name: str, *arguments: str) -> str:
    inner = ", ".join(arguments)
    return f"{name}<{inner}{' ' if inner.endswith('>') else ''}>"
