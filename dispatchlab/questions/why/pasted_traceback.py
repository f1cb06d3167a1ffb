"""Read a traceback from text: a pasted report, a CI log, or the output of a process that died."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from dispatchlab.live.failure.program_watch import OURS, inner_frame, position_of
from dispatchlab.model.failure import Event, Failure, OperatorFacts, Position, Raised, Registry
from dispatchlab.registries.model import Recorded

_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:,? in (.+))?$', re.MULTILINE)
_ERROR: Final = re.compile(
    r"^(?:E\s+)?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Warning|Interrupt|Exit|Unsupported|"
    r"Failed|Node|NotImplemented))(?:: (.*))?$"
)
_WHAT: Final = re.compile(r"^\s*what\(\):\s*")
_CRASH: Final = re.compile(r"^Fatal Python error: (.+)$")
_BACKTRACE: Final = re.compile(r"^(?:Exception raised from |frame #\d+: )")


class RecordedFacts:
    """The operators of a recorded registry, as `Registry`."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded, self.version = recorded, recorded.torch

    def operator(self, name: str) -> OperatorFacts | None:
        """Return the facts of an overload, or of the first overload of a name; None if there is no such operator."""
        names = (name, *(f"{name}.{overload}" for overload in self.overloads(name)))
        found = next(filter(None, map(self._recorded.operator, names)), None)
        if found is None:
            return None
        kernels = {one.key.name: one.debug for one in reversed(found.kernels)}
        return OperatorFacts(str(found.name), schema=found.schema or "", kernels=kernels, site=found.debug)

    def overloads(self, packet: str) -> tuple[str, ...]:
        """Return the overloads of a name, such as `('', 'out')`."""
        return tuple(name.partition(".")[2] for name in self._recorded.names if name.partition(".")[0] == packet)

    def names(self, namespace: str) -> tuple[str, ...]:
        """Return the full names of all operators of a namespace."""
        return tuple(name for name in self._recorded.names if name.startswith(f"{namespace}::"))


class ListedKernels:
    """A registry with the kernels that a message lists, which may be of another build."""

    def __init__(self, registry: Registry, text: str) -> None:
        self._registry, self.version = registry, registry.version
        self.overloads, self.names = registry.overloads, registry.names
        listed = re.search(r"'([\w:.]+)' is only available for these backends", text)
        self._name = listed[1] if listed is not None else ""
        self._kernels = dict(re.findall(r"^(\w+): registered at (.+) \[kernel\]$", text, re.MULTILINE))

    def operator(self, name: str) -> OperatorFacts | None:
        """Return the facts of an overload, with the listed kernels."""
        facts = self._registry.operator(name)
        if name != self._name or not self._kernels:
            return facts
        return replace(facts or OperatorFacts(name), kernels=self._kernels)


def failure_of_text(text: str, registry: Registry, events: tuple[Event, ...] = ()) -> Failure:
    """Return the facts of a failure from its text.

    Args:
        text: a traceback, or a log with one.
        registry: the operators of the dispatcher.
        events: the events of the program that printed the text before it crashed.
    """
    chain, frames = read_traceback(text)
    known, stack, raised = ListedKernels(registry, text), _stack(text), chain or (Raised("", text[-4000:]),)
    return Failure(raised, frames, events, known, stack=stack, source=text, pasted=not events)


def _stack(text: str) -> tuple[str, ...]:
    """Return the functions of the last traceback, each with the module of its file."""
    frames = re.findall(_FRAME, text.rpartition("Traceback (")[2])
    modules = (re.sub(r".*site-packages/|(?:/__init__)?\.py$", "", file).replace("/", ".") for file, _, _ in frames)
    return tuple(f"{module}.{function}" for module, (_, _, function) in zip(modules, frames, strict=True))


def read_traceback(text: str) -> tuple[tuple[Raised, ...], tuple[Position, ...]]:
    """Return the exceptions of a text, the last first, and the frames outside installed packages."""
    lines = [*text.splitlines(), ""]
    chain: list[Raised] = []
    frames: list[Position] = []
    index = 0
    while index < len(lines):
        line = _WHAT.sub("RuntimeError: ", lines[index])
        if crash := _CRASH.match(line):
            if not any(map(_WHAT.match, lines[:index])):
                chain.append(Raised("builtins.RuntimeError", crash[1]))
            crashed = filter(None, map(_FRAME.match, reversed(lines[index:])))
            own = (at for at in crashed if not re.search(rf"site-packages|/lib/python|^<|^{OURS}", at[1]))
            frames += [position_of(at[1], int(at[2]), at[3]) for at in own]
            break
        elif repeated := re.match(r" *\[Previous line repeated (\d+) more", line):
            frames += frames[-1:] * min(int(repeated[1]), 100)
        elif frame := _FRAME.match(line):
            file, number, function = frame.groups()
            if "site-packages" not in file and not file.startswith(("torch/", "<")) and "/lib/python" not in file:
                code = lines[index + 1].strip() if lines[index + 1].startswith("    ") else ""
                frames.append(Position(file, int(number), function or "", code))
        elif error := _ERROR.match(line):
            kind, head = error.groups("")
            message, index = _message(lines, index + 1)
            frames += read_traceback("\n".join(message).partition("from user code:")[2])[1]
            chain.append(Raised(kind if "." in kind else f"builtins.{kind}", "\n".join([head, *message]).strip()))
            continue
        index += 1
    if not chain and text.strip():
        chain.append(Raised("", text.strip()[-8000:]))
    return tuple(reversed(chain)), (*frames, *inner_frame(text, frames))


def _message(lines: list[str], index: int) -> tuple[list[str], int]:
    """Return the further lines of a message, and the position of its end."""
    kept: list[str] = []
    while index < len(lines):
        line = lines[index]
        if line.startswith(("Traceback (", "The above exception", "During handling")) or _ERROR.match(line):
            break
        if _BACKTRACE.match(line):
            while index < len(lines) and (not lines[index].strip() or _BACKTRACE.match(lines[index])):
                index += 1
            break
        kept.append(line)
        index += 1
    return kept, index
