"""Into which words schema text falls, and where each of them stands.

Comments, blanks and escaped line ends are skipped; a line end counts only outside of brackets. What is no token at all
comes as one character, which no rule of the grammar wants. Source: torch/csrc/jit/frontend/lexer.h.
"""

from __future__ import annotations

import re

END = ""
LINE_END = "\n"
KEYWORDS = frozenset(
    (
        *("def", "if", "else", "elif", "while", "return", "is", "True", "False", "None", "and", "or", "not", "global"),
        *("for", "in", "raise", "assert", "break", "continue", "del", "pass", "class", "import", "with", "as"),
        *("Ellipsis", "NoneType"),
    )
)

_TOKEN = re.compile(
    r"""
    (?: [ \t\r\f\v] | \#(?!\ type:)[^\n]* | \\\n )*+
    ( [A-Za-z_][A-Za-z0-9_]*
    | 0[xX](?: [0-9a-fA-F]+ \.? [0-9a-fA-F]* | \.[0-9a-fA-F]+ ) (?: [pP][+-]?[0-9]+ )? j?
    | (?: [0-9]+ \.? [0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? j?
    | "{3} (?: [^\\] | \\. )*? "{3} | '{3} (?: [^\\] | \\. )*? '{3}
    | "(?!"") (?: [^"\\\n] | \\. )* " | '(?!'') (?: [^'\\\n] | \\. )* '
    | -> | \.\.\. | \Z | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NUMBER_START = frozenset("0123456789")
_SINGLE = frozenset("+-*/%@()[]:,={}><.?!&^|~")


def tokens_of(text: str) -> list[str]:
    """The tokens, then several `END`s, so that a reader may always look two ahead."""
    found = _TOKEN.findall(text)
    if LINE_END in found:
        found = [token for token, _ in _joined_lines(text)]
    return [*found, END, END, END]


def place_of(text: str, index: int) -> tuple[int, int]:
    """Offset and width of the token at `index` of `tokens_of(text)`; the end has width 1."""
    placed = list(_joined_lines(text))
    token, at = placed[index] if index < len(placed) else (END, len(text.rstrip()))
    return (at, len(token)) if token else (len(text.rstrip()), 1)


def is_name(token: str) -> bool:
    """Whether the token can name an operator, an argument or a type."""
    return token[:1] in _NAME_START and token not in KEYWORDS


def is_number(token: str) -> bool:
    """Whether the token is a number, without a sign."""
    return token[:1] in _NUMBER_START or (token[:1] == "." and token[1:2] in _NUMBER_START)


def is_string(token: str) -> bool:
    """Whether the token is a string, with its quotes."""
    return token[:1] in ("'", '"') and len(token) > 1


def described(token: str) -> str:
    """What an error says was found."""
    if token == END:
        return "the end of the text"
    if token == LINE_END:
        return "a line end"
    if token in KEYWORDS:
        return f"the keyword '{token}'"
    if is_string(token):
        return token
    if token in ("'", '"'):
        return f"a string that does not end, {token}"
    if len(token) == 1 and token not in _SINGLE and not (token.isascii() and (token.isalnum() or token == "_")):
        return f"a character that schemas do not use, {token!r}"
    return f"'{token}'"


def _joined_lines(text: str) -> list[tuple[str, int]]:
    # Line ends vanish inside of brackets, at the start and in front of the last END; elsewhere several are one.
    kept: list[tuple[str, int]] = []
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[1]
        if token == LINE_END:
            if depth or not kept or kept[-1][0] == LINE_END:
                continue
        elif token in ("(", "[", "{"):
            depth += 1
        elif token in (")", "]", "}"):
            depth -= 1
        elif token == END and kept and kept[-1][0] == LINE_END:
            kept.pop()
        kept.append((token, match.start(1)))
    return kept
