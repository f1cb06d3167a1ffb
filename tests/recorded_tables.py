"""What each PyTorch prints: the SHA-256 of the dump and the table of every operator, by name.

`python -m tests.recorded_tables` asks the PyTorch that runs, in which nothing else is registered, and prints both
digests as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from dispatchlab.engine.dispatcher import Dispatcher

FILE = Path(__file__).parent / "data" / "printed.json"
_DIGESTS: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))

PRINTED = {name: digests["every"] for name, digests in _DIGESTS.items()}
"""By registry, taken from the public wheels; paths start at the package.

The wheels of 2.10 to 2.12 and of 2.14 were asked after their fallback at AutogradPrivateUse1 had been released; its
row was put back where no other kernel serves it. For 2.13, asked before and after, this gives the same.
"""

STEP = 300

PRINTED_SAMPLE = {name: digests["sample"] for name, digests in _DIGESTS.items()}
"""The same of every operator whose number among the names is divisible by `STEP`."""


def printed(dispatcher: Dispatcher) -> str:
    """The digest of what a dispatcher prints."""
    return _digest(map(str, dispatcher.operators()), dispatcher.dump, dispatcher.dump_table)


def _digest(names: Iterable[str], *texts: Callable[[str], str]) -> str:
    digest = sha256()
    for name in sorted(names):
        for text in texts:
            digest.update(text(name).encode())
    return digest.hexdigest()


def _main() -> None:
    from dispatchlab.live.bridge.torch import bindings
    from dispatchlab.live.introspection.package_paths import package_roots, without_roots

    roots = package_roots()
    dump, table = (
        lambda name, ask=ask: without_roots(ask(name), roots)
        for ask in (bindings()._dispatch_dump, bindings()._dispatch_dump_table)
    )
    names = sorted(bindings()._dispatch_get_all_op_names())
    digests = {"every": _digest(names, dump, table), "sample": _digest(names[::STEP], dump, table)}
    json.dump(digests, sys.stdout)


if __name__ == "__main__":
    _main()
