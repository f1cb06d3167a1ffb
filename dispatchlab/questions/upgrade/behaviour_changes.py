"""Changes of PyTorch's behaviour that no table of kernels shows: facts with date and source."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dispatchlab.model.profile import version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourChange:
    """A change of behaviour.

    Args:
        since: the first PyTorch that has it, such as `2.8`.
        area: the part of PyTorch.
        what: the new behaviour.
        source: the report, the change or the file with this fact.
        program: a program that prints `prints` on a PyTorch with the change; empty without one.
        prints: the line.
    """

    since: str
    area: str
    what: str
    source: str
    program: str = ""
    prints: str = ""


@cache
def behaviour_changes() -> tuple[BehaviourChange, ...]:
    """Return all known changes of behaviour, the oldest first."""
    text = files(__package__).joinpath("behaviour_changes.toml").read_text(encoding="utf-8")
    return tuple(BehaviourChange(**row) for row in tomllib.loads(text)["change"])


def behaviour_between(before: str, after: str) -> tuple[BehaviourChange, ...]:
    """Return the changes of an upgrade.

    Args:
        before: a version, such as `2.12.0+cpu`.
        after: a later version. The facts do not cover an earlier one.
    """
    first, last = version_of(before), version_of(after)
    if first is None or last is None:
        return ()
    return tuple(one for one in behaviour_changes() if first < (version_of(one.since) or first) <= last)
