"""Probes in the slots of the dispatch tables: every look-up that finds a kernel is recorded, and goes on to it."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dispatchlab._gc_pause import collector_paused
from dispatchlab.live.bridge.reserved_namespaces import is_own
from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.builtin_fallbacks import shared_kernels
from dispatchlab.live.introspection.slot_memory import MemoryLayout, entry_address, entry_addresses, memory_layout
from dispatchlab.live.tracing.loaded_libraries import function_slots, libraries, thread_local_module
from dispatchlab.live.tracing.probe_code import CHECK, CLOCK, CODE, CONTROL, ENTRY, PERSONALITY, RETURN

# Note [Probes in the slots]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# No mode and no hook of PyTorch sees a call's hops: a `TorchDispatchMode` is below autograd, the profiler names calls
# without their key sets, and the Python dispatcher runs other kernels than the program would. A Python kernel in front
# of every kernel sees each hop, but takes its arguments through Python, where a number that is wrapped in a tensor
# becomes a plain one. What all look-ups have in common is that they jump through two or three pointers in a slot: the
# boxed function of a kernel and its unboxed ones (aten/src/ATen/core/boxing/KernelFunction.h). So while a trace is on,
# each of these pointers leads to a probe: twenty instructions that note which kernel it is and jump to probe.c, which
# writes a record and jumps on to the kernel. No argument is touched, nothing is boxed that was not, Python is not
# called, no lock is taken, and no frame stays on the stack: a C++ exception passes as it would without.
#
# A record has the key set that the kernel was given (it is the argument behind the functor), the sets that the thread
# includes and excludes, the keys of the tensors among the arguments as far as their places are known, the address that
# the kernel returns to, and the place of that on the stack. The latter makes the tree: a hop whose place is below that
# of another was made inside of it.
#
# PyTorch compares its tables with what it computes before it reports a missing kernel. It gets a copy of the operator
# without the probes for that, or a user would read of a broken invariant: see `probe_check` in probe.c.
#
# Nothing of this is taken on faith: the places in memory are found by what must be there, and the first `Probes` of a
# process makes calls on a thread of its own whose records must be right, with one that raises among them.

# Note [Entries that go]
# ~~~~~~~~~~~~~~~~~~~~~~
# The entries of operators are walked while another thread, or the garbage collector in this one, could release the
# library that one belongs to. So the collector waits meanwhile, and registrations and releases from Python wait for the
# lock, which a thread that registers can take again for the probes of what it registered.

Words = npt.NDArray[np.uint64]

MOST_PROBES: Final = 1 << 18
_PROBE_BYTES: Final = 16
_CODE_BYTES: Final = 4096
_COPIES: Final = 64
_BEHIND_TABLE: Final = 1024
_JUMP_END: Final = 11
_NOT_A_FUNCTOR: Final = 2**64 - 1

_SETS: Final = "_ZN3c104impl26raw_local_dispatch_key_setE"
_CHECK: Final = "_ZNK3c104impl13OperatorEntry15checkInvariantsEv"


class _Control(ctypes.Structure):
    """`struct control` of probe.c."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("head", "capacity", "records", "probes", "module", "offset", "key_set"),
            *("first_probe", "last_probe", "table", "entry_bytes", "slot_words"),
            *("copies", "copies_count", "copies_taken", "check", "returns", "mask", "stack_of"),
        )
    ]


EACH: Final = ("each0", "each1", "each2", "each3")
"""The keys of the first arguments that have any."""

RECORD: Final = np.dtype(
    [
        (name, np.uint64)
        for name in (
            *("probe", "thread", "keys", "stack", "included", "excluded"),
            *("of_arguments", "time", "caller", "unknown"),
            *EACH,
        )
    ]
)
"""`struct record` of probe.c."""


RETURNED: Final = 1 << 63
RAISED: Final = RETURNED + 1
"""What stands for the probe in the record of a kernel's end."""

BY_A_JUMP: Final = 2
"""The bit of `unknown` for a kernel that the one above jumped to, so that its caller is not known."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of one kernel of one operator.

    Args:
        operator: its name.
        target: the function of the kernel that it leads to.
        boxed: whether that takes a stack.
        is_boxed_kernel: the kernel has no function that takes its arguments as C++ passes them.
        arguments: the names of the arguments that can have keys, as far as their places are known.
    """

    operator: str
    target: int
    boxed: bool
    is_boxed_kernel: bool
    arguments: tuple[str, ...]


