"""The trials: each runs an operator in one way, and raises what went wrong.

A trial is a function of a `Subject`. It returns when all is well, raises `NotNeededError` where there is nothing to
try, and anything else where the operator fails. It makes the calls on copies of the inputs, and looks at what they did.
"""

from __future__ import annotations

from typing import Final

from dispatchlab.live.trials import behaviour, transforms
from dispatchlab.live.trials.subject import Trial

TRIALS: Final[dict[str, Trial]] = {
    "signature": behaviour.signature,
    "call": behaviour.call,
    "schema": behaviour.schema,
    "fake": behaviour.fake,
    "autograd registration": behaviour.autograd_registration,
    "backward": transforms.backward,
    "vmap": transforms.vmap,
    "autocast": transforms.autocast,
    "functionalize": transforms.functionalize,
    "AOT": transforms.aot,
    "compile with a consumer": transforms.compile_consumer,
    "compile before a write": transforms.compile_write,
}
"""The trials, in the order in which they are run."""

COMPILED: Final = ("AOT", "compile with a consumer", "compile before a write")
"""Those that need a compiler."""
