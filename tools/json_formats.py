"""Write docs/json.md: the fields of each command's JSON, found by running the command, with their meanings.

Run it from the root of the checkout: `python tools/json_formats.py`. A field of a dataclass has the meaning that the
class says under `Args:`. What a renderer adds to that is explained in `MEANINGS`, and a field that neither explains is
an error. A test compares.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import patch

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.cli import main  # noqa: E402  # of this checkout
from dispatchlab.views import as_json  # noqa: E402

PAGE = ROOT / "docs" / "json.md"
SCHEMAS = ROOT / "dispatchlab" / "commands" / "json_schemas.json"

_PROGRAM = """\
from dispatchlab import Lab, tensor

lab = Lab()
lab.mul(tensor([1.0], requires_grad=True), tensor([2.0]))
"""

_RENAMED = "import torch\ntorch.utils.rename_privateuse1_backend('npu')\n"
_DEVICE_PROGRAM = """\
import torch

x = torch.ones(2, device="npu", requires_grad=True)
(torch.addcmul(x, x, x) + 2 * x).sum().backward()
torch.ops.aten.qr(torch.eye(2, device="npu"))
"""

_PACKAGE = """\
import torch

library = torch.library.Library("cellar", "DEF")
library.define("fill(Tensor(a!) x) -> ()")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
"""

_VIOLATED = """\
claim: A property does not hold.
properties:
- never: {row: CPU, runs: fn}
registrations:
- {def: foo(Tensor x) -> Tensor}
- {impl: foo, dispatch: CPU, debug: fn}
"""

EXAMPLES: dict[str, tuple[tuple[str, ...], ...]] = {
    "permute": (
        ("permute", "scenarios/defects/stale_quantized_torch.yaml"),
        ("permute", "scenarios/basics/a_second_def.yaml"),
        ("permute", "scenarios/properties/what_holds_whoever_is_newest.yaml"),
        ("permute", "{violated}"),
    ),
    "permute --snapshots": (
        ("permute", "scenarios/basics/a_second_def.yaml", "--snapshots"),
        ("permute", "scenarios/basics/a_second_def.yaml", "--snapshots", "--at", "+0 +1"),
    ),
    "dump": (
        ("dump", "test::foo", "--from", "scenarios/defects/stale_slots_torch.yaml", "--after", "+0 +1"),
        ("dump", "test::foo", "--from", "scenarios/basics/a_second_def.yaml", "--after", "+0 +1"),
        ("dump", "aten::add.Tensor", "--from", "torch-2.13"),
        ("dump", "aten::add", "--from", "torch-2.13"),
    ),
    "dump --list": (("dump", "aten::add.*", "--from", "torch-2.13", "--list"),),
    "dump --counts": (("dump", "aten::add.*", "--from", "torch-2.13", "--counts"),),
    "dump --counts --layer python": (("dump", "--counts", "--layer", "python", "--from", "torch-2.13"),),
    "dump --across": (("dump", "aten::add.Tensor", "--across", "--key", "CUDA"),),
    "certify": (("certify", "scenarios/defects/stale_slots_torch.yaml"),),
    "coverage": (
        ("coverage", "scenarios/defects/stale_slots_torch.yaml", "--key", "CPU", "--what-if", "impl test::foo CPU"),
    ),
    "coverage --program": (
        ("coverage", "torch-2.13-cpu", "--key", "PrivateUse1", "--program", "{device_program}", "--device", "npu"),
    ),
    "lint": (("lint", "scenarios/lint/dl012_found.yaml"),),
    "check": (("check", "cellar"),),
    "explain": (("explain", "aten::mean", "cpu", "1", "--from", "torch-2.13"),),
    "explain --across": (("explain", "aten::bmm", "cuda", "cuda", "--across", "2.12", "2.15"),),
    "codegen --registrations": (
        ("codegen", "tests/data/codegen/operators.yaml", "--registrations", "--only", "add.out"),
    ),
    "codegen --walk": (("codegen", "--walk", "torch.add"),),
    "defects": (("defects",), ("defects", "stale_slots")),
    "doctor": (("doctor",),),
    "doctor --backend": (("doctor", "--backend", "renamed"),),
    "imports": (("imports", "json", "math"),),
    "record --check": (("record", "--check", "{record}", "cellar"),),
    "trace": (("trace", "{program}"),),
    "trace --summary": (("trace", "--summary", "{program}"),),
    "diff": (("diff", "torch-2.12", "torch-2.15"),),
    "diff --layer": (("diff", "torch-2.12", "torch-2.15", "--layer", "all"),),
    "diff --for": (("diff", "torch-2.9", "torch-2.15", "--for", "docs/upgrade.yaml"),),
    "diff --key": (("diff", "torch-2.12", "torch-2.15", "--key", "PrivateUse1"),),
    "diff --program": (
        (
            *("diff", "torch-2.12", "torch-2.15", "--key", "PrivateUse1"),
            *("--program", "{device_program}", "--device", "npu"),
        ),
    ),
}
"""What is shown -> the commands whose outputs are looked at."""

NEED_PYTORCH = (
    *("check", "coverage --program", "defects", "diff --program", "doctor", "doctor --backend", "imports"),
    "record --check",
)
_MORE_THAN = {
    "permute --snapshots": "permute",
    **dict.fromkeys(("diff --layer", "diff --for", "diff --key", "diff --program"), "diff"),
}
_INTRO = {
    "permute": "One object for each scenario, on a line of its own.",
    "permute --snapshots": "What `--snapshots` adds to the fields of `permute`.",
    "dump --list": "With `--list`.",
    "dump --counts": "With `--counts`.",
    "dump --counts --layer python": "With `--counts --layer python`: what Python registers.",
    "dump --across": "With `--across`.",
    "coverage --program": "With `--program`.",
    "explain --across": "With `--across`.",
    "codegen --registrations": "With `--registrations`.",
    "codegen --walk": "With `--walk`.",
    "diff --layer": "What `--layer python` and `--layer all` add to the fields of `diff`.",
    "diff --for": "What `--for` adds to the fields of `diff`.",
    "diff --key": "What `--key` adds to the fields of `diff`.",
    "diff --program": "What `--program` adds to the fields of `diff`.",
    "lint": "`--format sarif` prints SARIF 2.1.0 instead.",
    "check": "`--format sarif` prints SARIF 2.1.0 instead, and `--format github` the annotations of a workflow.",
    "doctor --backend": "With `--backend`.",
    "imports": "",
}

_MAPS = {
    "coverage": {"counts": "way", "sources": "key"},
    "dump": {"registries[].by_import": "module"},
    "codegen": {"kernels": "part"},
    "lint": {"sources[].not_checked": "rule", "sources[].rules": "rule"},
    "diff": {
        "keys_gone": "key",
        "keys_new": "key",
        "new_tags": "tag",
        "gone_tags": "tag",
        "namespaces": "namespace",
        "namespaces.NAMESPACE": "change",
    },
}
"""Objects whose names are no fields: a command -> the path of each -> what the names are."""

MEANINGS = {
    "version": "the version of the fields, 3",
    "permute: scenario": "the path of the file, as it was given",
    "properties": "what the scenario states besides, each with what was found",
    "properties[].text": "the property",
    "properties[].standing": "what is known of it",
    "properties[].tested": "in how many states it was tested, or at how many attempts",
    "properties[].sequence": "a sequence that violates it, of `eventually` an order in which it never holds; else null",
    "properties[].note": "what else a reader should know; empty for nothing",
    "snapshots": "what is seen after every step",
    "snapshots.moments": "the snapshots, nothing registered first",
    "moments[].number": "its number",
    "moments[].ways[].source": "the number of the snapshot before the step",
    "moments[].ways[].step": "the step, `+0` or `-0`",
    "moments[].ways[].refused": "why it was refused; empty where it was not",
    "moments[].look": "what is observed",
    "moments[].look.operators": "the operators",
    "look.operators[].name": "its name",
    "look.operators[].dangling": "whether it has kernels and no def",
    "look.violations": "the invariants that do not hold",
    "snapshots.sequences": "how many sequences they stand for",
    "snapshots.chosen[].sequence": "its steps",
    "snapshots.chosen[].numbers": "the snapshots that it passes",
    "snapshots.registering[].sequence": "its steps",
    "snapshots.registering[].numbers": "the snapshots that it passes",
    "snapshots.releasing": "orders of release, from each snapshot that these end in",
    "snapshots.releasing[].sequence": "its steps",
    "snapshots.releasing[].numbers": "the snapshots that it passes",
    "claim": "the sentence that the scenario claims",
    "engine": "`lab` or `torch`",
    "semantics": "the semantics: `strict`, `torch-2.13`, `pr35061`, ...",
    "expected": "what the scenario expects",
    "as_expected": "whether that was found",
    "exit_code": "what this scenario alone would end with",
    "layers": "the layers that the verdict is about",
    "unexplored": "how many registrations of Python there are besides that were not explored",
    "overwritten": "how many of these a later one has taken the place of",
    "imports": "of a record, an object with ran, of, findings and open: the orders of imports that ran; else null",
    "packet_call": "of a call, the overloads that it tried; else null",
    "dump: packet": "of a name without overload that has several, how a call tries them; else null",
    "standing": "what the verdict stands on, sentences: the model, and of a record how many orders of imports ran",
    "registration_texts": "what each registration is, in the order of the file",
    "counterexample.kind": "how the two sequences disagree",
    "check: summary": "the first line of the text",
    "check: exit_code": "what the command ends with",
    "dump: scenario": "the file that the registrations come from; null for a registry",
    "sequence": "what was registered and released before looking, `+0 +2 -0`",
    "refused": "the registrations that were refused on the way",
    "refused[].registration": "its number",
    "refused[].message": "what the engine says",
    "dump: operators": "the operators, each as it is seen",
    "name": "its name",
    "exists": "false when nothing is registered for it; all that follows is empty then",
    "schema": "its schema; null while there is no def",
    "operators[].debug": "where the def comes from; null while there is none",
    "alias_kind": "what the def promises about aliasing; null while there is none",
    "tags": "its tags, sorted",
    "dump: operators[].dump": "the dump as the engine prints it",
    "table_text": "the computed table as the engine prints it",
    "slots_text": "the slots that calls use; null where they cannot be read",
    "operators[].kernels": "its kernels, those of each key from the newest to the oldest",
    "kernels[].key": "the key that it is registered at",
    "kernels[].is_alias": "whether that is an alias key",
    "kernels[].active": "false for a kernel that a newer one of its key shadows",
    "kernels[].debug": "where it comes from, as dumps print it",
    "kernels[].inferred": "the schema of its type; null for a boxed kernel",
    "kernels[].flags": "`boxed`, `unboxed`, `fallthrough`",
    "kernels[].location": "file, line and column in the scenario; null where there is none",
    "dump: operators[].table": "the computed table, row by row",
    "beaten[].source": "the key that it is registered at",
    "beaten[].debug": "where it comes from, as dumps print it",
    "beaten[].reason": "why it could have had the slot",
    "beaten[].why": "what beat it",
    "operators[].violations": "the invariants that do not hold",
    "layer": "what was compared: `cxx`, `python` or `all`; with `python` nothing of C++ was",
    "python": "how what Python registers differs; null with `--layer cxx`",
    "operators[].python": "what Python registers besides; null where it is not recorded, and with --layer cxx",
    "violations[].detail": "what was found and what should be there",
    "violations[].keys": "the keys that it is about",
    "source": "the registry that answers",
    "torch": "the PyTorch that it was recorded of",
    "dump --list: operators": "the operators",
    "dangling": "whether it has kernels and no def",
    "dump --list: operators[].kernels": "its kernels",
    "counts": "the kernels of each key",
    "registries": "the registries that Python keeps, see [the list](python_layer.md#the-registries)",
    "registries[].name": "its name",
    "registries[].title": "what it holds",
    "registries[].home": "the module and the attribute that PyTorch keeps it in",
    "registries[].applies": "when what it holds runs",
    "registries[].needs": "the module whose import fills it; empty when `import torch` does",
    "registries[].since": "the version of PyTorch that has it, or the oldest that was looked at",
    "registries[].rule": "what registering in it does; null where that is not known, and `permute` explores nothing",
    "rule.second": "what a second registration of a slot does",
    "rule.by_object": "whether it is kept under the `OpOverload`: it needs the def, and is lost when that is made anew",
    "rule.refusal": "what PyTorch says of a second one, where it refuses it; empty otherwise",
    "rule.beside": "the registry in which the operator must have nothing; empty where there is none",
    "registries[].found": "false when PyTorch does not keep it there",
    "registries[].imported": "false when the module that fills it was not imported",
    "registries[].recorded": "false when the recording was made before this registry was read",
    "registries[].operators": "how many operators have something there",
    "registries[].registrations": "how many registrations it has",
    "registries[].by_import": "how many of them came with which import; empty for `import torch`",
    "python[].registry": "the name of the registry",
    "python[].title": "what it holds",
    "python[].applies": "when it applies",
    "python[].key": "a dispatch key, a mode or a class, a table, a device; empty where there is one an operator",
    "python[].function": "the function, `module:name`",
    "python[].site": "its line, or that of the call that registered it",
    "python[].needs": "the module whose import brought it; empty for `import torch`",
    "python[].active": "false when a newer one has taken its place",
    "python[].overrides": "what it takes the place of",
    "overrides[].what": "the kernel or the entry",
    "overrides[].site": "where that comes from",
    "versions": "the versions that are compared",
    "dump --across: operators": "the operators",
    "operators[].operator": "its name",
    "present": "the versions that have it",
    "alias": "what the def promises about aliasing, by version",
    "dump --across: operators[].schema": "its schema, by version",
    "dump --across: operators[].tags": "its tags, by version",
    "slots": "what the computed table has, keys with the same history together",
    "dump --across: operators[].kernels": "its kernels, keys with the same history together",
    "versions[]": "a version",
    "parts[].part": "its name",
    "parts[].eras": "what it is, by version",
    "[].versions": "the versions that have this",
    "content": "what they have; empty for nothing",
    "kernels[].keys": "the keys",
    "slots[].keys": "the keys",
    "eras": "what they have, by version",
    "certify: operators": "how many operators were certified",
    "certificates[].reasons[].registrations[].key": "its key; null of a def",
    "certificates[].reasons[].registrations[].debug": "where it comes from",
    "proved": "how many are proved to be order-independent",
    "order_matters": "how many depend on the order",
    "not_decided": "how many were not decided",
    "not_covered": "what no certificate covers",
    "registry": "the registry",
    "no_answer": "why there is no answer; null when there is one",
    "coverage: key": "the backend key",
    "coverage: counts": "how many operators are covered in each way",
    "fallthrough": "how many of the kernels fall through",
    "coverage: sources": "how many operators each composite key covers",
    "coverage: operators": "each operator, and how a call finds a kernel",
    "coverage --program: missing": "how many of the kernels are to be written",
    "coverage --program: saved": "the missing ones that decompositions save, whose parts stay in the list",
    "coverage: operators[].debug": "where the kernel comes from",
    "diff --program: program": "what `--program` found; it is left out without it",
    "coverage --program: trace": "the file with the calls; empty where the programs ran",
    "what_if": "what each registration of `--what-if` would do",
    "rows[].key": "the key of the row",
    "rows[].before": "what it has now; empty for nothing",
    "rows[].after": "what it would have; empty for nothing",
    "moved": "how many operators would be covered in another way",
    "moved[].before": "how they are covered now",
    "moved[].after": "how they would be",
    "moved[].operators": "how many",
    "moved[].example": "one of them",
    "lint: sources": "what was linted, each with its findings",
    "rule": "the name of the rule",
    "groups": "findings with one cause, together",
    "groups[].code": "the code of the rule",
    "groups[].level": "how much harm it does",
    "groups[].cause": "what they have in common",
    "groups[].message": "the message",
    "groups[].mend": "how to fix it",
    "groups[].operators": "the operators",
    "rules": "the rules of these findings",
    "rules.RULE.name": "its name",
    "rules.RULE.what": "what it finds",
    "rules.RULE.why": "why it matters",
    "rules.RULE.mend": "how to fix it",
    "rules.RULE.unknown": "what it cannot know",
    "privateuse1": "the name that a package gave to PrivateUse1; null without one",
    "global_include": "the keys that every thread includes",
    "global_exclude": "the keys that every thread excludes",
    "local_include": "the keys that this thread includes",
    "local_exclude": "the keys that this thread excludes",
    "hops[].set": "the key set that the call begins with here",
    "hops[].assumed": "false; kept for readers of earlier versions",
    "selected[].operator": "its name",
    "selected[].location": "where the file has it; null where it is not known",
    "made": "whether it is made from another function, and has no entry of its own",
    "selected[].kernels": "what is registered for it",
    "selected[].kernels[].file": "the generated file that it is in",
    "codegen --walk: operator": "the operator that is called",
    "codegen --walk: frames": "the frames, the innermost first",
    "codegen --walk: frames[].number": "its number, as a debugger counts",
    "ok": "whether everything works",
    "facts": "versions and settings",
    "defects: ok": "whether no program found its defect",
    "defects: torch": "the version of PyTorch; null where a defect was named and nothing ran",
    "defects": "the known defects, or the one that was named",
    "defects[].name": "its name",
    "defects[].what": "what it means",
    "defects[].page": "the address of the page that describes it",
    "defects[].program": "plain PyTorch that ends with 1 where PyTorch has the defect",
    "defects[].found": "whether PyTorch has it; null where the program was not run, or could not be",
    "defects[].said": "what the program found, or why it could not be run",
    "doctor: torch": "the installed PyTorch; null without one",
    "doctor --backend: backend": "the package that was imported",
    "doctor --backend: torch": "the version of PyTorch",
    "doctor --backend: device": "the name of the device",
    "parts": "what PyTorch asks of a device",
    "parts[].name": "the part",
    "parts[].use": "what needs it",
    "parts[].program": "a program that fails without it",
    "parts[].error": "what that raised; empty when it came to its end",
    "parts[].waits_for": "an earlier part that it failed at; empty when it did not",
    "tried[].feature": "the feature",
    "tried[].state": "whether it works",
    "tried[].why": "why, or why not",
    "tried[].commands": "the commands that need it",
    "working": "the commands that work",
    "limited": "the commands that work and find less",
    "failing": "the commands that do not work",
    "threads": "the calls of each thread",
    "trace: notes": "what the trace does not show, a sentence each",
    "trace --summary: notes": "what the trace does not show, a sentence each",
    "threads[].steps": "what happened, in order",
    "steps[].step": "`call` or `guard`",
    "steps[].key": "the key whose kernel runs",
    "before": "the registry before",
    "after": "the registry after",
    "slots[].cause": "why the slots hold something else",
    "slots[].before": "what they held",
    "slots[].after": "what they hold",
    "backend": "what `--key` found; null without it",
    "package": "what `--for` found; null without it",
    "record --check: file": "the record",
    "record --check: packages": "the packages that were imported",
    "record --check: torch": "the PyTorch that they were imported into",
    "same": "whether they register what the record has",
    "record --check: registrations": "how many registrations there are",
    "registrations.then": "how many the record has",
    "registrations.now": "how many there are now",
    "record --check: changes": "what differs",
    "unreadable": "what could not be read, a sentence each",
    "tables": "tables that differ, in a comparison of two recordings of one PyTorch; null otherwise",
    "namespaces": "how many changes of each kind each namespace has",
    "changes": "every change by itself",
}
"""What no docstring says: a path, or the end of one, with or without the command in front -> its meaning."""


@dataclass(slots=True)
class Field:
    """A field, or the elements of a list.

    Args:
        types: what it was in the outputs, and what the class that it comes from says that it may be.
        meaning: what it means.
        items: what its elements were that are no objects.
        seen: in how many objects it was.
    """

    types: set[str] = field(default_factory=set)
    meaning: str = ""
    items: set[str] = field(default_factory=set)
    seen: int = 0


def outputs(arguments: Sequence[str]) -> list[tuple[dict[str, Any], Callable[[Mapping[str, Any]], list[type]]]]:
    """The objects that a command prints, each with a function that gives the classes of an object in it."""
    made: list[tuple[type, dict[str, Any]]] = []
    found: list[dict[str, Any]] = []
    with _watched(made, found):
        result = CliRunner().invoke(main, [arguments[0], "--format", "json", *arguments[1:]])
    if result.exit_code not in (0, 1) or not found:
        raise ValueError(f"{arguments} ended with {result.exit_code}: {result.output[-500:]}")

    groups: dict[tuple[type, tuple[str, ...]], list[dict[str, Any]]] = {}
    for of, fields in made:
        groups.setdefault((of, tuple(fields)), []).append(fields)

    def classes(node: Mapping[str, Any]) -> list[type]:
        # Objects are copied on their way, and some are laid into others: so by their fields and values.
        near = [(of, names) for of, names in groups if names and all(name in node for name in names)]
        near.sort(key=lambda each: -len(each[1]))
        return [
            of
            for of, names in near
            if any(all(node[name] == fields[name] for name in names) for fields in groups[of, names])
        ]

    return [(one, classes) for one in found]


@contextmanager
def _watched(made: list[tuple[type, dict[str, Any]]], found: list[dict[str, Any]]) -> Iterator[None]:
    """Note which dataclass an object comes from, and what is printed."""
    real_fields, real_text = as_json.fields_of, as_json.plain_json_text

    def fields_of(value: object, **options: Any) -> dict[str, object]:
        fields = real_fields(value, **options)
        made.append((type(value), fields))
        return fields

    def plain_json_text(value: Any, **options: Any) -> str:
        found.append(value)
        return real_text(value, **options)

    changed = []
    for name in [name for name in sys.modules if name.startswith("dispatchlab.")]:
        module = sys.modules[name]
        for attribute, real, watching in (
            ("fields_of", real_fields, fields_of),
            ("plain_json_text", real_text, plain_json_text),
        ):
            if module.__dict__.get(attribute) is real:
                setattr(module, attribute, watching)
                changed.append((module, attribute, real))
    try:
        yield
    finally:
        for module, attribute, real in changed:
            setattr(module, attribute, real)


@cache
def meanings_of(cls: type) -> Mapping[str, str]:
    """The fields of a class as its docstring explains them."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("\nArgs:\n")[2]
    text = re.split(r"\n(?=\S)", text)[0]
    found = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", text, re.MULTILINE)
    return {name: " ".join(what.split()) for names, what in found for name in names.split(", ")}


