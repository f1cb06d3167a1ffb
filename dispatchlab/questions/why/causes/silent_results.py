"""Wrong results without an exception of PyTorch: events before an assertion of the program failed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import listed


@looks_for("WHY421")
def undeclared_write(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator that wrote an argument which its schema does not name."""
    noted = next(iter(words.failure.of("wrote undeclared")), None)
    if noted is None:
        return None
    facts, names = words.failure.registry.operator(noted.subject), noted.detail.split(", ")
    marked = facts.schema.partition("::")[2] if facts else "f(Tensor x) -> ()"
    declared = re.findall(r"!\)\S* (\w+)", facts.schema) if facts else []
    for letter, name in zip([each for each in "abcdefgh" if f"({each}!" not in marked], names, strict=False):
        marked = re.sub(rf"\bTensor(\[\]|\?)? {name}\b", rf"Tensor({letter}!)\1 {name}", marked)
    quoted = "".join(f'"{name}", ' for name in (*declared, *names)).rstrip()
    lists = [name for name in names if facts and re.search(rf"\[\]\S* {name}\b", facts.schema)]
    copied = "; ".join(
        f"{name} = {f'[t.clone() for t in {name}]' if name in lists else f'{name}.clone()'}" for name in names
    )
    alias = any(event.subject == noted.subject for event in words.failure.of("returned alias"))
    return saw(op=noted.subject, wrote=listed(names), quoted=quoted, marked=marked, copied=copied, alias=alias)