def unavailable() -> str:
    """Why the hops of this process cannot be recorded, a sentence; empty when they can be."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the hops of calls can be recorded on Linux on x86-64 alone"
    if memory_layout() is None:
        return "the dispatch tables of this PyTorch cannot be read, as their layout in memory is not known"
    return ""


class ProbeError(RuntimeError):
    """The hops of this process cannot be recorded; the text says why."""


class Recorded(NamedTuple):
    """What was recorded, and how many hops were not."""

    records: npt.NDArray[np.void]
    dropped: int


class Probes:
    """The probes of this process, while they are in the slots.

    Args:
        capacity: how many records there is room for; a hop is two, its beginning and its end.

    Raises:
        ProbeError: hops cannot be recorded here.
    """

    def __init__(self, capacity: int) -> None:
        reason = unavailable()
        if reason:
            raise ProbeError(reason)
        layout = memory_layout()
        assert layout is not None
        self._layout = layout
        self._probes: list[Probe] = []
        self._known: dict[tuple[str, int, int, int], int] = {}
        self._plans: dict[tuple[tuple[str, ...], tuple[bool, ...]], tuple[int, int]] = {}
        self.lock = threading.RLock()
        self.is_full = False
        self._fallthrough, self._ambiguous = map(np.uint64, shared_kernels())
        try:
            code = mmap.mmap(
                -1,
                _CODE_BYTES + MOST_PROBES * _PROBE_BYTES,
                flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC,
            )
        except OSError as error:
            raise ProbeError(f"this system grants no memory for code ({error.strerror})") from None
        _kept_for_ever.append(code)  # another thread may be on its way through it
        start = _address(code)
        code[: len(CODE)] = CODE
        self._first = start + _CODE_BYTES
        self._stubs = memoryview(code)[_CODE_BYTES:]
        self._entry = start + ENTRY
        self.capacity = capacity
        # NB: the memory of the records is touched as they come, so a large limit costs nothing by itself.
        room = max(capacity, _ROOM)  # of which the calls that try it take some
        self._records = self._zeroed(room * RECORD.itemsize).view(RECORD)
        self._table = self._zeroed(MOST_PROBES * 32).view(np.uint64).reshape(-1, 4)
        entry_bytes = layout.table + layout.count * layout.stride + _BEHIND_TABLE
        copies = self._zeroed(_COPIES * entry_bytes)
        module, offset = _place_of_local_sets()
        returns, unwinder = _room_for_returns(), _unwinder()
        self._control = _Control(
            capacity=capacity if _tried else room,
            records=self._records.ctypes.data,
            probes=self._table.ctypes.data,
            module=module,
            offset=offset,
            key_set=_place_of_key_set(),
            first_probe=self._first,
            last_probe=self._first + MOST_PROBES * _PROBE_BYTES,
            table=layout.table,
            entry_bytes=entry_bytes,
            slot_words=layout.count * layout.stride // 8,
            copies=copies.ctypes.data,
            copies_count=_COPIES,
            returns=_address(returns),
            mask=len(returns) - 1,
            stack_of=ctypes.cast(unwinder._Unwind_GetCFA, ctypes.c_void_p).value or 0,
        )
        frames = _frames(start + RETURN, start + PERSONALITY, self._control.returns, self._control.mask)
        _register(unwinder, frames)
        ctypes.c_uint64.from_address(start + CONTROL).value = ctypes.addressof(self._control)
        self.clock = ctypes.CFUNCTYPE(ctypes.c_uint64)(start + CLOCK)
        self._checks = _Checks(start + CHECK, self._control)
        _kept_for_ever.append((self._control, self._records, self._table, copies, returns, frames))

        if not _tried:
            self._try()
            _tried.append(None)

    def _try(self) -> None:
        """Make calls whose records are known. See Note [Probes in the slots].

        Raises:
            ProbeError: the records are others.
        """
        found: list[tuple[int, ...]] = []
        wanted: list[tuple[int, ...]] = []

        def calls() -> None:
            t, c = torch(), bindings()
            x = t.ones(2, 2, requires_grad=True)
            arguments = raw_bits(c._dispatch_keys(x))
            cpu = c.DispatchKeySet(c.DispatchKey.CPU)
            both = raw_bits(cpu.add(c.DispatchKey.AutogradCPU))
            self.attach(_TRIED)
            try:
                t.sin(x)
                t.mm(x, t.ones(3, 1))
            except RuntimeError:
                pass
            finally:
                self.detach()
            begun = [(both, arguments), (raw_bits(cpu), arguments)]
            wanted.extend((*begun, (RETURNED,), (RETURNED,), *begun, (RAISED,), (RAISED,)))
            mine = threading.get_ident()
            for record in self.recorded().records:
                if int(record["thread"]) == mine and record["probe"] >= RETURNED:
                    found.append((int(record["probe"]),))
                elif int(record["thread"]) == mine:
                    found.append((int(record["keys"]), int(record["of_arguments"])))

        alone = threading.Thread(target=calls, name="dispatchlab")  # where no guard is open, and no mode on
        alone.start()
        alone.join()
        if not wanted or found != wanted:
            raise ProbeError("calls that were made to try it were not recorded as they are")
        self._records[: min(self.hops, len(self._records))] = 0
        self._control.head, self._control.capacity = 0, self.capacity

    def attach(self, names: Iterable[str] | None = None) -> None:
        """Put probes into the slots of operators, of all of them when no names are given; those that are there stay."""
        with self.lock, collector_paused():  # See Note [Entries that go]
            self._checks.attach()
            if names is None:
                found = entry_addresses(self._layout)
            else:
                each = ((name, entry_address(self._layout, *name.split(".", 1))) for name in names)
                found = ((name, entry) for name, entry in each if entry is not None)
            for name, entry in found:
                if not is_own(name):
                    self._attach(name, entry)

    def detach(self) -> None:
        """Take the probes out of all slots; harmless when there are none."""
        with self.lock, collector_paused():  # See Note [Entries that go]
            first, last = np.uint64(self._first), np.uint64(self._first + len(self._probes) * _PROBE_BYTES)
            for _, entry in entry_addresses(self._layout):
                words = _slots(self._layout, entry)
                ours = (words >= first) & (words < last)
                if ours.any():
                    words[ours] = self._table[(words[ours] - first) // np.uint64(_PROBE_BYTES), 0]
            self._checks.detach()

    def probe(self, number: int) -> Probe:
        """The probe of a record, whose number is one more."""
        return self._probes[number]

    @property
    def hops(self) -> int:
        """How many hops there have been."""
        return int(self._control.head)

    def recorded(self) -> Recorded:
        """What was recorded so far, in the order in which the hops began."""
        hops = self.hops
        count = min(hops, int(self._control.capacity))
        found = self._records[:count].copy()
        return Recorded(found[found["probe"] != 0], hops - count)

    def kernels_now(self, operators: Iterable[str]) -> dict[str, list[frozenset[int]]]:
        """The functions of the kernel in each slot of these operators, as they would be without probes."""
        wanted = frozenset(operators)
        with self.lock, collector_paused():  # See Note [Entries that go]
            found = {name: entry for name, entry in entry_addresses(self._layout) if name in wanted}
            slots = {name: _slots(self._layout, entry)[:, 1:4].tolist() for name, entry in found.items()}
        return {name: [frozenset(map(self._target, filter(None, row))) for row in rows] for name, rows in slots.items()}

    def _target(self, word: int) -> int:
        number = (word - self._first) // _PROBE_BYTES
        return self._probes[number].target if 0 <= number < len(self._probes) else word

    def _attach(self, name: str, entry: int) -> None:
        words = _slots(self._layout, entry)
        prints = words[:, 0] + words[:, 1]
        first, last = np.uint64(self._first), np.uint64(self._first + MOST_PROBES * _PROBE_BYTES)
        functions = words[:, 1:4]
        bare = (functions != 0) & ((functions < first) | (functions >= last))
        bare[(prints == self._fallthrough) | (prints == self._ambiguous)] = False
        rows, columns = np.nonzero(bare)
        if not len(rows):
            return
        schema = _schema_line(name)
        for row, column, target, functor in zip(
            rows.tolist(), columns.tolist(), functions[bare].tolist(), words[rows, 0].tolist(), strict=True
        ):
            number = self._known.get((name, column, target, functor))
            if number is None:
                only_boxed = not functions[row, 1] and not functions[row, 2]
                number = self._new(name, schema, column, target, functor, only_boxed=only_boxed)
            if number >= 0:
                functions[row, column] = self._first + number * _PROBE_BYTES

    def _new(self, name: str, schema: str, column: int, target: int, functor: int, *, only_boxed: bool) -> int:
        """The number of a new probe; -1 when there is no room for it."""
        number = len(self._probes)
        if number >= MOST_PROBES:
            self.is_full = True
            return -1
        boxed = not column
        plans = self._plans_of(schema, boxed=boxed, by_list_reference=name in _BY_LIST_REFERENCE, own=_is_own(name))
        self._table[number] = target, _NOT_A_FUNCTOR if boxed else functor, *plans
        at = self._first + number * _PROBE_BYTES
        jump = self._entry - (at + _JUMP_END)
        stub = b"\x41\xbb" + number.to_bytes(4, "little") + b"\xe9" + jump.to_bytes(4, "little", signed=True)
        start = number * _PROBE_BYTES
        self._stubs[start : start + _JUMP_END] = stub
        self._probes.append(Probe(name, target, boxed, only_boxed, names_with_keys(schema)))
        self._known[name, column, target, functor] = number
        return number

    def _plans_of(self, schema: str, **how: bool) -> tuple[int, int]:
        """The addresses of two plans as probe.c reads them: where the tensors of a call are.

        The first argument is in the third register, or in the fourth when the first is the place of the result.
        """
        types = argument_types(schema)
        key = types, tuple(how.values())
        found = self._plans.get(key)
        if found is None:
            addresses = []
            for first in (2, 3):
                plan = np.array([*places_of_tensors(types, first, **how), 0], dtype=np.uint32)
                _kept_for_ever.append(plan)
                addresses.append(plan.ctypes.data)
            found = self._plans[key] = addresses[0], addresses[1]
        return found

    def _zeroed(self, size: int) -> npt.NDArray[np.uint8]:
        room = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.frombuffer(room, dtype=np.uint8)[:size]


_kept_for_ever: list[object] = []
_tried: list[None] = []  # not empty when the probes of this process were found to work
_TRIED = ("aten::sin", "aten::mm")
_ROOM = 1024


def _address(room: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(room))


def _slots(layout: MemoryLayout, entry: int) -> Words:
    words = (ctypes.c_uint64 * (layout.count * layout.stride // 8)).from_address(entry + layout.table)
    return np.frombuffer(memoryview(words), dtype=np.uint64).reshape(layout.count, -1)


# -- places in the memory of PyTorch


@cache
def _place_of_local_sets() -> tuple[int, int]:
    """The library of the thread-local key sets and how far into its data they are."""
    try:
        library = ctypes.CDLL(_library("libc10"))
        address = ctypes.addressof(ctypes.c_uint64.in_dll(library, _SETS))
    except (OSError, ValueError):
        raise ProbeError("this PyTorch does not export the key sets of a thread") from None
    found = thread_local_module(address, threading.get_ident())
    if found is None:
        raise ProbeError("the key sets of a thread were not found in its memory")
    return found


@cache
def _library(name: str) -> str:
    found = [one.name for one in libraries() if os.path.basename(one.name).startswith(f"{name}.")]
    if not found:
        raise ProbeError(f"{name} is not among the loaded libraries")
    return found[0]


@cache
def _place_of_key_set() -> int:
    """Bytes from the start of a TensorImpl to its key set."""
    t, c = torch(), bindings()
    tensors = (t.empty(1), t.empty(1, device="meta"), t.empty(1, requires_grad=True), t.empty(1).to_sparse())
    wanted = [raw_bits(c._dispatch_keys(tensor)) for tensor in tensors]
    places = [
        at
        for at in range(0, _MOST_TENSOR_BYTES, 8)
        if [ctypes.c_uint64.from_address(tensor._cdata + at).value for tensor in tensors] == wanted
    ]
    if len(places) != 1:
        raise ProbeError("the key set of a tensor was not found in its memory")
    return places[0]


_MOST_TENSOR_BYTES = 192


def default_sets() -> tuple[int, int]:
    """What PyTorch keeps a thread's sets relative to: the included keys and the excluded ones of a thread at rest."""
    module, offset = _place_of_local_sets()
    vector = ctypes.c_uint64.from_address(threading.get_ident() + 8).value
    block = ctypes.c_uint64.from_address(vector + 16 * module).value
    raw = (ctypes.c_uint64 * 2).from_address(block + offset)
    c = bindings()
    included, excluded = c._dispatch_tls_local_include_set(), c._dispatch_tls_local_exclude_set()
    return raw[0] ^ raw_bits(included), raw[1] ^ raw_bits(excluded)