# -- fields


@cache
def fields_of_command(title: str) -> tuple[dict[str, Field], dict[str, int]]:
    """The path of each field of a command's JSON -> what it is, and the path of each object -> how many there were."""
    found: dict[str, Field] = {}
    objects: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ):
        os.environ["PYTHONPATH"] = os.pathsep.join((folder, os.environ.get("PYTHONPATH", "")))
        (Path(folder) / "cellar.py").write_text(_PACKAGE, encoding="utf-8")
        (Path(folder) / "renamed.py").write_text(_RENAMED, encoding="utf-8")
        program = Path(folder) / "program.py"
        program.write_text(_PROGRAM, encoding="utf-8")
        device_program = Path(folder) / "device_program.py"
        device_program.write_text(_DEVICE_PROGRAM, encoding="utf-8")
        violated = Path(folder) / "violated.yaml"
        violated.write_text(_VIOLATED, encoding="utf-8")
        for example in EXAMPLES[title]:
            record = Path(folder) / "cellar.yaml"
            if title == "record --check":
                CliRunner().invoke(main, ["record", "--once", "-o", str(record), "cellar"])
                (Path(folder) / "cellar.py").write_text(_PACKAGE.replace("CPU", "Meta"), encoding="utf-8")
            for value, classes in outputs(
                [
                    each.format(program=program, device_program=device_program, record=record, violated=violated)
                    for each in example
                ]
            ):
                _Walk(title, classes, found, objects).look(value, "")
    for each in found.values():
        if re.search(r"\b(?:None|null)\b", each.meaning):
            each.types.add("null")
    return found, objects


