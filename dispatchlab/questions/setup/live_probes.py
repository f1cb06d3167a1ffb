"""Probes of the running PyTorch: each tries one feature of dispatchlab, and raises if the feature fails.

They run in a worker process. A probe returns a sentence about its observation.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dispatchlab.errors import DispatchLabError

_SOURCE = """
import torch

library = torch.library.Library(__name__, "DEF")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x, "CPU")

@torch.library.custom_op(f"{__name__}::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@custom.register_fake
def _(x):
    return torch.empty_like(x)
"""


class ProbeFailed(DispatchLabError):
    """A feature ran, but its result is wrong or incomplete."""

    reason: str

    template = "{reason}"


def keys() -> str:
    """Check that the dispatch keys are known, because recordings, tables and predictions name them."""
    from dispatchlab.live.bridge.running_keys import running_keys
    from dispatchlab.live.introspection.queries import limits_of, unknown_keys

    if unknown := unknown_keys():
        raise ProbeFailed(limits_of(unknown))
    return f"{len(running_keys().numbers)} keys, all of them known"


def registry() -> str:
    """Check that every operator can be read: `dump`, `check`, `diff`, `coverage`, `permute`, `explain` need it."""
    from dispatchlab.errors import ParseError
    from dispatchlab.live.introspection.registry_reader import record_registry
    from dispatchlab.model.printed_schema import parse_printed

    found = record_registry()
    unreadable: list[str] = []
    for operator in found:
        try:
            if operator.schema is not None:
                parse_printed(operator.schema)
        except ParseError:
            unreadable.append(str(operator.name))
    if unreadable:
        from dispatchlab.views.formatting import first_of

        raise ProbeFailed(f"{len(unreadable)} of {len(found):,} schemas cannot be read: {first_of(unreadable, 3)}")
    return f"{len(found):,} operators, {found.kernel_count:,} kernels and {len(found.fallbacks)} fallbacks read"


def slots() -> str:
    """Check that the slots that calls use can be read; else `permute --engine torch` finds fewer defects."""
    from dispatchlab.live.introspection.slot_memory import memory_layout

    layout = memory_layout()
    if layout is None:
        where = "" if sys.platform == "linux" else f" on {sys.platform}"
        raise ProbeFailed(f"the slots that calls use cannot be read{where}: only whether they are filled is compared")
    return "the slots that calls use are read from memory"


def record() -> str:
    """Check that a package can be recorded, each registration with its call site."""
    from dispatchlab.live.recording.record_package import record_packages

    package = "dispatchlab_doctor"
    with TemporaryDirectory() as folder:
        Path(folder, f"{package}.py").write_text(_SOURCE, encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            found = record_packages((package,))
        finally:
            sys.path.remove(folder)
    wrong = [site for site in found.sites if package not in site]
    if found.operators != 2 or wrong or found.unreadable:
        raise ProbeFailed(
            f"recorded {found.operators} of 2 operators at {', '.join(found.sites) or 'no line'}"
            + "".join(f"; {each}" for each in found.unreadable)
        )
    return f"{found.registrations} registrations of a package recorded, each with its line"
