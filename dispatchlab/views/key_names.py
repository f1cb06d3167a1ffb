"""Many dispatch keys in few words: `every backend (not XLA, Lazy)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.model.keys import BACKENDS, PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS, DispatchKey

_NAMES = {DispatchKey.Dense: "every backend", DispatchKey.AutogradFunctionality: "every Autograd backend"}
_FAMILIES = {
    _NAMES.get(functionality, f"every {functionality} backend"): {
        str(key): BACKENDS[at]
        for at, key in enumerate(key for key in RUNTIME_KEYS if key.functionality is functionality)
    }
    for functionality in PER_BACKEND_FUNCTIONALITIES
}
_FAMILY_OF = {key: name for name, family in _FAMILIES.items() for key in family}


def key_names(keys: Sequence[str]) -> list[str]:
    """Keys in few phrases. A functionality whose backends are there for the greater part is one phrase.

    >>> key_names(["Undefined", *BACKENDS, "FPGA"])
    ['Undefined', 'every backend', 'FPGA']

    Args:
        keys: names of runtime keys, in the order of a table.
    """
    return list(_phrases(keys))


def _phrases(keys: Sequence[str]) -> Iterator[str]:
    named = frozenset(keys)
    done: set[str] = set()
    for key in keys:
        name = _FAMILY_OF.get(key)
        if name is None:
            yield key
        elif name not in done:
            missing = [backend for other, backend in _FAMILIES[name].items() if other not in named]
            if 2 * len(missing) >= len(_FAMILIES[name]):
                yield key
                continue
            done.add(name)
            yield f"{name} (not {', '.join(missing)})" if missing else name
