"""Read the default of an argument.

Source: `parseDefaultValue` in torch/csrc/jit/frontend/function_schema_parser.cpp, c10/core/Device.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dispatchlab.errors import nearest
from dispatchlab.model.schema_tokens import described, is_name, is_number, is_string
from dispatchlab.model.schema_type_parser import TokenReader
from dispatchlab.model.schema_types import ListType, OptionalType, SimpleType, Type, fake_of, kind_of
from dispatchlab.model.schema_values import Constant, Default

# Note [Numbers as upstream reads them]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A number is lexed whole and then given to `stod` or `stoll`, which stop at the first character that they cannot use:
# `int x=0x10` is 0, `Scalar x=1E3` is 1 (only a small `e` makes a float), `int[1.5]` has size 1. For a complex argument
# the last character is dropped, for it should be a `j`: `complex x=12` is 1j. We follow, for a schema that means one
# thing here and another in PyTorch would be worse. Numbers that do not fit are refused, subnormal ones among them.

NAMED_CONSTANTS = {"float": 6, "complex": 9, "long": 4, "strided": 0, "Mean": 1, "contiguous_format": 0}
DTYPES = {
    **{"uint8": 0, "int8": 1, "short": 2, "int16": 2, "int": 3, "int32": 3, "long": 4, "int64": 4, "half": 5},
    **{"float16": 5, "float": 6, "float32": 6, "double": 7, "float64": 7, "chalf": 8, "complex32": 8, "complex": 9},
    **{"cfloat": 9, "complex64": 9, "cdouble": 10, "complex128": 10, "bool": 11, "qint8": 12, "quint8": 13},
    **{"qint32": 14, "bfloat16": 15, "quint4x2": 16, "quint2x4": 17, "bits1x8": 18, "bits2x4": 19, "bits4x2": 20},
    **{"bits8": 21, "bits16": 22, "float8_e5m2": 23, "float8_e4m3fn": 24, "float8_e5m2fnuz": 25},
    **{"float8_e4m3fnuz": 26, "uint16": 27, "uint32": 28, "uint64": 29, "bit": 30, "uint1": 30, "uint2": 31},
    **{"uint3": 32, "uint4": 33, "uint5": 34, "uint6": 35, "uint7": 36, "int1": 37, "int2": 38, "int3": 39},
    **{"int4": 40, "int5": 41, "int6": 42, "int7": 43, "float8_e8m0fnu": 44, "float4_e2m1fn_x2": 45},
}
LARGEST_REPEAT = 2**16
_DEVICES = (
    *("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy"),
    *("vulkan", "mps", "meta", "hpu", "mtia", "privateuseone"),
)

_NONE_ONLY = frozenset(("Tensor", "Generator", "Quantizer"))
_CONSTANTS = frozenset(("str", "Optional", "Scalar", "int", "bool", "float", "complex"))
_SCALAR_TYPES = (SimpleType("ScalarType"), OptionalType(SimpleType("ScalarType")))
_SCALAR_TYPE_NAMES = NAMED_CONSTANTS | DTYPES
_ELEMENTS: dict[str, type] = {"int": int, "float": float, "bool": bool, "complex": complex}
_WORDS: dict[str, Constant] = {"True": True, "False": False, "None": None}
_FLOAT = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX_FLOAT = re.compile(r"-?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")
_INT = re.compile(r"-?[0-9]+")
_DEVICE = re.compile(r"([a-z]+)(?::(0|[1-9][0-9]*))?")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "\n",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "v": "\v",
    "t": "\t",
}


class DefaultReader(TokenReader):
    """Reads what stands after the `=`."""

    __slots__ = ()

    def default(self, type_: Type) -> Default:
        fake = fake_of(type_)
        kind = kind_of(fake)
        if kind in _CONSTANTS:
            return Default(self.constant(kind, _names_for(type_)))
        if kind in _NONE_ONLY:
            if self.tokens[self.at] != "None":
                raise self.error(f"None, the only default of a {kind},")
            self.at += 1
            return Default(None)
        if kind == "Device":
            return Default(self.device())
        if isinstance(type_, ListType):
            return Default(self.list(kind_of(fake_of(type_.element)), type_.size, _names_for(type_.element)))
        raise self.error(f"no default, for {type_} cannot have one,")

    def list(self, kind: str, size: int | None, names: Mapping[str, int]) -> tuple[Constant, ...]:
        start = self.at
        token = self.tokens[start]
        if is_name(token):
            raise self.error("a list in brackets")
        if size is not None and token != "[":
            if size > LARGEST_REPEAT:
                raise self.error(f"a list, for a constant is repeated at most {LARGEST_REPEAT} times,")
            found = [self.constant(kind, names)] * size
        else:
            self.expect("[")
            found = [] if self.tokens[self.at] == "]" else [self.constant(kind, names)]
            while found and self.tokens[self.at] == ",":
                self.at += 1
                found.append(self.constant(kind, names))
            if self.tokens[self.at] != "]":
                raise self.error("',' or ']'")
            self.at += 1
        wanted = _ELEMENTS.get(kind)
        if wanted is None:
            raise self.error("no default, for only lists of int, float, bool and complex have one,", at=start)
        for value in found:
            if type(value) is not wanted:
                raise self.error(f"a list of {kind} values", at=start, found=f"{value!r} in it")
        return tuple(found)

    def constant(self, kind: str, names: Mapping[str, int]) -> Constant:
        token = self.tokens[self.at]
        if token in _WORDS:
            self.at += 1
            return _WORDS[token]
        if is_string(token):
            return self.string()
        if is_name(token):
            if token not in names:
                near = nearest(token, (*_WORDS, *names))
                raise self.error(f"a default value{f' (did you mean {near[0]}?)' if near else ''}")
            self.at += 1
            return names[token]
        sign = ""
        if token == "-":
            self.at += 1
            sign, token = "-", self.tokens[self.at]
        if not is_number(token):
            raise self.error("a number" if sign else "a default value")
        value = _number(sign + token, kind)
        if value is None:
            raise self.error(f"a number that fits {'a float' if kind == 'float' else f'the type {kind}'}")
        self.at += 1
        return value

    def string(self) -> str:
        token = self.tokens[self.at]
        quotes = 3 if token[:3] in ("'''", '"""') and len(token) > 3 else 1
        text = token[quotes:-quotes]
        for escape in _ESCAPE.finditer(text):
            if escape[1] not in _ESCAPES and not (len(escape[1]) == 3 and escape[1] < "400"):
                wanted = "a string whose escapes are \\\\ \\' \\\" \\a \\b \\f \\n \\t \\v or three octal digits"
                raise self.error(wanted, found=f"the escape {escape[0]}")
        self.at += 1
        if "\\" not in text:
            return text
        raw = _ESCAPE.sub(lambda e: _ESCAPES.get(e[1]) or chr(int(e[1], 8) + (0xDC00 if e[1] >= "200" else 0)), text)
        return raw.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def device(self) -> str:
        token = self.tokens[self.at]
        if not is_string(token):
            raise self.error("a device in quotes")
        start = self.at
        text = self.string()
        match = _DEVICE.fullmatch(text)
        if match is None or match[1] not in _DEVICES or int(match[2] or 0) >= 2**31:
            near = nearest(text.partition(":")[0], _DEVICES)
            raise self.error(
                f"a device, such as 'cpu' or 'cuda:1'{f' (did you mean {near[0]}?)' if near else ''}",
                at=start,
                found=described(token),
            )
        if match[2] is None:
            return text
        index = (int(match[2]) + 128) % 256 - 128  # NB: upstream keeps the index in 8 bits
        return match[1] if index == -1 else f"{match[1]}:{index}"


