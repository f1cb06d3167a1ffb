"""The table that kernels at some keys give an operator, as `torch._python_dispatcher.PythonDispatcher` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.dump_format import parse_table
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.registration import Def, Impl, Kernel, KernelForm, Registration
from dispatchlab.model.schema_parser import parse_inferred, parse_name, parse_schema
from dispatchlab.sources.engines import EngineName, engine_for
from dispatchlab.views.blocks import Inline, Line, Span, source
from dispatchlab.views.view import View

_ROWS: Final = ("CPU", "AutogradCPU", "FPGA", "AutogradOther", "XLA", "AutogradXLA", "Lazy", "AutogradLazy")
"""The rows that `PythonDispatcher` prints, each backend with its autograd key."""

_COMPOSITES: Final = {"CompositeImplicitAutograd", "CompositeExplicitAutograd"}
_NAME, _WIDTH = "__test__::foo", 15
_TYPE: Final = parse_inferred("(Tensor _0) -> Tensor _0")
_FALLBACK = re.compile(r"registered at .*FallbackKernel\.cpp.*(\[)")


class RegisteredKeysError(DispatchLabError):
    """The list of keys cannot be registered."""

    reason: str

    template = "--register: {reason}"


@dataclass(frozen=True, slots=True)
class RegisteredKeys:
    """What kernels at some keys come to.

    Args:
        semantics: whose dispatcher it is.
        registered: the keys, in the order in which the kernels were registered.
        table: the rows, each a key and what its slot holds; empty for nothing.
    """

    semantics: str
    registered: tuple[str, ...]
    table: tuple[tuple[str, str], ...]


def register_keys(text: str, *, engine: EngineName, semantics: str | None, rows: Sequence[str] = ()) -> RegisteredKeys:
    """Register a kernel `fn_KEY` at each key of a list, for an operator that takes and gives a tensor.

    Args:
        text: the keys, with commas or blanks between them.
        engine: the engine.
        semantics: those of `--semantics`.
        rows: the rows that are shown; those of `PythonDispatcher` when there are none.

    Raises:
        UnknownKeyError: no key has that name.
        RegisteredKeysError: the list is empty, or what `PythonDispatcher` refuses: a key twice, or both composite keys.
        RegistrationError: the engine refuses a key.
    """
    keys = tuple(parse_key(word) for word in re.split(r"[,\s]+", text.strip(", \n\t")) if word)
    names = [key.name for key in keys]
    if not keys:
        raise RegisteredKeysError("no key was named: name some, as in 'CPU, XLA, CompositeImplicitAutograd'")
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise RegisteredKeysError(f"{twice} is named twice, and its second kernel would hide the first: name it once")
    if _COMPOSITES.issubset(names):
        raise RegisteredKeysError("an operator has one composite kernel: leave one of the two Composite keys out")
    kernel, name = Kernel(KernelForm.UNBOXED, _TYPE), parse_name(_NAME)
    all_of: list[Registration] = [Def(parse_schema(f"{_NAME}(Tensor x) -> Tensor"))]
    all_of += (Impl(name, None if key is DispatchKey.Undefined else key, kernel, f"fn_{key.name}") for key in keys)
    with engine_for(engine, asked=semantics, in_file=None) as made, made.sandbox() as sandbox:
        held = [sandbox.register(each) for each in all_of]
        found = {key.name: str(entry) for key, entry in parse_table(sandbox.snapshot(name).table).items()}
        del held
        in_order = [key for key in found if key in (rows or _ROWS)]
        shown = [*in_order, *(row for row in rows or _ROWS if row not in found)]
        return RegisteredKeys(made.semantics, tuple(names), tuple((key, found.get(key, "")) for key in shown))


def keys_view(found: RegisteredKeys) -> View[RegisteredKeys]:
    """The table with its head, to the character what `PythonDispatcher.dispatchTable` gives."""
    return View(found, lines=_lines)


def _lines(found: RegisteredKeys) -> Iterator[Line]:
    yield from (Line(), Line("Computed Dispatch Table", "strong"))
    yield from (_row("key", "kernel"), Line("-" * 27, "quiet"))
    yield from (_row(key, source(_FALLBACK.sub("[", entry))) for key, entry in found.table if entry)


def _row(key: str, kernel: Inline) -> Line:
    return Line(kernel, label=Span(f"{key:<{_WIDTH}} "))
