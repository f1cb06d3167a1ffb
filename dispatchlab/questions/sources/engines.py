"""Choose an engine by name; the live one is imported on first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dispatchlab.errors import RequestError

if TYPE_CHECKING:
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.prover.protocol import Engine

EngineName: TypeAlias = Literal["lab", "torch"]

SEMANTICS_OF_TORCH: Final = (
    "--semantics {} is for the lab engine, but --engine torch has the semantics of the installed PyTorch: leave one of "
    "the two out"
)

_kept: dict[tuple[str, ...], LiveEngine] | None = None


@contextmanager
def kept_engines() -> Iterator[None]:
    """Share one live engine in this block, because its worker takes seconds to start."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        engines, _kept = _kept, None
        for engine in engines.values():
            engine.close()


@contextmanager
def engine_for(
    name: EngineName,
    *,
    asked: str | None,
    in_file: str | None,
    imports: Sequence[str] = (),
) -> Iterator[Engine]:
    """Return the engine for a command.

    Args:
        name: `lab` or `torch`.
        asked: the semantics of `--semantics`, if it was given.
        in_file: the semantics that the scenario names, if any; without both, the lab engine has the model of the
            newest PyTorch.
        imports: modules to import into the live engine first.

    Raises:
        UnknownSemanticsError: no semantics have this name.
        RequestError: semantics were requested for the live engine, or modules were named for the lab engine.
        TorchMissingError: PyTorch is not installed.
    """
    if name == "torch":
        if asked is not None:
            raise RequestError(SEMANTICS_OF_TORCH.format(asked))
        from dispatchlab.live.worker.engine import LiveEngine

        key = tuple(imports)
        if _kept is not None:
            if key not in _kept:
                _kept[key] = LiveEngine(imports=imports)
            yield _kept[key]
            return
        with LiveEngine(imports=imports) as live:
            yield live
        return
    if imports:
        raise RequestError(f"--package {imports[0]} needs the installed PyTorch: add --engine torch")
    from dispatchlab.engine.lab_engine import LabEngine

    yield LabEngine(asked or in_file)
