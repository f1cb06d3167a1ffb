"""The text of `dispatchlab init`."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.adopt.first_files import Plan

_DONE = {"write": "wrote", "replace": "replaced", "edit": "edited", "keep": "kept"}
_WOULD = {"write": "would write", "replace": "would replace", "edit": "would edit", "keep": "would keep"}


def plan_text(plan: Plan, *, dry_run: bool) -> str:
    """A line for each file, and what to do next."""
    return "".join(f"{line}\n" for line in _lines(plan, _WOULD if dry_run else _DONE))


def _lines(plan: Plan, words: dict[str, str]) -> Iterator[str]:
    yield f"{plan.root}:"
    done = [words[file.action] for file in plan.files]
    first, second = max(map(len, done)), max(len(file.path) for file in plan.files)
    for word, file in zip(done, plan.files, strict=True):
        yield f"  {word:<{first}}  {file.path:<{second}}  {file.what}"
    if plan.dependent is not None:
        yield f"The order of these registrations matters, so the test of {plan.dependent} fails until you decide:"
        yield f"  dispatchlab permute {plan.dependent}  # two orders that disagree, and why"
        yield "  remove the cause, and run dispatchlab init --force"
        yield "  or accept it: write `expect: order-dependent` into that file"
    yield "Next:"
    yield f"  pytest {plan.run}"
    if plan.module is not None:
        yield f"  dispatchlab check {plan.module}"