# -- what happens when a kernel returns, or raises

# Note [Kernels return to us]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A place on the stack says how deep a hop is, and not whether the one before it is over: the next call may well be made
# by something deeper. So a kernel returns to `probe_return`, which records that and goes on to where the kernel would
# have returned to. That address is kept beside the stack, at the last bits of the place that it was in. A kernel that
# raises never gets there; the C++ runtime looks for a description of each frame that the exception passes, so there is
# one of `probe_return`: where the address is kept, and a routine that is called while the exception passes, which
# records that. It is registered as that of any code that is made at run time.
#
# The runtime knows the frame that catches by where the frame below it begins. Where that of `probe_return` took no
# room, it would begin where the kernel's does, and the runtime would end the process when the kernel's own caller
# catches, as it does since PyTorch 2.15. So it takes 8 bytes, with which no frame of a compiler can be mistaken for it.

_ROOMS = (1 << 40, 1 << 36)


def _room_for_returns() -> mmap.mmap:
    """Memory that is used where stacks are; so large that those of two threads have different last bits."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    for size in _ROOMS:
        try:
            return mmap.mmap(-1, size, flags=flags)
        except (OSError, ValueError):
            continue
    raise ProbeError("this system grants no address space to keep what is on the stack beside it")


_MAP_NORESERVE = 0x4000


@cache
def _unwinder() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libgcc_s.so.1")
        library._Unwind_GetCFA, library.__register_frame  # noqa: B018  raise when they are missing
    except (OSError, AttributeError):
        raise ProbeError("the C++ runtime takes no description of code that is made at run time") from None
    return library


def _register(unwinder: ctypes.CDLL, frames: ctypes.Array[ctypes.c_char]) -> None:
    unwinder.__register_frame(frames)  # NB: within a class Python would change the name


def _frames(returned_to: int, personality: int, returns: int, mask: int) -> ctypes.Array[ctypes.c_char]:
    """The description of the frame of `probe_return` as .eh_frame has it: a CIE, an FDE and the end."""
    common = b"\1zPR\0\1\x78\x10" + b"\x0a" + b"\0" + personality.to_bytes(8, "little") + b"\0"
    # The frame begins 8 bytes above the stack pointer, which the caller has as it is here.
    common += b"\x0c\x07\x08" + b"\x14\x07\x01"
    # what is kept for the place: CFA, 16, minus, the mask, and, the memory, plus
    kept = b"\x40\x1c\x0e" + mask.to_bytes(8, "little") + b"\x1a\x0e" + returns.to_bytes(8, "little") + b"\x22"
    rule = b"\x10\x10" + bytes([len(kept)]) + kept  # the address of return is in memory, at this
    cie = b"\0\0\0\0" + common
    cie += b"\0" * (-len(cie) % 8 + 4)
    fde = (returned_to - 1).to_bytes(8, "little") + (_RETURN_BYTES).to_bytes(8, "little") + b"\0" + rule
    fde = (len(cie) + 8).to_bytes(4, "little") + fde
    fde += b"\0" * (-len(fde) % 8 + 4)
    text = len(cie).to_bytes(4, "little") + cie + len(fde).to_bytes(4, "little") + fde + b"\0\0\0\0"
    return ctypes.create_string_buffer(text, len(text))


_RETURN_BYTES = 32


class _Checks:
    """The calls of PyTorch's own check of an operator, while they are led to a copy of it without probes."""

    def __init__(self, ours: int, control: _Control) -> None:
        self._ours = ours
        self._pointers = tuple(function_slots(_CHECK))
        check = getattr(ctypes.CDLL(_library("libtorch_cpu")), _CHECK, None)
        if check is None or not self._pointers:
            raise ProbeError("the place where PyTorch checks an operator was not found")
        self._theirs = ctypes.cast(check, ctypes.c_void_p).value or 0
        control.check = self._theirs

    def attach(self) -> None:
        for pointer in self._pointers:
            ctypes.c_uint64.from_address(pointer).value = self._ours

    def detach(self) -> None:
        for pointer in self._pointers:
            ctypes.c_uint64.from_address(pointer).value = self._theirs