_MOST = 40
"""How many elements of a list are looked at, of those that have different fields or kinds."""


@dataclass(frozen=True, slots=True)
class _Walk:
    title: str
    classes: Callable[[Mapping[str, Any]], list[type]]
    found: dict[str, Field]
    objects: dict[str, int]

    def look(self, value: Any, path: str) -> None:
        match value:
            case dict() if set(value) == {"raw", "keys"}:
                return
            case dict():
                self._object(value, path)
            case list() | tuple():
                seen: dict[object, int] = {}
                for each in value:
                    if not isinstance(each, dict) and path in self.found:
                        self.found[path].items.add(_type(each))
                    kind = tuple(each) if isinstance(each, dict) else type(each)
                    seen[kind] = seen.get(kind, 0) + 1
                    if seen[kind] <= _MOST and not _is_nested(path):
                        self.look(each, f"{path}[]")
            case _:
                pass

    def _object(self, value: dict[str, Any], path: str) -> None:
        names = _MAPS.get(self.title.split()[0], {}).get(path)
        classes = [] if names else self.classes(value)
        self.objects[path] = self.objects.get(path, 0) + 1
        for name, each in value.items():
            here = f"{path}.{name}" if path else name
            if names is not None:
                here = f"{path}.{names.upper()}"
            field = self.found.setdefault(here, Field())
            hinted = {*_hinted(name, classes)}
            field.types |= {_type(each), *(hinted if each is None else hinted & {"null"})}
            field.seen += 1
            field.meaning = field.meaning or (
                f"for each {names}" if names is not None else _meaning(self.title, here, name, classes)
            )
            self.look(each, here)
            if not each and names is None:
                self._unseen(name, here, classes)

    def _unseen(self, name: str, path: str, classes: Sequence[type]) -> None:
        """Fields of what could stand in an empty field, by the types of the class."""
        for of in classes:
            for inner in _dataclasses_in(get_type_hints(of).get(name)):
                mark = "[]" if "tuple" in str(get_type_hints(of)[name]) else ""
                for each, meaning in meanings_of(inner).items():
                    field = self.found.setdefault(f"{path}{mark}.{each}", Field())
                    field.meaning = field.meaning or meaning


