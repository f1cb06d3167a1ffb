"""Fake kernels: what the rows cannot see in the message and the registry."""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.model.failure import operator_name
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import failing_fake, in_fake


@looks_for("WHY402")
def fake_signature(words: Words) -> Mapping[str, object] | None:
    """Recognise a fake kernel that does not take what its operator gives."""
    failure = words.failure
    found = failure.search(r"TypeError ([\w.]+): ([\w.<>]+\(\) [^\n]+)")
    if found is not None and "fake tensor call" in failure.text:
        return saw(op=operator_name(found[1]), what=found[2])
    inner = failure.search(r"TypeError: ([\w.<>]+\(\) (?:missing|takes|got an unexpected|got multiple) [^\n]+)")
    if inner is None or not in_fake(failure):
        return None
    fakes = [event.subject for event in failure.of("register_fake")]
    called = [fake for fake in fakes if fake.partition("::")[2].partition(".")[0] in failure.call]
    return saw(op=next(iter([*called, *reversed(fakes)]), ""), what=inner[1])


@looks_for("WHY403")
def empty_fake(words: Words) -> Mapping[str, object]:
    """Look for the operator whose fake kernel returns None and whose schema does not."""
    failure = words.failure
    for event in failure.of("custom_op", "define"):
        facts = failure.registry.operator(event.subject)
        if facts is not None and facts.empty_fake and not facts.schema.endswith("-> ()"):
            return saw(subject=facts.name)
    return saw(subject="")


@looks_for("WHY408")
@looks_for("WHY409")
def own_fake(words: Words) -> Mapping[str, object]:
    """Look for the operator in whose fake kernel the program failed."""
    failure = words.failure
    fake, raised = failing_fake(failure), failure.chain[0] if failure.chain else None
    return saw(
        op=fake.name if fake else "",
        raised="" if raised is None else f"{raised.name}: {raised.text.partition(chr(10))[0]}",
    )
