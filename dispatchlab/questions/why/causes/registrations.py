"""Registrations that PyTorch refuses: conditions that the rows cannot express."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files

from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import short_site, signature_of


@looks_for("WHY201")
def defined_twice(words: Words) -> Mapping[str, object]:
    """Find the first definition of the operator."""
    at, facts = words.failure.at, words.operator
    lines = tuple(line for line in words.registered if re.search(r": (define|custom_op) ", line))
    places = [line.partition(": ")[0] for line in lines if line.endswith(f" {words.op}")]
    return saw(
        first=places[-1] if places else short_site(words["first_site"]),
        later=short_site(words["later_site"]),
        repeated=str(at) in places,
        other_schema=facts.schema not in ("", words.op + words["again"]),
        one_line=words.failure.call if "\n" not in words.failure.call else "",
        lines=lines,
    )


@looks_for("WHY202")
def library_twice(words: Words) -> Mapping[str, object]:
    """Find the line that opened the namespace, and loaded libraries."""
    in_python = "torch.library.__init__" in words.failure.stack or bool(re.search(r"\.py|<", words["later_site"]))
    second = (in_python and words["place"]) or short_site(words["later_site"])
    return saw(first=re.sub("^/.*/", "", short_site(words["first_site"])), second=second, in_python=in_python)


@looks_for("WHY209")
def bad_schema(words: Words) -> Mapping[str, object]:
    """Find the schema text that the parser of PyTorch refuses, and a better one."""
    message = r"(?:\w+Error: )?\n?([^\n]+):\n([^\n]*\([^\n]*)(?:\n( *)~* *<--- HERE)?"
    what, text, indent = found.groups("") if (found := words.failure.search(message)) is not None else ("", "", "")
    word = re.match(r"[\w.]+", text[len(indent) :]) if indent else None
    schema = better = text.strip()
    words_of_schemas = (files(__package__ or "") / "schema_words.toml").read_text(encoding="utf-8")
    for wrong, right in tomllib.loads(words_of_schemas).items():
        better = re.sub(wrong, right, better)
    better += " -> Tensor" * ("->" not in better and better.endswith(")"))
    return saw(
        wrong_schema=schema,
        what=what.strip().partition(". Common")[0].removesuffix(" here"),
        word=word[0] if word else "",
        better=better if better != schema else "",
    )


@looks_for("WHY211")
def kernel_signature(words: Words) -> Mapping[str, object] | None:
    """Recognise a kernel, backward or setup_context that does not accept the arguments of its operator."""
    failure, function = words.failure, words["function"]
    unfit = [e for e in failure.of("unfit function") if e.at and e.at.function == function]
    if not unfit or "fake" in unfit[-1].detail.partition(":")[0]:
        return saw(role="decomposition") if words["raised_in"].endswith(".maybe_handle_decomp") else None
    named = [e for e in unfit if re.search(rf"\b{e.subject.partition('::')[2].partition('.')[0]}\b", failure.call)]
    event = (named or unfit)[-1]
    facts = failure.registry.operator(event.subject)
    role, _, has = event.detail.partition(": ")
    schema = facts.schema if facts else ""
    wanted = signature_of(schema)
    if role == "setup_context":
        wanted = f"ctx, inputs{', keyword_only_inputs' if '*, ' in schema else ''}, output"
    elif role == "backward":
        returns = schema.rpartition("-> ")[2]
        grads = [f"grad{index}" for index in range(returns.count(",") + (returns != "()"))]
        wanted = ", ".join(["ctx", *(grads if len(grads) != 1 else ["grad"])])
    return saw(op=event.subject, role=role, function_at=event.at, has=has.strip(), wanted=wanted)
