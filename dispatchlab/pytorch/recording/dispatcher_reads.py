"""What a module asks of the dispatcher and of the registries of Python, and which of it another module writes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from dispatchlab.model.python_layer import EVERY_OVERLOAD
from dispatchlab.prover.program import Program
from dispatchlab.pytorch.recording.module_watch import ModuleWatch

# Note [What a read is about]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A read and a write are both about one of these, so that they can be compared:
#
# - an operator. `t::foo` is every overload of the name, since the packet of the name and the overload `default` are
#   asked for alike, and `t::foo.a` is one overload;
# - a namespace `t::*`, and `*` for all operators: what a list of names is about;
# - `_`, the backend fallback of a dispatch key. It answers for every operator that has no kernel of its own there, so a
#   read that asks which kernel would run is about it, too;
# - an entry of a registry of Python, `decompositions t::foo`, and `decompositions *` for the whole table;
# - `module b`, whether it was imported. Whoever asks for a package gets it with any module of it, and the other way
#   round;
# - `privateuse1`, the name of that backend.
#
# Kernels are told apart by operator and not by key: an alias key fills many slots, and a kernel in one slot can keep
# another kernel out of a second one. So a dependence is one that may be there, and what is no dependence is none.

FALLBACK: Final = "_"
EVERYTHING: Final = "*"
PRIVATEUSE1: Final = "privateuse1"
MODULE: Final = "module "

CALL: Final = "a call"
TABLE: Final = "the table"


@dataclass(frozen=True, slots=True)
class DispatcherRead:
    """One question that the code of a package asked while it was imported.

    Args:
        how: what was asked, such as `torch.ops`, `overloads()`, `get_kernel` or `sys.modules`.
        about: what it was asked of. See Note [What a read is about].
        key: the dispatch key, or the table of a registry; empty when none was named.
        module: the module body that was running.
        site: the line of the package that asked, `file:line` below the folder of the package.
        answer: the answer as a short text; empty where only the source was read.
        computed: whether the answer is the kernel that would run, or ran, so that backend fallbacks have a say.
    """

    how: str
    about: str
    key: str
    module: str
    site: str
    answer: str = ""
    computed: bool = False


class ModuleWrite(NamedTuple):
    """What a module registers, as far as a read may be about it.

    Args:
        about: an operator, `_`, an entry of a registry, a module. See Note [What a read is about].
        key: the dispatch key of a fallback; empty elsewhere.
        module: the module.
        site: the line that registers it, `file:line`.
    """

    about: str
    key: str
    module: str
    site: str


class Dependence(NamedTuple):
    """A read, and a write of another module that the answer may depend on."""

    read: DispatcherRead
    write: ModuleWrite

    def __str__(self) -> str:
        read, write = self
        does = "" if write.about.startswith(MODULE) else f", which {write.module} {_verb(write.about)} at {write.site}"
        return f"{read.site} {_question(read)}{does}: what {read.module} registers may depend on it"


def dependences(reads: Iterable[DispatcherRead], writes: Iterable[ModuleWrite]) -> tuple[Dependence, ...]:
    """The reads that are about what another module writes, with each of these writes, in the order of the reads.

    What nobody writes, such as an operator of PyTorch that is left as it is, has the same answer in every order.

    Args:
        reads: what was asked.
        writes: what the modules register.
    """
    by_subject: dict[str, list[ModuleWrite]] = {}
    for write in writes:
        for subject in _subjects(write.about):
            by_subject.setdefault(subject, []).append(write)
    found = []
    for read in reads:
        for write in by_subject.get(_subject(read.about), ()):
            if write.module != read.module and _is_about(read.about, write.about):
                found.append(Dependence(read, write))
        for write in by_subject.get(FALLBACK, ()) if read.computed or read.about == FALLBACK else ():
            if write.module != read.module and read.key in ("", write.key):
                found.append(Dependence(read, write))
        for write in by_subject.get(MODULE, ()) if read.about.startswith(MODULE) else ():
            if write.module != read.module and _is_below(write.about, read.about):
                found.append(Dependence(read, write))
    return tuple(dict.fromkeys(found))


def in_either_order(
    found: Sequence[Dependence], events: Mapping[ModuleWrite, Collection[object]], modules: ModuleWatch
) -> tuple[Dependence, ...]:
    """Those dependences whose read comes before the write in one order of imports, and after it in another one.

    A module that imports the one that writes finds the same in every order. See Note [Orders that a program can have].
    What has no event is kept, since nobody knows when it is asked or written.

    Args:
        found: the dependences.
        events: what stands for each write where the modules were watched, as a read does for itself.
        modules: the modules.
    """
    known = modules.owners()
    numbers: dict[object, list[int]] = {}
    placed: dict[Dependence, list[tuple[int, int]]] = {}
    for one in found:
        written = events.get(one.write, ())
        if written and all(event in known for event in (one.read, *written)):
            read, *others = (numbers.setdefault(event, [len(numbers)])[0] for event in (one.read, *written))
            placed[one] = [(read, other) for other in others]
    if not placed:
        return tuple(found)
    program = Program.of(len(numbers), modules.modules(numbers))

    @functools.cache
    def has_two_orders(read: int, write: int) -> bool:
        return len(list(islice(program.restricted_to((read, write)).orders(), 2))) > 1

    return tuple(one for one in found if one not in placed or any(has_two_orders(*pair) for pair in placed[one]))


def _subject(about: str) -> str:
    """What reads of this are found by."""
    if about.startswith(MODULE) or about == FALLBACK:
        return ""
    return about if about.endswith("*") and not about.endswith(f".{EVERY_OVERLOAD}") else _without_overload(about)


def _subjects(about: str) -> Iterator[str]:
    """Everything that a read can be about when this is written."""
    if about.startswith(MODULE):
        yield MODULE
        return
    yield _without_overload(about)
    registry, space, operator = about.rpartition(" ")
    if "::" in operator:
        yield f"{registry}{space}{operator.partition('::')[0]}::*"
        yield f"{registry}{space}{EVERYTHING}"


def _is_about(read: str, write: str) -> bool:
    """Whether a write that a read is found by is of the same overload."""
    overloads = read[len(_without_overload(read)) :], write[len(_without_overload(write)) :]
    return read.endswith("*") or overloads[0] in ("", overloads[1]) or overloads[1] == f".{EVERY_OVERLOAD}"


def _is_below(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _without_overload(about: str) -> str:
    namespace, colons, name = about.partition("::")
    return f"{namespace}{colons}{name.partition('.')[0]}" if colons else about


def _question(read: DispatcherRead) -> str:
    at = f" at {read.key}" if read.key else ""
    if read.how == CALL:
        return f"calls {read.about}"
    if read.how == TABLE:
        return f"names the table of {read.about.partition(' ')[0]}"
    if read.how in ("torch.ops", "sys.modules", "find_spec", "import"):
        return f"asks whether {read.about} exists ({read.how})"
    subject = "" if read.about == FALLBACK else f" of {read.about.rpartition(' ')[2]}"
    return f"asks {read.how}{subject}{at}"


def _verb(about: str) -> str:
    return "renames" if about == PRIVATEUSE1 else "registers"
