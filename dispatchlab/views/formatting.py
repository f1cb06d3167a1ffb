"""Format numbers and durations for output."""

from __future__ import annotations

from collections.abc import Sequence

from dispatchlab.errors import first_of as first_of
from dispatchlab.model.keys import BACKENDS, PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS, DispatchKey

_LONGEST_IN_FULL = 10**15


def digits(number: int) -> str:
    """Return all digits of a number that is not negative; `str` refuses more than 4,300 of them."""
    from decimal import Decimal  # costs start-up

    return f"{Decimal(number):f}"


def readable(number: int) -> str:
    """Return `14,400`, or `about 4.3e+26` when there are too many digits."""
    if number < _LONGEST_IN_FULL:
        return f"{number:,}"
    text = digits(number)
    return f"about {text[0]}.{text[1]}e+{len(text) - 1}"


def counted(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: `1 operator`, `1,200 operators`.

    Args:
        number: the number.
        noun: the singular noun.
        several: the plural noun; default: the noun with an `s`.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it: `0.42 ms`, `2.8 s`, `12 min 5 s`."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


_NAMES = {DispatchKey.Dense: "every backend", DispatchKey.AutogradFunctionality: "every Autograd backend"}
_FAMILIES = {
    _NAMES.get(functionality, f"every {functionality} backend"): {
        str(key): BACKENDS[at]
        for at, key in enumerate(key for key in RUNTIME_KEYS if key.functionality is functionality)
    }
    for functionality in PER_BACKEND_FUNCTIONALITIES
}
_FAMILY_OF = {key: name for name, family in _FAMILIES.items() for key in family}


def key_names(keys: Sequence[str]) -> list[str]:
    """Return keys as few phrases; a functionality with most of its backends is one phrase.

    >>> key_names(["Undefined", *BACKENDS, "FPGA"])
    ['Undefined', 'every backend', 'FPGA']

    Args:
        keys: names of runtime keys, in the order of a table.
    """
    named = frozenset(keys)

    def phrase(key: str) -> str:
        family = _FAMILIES.get(_FAMILY_OF.get(key, ""), {})
        missing = [backend for other, backend in family.items() if other not in named]
        if 2 * len(missing) >= len(family):
            return key
        return f"{_FAMILY_OF[key]} (not {', '.join(missing)})" if missing else _FAMILY_OF[key]

    return list(dict.fromkeys(map(phrase, keys)))


def escaped(text: str, *, property: bool = False) -> str:
    """Return a text as a message of a GitHub workflow command, or as one of its properties."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text
