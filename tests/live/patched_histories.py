"""Histories on a PyTorch whose Python code is patched: the model of what it is without the patches, with its own rules.

`python -m tests.live.patched_histories COUNT` takes so many of `torch.library` and as many of the dispatcher. It prints
as JSON the rules of `torch.library` that no longer hold, those that hold now, what the steps came to, and how many
histories of the dispatcher differ from the model; one of `torch.library` that differs ends it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from dispatchlab.engine.semantics import semantics_of
from dispatchlab.model.measured import known_profile
from dispatchlab.pytorch.bridge.torch import semantics
from dispatchlab.pytorch.introspection.library_probes import library_rules
from tests.histories.__main__ import run
from tests.live.torch_library_histories import check_histories


def _main(count: int) -> None:
    known = known_profile(semantics())
    patched = replace(known, library_rules=library_rules())
    model = semantics_of(patched)
    gone, new = ({*one.library_rules} - {*other.library_rules} for one, other in ((known, patched), (patched, known)))
    steps = check_histories(0, count, model=model)
    figures, _ = run(patched, model, count, 1, 0)
    found = {"gone": sorted(gone), "new": sorted(new), "steps": steps, "differences": figures["differences"]}
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    _main(int(sys.argv[1]))