def _hinted(name: str, classes: Sequence[type]) -> Iterator[str]:
    """What could stand in a field that is null, by the types of the class."""
    for of in classes:
        hint = get_type_hints(of).get(name)
        for inner in get_args(hint) or (hint,):
            plain = get_origin(inner) or inner
            if plain in (str, int, float, bool):
                yield _TYPES[plain.__name__]
            elif plain in (tuple, list):
                yield "list"
            elif plain is type(None):
                yield "null"
            elif isinstance(plain, type):
                yield "object" if is_dataclass(plain) and as_json.as_json.dispatch(plain) is _PLAIN else "text"


def _is_nested(path: str) -> bool:
    """Whether a list is in an element of a list of the same name, whose elements are the same."""
    *before, last = path.split(".")
    return f"{last}[]" in before


def _dataclasses_in(hint: Any) -> Iterator[type]:
    for inner in get_args(hint) or (hint,):
        if isinstance(inner, type) and is_dataclass(inner) and as_json.as_json.dispatch(inner) is _PLAIN:
            yield inner
        elif inner is not hint and inner is not Ellipsis:
            yield from _dataclasses_in(inner)


_PLAIN = as_json.as_json.dispatch(object)


def _meaning(title: str, path: str, name: str, classes: Sequence[type]) -> str:
    ends = [path[at:] for at in range(len(path)) if at == 0 or path[at - 1] in ".]" or path[at] == "["]
    if f"{title}: {path}" in MEANINGS:
        return MEANINGS[f"{title}: {path}"]
    documented = [meanings_of(of)[name] for of in classes if name in meanings_of(of)]
    known = [MEANINGS[end] for end in ends if end in MEANINGS]
    return next(iter((*documented, *known)), "")