# -- where the tensors are among the arguments

# Note [Where the tensors are]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A boxed kernel has its arguments at the end of a stack of IValues, 16 bytes each, in the order of the schema. For an
# unboxed one the C++ type of each argument decides (torchgen/api/cpp.py), and how the System V ABI passes it: six
# registers for integers and pointers, of which the functor, the key set and often the address of the result take two
# or three; floats have registers of their own; what is larger than 16 bytes and trivial is on the stack. The types of
# a kernel that is not PyTorch's own can differ where C++ leaves a choice, such as a vector for `int[]`. So behind the
# first type that has a choice nothing is read there: what else could be a tensor is not known, and the record says so.

_TENSOR, _OPTIONAL_TENSOR, _TENSORS, _BOXED, _OPTIONAL_OTHER, _BOXED_OTHER, _UNKNOWN = range(1, 8)
_REGISTERS = 6
_BY_LIST_REFERENCE = frozenset(("aten::cat", "aten::cat.out"))
_ONE = frozenset(("int", "SymInt", "bool", "SymBool", "Scalar", "ScalarType", "Layout", "MemoryFormat", "Device"))
_ONE_OPTIONAL = frozenset(("bool", "Scalar", "ScalarType", "Layout", "MemoryFormat", "Device"))
_LIST = re.compile(r"(int|SymInt|float|bool|Scalar|Dimname|Tensor)\[(\d*)\](\?)?")
_ALIASES = re.compile(r"\([^()]*\)")


