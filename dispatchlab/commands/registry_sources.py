"""Where a registry comes from: a bundled one, a file, the running PyTorch, or a scenario that is run for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError, RegistrationError
from dispatchlab.registry.bundled import bundled_names, open_named
from dispatchlab.registry.file import is_registry_file

if TYPE_CHECKING:
    from dispatchlab.registry.model import Recorded

LIVE = "live"
"""The source that means the PyTorch of this environment."""


class ImportOfRecordError(DispatchLabError):
    """Packages were to be imported into something that was recorded already."""

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__(tuple(modules))
        self.modules = tuple(modules)

    def __str__(self) -> str:
        return (
            f"--import {self.modules[0]} needs a running PyTorch to import it into, and what was given is on record "
            f"already: name {LIVE} as the one that changes"
        )


def is_scenario_source(text: str) -> bool:
    """Whether a source is a scenario, by the end of its name."""
    return Path(text).suffix in (".yaml", ".yml") and not is_registry_file(text)


def is_registry_source(text: str) -> bool:
    """Whether a source is a registry: `live`, the name of a bundled one, or a file that is one."""
    return text == LIVE or text in bundled_names() or is_registry_file(text)


def recorded_from(source: str, *, imports: Sequence[str] = (), semantics: str | None = None) -> Recorded:
    """The registry that a source means.

    Args:
        source: `live`, the name of a bundled registry, a registry file, or a scenario, which is run in the order of
            its file; what is refused then is told and left out.
        imports: modules to import first, for `live` alone.
        semantics: those under which a scenario is run; what it says itself when left out.

    Raises:
        UnknownRegistryError: there is no such name and no such file.
        RegistryFileError: a file cannot be read, or is damaged.
        ImportOfRecordError: `imports` for a source that is not `live`.
        DispatchLabError: PyTorch or a module cannot be imported, or a scenario cannot be used.
    """
    if source == LIVE:
        from dispatchlab.live.record_registry import record_registry

        return record_registry(imports)
    if imports:
        raise ImportOfRecordError(imports)
    return _of_scenario(source, semantics) if is_scenario_source(source) else open_named(source)


def _of_scenario(source: str, asked: str | None) -> Recorded:
    from dispatchlab.commands.output import note
    from dispatchlab.commands.registry_bench import registry_on
    from dispatchlab.engine.dispatcher import Dispatcher
    from dispatchlab.engine.handle import RegistrationHandle
    from dispatchlab.model.registration import Registration, describe
    from dispatchlab.registry.replay import run
    from dispatchlab.scenario.load import load_scenario

    scenario = load_scenario(source)
    semantics = asked or scenario.semantics or "strict"
    dispatcher = Dispatcher(semantics)

    def register(registration: Registration) -> RegistrationHandle | None:
        try:
            return dispatcher.register(registration)
        except RegistrationError as refusal:
            note(f"{source}: {describe(registration)} was refused: {refusal}")
            return None

    in_force = run(scenario.registrations, register)
    registry = registry_on(dispatcher, f"{semantics} ({source})")
    del in_force
    return registry
