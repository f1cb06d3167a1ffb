"""Dependence: the dependences of one variable of an engine's state, as the engine declares them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from dispatchlab.model.names import OperatorName


class Dependence(NamedTuple):
    """The dependences of one variable, as an engine declares them. A set of registrations is a bit mask.

    Args:
        groups: the value depends only on which of these groups have a member in force.
        roles: for each registration that may write the variable or is in a group, its effect on the variable; those
            with equal roles do the same to it.
        lazy: of these, the registrations that may change a group without writing the variable afterwards.
        holders: the variable exists while one of these is in force, and is written when the first of them comes; 0 when
            it always exists.
        operator: the operator in whose snapshot it shows; None when it may show in all.
        traces: the registrations that may write the variable although they are refused.
        is_list: the value is a tuple: what each group puts there while it is in force, one after another. Which of two
            comes first depends on these two alone.
        is_hidden: the value is never observed and may depend on the whole history. A registration whose acceptance
            depends on it has every registration with a role at it among its deciders.
    """

    groups: tuple[int, ...]
    roles: Mapping[int, Hashable]
    lazy: int = 0
    holders: int = 0
    operator: OperatorName | None = None
    traces: int = 0
    is_list: bool = False
    is_hidden: bool = False
