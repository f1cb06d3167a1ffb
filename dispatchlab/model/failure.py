"""A failed program: the exception with its chain, the events before it, and facts about operators.

This module has only values: `live/failure/program_watch.py` notes them, and `questions/why/` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import shorten
from typing import Final, Literal, Protocol, TypeAlias

EventKind: TypeAlias = Literal[
    "missing module",
    "failed import",
    "loaded library",
    "failed library",
    "warning",
    "define",
    "impl",
    "fallback",
    "custom_op",
    "register_fake",
    "register_autograd",
    "register_vmap",
    "function",
    "unfit function",
    "wrong result",
    "got None",
    "integer result",
    "other device",
    "collected",
    "entered mode",
    "compiled",
    "called",
    "wrote undeclared",
    "not marked dirty",
    "drops keywords",
    "returned alias",
    "rule differs",
    "formula differs",
    "handler",
    "handling",
    "lost subclass",
    "lost attribute",
    "fake differs",
    "fake body",
    "ignores strides",
    "wrote nothing",
    "replaced",
    "gradient cut",
    "calling",
]

_OPERATOR: Final = re.compile(r"\b([A-Za-z_]\w*)(?:::|\.)([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?")


@dataclass(frozen=True, slots=True)
class Position:
    """A line of a file, with the function around it and its text."""

    file: str
    line: int
    function: str = ""
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened before the failure.

    Args:
        kind: the kind of event.
        subject: the operator, module, library or mode that it happened to.
        detail: the key of a kernel, the reason of a failure, the text of a warning.
        at: the user's line that did it; None when there is none.
    """

    kind: EventKind
    subject: str
    detail: str = ""
    at: Position | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the chain.

    Args:
        kind: the name of its class, with the module.
        text: its message, without backtraces of C++.
    """

    kind: str
    text: str

    @property
    def name(self) -> str:
        """The class's own name."""
        return self.kind.rpartition(".")[2]

    @property
    def line(self) -> str:
        """The name and the first line of the message."""
        return f"{self.name}: {first_line(self.text)}".removeprefix(": ")


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """The entry of an overload in the registry.

    Args:
        name: its full name, such as `aten::add.Tensor`.
        schema: its schema; empty without a def.
        kernels: the debug text of the kernel at each key and alias key.
        site: the user's line that defined it; empty when it is not known.
        custom_op: `torch.library.custom_op` made it.
        fake: the line of its fake kernel; empty without one.
        empty_fake: the fake kernel returns None always.
        autograd: the line of its autograd formula; empty without one.
    """

    name: str
    schema: str = ""
    kernels: Mapping[str, str] = field(default_factory=dict)
    site: str = ""
    custom_op: bool = False
    fake: str = ""
    empty_fake: bool = False
    autograd: str = ""

    @property
    def packet(self) -> str:
        """The name without the overload."""
        return self.name.partition(".")[0]

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.name.partition("::")[0]

    @property
    def base(self) -> str:
        """The name without the namespace, with the overload."""
        return self.name.partition("::")[2]

    @property
    def backends(self) -> tuple[str, ...]:
        """The keys of kernels that do the work, aliases included."""
        return tuple(key for key in self.kernels if not key.startswith(("Autograd", "Autocast", "ADInplaceOrView")))


class Registry(Protocol):
    """The questions to a dispatcher."""

    version: str

    def operator(self, name: str) -> OperatorFacts | None:
        """Return the facts of an overload, or of the first overload of a name; None if there is no such operator."""
        ...

    def overloads(self, packet: str) -> tuple[str, ...]:
        """Return the overloads of a name, such as `('', 'out')`."""
        ...

    def names(self, namespace: str) -> tuple[str, ...]:
        """Return the full names of all operators of a namespace; of every namespace for an empty name."""
        ...


