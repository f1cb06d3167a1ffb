"""Which calls of torch.library a watch calls released, against the dump of the running PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dispatchlab.live.bridge.watch import RegistrationWatch
from dispatchlab.model.registration import Def, Impl

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

NAME = "watched_refusals::foo"


def custom_op() -> Any:
    def foo(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    return torch.library.custom_op(NAME, foo, mutates_args=(), device_types="cpu")


def composite() -> Any:
    library = torch.library.Library("watched_refusals", "FRAGMENT")
    library.impl("foo", lambda x: x.clone(), "CompositeImplicitAutograd")
    return library


def define() -> Any:
    library = torch.library.Library("watched_refusals", "FRAGMENT")
    library.define("foo(Tensor x) -> Tensor")
    return library


def overload_twice() -> Any:
    made = custom_op()
    for _ in range(2):
        made._lib.define("foo.more(Tensor x, int y) -> Tensor")
    return made


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        ([custom_op], 0),
        ([custom_op, custom_op], 0),
        ([composite, custom_op], 1),
        ([custom_op, composite, custom_op], 1),
        ([define, custom_op], 1),
        ([custom_op, define, custom_op], 1),
        ([overload_twice], 1),
    ],
    ids=lambda one: "-".join(step.__name__ for step in one) if isinstance(one, list) else None,
)
def test_what_a_watch_calls_kept_is_what_pytorch_keeps(steps: list[Callable[[], Any]], refused: int) -> None:
    alive, failed = [], 0
    try:
        with RegistrationWatch() as watch:
            for step in steps:
                try:
                    alive.append(step())
                except RuntimeError:
                    failed += 1
            dump = torch._C._dispatch_dump(NAME)
            made = [one for call in watch.calls if not call.released for one in call.made]
    finally:
        for one in alive:
            getattr(one, "_lib", one)._destroy()
        kept = torch._library.custom_ops.OPDEF_TO_LIB.pop(NAME, None)
        if kept is not None:
            kept._destroy()
    assert failed == refused
    assert any(isinstance(one, Def) for one in made) is ("schema: (none)" not in dump)
    keys = {str(one.key) for one in made if isinstance(one, Impl)}
    rows = [line.partition(":")[0].removesuffix("[alias]") for line in dump.splitlines()]
    assert keys == {row for row in rows if row[:1].isupper()}
