"""Small bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dispatchlab.model.python_layer import PythonLayer, PythonRegistration
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory, python_layer
from dispatchlab.records.archive import RegistryFileError
from dispatchlab.records.model import Registry, registry_of
from dispatchlab.records.stored import StoredRegistries, StoredRegistry, bundle_bytes
from tests.registry_cases import BAR, DANGLING, FALLBACKS, FOO, SMALL

MOVED = replace(
    FOO,
    debug="registered at foo.cpp:2",
    kernels=tuple(replace(one, debug=one.debug.replace("foo.cpp:1", "foo.cpp:3")) for one in FOO.kernels),
)
"""The operator in a later version: nothing but its lines is different."""

THREE: Mapping[str, Registry] = {
    "torch-2.10": registry_of("2.10.1", (MOVED, BAR), FALLBACKS),
    "torch-2.9": SMALL,
    "torch-2.9-cpu": replace(registry_of("2.9.0+cpu", (DANGLING,), (), ("ext", "other")), privateuse1="mine"),
}

LAYERS: Mapping[str, PythonLayerInMemory] = {
    name: python_layer(
        torch,
        [
            PythonRegistration("decompositions", "test::foo", "post_autograd", "mine:foo", f"mine/a.py:{line}"),
            PythonRegistration("jagged", "test::bar.out", "", "mine:bar", "", "mine.late", active=False),
        ],
        ("mode_rules",),
    )
    for name, torch, line in (("torch-2.10", "2.10.1", 3), ("torch-2.9", "2.13.0", 7))
}


def three_bytes() -> bytes:
    """The bundle of all three, two of which have a Python layer."""
    return bundle_bytes(THREE, LAYERS)


def outcome(data: bytes) -> dict[str, Registry] | str:
    """The registries in these bytes, or the sentence of the refusal; anything else escapes."""
    try:
        bundle = StoredRegistries(data)
        return {name: _loaded(bundle.registry(name)) for name in bundle.names}
    except RegistryFileError as error:
        return str(error)


def layers_of(registries: Mapping[str, Registry]) -> dict[str, PythonLayer]:
    """The Python layers of registries that have one."""
    return {name: registry.python for name, registry in registries.items() if registry.python is not None}


def _loaded(registry: StoredRegistry) -> Registry:
    layer = registry.python
    return replace(registry.load(), python=None if layer is None else layer.load())
