"""Mutations of text and bytes, each a function of a random source: what somebody's file may look like by mistake."""

from __future__ import annotations

import random
import re

TOKENS = (
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "((((",
        "[[[[",
        "{{{{",
        "[]",
        "?",
        "!",
        "*",
        "->",
        "...",
        ",",
        ":",
        "::",
        ".",
        "=",
        "|",
    ),
    *(
        "#",
        "'",
        '"',
        '"""',
        "\\",
        "\n",
        "\r\n",
        "\t",
        " ",
        "- ",
        ": ",
        "&a ",
        "*a",
        "!!python/object ",
        "---\n",
        "\0",
        "\x1b",
    ),
    *(
        "\x85",
        "\u202e",
        "\ufeff",
        "é",
        "𝄞",
        "True",
        "None",
        "Tensor",
        "int",
        "SymInt[]",
        "Dict(str, ",
        "Union(",
        "Future(",
    ),
    *(
        "__torch__.torch.classes.a.b",
        "Scalar",
        "complex",
        "device",
        "default",
        "0x",
        "1e999",
        "nan",
        "1j",
        "-",
        "-1",
        "0",
    ),
    *(
        "CPU",
        "Undefined",
        "Autograd",
        "Catchall",
        "test::foo",
        "aten::add.Tensor",
        "_",
        "__init__",
        "def",
        "impl",
        "null",
    ),
    *("NaN", "Infinity", "\\ud800", "1_000", "%s", "{0}", "$(touch X)", "../x", "/", "~", "*"),
)
"""What is put into texts."""

_REPEATS = (2, 3, 8, 40, 300, 900, 3_000, 5_000)


def mutated_text(text: str, rng: random.Random) -> str:
    """The text with one to four mutations."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(9):
            case 0:
                text = text[:at] + text[at + rng.randrange(1, 12) :]
            case 1 | 2:
                text = text[:at] + rng.choice(TOKENS) + text[at:]
            case 3:
                text = text[:at] + rng.choice(TOKENS) * rng.choice(_REPEATS) + text[at:]
            case 4:
                text = text[:at] + text[at : at + 1] * rng.choice(_REPEATS) + text[at + 1 :]
            case 5:
                end = at + rng.randrange(1, 60)
                text = text[:end] + text[at:end] * rng.choice((1, 1, 2, 30)) + text[end:]
            case 6:
                text = _with_other_number(text, rng)
            case 7:
                text = _with_word_moved(text, rng)
            case _:
                text = (
                    text[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0xD800), 0x10FFFF))) + text[at + 1 :]
                )
    return text


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """The content of a text file with mutations; now and then with what is no text."""
    if rng.random() < 0.9:
        return mutated_text(data.decode(), rng).encode("utf-8", "surrogatepass")
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
    return bytes(changed)


def _with_other_number(text: str, rng: random.Random) -> str:
    numbers = list(re.finditer("[0-9]+", text))
    if not numbers:
        return text
    found = rng.choice(numbers)
    number = rng.choice(
        ("", "-1", "0", "65536", "2147483648", str(2**63), "9" * 5_000, "0" * 5_000 + "1", "1" * 20, "1e5")
    )
    return text[: found.start()] + number + text[found.end() :]


def _with_word_moved(text: str, rng: random.Random) -> str:
    words = list(re.finditer(r"\w+", text))
    if not words:
        return text
    one, other = rng.choice(words), rng.choice(words)
    return text[: one.start()] + other[0] + text[one.end() :]