def argument_types(schema: str) -> tuple[str, ...]:
    """The types of a schema's arguments, without what they alias."""
    return tuple(text.partition(" ")[0] for text in _arguments(schema))


@cache
def names_with_keys(schema: str) -> tuple[str, ...]:
    """The names of a schema's arguments that can have keys: tensors, lists of tensors, generators."""
    some = (text.partition("=")[0] for text in _arguments(schema))
    return tuple(text.rpartition(" ")[2] for text in some if text.startswith(("Tensor", "Generator")))


@cache
def _arguments(schema: str) -> tuple[str, ...]:
    inside = schema.partition("(")[2]
    depth, texts = 0, [""]
    for character in inside:
        if character == ")" and not depth:
            break
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "," and not depth:
            texts.append("")
        else:
            texts[-1] += character
    found = (_ALIASES.sub("", text).strip() for text in texts)
    return tuple(text for text in found if text not in ("", "*"))


def places_of_tensors(
    types: Sequence[str], first: int, *, boxed: bool, by_list_reference: bool, own: bool
) -> tuple[int, ...]:
    """Where the tensors of a call are, as probe.c reads it. See Note [Where the tensors are].

    Args:
        types: of the arguments.
        first: the register of the first, unless they are on a stack.
        boxed: they are.
        by_list_reference: a list of tensors is passed by the address of an `IListRef`.
        own: the kernels are PyTorch's own.
    """
    if boxed:
        return tuple(
            (_BOXED if text in ("Tensor", "Tensor?") else _BOXED_OTHER) << 24 | len(types) - at
            for at, text in enumerate(types)
            if "Tensor" in text or "Generator" in text
        )
    found: list[int] = []
    register, stack = first, _REGISTERS
    for at, text in enumerate(types):
        words, kind, in_memory = _passed(text, own=own)
        if text == "Tensor[]" and by_list_reference:
            words, kind = 1, _UNKNOWN
        if words is None:
            left = any("Tensor" in one or "Generator" in one for one in types[at:])
            return (*found, *([_UNKNOWN << 24] if left else []))
        if not in_memory and register + words <= _REGISTERS:
            place, register = register, register + words
        else:
            place, stack = stack, stack + words
        if kind is not None:
            found.append(kind << 24 | place)
    return tuple(found)