@dataclass(frozen=True)
class Failure:
    """The facts about the failure of a program.

    Args:
        chain: the exceptions: first the one that ended the program, then its causes.
        frames: the user's frames, the innermost last.
        events: the events before, in order.
        registry: the present content of the dispatcher.
        stack: the functions on the stack when it was raised, with their modules, the innermost last.
        device: the name of the PrivateUse1 backend.
        call: the source text of the expression that failed, in the user's innermost frame.
        source: the part of the user's program on which the failing line depends; for a pasted text, the text.
        pasted: whether it was read from a text, so that it happened in another process.
        fake_body: returns the body of a fake kernel for an operator, from a run of its kernel; empty where none is
            known.
    """

    chain: tuple[Raised, ...]
    frames: tuple[Position, ...]
    events: tuple[Event, ...]
    registry: Registry
    stack: tuple[str, ...] = ()
    device: str = ""
    call: str = ""
    source: str = ""
    pasted: bool = False
    fake_body: Callable[[str], str] = lambda name: ""

    @cached_property
    def text(self) -> str:
        """The messages of the chain."""
        return "\n".join(f"{raised.name}: {raised.text}" for raised in self.chain)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The names of the exceptions' classes."""
        return frozenset(raised.name for raised in self.chain)

    @cached_property
    def noted(self) -> str:
        """The events as lines: `KIND SUBJECT: DETAIL (FILE:LINE in FUNCTION)`."""
        places = (f"({event.at} in {event.at.function})" if event.at else "" for event in self.events)
        texts = (f"{event.kind} {event.subject}: {event.detail}".replace("\n", " ") for event in self.events)
        return "".join(f"{text} {place}\n" for text, place in zip(texts, places, strict=True))

    @property
    def at(self) -> Position | None:
        """The user's innermost frame."""
        return self.frames[-1] if self.frames else None

    def search(self, pattern: str) -> re.Match[str] | None:
        """Return the match of a pattern in a message of the chain."""
        return re.search(pattern, self.text, re.DOTALL)

    def of(self, *kinds: EventKind) -> tuple[Event, ...]:
        """Return the events of some kinds."""
        return tuple(event for event in self.events if event.kind in kinds)

    def registrations(self, name: str) -> tuple[Event, ...]:
        """Return the registrations of an operator, by the name without the overload."""
        packet = name.partition(".")[0]
        found = self.of("define", "impl", "custom_op", "register_fake", "register_autograd", "collected")
        return tuple(event for event in found if event.subject.partition(".")[0] == packet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """The advice of a cause.

    Args:
        text: the call to write, whole.
        code: statements that do it, run in the user's frame before the failing call is made again.
        wrap: the replacement of each tensor in the failing call, such as `{}.to_dense()`.
        old: a piece of the failing call that is wrong.
        new: the text that replaces it.
        needs: the part that only the user can write, such as `your backward`; such a fix is not tried.
        otherwise: whether it is shown only if no other fix worked in a trial.
        again: statements before the program; the fix is tried by a run of the whole program after them.
        outer: whether to repeat the call that led into PyTorch, not the call that failed inside of a kernel.
    """

    text: str
    code: str = ""
    wrap: str = ""
    old: str = ""
    new: str = ""
    needs: str = ""
    otherwise: bool = False
    again: str = ""
    outer: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying a fix.

    Args:
        fix: the fix, with the text of the repeated call.
        outcome: `works`, `fails`, `refused` if PyTorch refuses the fix itself, or `not tried`.
        detail: the exception, or why it was not tried.
    """

    fix: Fix
    outcome: Literal["works", "fails", "refused", "not tried"]
    detail: str = ""


def first_line(text: str) -> str:
    """Return the first line of a message; a long line is cut between words."""
    return shorten(text.strip().partition("\n")[0], 200, placeholder=" ...")


def operator_name(text: str) -> str:
    """Return the full name of the operator in `aten.add.Tensor` or `ns::name`; empty without an operator."""
    found = _OPERATOR.search(text.removeprefix("torch.ops."))
    if found is None:
        return ""
    namespace, name, overload = found.groups()
    return f"{namespace}::{name}" + (f".{overload}" if overload and overload != "default" else "")
