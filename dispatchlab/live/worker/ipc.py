"""Messages between a worker and its parent: a length and a pickle, over two pipes."""

from __future__ import annotations

import pickle
import struct
import traceback
from typing import IO, Literal, TypeAlias

from dispatchlab.errors import DispatchLabError

Request: TypeAlias = tuple[str, tuple[object, ...]]
"""What to do, by name, and with what."""

Reply: TypeAlias = tuple[Literal["done", "raised", "progress", "importing"], object]
"""What came out; or how far it has come; or the package that is being imported from now on, None for none."""

_LENGTH = struct.Struct(">Q")


class WorkerError(DispatchLabError):
    """A worker failed without a refusal: because of a bug, or an error of a user's function.

    Args:
        text: the traceback in the worker.
    """

    text: str

    def __str__(self) -> str:
        last = self.text.strip().splitlines()[-1]
        return f"the worker that runs PyTorch failed with {last}\n{self.text}"


def send(stream: IO[bytes], message: Request | Reply) -> None:
    """Write one message.

    Raises:
        OSError: the other end is closed.
    """
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def interrupt(stream: IO[bytes]) -> None:
    """Write the empty message, which means Ctrl-C.

    Raises:
        OSError: the other end is closed.
    """
    stream.write(_LENGTH.pack(0))
    stream.flush()


def receive_bytes(stream: IO[bytes]) -> bytes:
    """Read one message without unpickling it; empty for an interrupt.

    Raises:
        EOFError: the other side is gone.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def receive(stream: IO[bytes]) -> object:
    """Read one message that is not an interrupt.

    Raises:
        EOFError: the other side is gone.
    """
    return pickle.loads(receive_bytes(stream))


def portable(error: BaseException) -> BaseException:
    """Return the error in a form for another process: an error of dispatchlab itself, any other as a `WorkerError`."""
    if isinstance(error, DispatchLabError | KeyboardInterrupt):
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return WorkerError("".join(traceback.format_exception(error)))
        return error
    return WorkerError("".join(traceback.format_exception(error)))
