"""Run in a process of its own: the fresh PyTorch, recorded and replayed, against what PyTorch itself prints."""

from __future__ import annotations

import json
import sys

from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.introspection.package_paths import package_roots
from dispatchlab.live.introspection.registry_reader import record_registry
from dispatchlab.questions.sources.replay_on_lab import bench
from dispatchlab.registries.file import open_bundled, registry_bytes
from dispatchlab.registries.model import dump_text
from dispatchlab.registries.stored import StoredRegistry


def main() -> None:
    """Print what was found as JSON."""
    recorded, bundled = record_registry(), open_bundled("torch-2.13-cpu")
    again = record_registry()
    benches = {semantics: bench(bundled, semantics=semantics) for semantics in ("strict", "torch-2.13")}
    roots = [f"registered at {root}" for root in package_roots()]

    def seen(text: str) -> str:
        for root in roots:
            text = text.replace(root, "registered at ")
        return text

    names = bindings()._dispatch_get_all_op_names()
    dumps = {name: seen(bindings()._dispatch_dump(name)) for name in names}
    tables = {name: seen(bindings()._dispatch_dump_table(name)) for name in names}
    found: dict[str, object] = {
        "operators": len(names),
        "records that print as PyTorch": sum(dump_text(each) == dumps[str(each.name)] for each in recorded),
        "recorded twice the same": recorded == again,
        "file reads back": StoredRegistry(registry_bytes(recorded)).load() == recorded,
        "symint kernels": sum(kernel.takes_symint for each in recorded for kernel in each.kernels),
        "differences from the bundled": [str(one.name) for one in recorded if bundled.operator(one.name) != one],
        "same tags": all(bundled.operator(each.name) == each for each in recorded),
    }
    for semantics, replayed in benches.items():
        dispatcher = replayed.dispatcher
        found[f"{semantics} dumps"] = sum(dispatcher.dump(name) == dumps[name] for name in names)
        found[f"{semantics} tables"] = sum(dispatcher.dump_table(name) == tables[name] for name in names)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
