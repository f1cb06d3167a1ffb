"""Kernel identity: mark kernels with equal debug texts, so that a text identifies a kernel.

Explorers call `distinguished` on their registrations before an engine gets them.
"""

# Note [Identity of kernels]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# Everything that is observed is text, and a debug text is the user's: a loop that registers `x + n` names every kernel
# by the same line. Were kernels compared by that text, a slot would look the same whichever of them it holds, and the
# order that decides between them would be "proved" not to matter. So the debug texts of one operator and key are made
# different before an engine gets them: `fn` becomes `fn (registration 2)` where another kernel says `fn` too. Then
# dumps, tables, slots and errors show which registration they are about, on every engine. The live engine finds the
# registration by the object that the slot points at, and shows the text that belongs to it.
#
# What is the same kernel? One function registered twice behaves alike whichever registration is in force: PyTorch
# prints the same dump and the same table, and calls do the same. (It warns of the override, in either order.) So
# registrations of one function keep one text, and their order does not matter; so do fallthroughs, which PyTorch keeps
# as one object. Functions are the same when they are one object, one bound method, or have one reference in a file. Of
# a kernel without a function nothing is known but that it was registered, so each registration is a kernel of its own.
# A record of a package holds no functions: there, a function that is registered twice counts as two kernels.

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import TypeAlias

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import (
    Block,
    Def,
    Fallback,
    Impl,
    Kernel,
    Registration,
    kernel_text,
    with_kernel_text,
)
from dispatchlab.model.slot_set import set_bits, slots_of_key

Place: TypeAlias = tuple[object, ...]
"""Where kernels meet: an operator with a key, or the slot of a fallback. Rows of a table tell such places apart."""


@dataclass(frozen=True, slots=True)
class _Site:
    """A kernel in its registration.

    Args:
        index: the number of the registration.
        inner: its number in the block; None outside of a block.
        kernel: the kernel; None if unknown.
        debug: its debug text.
    """

    index: int
    inner: int | None
    kernel: Kernel | None
    debug: str


def distinguished(registrations: Sequence[Registration]) -> tuple[Registration, ...]:
    """Return the registrations, with marks in the debug texts of kernels that have none or could be confused.

    Entries that Python keeps are marked in the same way. A registration without a mark stays the same object, and so do

    all registrations if they were already marked.

    Args:
        registrations: the registrations that are explored together; the marks contain their numbers.
    """
    groups: dict[tuple[Place, str], list[_Site]] = {}
    for index, registration in enumerate(registrations):
        for place, site in _sites(index, registration):
            groups.setdefault((place, site.debug), []).append(site)
    marks: dict[tuple[int, int | None], str] = {}
    texts = {debug for _, debug in groups}
    for (_, debug), sites in groups.items():
        if len(sites) > 1 or not debug:
            _mark(debug, sites, texts, marks)
    if not marks:
        return tuple(registrations)
    return tuple(_marked(index, registration, marks) for index, registration in enumerate(registrations))


def _mark(debug: str, sites: Sequence[_Site], texts: set[str], marks: dict[tuple[int, int | None], str]) -> None:
    """Choose texts for kernels of one source location that have the same text."""
    kinds: dict[Hashable, list[_Site]] = {}
    for site in sites:
        kinds.setdefault(_identity(site), []).append(site)
    if len(kinds) == 1 and debug:
        return
    kinds_of = Counter(kind[0].index for kind in kinds.values())
    for kind in kinds.values():
        first = kind[0]
        name = f"registration {first.index}"
        if kinds_of[first.index] > 1:
            name = f"{name}, kernel {first.inner}"
        text = f"{debug} ({name})" if debug else name
        while text in texts:
            text += "'"  # a text of a user reads like a mark
        for site in kind:
            marks.setdefault((site.index, site.inner), text)


def _identity(site: _Site) -> Hashable:
    """Return a value that is equal for indistinguishable kernels. See Note [Identity of kernels]."""
    kernel = site.kernel
    own = site.index, site.inner
    if kernel is None:
        return own
    rest = replace(kernel, function=None, reference=None)
    function = kernel.function
    match function:
        case None if kernel.is_fallthrough:
            return rest
        case None:
            return own if kernel.reference is None else (kernel.reference, rest)
        case MethodType():  # which is made anew each time that it is asked for
            return id(function.__self__), id(function.__func__), rest
        case _:
            return id(function), rest


def _sites(index: int, registration: Registration) -> Iterator[tuple[Place, _Site]]:
    match registration:
        case Block(made_by=made_by, registrations=()) if made_by is not None:
            operator = made_by.operator.within(registration.namespace or "")
            yield (operator, made_by.function, made_by.on), _Site(index, None, None, registration.debug)
        case Block(made_by=made_by):
            for number, inner in enumerate(registration.registrations):
                debug = kernel_text(inner) or registration.debug
                for place, kernel in _places(inner, registration):
                    if made_by is None:
                        yield place, _Site(index, number, kernel, debug)
                    else:  # one call of torch.library makes them all, and the running PyTorch shows one text for it
                        yield place, _Site(index, None, None, registration.debug)
        case Def() | Impl() | Fallback():
            for place, kernel in _places(registration, None):
                yield place, _Site(index, None, kernel, kernel_text(registration))
        case _:
            pass


def _places(registration: Def | Impl | Fallback, block: Block | None) -> Iterator[tuple[Place, Kernel]]:
    kernel = registration.kernel
    if kernel is None:
        return
    key = _named(registration.key) or (None if block is None else _named(block.key))
    if isinstance(registration, Fallback):
        for slot in set_bits(slots_of_key(key)) if key is not None else ():
            yield ("fallback", slot), kernel
        return
    if key is None:
        key = DispatchKey.CompositeImplicitAutograd
    elif key is DispatchKey.CompositeExplicitAutogradNonFunctional:
        key = DispatchKey.CompositeExplicitAutograd  # rows of a table read alike for both
    namespace = "" if block is None else block.namespace or ""
    yield (registration.operator.within(namespace), key), kernel


def _named(key: DispatchKey | None) -> DispatchKey | None:
    return None if key == DispatchKey.Undefined else key


def _marked(index: int, registration: Registration, marks: Mapping[tuple[int, int | None], str]) -> Registration:
    match registration:
        case Block():
            return _marked_block(index, registration, marks)
        case Def() | Impl() | Fallback() if (index, None) in marks:
            return with_kernel_text(registration, marks[index, None])
        case _:
            return registration


def _marked_block(index: int, block: Block, marks: Mapping[tuple[int, int | None], str]) -> Block:
    mark = marks.get((index, None))
    if mark is not None:
        inside = tuple(
            with_kernel_text(one, mark) if kernel_text(one) in ("", block.debug) else one for one in block.registrations
        )
        return replace(block, debug=mark, registrations=inside)
    registrations = [
        with_kernel_text(inner, marks[index, number]) if (index, number) in marks else inner
        for number, inner in enumerate(block.registrations)
    ]
    unchanged = all(new is old for new, old in zip(registrations, block.registrations, strict=True))
    return block if unchanged else replace(block, registrations=tuple(registrations))
