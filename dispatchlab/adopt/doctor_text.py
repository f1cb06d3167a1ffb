"""What `dispatchlab doctor` found, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.adopt.doctor import Diagnosis, TorchFound, Tried, sorted_facts
from dispatchlab.records.file import bundled_names, newest_bundled
from dispatchlab.views.as_json import fields_of, json_text

_STATES = {"works": "works", "limited": "limited", "fails": "does not work", "absent": "not offered"}


def doctor_text(found: Diagnosis) -> str:
    """Facts by group, then each feature with its state and the reason, then the commands."""
    return "\n".join(_lines(found)) + "\n"


def doctor_json(found: Diagnosis) -> str:
    """The same as JSON."""
    torch = (
        None if found.torch is None else fields_of(found.torch, tried=[_tried_json(one) for one in found.torch.tried])
    )
    return json_text(
        {
            "ok": found.exit_code == 0,
            "facts": [fields_of(fact) for fact in found.facts],
            "torch": torch,
            "working": list(found.commands("works")),
            "limited": list(found.commands("limited")),
            "failing": list(found.commands("absent", "fails")),
        }
    )


def _tried_json(one: Tried) -> dict[str, object]:
    return {"feature": one.feature.name, "state": one.state, "why": one.why, "commands": list(one.feature.commands)}


def _lines(found: Diagnosis) -> Iterator[str]:
    for group, facts in sorted_facts(found.facts).items():
        yield f"{group}:"
        yield from _table([(fact.name, f"{'PROBLEM: ' if fact.problem else ''}{fact.value}") for fact in facts])
    if found.torch is None:
        yield "PyTorch: not installed"
        yield "  commands about the installed PyTorch need it: pip install 'dispatchlab[torch]'; the others work"
        return
    yield from _torch_lines(found.torch)
    for title, commands in (
        ("these work with this PyTorch", found.commands("works")),
        ("these work and find less", found.commands("limited")),
        ("these do not work with this PyTorch", found.commands("absent", "fails")),
    ):
        if commands:
            yield f"{title}:"
            yield from (f"  {command}" for command in commands)


def _torch_lines(torch: TorchFound) -> Iterator[str]:
    if torch.error:
        yield f"PyTorch: {torch.version} is installed and cannot be imported"
        yield f"  {torch.error}"
        return
    yield f"PyTorch: {torch.version}"
    if torch.semantics not in bundled_names():
        yield f"  no registry of it is bundled: what does not name `live` answers for {newest_bundled()}"
    yield from _table([(one.feature.name, f"{_STATES[one.state]}: {one.why}") for one in torch.tried])


def _table(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return (f"  {name:<{width}}  {value}" for name, value in rows)
