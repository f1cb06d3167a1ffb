"""Recorded calls of programs: the JSON of `coverage --program`, read for a backend with other kernels."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.bounded_read import ReadError, json_value, read_file
from dispatchlab.model.program_run import FALLBACK, MISSING, OWN, ProgramRun
from dispatchlab.pytorch.registry import Backend

MAX_BYTES = 8 * 2**20
"""Larger files are refused unread; one with all operators of PyTorch has two."""

T = TypeVar("T")


class TraceError(DispatchLabError):
    """A file of recorded calls cannot be used."""

    path: str
    reason: str

    template = "--trace {path}: {reason}; write it with: dispatchlab coverage --program FILE.py --format json"


class ProgramTrace(NamedTuple):
    """The calls of programs that ran on a device which stands in for one.

    Args:
        path: the file.
        device: what they called the device.
        has_fallback: whether it had a fallback to the CPU.
        programs: how each ran, with what served a call then.
    """

    path: str
    device: str
    has_fallback: bool
    programs: dict[str, ProgramRun]

    def with_kernels(self, backend: Backend) -> dict[str, ProgramRun]:
        """What serves these calls on a backend.

        Raises:
            TraceError: one of the two has a fallback, whose own calls the other has not.
        """
        if self.has_fallback is not backend.has_fallback:
            with_one, option = ("with", "") if self.has_fallback else ("without", "no-")
            raise TraceError(self.path, f"the programs ran {with_one} a fallback: add --{option}fallback")
        kernels = {*backend.kernels}

        def served(operator: str, before: str) -> str:
            if operator in kernels:
                return OWN
            return before if before != OWN else FALLBACK if self.has_fallback else MISSING

        return {
            path: run._replace(calls={(name, served(name, by)): number for (name, by), number in run.calls.items()})
            for path, run in self.programs.items()
        }


def read_trace(path: str) -> ProgramTrace:
    """Read the calls of programs.

    Raises:
        TraceError: the file cannot be read, or is another one.
    """
    try:
        value = json_value(read_file(path, limit=MAX_BYTES, what="recorded calls"), path)
        if isinstance(value, dict) and value.get("tags"):
            raise TraceError(path, "it lists the kernels with a tag alone")
        kernels = {_field(one, "operator", str): one for one in _field(value, "kernels", list)}
        by = {name.removeprefix("fallback "): _field(one, "served_by", str) for name, one in kernels.items()}
        parts = {name: tuple(map(str, _field(one, "parts", list))) for name, one in kernels.items()}
        programs = {
            _field(one, "program", str): ProgramRun(
                _field(one, "error", str),
                _field(one, "unserved", str),
                {(name, by.get(name, MISSING)): number for name, number in map(_call, _field(one, "operators", list))},
                (),
                parts,
            )
            for one in _field(value, "programs", list)
        }
        return ProgramTrace(path, _field(value, "device", str), _field(value, "has_fallback", bool), programs)
    except OSError as error:
        raise TraceError(path, f"it cannot be read: {error.strerror or error}") from None
    except ReadError as error:
        raise TraceError(path, error.reason) from None
    except ValueError:
        raise TraceError(path, "it is no answer of coverage --program") from None


def _field(value: object, name: str, kind: type[T]) -> T:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise ValueError(name)
    return found


def _call(value: object) -> tuple[str, int]:
    match value:
        case [str(name), int(number)] if 0 < number < 1 << 53:
            return name, number
    raise ValueError(value)
