"""The schema parser against the one of the installed PyTorch, on texts that nobody wrote by hand."""

from __future__ import annotations

import ast
import importlib
import random
import re
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.errors import ParseError
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.schema import NAMED_CONSTANTS, FunctionSchema, fake_of
from dispatchlab.model.schema_difference import same_type, schema_difference
from dispatchlab.model.schema_parser import DTYPES, parse_inferred, parse_schema

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

CORPUS = (Path(__file__).parents[1] / "data" / "torch-2.13-schemas.txt").read_text().splitlines()
WORD_TEXT = (
    "( ) [ ] , : :: . .. ... -> - > = == ? ?? ! * | # \\ ; $ Tensor Tensor? Tensor[] Tensor(a!) Tensor(a|b) (a -> b) "
    "(*) int int[] int[3] int[2]? SymInt SymInt[] SymBool Scalar Scalar? float float[] float[2] bool bool[2] str str? "
    "complex Device Device? Layout MemoryFormat ScalarType ScalarType? Generator Generator? Storage Stream QScheme "
    "Quantizer Any None NoneType True False Dict(int,str) Dict( Future(int) Await(t) RRef(Tensor) (int,Tensor) t u "
    "Union(int,str) Union( double Foo tensor PyObject x self out default __x a! _ f ns::f f.ov default=1 =None =1 "
    "=1.5 =-1 =1e-5 ='a' =\"b\" =[] =[1,2] =[1,1] =[1.,2.] =[True] =True =False =strided =long =1j =0x10 =.5 =1E3 "
    "=int =bfloat16 if"
)
WORDS = WORD_TEXT.split()
SPLIT = re.compile(r"\s+|\w+|.")


def ours(text: str) -> str:
    try:
        return str(parse_schema(text))
    except ParseError:
        return "refused"


def theirs(text: str) -> str:
    try:
        return sorted_sets(str(C.parse_schema(text)))
    except (RuntimeError, ValueError, IndexError):
        return "refused"


def sorted_sets(text: str) -> str:
    """The text with the names of each alias set in order, which upstream leaves open."""

    def in_order(sets: re.Match[str]) -> str:
        return "|".join(sorted(sets[0].split("|"), key=lambda name: (name == "*", name)))

    return re.sub(r"[\w*$]+(?:\|[\w*$]+)+", in_order, text)


def mutated(random_: random.Random) -> str:
    pieces = SPLIT.findall(random_.choice(CORPUS))
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        at = random_.randrange(len(pieces))
        match random_.randrange(5):
            case 0:
                del pieces[at]
            case 1:
                pieces.insert(at, random_.choice(WORDS))
            case 2:
                pieces[at] = random_.choice(WORDS)
            case 3:
                pieces.insert(at, random_.choice((" ", "\n", "\t", "# no\n", "\\\n")))
            case _:
                pieces.insert(at, random_.choice(pieces))
        if not pieces:
            pieces = ["f"]
    return "".join(pieces)


TYPES = [word for word in WORDS if re.match(r"[A-Z]|int|fl|bo|st|co", word)]
DEFAULTS = [word for word in WORDS if word.startswith("=")]


def made(random_: random.Random) -> str:
    def a_type(depth: int = 0) -> str:
        base = (
            random_.choice(TYPES)
            if depth > 1 or random_.random() < 0.7
            else {
                0: f"Dict({random_.choice(('int', 'str', 'Tensor', 'Any', 't'))}, {a_type(depth + 1)})",
                1: f"({a_type(depth + 1)}, {a_type(depth + 1)})",
                2: f"Future({a_type(depth + 1)})",
                3: f"Union({a_type(depth + 1)}, {a_type(depth + 1)})",
            }[random_.randrange(4)]
        )
        return base + random_.choice(("", "", "", "?", "[]", "[]?", "?[]", "(a)", "(a!)", "(a)[]", "[](a!)", "[2]"))

    def an_argument() -> str:
        default = random_.choice(DEFAULTS) if random_.random() < 0.3 else ""
        return random_.choice(("", "", "", "", "*, ")) + f"{a_type()} {random_.choice(('x', 'y', 'self'))}{default}"

    arguments = ", ".join(an_argument() for _ in range(random_.randrange(3)))
    returns = [a_type() + random_.choice(("", " out")) for _ in range(random_.randrange(3))]
    return f"f({arguments}) -> {returns[0] if len(returns) == 1 else '(' + ', '.join(returns) + ')'}"


@pytest.mark.parametrize(("maker", "at_least"), [(mutated, 600), (made, 600)])
def test_texts_are_accepted_refused_and_printed_alike(maker: Any, at_least: int) -> None:
    random_ = random.Random(35061)
    seen: dict[str, str] = {}
    for _ in range(6000):
        text = maker(random_)
        seen[text] = ours(text)
    assert [(text, mine, theirs(text)) for text, mine in seen.items() if mine != theirs(text)] == []
    accepted = sum(mine != "refused" for mine in seen.values())
    assert accepted >= at_least
    assert len(seen) - accepted >= at_least


