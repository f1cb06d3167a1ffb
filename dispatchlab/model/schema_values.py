"""How the default of an argument is kept, and how upstream prints it.

Source: aten/src/ATen/core/ivalue.cpp, aten/src/ATen/core/function_schema.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.model.schema_types import INT, ListType, OptionalType, SimpleType, Type

Constant = bool | int | float | complex | str | None
DefaultValue = Constant | tuple[Constant, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Default:
    """The default of an argument: a constant, or a tuple of constants for a list.

    Defaults of different types differ, though Python holds that `1 == True == 1.0`. A device is kept as its text.
    """

    value: DefaultValue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Default) and _typed(self.value) == _typed(other.value)

    def __hash__(self) -> int:
        return hash(_typed(self.value))


def default_text(default: Default, type_: Type) -> str:
    """What stands after the `=` of an argument of this type."""
    value = default.value
    match value, type_:
        case str(), SimpleType("str") | OptionalType(SimpleType("str")):
            return quoted(value)
        case tuple(), ListType(element) if element == INT and len(value) > 1 and len(set(value)) == 1:
            return str(value[0])  # NB: does not read back for a list without a size
        case tuple(), _:
            return f"[{', '.join(map(_constant_text, value))}]"
        case _:
            return _constant_text(value)


def quoted(text: str) -> str:
    """The text in double quotes, with upstream's escapes."""
    return f'"{"".join(_ESCAPED[byte] for byte in text.encode("utf-8", "surrogateescape"))}"'


def float_text(number: float) -> str:
    """`1.` for 1.0, and 17 digits for what no integer of 64 bits equals."""
    if -(2.0**63) <= number < 2.0**63 and number == int(number):
        return f"{int(number)}."
    return f"{number:.17g}"


def _constant_text(value: Constant) -> str:
    match value:
        case float():
            return float_text(value)
        case complex():
            return f"{float_text(value.real)}{'+' if value.imag >= 0 else '-'}{float_text(abs(value.imag))}j"
        case _:
            return str(value)


def _typed(value: DefaultValue) -> tuple[object, ...]:
    return tuple((type(v), v) for v in value) if isinstance(value, tuple) else (type(value), value, None)


def _octal(byte: int) -> str:
    # NB: upstream counts in signed bytes, so that one above 127 prints characters that are no digits
    rest, digits = byte - 256 if byte > 127 else byte, ""
    for _ in range(3):
        quotient = -(-rest // 8) if rest < 0 else rest // 8
        digits = chr(ord("0") + rest - 8 * quotient) + digits
        rest = quotient
    return "\\" + digits


_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\a": "\\a", "\b": "\\b", "\f": "\\f"}
_ESCAPES |= {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPED = [_ESCAPES.get(chr(byte)) or (chr(byte) if 32 <= byte < 127 else _octal(byte)) for byte in range(256)]
