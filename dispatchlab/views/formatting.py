"""Format numbers and durations for output."""

from __future__ import annotations

from math import log10

_LONGEST_IN_FULL = 10**15
_CHUNK = 10**4000  # below the limit of digits that Python converts in one go


def digits(number: int) -> str:
    """All digits of a number that is not negative; Python itself refuses more than 4,300 of them."""
    chunks: list[str] = []
    while number >= _CHUNK:
        number, low = divmod(number, _CHUNK)
        chunks.append(str(low).zfill(4000))
    return "".join((str(number), *reversed(chunks)))


def readable(number: int) -> str:
    """`14,400`, or `about 4.3e+26` when there are too many digits to count."""
    if number < _LONGEST_IN_FULL:
        return f"{number:,}"
    exponent = int(log10(number))
    leading = number * 10 // 10**exponent
    if leading >= 100:  # log10 rounds
        exponent, leading = exponent + 1, leading // 10
    elif leading < 10:
        exponent, leading = exponent - 1, number * 10 // 10 ** (exponent - 1)
    return f"about {leading // 10}.{leading % 10}e+{exponent}"


def counted(number: int, noun: str, several: str = "") -> str:
    """`1 operator`, `1,200 operators`.

    Args:
        number: how many.
        noun: the noun for one.
        several: the noun for several; with an `s` when left out.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def seconds(value: float) -> str:
    """A duration in the unit that suits it: `0.42 ms`, `2.8 s`, `12 min 5 s`."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"