@pytest.mark.parametrize("type_", ["int", "ScalarType", "ScalarType?", "ScalarType[]", "Layout", "SymInt?", "Scalar"])
def test_the_names_that_can_be_defaults_are_the_same(type_: str) -> None:
    names = sorted({*dir(torch), "Mean", "Sum", "strided", "contiguous_format", *NAMED_CONSTANTS, *DTYPES})
    shape = "[{}]" if type_.endswith("]") else "{}"
    texts = [f"f({type_} x={shape.format(name)}) -> ()" for name in names]
    assert [text for text in texts if ours(text) != theirs(text)] == []
    assert sum(ours(text) != "refused" for text in texts) >= 6


def theirs_reads(text: str) -> bool:
    try:
        C.parse_schema(text)
    except RuntimeError:
        return False
    return True


def test_every_registered_schema_reads_back() -> None:
    # A module that another test imports may bring an opaque type of Python, which PyTorch prints and does not read.
    registered = [text for text in map(str, C._jit_get_all_schemas()) if theirs_reads(text)]
    assert [text for text in registered if ours(text) != sorted_sets(text)] == []
    assert len(registered) > 3000


def kernels() -> list[tuple[FunctionSchema, FunctionSchema]]:
    found = []
    for name in C._dispatch_get_all_op_names():
        dump = C._dispatch_dump(name)
        schema = re.search(r"^schema: (?!\(none\))(.*)$", dump, re.MULTILINE)
        if schema and theirs_reads(schema[1]):
            for inferred in set(re.findall(r" :: (\(.*) \[ [a-z ]*\]$", dump, re.MULTILINE)) - {"(none)"}:
                found.append((parse_schema(schema[1]), parse_inferred(inferred)))
    return found


def test_the_kernels_that_pytorch_accepted_differ_from_their_schema_in_nothing() -> None:
    pairs = kernels()
    wrong = [(a, b) for a, b in pairs if schema_difference(a, b, symint_kernel=is_symint_schema(b)) is not None]
    assert wrong == []
    assert len(pairs) > 2000
    assert sum(is_symint_schema(inferred) for _, inferred in pairs) > 100


def test_equal_fake_types_are_equal_to_pytorch_too() -> None:
    types = "int ScalarType SymInt int[] Layout[] SymInt[]? t u t[] Tensor Tensor? Any"
    texts = [f"f({type_} x) -> {type_}" for type_ in types.split(" ")]
    fakes = {text: fake_of(parse_schema(text).returns[0].type) for text in texts}
    checked = 0
    for left in texts:
        for right in texts:
            same = C.parse_schema(left) == C.parse_schema(right)
            assert same_type(fakes[left], fakes[right]) == same, (left, right)
            checked += same
    assert checked == 3 * 3 + 2 * 2 + 2 * 2 + 5


def test_signatures_are_those_of_the_generated_headers() -> None:
    headers = Path(torch.__file__).parent / "include" / "ATen" / "ops"
    found = []
    for header in sorted(headers.glob("*_ops.h")):
        text = header.read_text()
        found += re.findall(r'using schema = (.*);\n(?:.*\n){4}.*schema_str = "(.*)";', text)
    declarations = [(parse_schema(ast.literal_eval(f'"{escaped}"')), demangled(real)) for real, escaped in found]
    wrong = [(str(schema), real) for schema, real in declarations if cpp_signature(schema) != real]
    assert len(found) > 2500
    # What a schema does not show: a mutable tensor that an old operator takes by const reference, the lists of
    # structured kernels, and DeviceIndex, which schemas read as int.
    unexplained = [real for _, real in wrong if not re.search("IListRef|DeviceIndex|^at::Tensor const& ", real)]
    assert unexplained == []
    assert len(wrong) < 25


def demangled(declared: str) -> str:
    """A declaration of a header as the C++ runtime prints the type."""
    for alias, real in {
        r"::std::": "std::",
        r"\bint64_t\b": "long",
        r"(at|c10)::(Optional)?(SymInt|Int)ArrayRef": r"c10::\2ArrayRef<\3>",
        r"\bat::TensorList": "c10::ArrayRef<at::Tensor>",
        r"\bat::ITensorListRef": "c10::IListRef<at::Tensor>",
        r"\bat::(?!Tensor|Generator)": "c10::",
        r"(?<!:)\b(MemoryFormat)": r"c10::\1",
        r"<Int>": "<long>",
        r"<SymInt>": "<c10::SymInt>",
        r"std::array<bool,(\d)>": r"std::array<bool, \1ul>",
        r"c10::string_view|std::string_view": "std::basic_string_view<char, std::char_traits<char> >",
        r"std::vector<at::Tensor>": "std::vector<at::Tensor, std::allocator<at::Tensor> >",
        r"\bconst ([\w:]+(?:<[\w:<> ]+>)?) &": r"\1 const&",
        r" &": "&",
        r">(?=>)": "> ",
        r",(?=\S)": ", ",
    }.items():
        declared = re.sub(alias, real, declared)
    return declared
