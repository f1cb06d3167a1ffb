"""What this checkout says of the PyTorch that runs, to compare it with another checkout: `tools/hide_versions.py` does.

    python -m tests.live.answers SECTION [COUNT]

prints the answers of a section as JSON: a text or a digest by what it answers. COUNT is for fewer than usual.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from click.testing import CliRunner

from dispatchlab.cli import main
from dispatchlab.model.measured import installed_torch, known_profile, model_for
from dispatchlab.model.profile import profile_text
from dispatchlab.records.file import open_bundled, python_layer_of
from dispatchlab.sources.replay_on_lab import bench

Answers: TypeAlias = Mapping[str, object]

SAID = "verdict", "expected", "as_expected", "exit_code", "orders", "classes", "never_accepted", "notes"
"""What is compared of the report on a scenario; errors of PyTorch count the calls of the process."""

KINDS = (
    *("cpu", "cpu requires_grad", "cuda", "cuda requires_grad", "meta", "mps", "sparse cpu", "xla requires_grad"),
    *("privateuseone", "quantized cpu", "nested cpu"),
)
"""Arguments of the calls that are explained."""


def name_here() -> str:
    """What the model of the PyTorch that runs is called."""
    return model_for(installed_torch())


def facts(_: int) -> Answers:
    """The profile, each operator, the fallbacks, the orders of overloads, and what Python registers."""
    registry, layer = open_bundled(name_here()), defaultdict(list)
    for one in python_layer_of(registry) or ():
        layer[one.operator].append(one)
    return {
        "profile": _digest([profile_text(known_profile(name_here()))]),
        "fallbacks": _digest([registry.fallbacks]),
        **{f"def and kernels of {one.name}": _digest([one]) for one in registry},
        **{f"order of {name}": [*order] for name, order in registry.orders.items()},
        **{f"Python's of {name}": _digest(each) for name, each in layer.items()},
    }


def prints(_: int) -> Answers:
    """Every dump and every table."""
    held = bench(open_bundled(name_here()), semantics=name_here())  # its registrations live as long as it does
    dump, table = held.dispatcher.dump, held.dispatcher.dump_table
    return {name: _digest([dump(name), table(name)]) for name in map(str, held.dispatcher.operators())}


def explain(count: int) -> Answers:
    """500 calls explained, a fifth of them by a name without an overload."""
    draw, names = random.Random(42), _operators()
    packets = sorted({name.partition(".")[0] for name in names})
    calls = [(draw.choice(names if at % 5 else packets), draw.randint(1, 2)) for at in range(count or 500)]
    return _printed(("explain", name, *_arguments(draw, many), "--from", name_here()) for name, many in calls)


def histories(count: int) -> Answers:
    """2,000 histories on PyTorch and on its model, each step compared."""
    from dispatchlab.engine.semantics import semantics_named
    from tests.histories.__main__ import run

    figures, _ = run(known_profile(name_here()), semantics_named(name_here()), count or 2000, 1, 0)
    return figures


def scenarios(_: int) -> Answers:
    """Every scenario but those of another PyTorch, on PyTorch beside its model and on its model alone."""
    files = [str(path) for path in sorted(Path("scenarios").rglob("*.yaml")) if not _is_of_another(path.read_text())]
    live = ("--engine", "torch", "--conform", "--passes", "1")
    answers = {}
    for options in (live, ("--semantics", name_here())):
        for line in CliRunner().invoke(main, ("permute", *files, *options, "--format", "json")).stdout.splitlines():
            if line.startswith("{"):
                report = json.loads(line)
                answers[f"{report['scenario']}, engine {report['engine']}"] = [report[name] for name in SAID]
    return answers


def groups(count: int) -> Answers:
    """Ten groups of packages: whether their orders differ on PyTorch, and the verdict."""
    from tests.live.package_attacks import ATTACKS, INNOCENT
    from tests.live.package_groups import generated
    from tests.live.package_truth import comparisons

    chosen = [*ATTACKS[::40][:3], *INNOCENT[::8][:2], *(generated(number, 77) for number in range(5))]
    rows = comparisons(chosen[: count or None], 1)
    return {row.name: re.sub(r"/verdict-\w+/", "/", json.dumps(asdict(row))) for row in rows}


SECTIONS: Mapping[str, Callable[[int], Answers]] = {
    section.__name__: section for section in (facts, prints, explain, histories, scenarios, groups)
}


def _is_of_another(scenario: str) -> bool:
    """Whether a scenario names the model or the registry of another PyTorch, which a copy may lack."""
    named = re.findall(r"(?m)^(?:semantics|registry): (torch-\S+)", scenario)
    return any(name != name_here() for name in named)


def _operators() -> list[str]:
    return sorted(str(one.name) for one in open_bundled(name_here()) if one.schema is not None)


def _arguments(draw: random.Random, many: int) -> Iterator[str]:
    for _ in range(many):
        yield from ("--arg", draw.choice(KINDS))


def _printed(commands: Iterable[tuple[str, ...]]) -> Answers:
    """What commands print, line by line, without times."""
    answers: dict[str, object] = {}
    for command in commands:
        done = CliRunner().invoke(main, command)
        text = re.sub(r'"[a-z_]*seconds": [\d.e-]+', "", done.stdout)
        answers[" ".join(command)] = [
            done.exit_code,
            *text.splitlines(),
            *(done.stderr.splitlines() * (done.exit_code > 1)),
        ]
    return answers


def _digest(values: Iterable[object]) -> str:
    return sha256(repr([*values]).encode()).hexdigest()[:12]


if __name__ == "__main__":
    json.dump(SECTIONS[sys.argv[1]](int(*sys.argv[2:])), sys.stdout)