def _is_own(name: str) -> bool:
    return name.startswith("aten::")


def _passed(text: str, *, own: bool) -> tuple[int | None, int | None, bool]:
    """How an argument is passed: how many words, what it is to probe.c, and whether it is on the stack anyway.

    No words stand for a type that could be passed in several ways.
    """
    bare, optional = text.rstrip("?"), text.endswith("?")
    if bare == "Tensor":
        return 1, _OPTIONAL_TENSOR if optional else _TENSOR, False
    if bare == "Generator":
        return (1, _OPTIONAL_OTHER, False) if optional else (1, _UNKNOWN, False)
    if bare == "float":  # in a register for floats; whether an optional one is there is in another
        return (1 if optional else 0), None, False
    if text in _ONE or (optional and bare in _ONE_OPTIONAL):
        return 1, None, False
    if not own:
        return None, None, False
    if bare == "Tensor[]" and not optional:
        return 2, _TENSORS, False
    if bare == "Tensor?[]":
        return 1, _UNKNOWN, False
    if text in ("str", "int?"):  # a SymInt that may be missing is passed by its address, or in two registers as an int
        return 2, None, False
    found = _LIST.fullmatch(text)
    if found is None:
        return None, None, False
    if found[1] == "bool" and found[2]:
        return 1, None, False
    return (3, None, True) if found[3] else (2, None, False)


@cache
def _schema_line(name: str) -> str:
    dump: str = bindings()._dispatch_dump(name)
    return next((line.partition(": ")[2] for line in dump.splitlines() if line.startswith("schema: ")), "")