_TYPES = {"str": "text", "int": "number", "float": "number", "bool": "true or false", "NoneType": "null"}


def _type(value: Any) -> str:
    match value:
        case Enum():
            kinds = [each.value for each in type(value)]
            return ", ".join(f"`{each}`" for each in kinds) if len(kinds) <= _FEW else "text"
        case dict() if set(value) == {"raw", "keys"}:
            return "key set"
        case dict():
            return "object"
        case list() | tuple():
            return "list"
        case _:
            return _TYPES[type(value).__name__]


_FEW = 8


# -- the page

_HEAD = """\
# JSON

Written by `python tools/json_formats.py`, which runs each command; a test compares. `--format json` is for programs.

- `version` is the first field, and it is {version}. Within a version a field is never renamed or dropped; fields may be
  added.
- The exit code is the same as without it. Sequences are texts such as `+0 +1 -0`.
- Orders, which can be more than a number of JSON holds, are strings of digits.
- Keys, operators and source locations are their texts: `AutogradCPU`, `aten::add.Tensor`, `my_package/ops.py:12`.
- `dispatchlab schema COMMAND` prints the JSON Schema of what a command prints.
- A *key set* is an object with `raw`, its bits as a string of digits, and `keys`, its keys, the highest first.
- `a.b` is the field `b` of the object `a`, and `a[].b` the field `b` of each element of the list `a`. Names in capitals
  stand for many: `counts.WAY`.
"""


