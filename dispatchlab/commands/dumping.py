"""`dispatchlab dump`: whether it is about a scenario, a registry, or the PyTorch that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatchlab.errors import DispatchLabError

_LISTINGS = ("listing", "dangling", "overridden", "counts")


class DumpOptionsError(DispatchLabError):
    """Options of one kind of source were given with another."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


def dump_anything(options: Mapping[str, Any], *, color: bool) -> int:
    """Show what `options`, those of the command line by name, ask for.

    Returns:
        The exit code.

    Raises:
        DispatchLabError: the options do not go together, or the source cannot be used.
    """
    from dispatchlab.commands.registry_sources import LIVE, is_registry_source

    rest = dict(options)
    listings = {name: rest.pop(name) for name in _LISTINGS}
    source, live = rest["source"], rest["engine"] == "torch"
    if rest["operator"] is None and not any(listings.values()):
        raise DumpOptionsError("which operator? name one, or a glob such as 'aten::add*'; --list lists what there is")
    if live and source is None and any(listings.values()):
        source = LIVE
    elif (live and source is None) or (source is not None and not is_registry_source(source)):
        return _dump_dispatcher(rest, listings, color=color)
    elif live:
        raise DumpOptionsError(f"--engine torch does not run what {source} has recorded: leave one of the two out")
    if rest["after"] is not None:
        raise DumpOptionsError(f"--after {rest['after']} numbers the registrations of a scenario: name it with --from")
    from dispatchlab.commands.registry_dump import RegistryDumpRequest, dump_registry

    for name in ("after", "engine", "allow_import"):
        del rest[name]
    if source is None:
        del rest["source"]
    else:
        rest["source"] = source
    return dump_registry(RegistryDumpRequest(**rest, **listings, color=color))


def _dump_dispatcher(options: dict[str, Any], listings: Mapping[str, bool], *, color: bool) -> int:
    from dispatchlab.commands.dump import DumpRequest, dump

    asked = [name for name, on in listings.items() if on]
    if asked:
        option = "--list" if asked[0] == "listing" else f"--{asked[0]}"
        raise DumpOptionsError(f"{option} is for registries, and {options['source']} is a scenario: name an operator")
    return dump(DumpRequest(**options, color=color))