def _names_for(type_: Type) -> Mapping[str, int]:
    return _SCALAR_TYPE_NAMES if type_ in _SCALAR_TYPES else NAMED_CONSTANTS


def _number(text: str, kind: str) -> Constant:
    # See Note [Numbers as upstream reads them]; None when it does not fit.
    if kind == "complex" or "j" in text:
        imaginary = _float(text[:-1])
        return None if imaginary is None else complex(0.0, imaginary)
    if kind == "float" or "." in text or "e" in text:
        return _float(text)
    match = _INT.match(text)
    return int(match[0]) if match is not None and -(2**63) <= int(match[0]) < 2**63 else None


def _float(text: str) -> float | None:
    match = _HEX_FLOAT.match(text)
    try:
        if match is not None:
            value = float.fromhex(match[0])
        else:
            match = _FLOAT.match(text)
            if match is None:
                return None
            value = float(match[0])
    except OverflowError:
        return None
    digits = re.split("[eEpP]", match[0])[0] if "x" not in match[0].lower() else match[0].lower().split("p")[0][2:]
    is_zero = not any(c in "123456789abcdefABCDEF" for c in digits)
    if value in (float("inf"), float("-inf")) or (abs(value) < 2.2250738585072014e-308 and not is_zero):
        return None
    return value