def section(title: str) -> str:
    """The section of a command."""
    found, _ = fields_of_command(title)
    base = fields_of_command(_MORE_THAN[title])[0] if title in _MORE_THAN else {}
    missing = [path for path, each in found.items() if not each.meaning and path not in base]
    if missing:
        raise ValueError(f"{title}: nothing explains {', '.join(missing)}; say it in MEANINGS")
    rows = [
        f"| `{path}` | {_types(each)} | {_plain(each.meaning)} |" for path, each in found.items() if path not in base
    ]
    anchor = re.sub(r"\W+", "-", title)
    intro = _INTRO.get(title, "One object.") or "One object."
    head = f"\n## `{title}` {{#{anchor}}}\n\n{intro}\n\n| field | is | meaning |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


# -- JSON Schema

_SCHEMA_TYPES = {"text": "string", "number": "number", "true or false": "boolean", "null": "null", "list": "array"}
_SCHEMA_TYPES["object"] = "object"
_KEY_SET: dict[str, Any] = {
    "type": "object",
    "required": ["raw", "keys"],
    "properties": {"raw": {"type": "string"}, "keys": {"type": "array", "items": {"type": "string"}}},
}


def schema(title: str) -> dict[str, Any]:
    """The JSON Schema of a command's JSON, which has the fields and the types of its page."""
    found, objects = fields_of_command(title)
    nodes: dict[str, dict[str, Any]] = {"": {"type": "object"}}
    for path, each in found.items():
        before, _, name = path.rpartition(".")
        parent = nodes.setdefault(before, {})
        node = nodes[path.removesuffix("[]")] = _schema_of(each.types)
        if "array" in node.get("type", ()):
            nodes[f"{path}[]"] = node["items"] = _schema_of(
                each.items | ({"object"} if objects.get(f"{path}[]") else set())
            )
        if before and not objects.get(before):
            continue  # nothing but what a class says
        if name.isupper():
            parent["additionalProperties"] = node
            continue
        parent.setdefault("properties", {})[name] = node
        if each.seen == objects[before]:
            parent.setdefault("required", []).append(name)
    return nodes[""]


