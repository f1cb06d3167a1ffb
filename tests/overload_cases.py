"""Generated overloads of one name, and calls of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dispatchlab.model.overloads import Call, Match, ObjectValue, TensorValue, Value, match_value
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_schema

USUAL_TEXT = (
    "Tensor Tensor? int int? float float? bool bool? complex Scalar Scalar? str str? Device Device? ScalarType? "
    "Layout? MemoryFormat? SymInt SymInt? Generator? int[] int[2] int[2]? SymInt[] SymInt[2] float[] float[2] "
    "bool[] bool[3] Tensor[] Tensor?[] str[] Scalar[] Any"
)
UNUSUAL_TEXT = (
    "SymBool ScalarType Layout MemoryFormat Generator Storage QScheme complex? int?[] SymInt?[] float[2]? "
    "Scalar?[] complex[] int[][] int[2]? ScalarType[] Device[] Layout?[] str?[] bool?[] Any? Any[] Tensor[][] "
    "Quantizer AnyEnumType (int,Tensor) (int,int)[] (str,Any)? (float)? (Tensor?,Scalar) Dict(str,int) "
    "Dict(str,Tensor) Dict(int,Any) Dict(str,Any)? Dict(str,int[]) Union(int,str) Union(Tensor,float) "
    "Union(int[],Tensor) Union(Dict(str,int),int) Union(int,str)? Union((int,int),str) int[]? Tensor[]? "
    "SymInt[2]? Dict(complex,str)"
)
USUAL, UNUSUAL = USUAL_TEXT.split(), UNUSUAL_TEXT.split()
_RETURNS = {"a": "()", "b": "Tensor", "c": "int"}
_DEFAULTS = {"int": "1", "SymInt": "1", "float": "1.", "bool": "True", "str": '"a"', "Scalar": "1", "complex": "1."}
_ATOMS: tuple[Value, ...] = (
    *(None, True, 1, 0, -1, 2**40, 2**63, 2**64, -(2**63) - 1, 1.5, 1j, "cpu", "cuda:1", "a", "", "1", "ab"),
    *(TensorValue(shape, "float") for shape in ((), (1,), (2,), (0,), (1, 1), (2, 1), (2, 2), (1, 0))),
    *(TensorValue(shape, element) for shape in ((), (1,), (3,)) for element in ("int", "bool", "complex")),
    *(ObjectValue("ScalarType", "torch.float32"), ObjectValue("Device", "torch.device('cpu')")),
    *(ObjectValue("Layout", "torch.strided"), ObjectValue("MemoryFormat", "torch.contiguous_format")),
    *(ObjectValue("Generator", "torch.Generator()"), ObjectValue("QScheme", "torch.per_tensor_affine")),
    *(ObjectValue("Storage", "torch.UntypedStorage(1)"), ObjectValue("Stream", "torch.Stream('cpu')")),
)
_KEYS: tuple[Value, ...] = ("a", "cpu", "ab", 1, 2, True, 1.5, 1j, None, (1, 2))


def random_value(rng: random.Random, depth: int = 2) -> Value:
    """Any value of which the model knows."""
    kind = rng.random()
    if depth == 0 or kind < 0.6:
        return rng.choice(_ATOMS)
    one = random_value(rng, depth - 1)
    items = [one if rng.random() < 0.5 else random_value(rng, depth - 1) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    if kind < 0.8:
        return items
    return tuple(items) if kind < 0.93 else dict(zip(rng.sample(_KEYS, len(items)), items, strict=True))


def random_overload(rng: random.Random, name: str, overload: str, types: Sequence[str]) -> FunctionSchema:
    """A schema of up to four arguments, some with a default, some by keyword alone."""
    names = rng.sample(("x", "y", "n", "s", "self"), rng.choice((1, 1, 2, 2, 3, 4)))
    parts = []
    defaulted = star = False
    for at, argument in enumerate(names):
        type_ = "Tensor" if at == 0 and rng.random() < 0.4 else rng.choice(types)
        defaulted |= rng.random() < 0.3
        if not star and rng.random() < 0.12:
            star = True
            parts.append("*")
        if defaulted and type_ not in _DEFAULTS:
            type_ = type_.removesuffix("?") + "?"
        parts.append(f"{type_} {argument}" + (f"={_DEFAULTS.get(type_, 'None')}" if defaulted else ""))
    # NB: PyTorch confuses overloads that have the types and names of all arguments and returns in common
    return parse_schema(f"{name}.{overload}({', '.join(parts)}) -> {_RETURNS[overload]}")


def random_call(rng: random.Random, overloads: Sequence[FunctionSchema]) -> Call:
    """A call that is likely to be taken by one of the overloads."""
    schema = rng.choice(overloads)
    args: list[Value] = []
    kwargs: list[tuple[str, Value]] = []
    for argument in schema.arguments:
        if argument.default is not None and rng.random() < 0.5:
            continue
        value = random_value(rng)
        for _ in range(rng.choice((0, 30, 30, 30))):
            if match_value(argument.type, value) is Match.TAKES:
                break
            value = random_value(rng)
        leads = not kwargs and len(args) == schema.arguments.index(argument) and not argument.kwarg_only
        if leads and rng.random() < 0.85:
            args.append(value)
        else:
            kwargs.append((argument.name, value))
    if rng.random() < 0.08:
        kwargs.append((rng.choice(("z", "x")), 1))
    return Call(tuple(args), tuple(dict(kwargs).items()))
