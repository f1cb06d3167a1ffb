"""The kinds of texts that say what imports leave behind."""

from __future__ import annotations

from enum import StrEnum

from dispatchlab._short_repr import member_repr
from dispatchlab.pytorch.introspection.function_content import MODULE


class Kind(StrEnum):
    """What the name of a text begins with; the rest says of what it is. The globals of modules begin with `MODULE`."""

    KERNEL = "kernel of "
    FALLBACK = "fallback at "
    OVERLOADS = "overloads "
    REFUSED = "refused calls for "
    REPLACED = "replaced "
    STATE = "state of "
    DUMP = "dump of "
    TABLE = "table of "
    SETTING = "setting "
    SEED = "setting initial_seed"
    RNG = "setting rng of "
    ENVIRONMENT = "environment "
    PROCESS = "process "
    MODULE = MODULE

    __repr__ = member_repr