def _schema_of(types: Collection[str]) -> dict[str, Any]:
    if set(types) == {"null"}:
        return {}  # the examples show no value of it
    plain = sorted({_SCHEMA_TYPES[each] for each in types if each in _SCHEMA_TYPES})
    others: list[dict[str, Any]] = [{"$ref": "#/$defs/key_set"}] * ("key set" in types)
    others += [{"enum": re.findall("`([^`]*)`", each)} for each in sorted(types) if each[:1] == "`"]
    if not others or "string" in plain:
        return {"type": plain[0] if len(plain) == 1 else plain} if plain else {}
    return {"anyOf": [*others, *({"type": each} for each in plain)]} if plain or len(others) > 1 else others[0]


def schemas(made: Mapping[str, dict[str, Any]]) -> str:
    """The file with the JSON Schema of each command: of one that prints several things, any of theirs."""
    names = dict.fromkeys(title.split()[0] for title in made)
    found = {
        name: {
            "anyOf": [one for title, one in made.items() if title.split()[0] == name],
            "$defs": {"key_set": _KEY_SET},
        }
        for name in names
    }
    return json.dumps(found, separators=(",", ":")) + "\n"


def section_by_itself(title: str) -> tuple[str, dict[str, Any]]:
    """The section of a command and its JSON Schema, from a process of its own: what ran before changes what is seen."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.json_formats", title],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    section, _, schema = done.stdout.partition("\0")
    return section, json.loads(schema)


def _plain(meaning: str) -> str:
    """A meaning in the words of JSON, fit for a table."""
    meaning = re.sub(r"\bNone\b", "null", meaning.replace("False", "false").replace("True", "true"))
    return meaning.removesuffix("." if not meaning.endswith("..") else "").replace("|", "\\|")


def _types(found: Field) -> str:
    return ", ".join(sorted(found.types - {"null"})) + (" or null" if {"null"} < found.types else "") or "any"


def pages() -> tuple[str, str]:
    """The whole page, and the file with the schemas."""
    made = {title: section_by_itself(title) for title in EXAMPLES}
    text = "".join((_HEAD.format(version=as_json.JSON_VERSION), *(section for section, _ in made.values())))
    return text, schemas({title: schema for title, (_, schema) in made.items()})


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.stdout.write(f"{section(sys.argv[1])}\0{json.dumps(schema(sys.argv[1]))}")
    else:
        for path, text in zip((PAGE, SCHEMAS), pages(), strict=True):
            path.write_text(text, encoding="utf-8", newline="\n")
