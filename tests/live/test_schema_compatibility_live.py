"""Schema compatibility against that of the installed PyTorch, on generated pairs of schemas."""

from __future__ import annotations

import importlib
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.errors import ParseError
from dispatchlab.model.schema_compatibility import backward_break
from dispatchlab.model.schema_parser import parse_schema

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

CORPUS = (Path(__file__).parents[1] / "data" / "torch-2.13-schemas.txt").read_text().splitlines()
TYPE_TEXT = (
    "Tensor Tensor? Tensor[] Tensor?[] Tensor[]? int int? int[] int[2] int[2]? int[]? SymInt SymInt? SymInt[] "
    "SymInt[2] SymBool bool bool? bool[] bool[3] float float? float[] float[]? complex complex? str str? str[] "
    "Scalar Scalar? Scalar[] ScalarType ScalarType? Layout Layout? MemoryFormat MemoryFormat? Device Device? "
    "Generator Generator? Storage Stream QScheme Quantizer Any Any? Any[] t t? t[] u NoneType int[][] Dict(int,str) "
    "Dict(str,int) Dict(str,Any) Dict(str,t) Future(int) Future(Any) Future(Scalar) Future(Tensor?) Await(int) "
    "Await(Any) RRef(int) RRef(Any) RRef(Tensor) (int,Tensor) (Scalar,Tensor?) (int,int) (Any,Any) Union(int,str) "
    "Union(int,str,bool) Union(int,Tensor?) Union(int,float,complex) Union(int,float,complex,str) "
    "Union(int,str,NoneType) Union(int,float,complex,NoneType) Union(Tensor,str) Union(str,Tensor)? Union(int,str)? "
    "Union(Scalar,str) Union(Scalar,NoneType,str) Union((int,int),str) Union(Future(int),str) Union(int[],str)"
)
TYPES = TYPE_TEXT.split()
DEFAULT_TEXT = "None 1 0 -1 1.0 0.5 True False 1j 'a' 'b' [] [1] [1,2] [1,1] [True] [1.] strided contiguous_format"
NAME_TEXT = "self other out x y dim keepdim"
ANNOTATED_TEXT = (
    "Tensor(a) Tensor(a!) Tensor(b!) Tensor(a|b) Tensor(*) Tensor(a)[] Tensor(a!)? Tensor[](a!) Tensor(a->b) "
    "Tensor(a!)[]"
)
DEFAULTS, NAMES, ANNOTATIONS = DEFAULT_TEXT.split(), NAME_TEXT.split(), ANNOTATED_TEXT.split()


def theirs(old: str, new: str) -> bool | None:
    """Whether PyTorch calls the new one backward compatible; None when it can read one of them not."""
    try:
        olds, news = C.parse_schema(old), C.parse_schema(new)
    except (RuntimeError, ValueError, IndexError):
        return None
    return asked(news.is_backward_compatible_with, olds)


def asked(check: Callable[[Any], bool], old: Any) -> bool:
    try:
        return check(old)
    except IndexError:  # it found a break and looks for an argument behind the last one, as part of its reason too
        return False


def ours(old: str, new: str) -> bool | None:
    try:
        olds, news = parse_schema(old), parse_schema(new)
    except ParseError:
        return None
    return backward_break(olds, news) is None


def test_every_type_stands_for_every_other_one_as_in_pytorch() -> None:
    readable = [each for each in TYPES if theirs(f"f({each} x) -> ()", "f() -> ()") is not None]
    assert len(readable) > 80
    counts: Counter[object] = Counter()
    for old, new in product(readable, repeat=2):
        for form in ("f({} x) -> ()", "f() -> {}"):
            pair = form.format(old), form.format(new)
            found = theirs(*pair)
            if found is not None:
                counts[found] += 1
                assert ours(*pair) == found, pair
    assert counts.total() > 10_000
    assert min(counts[True], counts[False]) > 100


def an_argument(random_: random.Random) -> str:
    type_ = random_.choice(ANNOTATIONS if random_.random() < 0.25 else TYPES[:48])
    default = f"={random_.choice(DEFAULTS)}" if random_.random() < 0.4 else ""
    return f"{type_} {random_.choice(NAMES)}{default}"


def parts_of(text: str) -> tuple[str, list[str], list[str]]:
    """The name, the arguments and the returns of a schema; each a text without commas of its own."""
    head, _, returns = text.rpartition(" -> ")
    name, _, arguments = head.removesuffix(")").partition("(")
    return name, split(arguments), split(returns[1:-1] if returns.startswith("(") else returns)


def split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    found = re.findall(r"(?:[^,()\[\]]|\([^()]*\)|\[[^\[\]]*\])+", text)
    return [part.strip() for part in found if part.strip()]


def schema_text(name: str, arguments: list[str], returns: list[str]) -> str:
    shown = ", ".join(returns)
    return f"{name}({', '.join(arguments)}) -> {shown if len(returns) == 1 else f'({shown})'}"


def edited(random_: random.Random, text: str) -> str:
    """The schema after one to three edits, of which some are such that upgrades bring."""
    name, arguments, returns = parts_of(text)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        side = returns if random_.random() < 0.15 else arguments
        at = random_.randrange(len(side) + 1)
        match random_.randrange(9):
            case 0:
                side.insert(at, an_argument(random_) if side is arguments else random_.choice(TYPES))
            case 1 if side[at:]:
                del side[at]
            case 2 if "*" in arguments:
                arguments.remove("*")
            case 2 | 3:
                arguments.insert(min(at, len(arguments)), "*")
            case 4 if side[at:] and side is arguments:
                side[at] = f"{side[at].partition('=')[0]}={random_.choice(DEFAULTS)}"
            case 5 if side[at:]:
                side[at] = side[at].partition("=")[0]
            case 6 if side[at:] and " " in side[at]:
                rest = side[at].rpartition(" ")[2]
                side[at] = f"{random_.choice(TYPES[:40])} {rest}"
            case 7 if side[at:]:
                side[at] = re.sub(r"\w+(?=$|=)", random_.choice(NAMES), side[at], count=1)
            case _ if side[at:]:
                side[at] = re.sub(
                    r"\(a!?\)|(?<=Tensor)", random_.choice(("(a!)", "(a)", "(b!)", "")), side[at], count=1
                )
            case _:
                arguments.append(f"Tensor(a!) {random_.choice(NAMES)}")
    return schema_text(name, arguments, returns)


@pytest.mark.parametrize("seed", range(4))
def test_edited_schemas_are_compatible_as_in_pytorch(seed: int) -> None:
    random_ = random.Random(seed)
    counts: Counter[object] = Counter()
    while counts.total() < 3000:
        old = random_.choice(CORPUS)
        new = edited(random_, old)
        old, new = (old, new) if random_.random() < 0.5 else (new, old)
        expected = theirs(old, new)
        if expected is None or old == new:
            continue
        counts[expected] += 1
        assert ours(old, new) == expected, (old, new)
    assert min(counts[True], counts[False]) >= 20


def test_a_schema_is_compatible_with_itself_as_far_as_in_pytorch() -> None:
    for text in CORPUS:
        assert ours(text, text) is theirs(text, text) is True
