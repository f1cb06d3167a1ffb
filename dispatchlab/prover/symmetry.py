"""Symmetry: neighbourhoods that are equal up to which registration plays which part, so that one of them is explored.

Works on what an engine declares of its variables (`Dependence`). The claim, its ground and what is checked are in
docs/proof.md; see also Note [Registrations that play the same part].
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from dispatchlab.model.dependence import Dependence

# Note [Registrations that play the same part]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What a registration does to a variable is its role there. Let there be a one-to-one map of the members of one
# neighbourhood to those of another, so that for every variable of the one there is a variable of the other of the same
# kind, where each member has the role of its counterpart. Then a sequence of the one, renamed, does to the variables of
# the other what it does to those of the one: variables of a kind hold the same function of what their roles do. So
# what is proved of the one holds for the other.
# A shape is what is left of a neighbourhood when its members are called by numbers: for each variable its kind and the
# role of each number. The map is the numbering. Two numberings of equal neighbourhoods may be found that do not fit,
# and both are explored then; equal shapes fit by what they are.

Shape: TypeAlias = Hashable

_NO_ROLE: Final = -1
_ITSELF: Final = "the variable shows which registration it is"


class Shaped(NamedTuple):
    """A neighbourhood without the names of its members.

    Args:
        shape: equal for neighbourhoods that are equal up to renaming.
        members: the registrations, in the order in which the shape numbers them.
    """

    shape: Shape
    members: tuple[int, ...]


class Symmetry:
    """Finds the shapes of neighbourhoods.

    Args:
        dependences: what the engine declares of each variable.
        background: registrations, as bits, that are in force all the time, except where they are members.
    """

    def __init__(self, dependences: Mapping[Hashable, Dependence], background: int = 0) -> None:
        self._ids: dict[Hashable, int] = {}
        self._parts: dict[int, dict[Hashable, int]] = {}  # registration -> variable -> what it is there
        self._background: dict[Hashable, dict[int, int]] = {}  # variable -> of these who is in a group, with its role
        self._kinds: dict[Hashable, int | None] = {}
        for variable, one in dependences.items():
            kind = "kind", one.kind, one.is_list, one.is_hidden
            self._kinds[variable] = None if one.kind is None else self._id(kind)
            grouped = 0
            for group in one.groups:
                grouped |= group
            for index, role in one.roles.items():
                own = _ITSELF if type(role) is int and role == index else role  # True is a role like any other
                part = own, one.lazy >> index & 1, one.holders >> index & 1, one.traces >> index & 1
                self._parts.setdefault(index, {})[variable] = self._id(part)
                if background & grouped & 1 << index:
                    self._background.setdefault(variable, {})[index] = self._id(own)
            holding, index = one.holders, 0
            while holding:  # those that keep the variable and do nothing else to it
                if holding & 1 and index not in one.roles:
                    self._parts.setdefault(index, {})[variable] = self._id(("holds", one.lazy >> index & 1))
                holding >>= 1
                index += 1

    def shaped(self, members: Sequence[int], labels: Sequence[Hashable] = ()) -> Shaped | None:
        """The shape of some registrations; None when the engine does not say which variables are of one kind.

        Args:
            members: the registrations.
            labels: what else distinguishes them, one for each.
        """
        parts = [self._parts.get(index, {}) for index in members]
        rows: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
        here = frozenset(members)
        for variable in set().union(*parts):
            kind = self._kinds[variable]
            if kind is None:
                return None
            others = self._background.get(variable)
            behind = () if others is None else tuple(sorted([role for at, role in others.items() if at not in here]))
            rows.add((kind, behind, tuple([part.get(variable, _NO_ROLE) for part in parts])))
        named = [self._id(("label", label)) for label in labels] or [0] * len(members)
        seen_from = [
            (named[at], sorted([(kind, behind, roles[at], sorted(roles)) for kind, behind, roles in rows]))
            for at in range(len(members))
        ]
        order = sorted(range(len(members)), key=seen_from.__getitem__)
        shape = (
            tuple([named[at] for at in order]),
            frozenset((kind, behind, tuple([roles[at] for at in order])) for kind, behind, roles in rows),
        )
        return Shaped(shape, tuple(members[at] for at in order))

    def _id(self, value: Hashable) -> int:
        return self._ids.setdefault(value, len(self._ids))
