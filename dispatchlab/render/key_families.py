"""Many dispatch keys in few words: most kernels fill the slots of all backends alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.model.keys import PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS

_FAMILIES = tuple(
    tuple(str(key) for key in RUNTIME_KEYS if key.functionality is functionality)
    for functionality in PER_BACKEND_FUNCTIONALITIES
)
_FAMILY_OF = {key: family for family in _FAMILIES for key in family}


def families(keys: Sequence[str]) -> list[str]:
    """Keys in few words, a line each: `SparseCPU ... SparseMeta`, `CPU ... Meta but CUDA`, `FPGA Vulkan Metal`.

    Args:
        keys: names of runtime keys, in the order of a table.
    """
    return list(_lines(keys))


def _lines(keys: Sequence[str]) -> Iterator[str]:
    named = frozenset(keys)
    done: set[str] = set()
    single: list[str] = []
    for key in keys:
        if key in done:
            continue
        family = _FAMILY_OF.get(key, ())
        missing = [other for other in family if other not in named]
        if 2 * len(missing) >= len(family):
            single.append(key)
            continue
        if single:
            yield " ".join(single)
            single = []
        done.update(family)
        yield f"{family[0]} ... {family[-1]}" + (f" but {' '.join(missing)}" if missing else "")
    if single:
        yield " ".join(single)
