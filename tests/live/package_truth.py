"""Compare the verdicts of `record` and `permute` on groups of modules with what their orders lead to in PyTorch.

    python -m tests.live.package_truth COUNT --seed SEED --jobs JOBS [--only value/] [--sources]

takes the attacks and innocent groups of `package_attacks` and COUNT groups of `package_groups`. It ends with 1 where a
group whose results depend on the order is called order-independent; `--sources` shows the modules of each of these, and
`--commands` runs the two commands in place of a forked process. `--log FILE` adds a line to a file for each group that
was compared, and leaves out those that the file has: a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

from tests.live.import_truth import Group, Truth, truths
from tests.live.package_attacks import ATTACKS, INNOCENT
from tests.live.package_groups import generated
from tests.live.package_verdicts import verdict_in_fork

ROOT = Path(__file__).parents[2]
Verdict: TypeAlias = Callable[[Path, Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True)
class Comparison:
    """What the running PyTorch and the tool say of a group.

    Args:
        name: the name of the group.
        differences: what depends on the order, a sentence each; none when all orders agree.
        verdict: the verdict of `permute`, or `not recorded`, also where it is not known whether all orders agree.
        why: what was said of it.
    """

    name: str
    differences: tuple[str, ...]
    verdict: str
    why: str = ""

    @property
    def kind(self) -> str:
        """What the name begins with."""
        return self.name.partition("/")[0]

    @property
    def is_proved(self) -> bool:
        """Whether the tool says that it has a proof."""
        return self.verdict == "order-independent"

    @property
    def is_false_proof(self) -> bool:
        """Whether it says so of a group whose results depend on the order."""
        return self.is_proved and bool(self.differences)


def verdict_of(folder: Path, modules: Sequence[str]) -> Mapping[str, Any]:
    """What the two commands say of modules.

    Args:
        folder: the sources are there.
        modules: their names, in the order in which they are recorded.

    Returns:
        The JSON of `permute`; only `verdict` is needed. It is `not recorded` where one of the commands has no answer.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    tool = (sys.executable, "-m", "dispatchlab.cli")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (*tool, *arguments), cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    recorded = run("record", *modules, "-o", "record.yaml")
    if recorded.returncode or not (folder / "record.yaml").exists():
        return {"verdict": "not recorded", "why": recorded.stderr + recorded.stdout}
    answer = run("permute", "record.yaml", "--format", "json")
    if not answer.stdout.startswith("{"):
        return {"verdict": "not recorded", "why": answer.stderr}
    found: Mapping[str, Any] = json.loads(answer.stdout.splitlines()[0])
    return found


def compared(groups: Iterable[tuple[Group, Truth]], verdict: Verdict = verdict_in_fork) -> Iterator[Comparison]:
    """Ask for the verdict on each group whose truth is known."""
    for group, truth in groups:
        with tempfile.TemporaryDirectory(prefix="verdict-") as name:
            folder = Path(name)
            group.write(folder)
            found = verdict(folder, group.modules)
        if truth.is_unknown:
            found = {"verdict": "not recorded", "why": f"not known: stuck {truth.is_stuck}, dropped {truth.dropped}"}
        yield Comparison(group.name, tuple(_sentences(truth)), str(found["verdict"]), str(dict(found)))


def _sentences(truth: Truth) -> Iterator[str]:
    for probe, results in truth.differences.items():
        each = [f"{result} after {', '.join(orders[0])}" for result, orders in results.items()]
        yield f"{probe}: " + "; ".join(each)


def table_of(rows: Sequence[Comparison]) -> list[str]:
    """A line for each kind of group, and one for all."""
    by_kind: dict[str, list[Comparison]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(row)
    head = ("kind", "groups", "differ", "agree", "false proofs", "order found", "proved", "of agreeing", "not recorded")
    lines = [head, *(_counts(kind, each) for kind, each in by_kind.items()), _counts("all", rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _counts(kind: str, rows: Sequence[Comparison]) -> tuple[str, ...]:
    differ = [row for row in rows if row.differences]
    agree = [row for row in rows if not row.differences and row.verdict != "not recorded"]
    proved = sum(row.is_proved for row in agree)
    return (
        kind,
        str(len(rows)),
        str(len(differ)),
        str(len(rows) - len(differ)),
        str(sum(row.is_false_proof for row in rows)),
        str(sum(row.verdict == "order-dependent" for row in differ)),
        str(proved),
        f"{proved / len(agree):.1%}" if agree else "-",
        str(sum(row.verdict == "not recorded" for row in rows)),
    )


def groups_of(count: int, seed: int) -> list[Group]:
    """The attacks, the innocent groups and as many generated ones."""
    return [*ATTACKS, *INNOCENT, *(generated(number, seed) for number in range(count))]


def comparisons(
    groups: Sequence[Group], jobs: int, verdict: Verdict = verdict_in_fork, log: Path | None = None
) -> list[Comparison]:
    """Compare groups in several processes; this one must not have imported PyTorch.

    Args:
        groups: the groups.
        jobs: how many processes.
        verdict: the function that asks the tool.
        log: a file that gets a line for each comparison, and whose comparisons are not made again.

    Returns:
        One for each group, in their order.
    """

    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    found = {row.name: row for row in (Comparison(**json.loads(line)) for line in lines)}
    left = [group for group in groups if group.name not in found]
    bare, others = ([group for group in left if group.bare is each] for each in (True, False))
    # What is kept for bare groups is not what others begin with: they would be compared with it ten times as long.
    parts = [(some, verdict, log) for each in (bare, others) for number in range(jobs) if (some := each[number::jobs])]
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        found |= {row.name: row for part in pool.starmap(_part, parts, chunksize=1) for row in part}
    return [found[group.name] for group in groups]


def _part(groups: Sequence[Group], verdict: Verdict, log: Path | None) -> list[Comparison]:
    rows = []
    for row in compared(truths(groups), verdict):
        rows.append(row)
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    return rows


def main(
    count: int,
    seed: int = 0,
    jobs: int = 1,
    *,
    only: str = "",
    sources: bool = False,
    log: Path | None = None,
    verdict: Verdict = verdict_in_fork,
) -> int:
    """Print the table, each false proof, and each group that could have been proved and was not.

    Args:
        count: how many generated groups there are beside the attacks and the innocent groups.
        seed: which ones.
        jobs: how many processes work at once.
        only: what the names of the groups begin with that are compared.
        sources: whether to print the modules of each false proof.
        log: see `comparisons`.
        verdict: the function that asks the tool.

    Returns:
        How many false proofs there are.
    """
    groups = [group for group in groups_of(count, seed) if group.name.startswith(only)]
    rows = comparisons(groups, jobs, verdict, log)
    lines = table_of(rows)
    both = list(zip(groups, rows, strict=True))
    false_proofs = [(group, row) for group, row in both if row.is_false_proof]
    for group, row in false_proofs:
        lines += [f"false proof: {group.name}: {group.why}", *(f"    {line}" for line in row.differences)]
        lines += str(group).splitlines() if sources else []
    unproved = [(group, row) for group, row in both if not row.differences and not row.is_proved]
    lines += [f"not proved: {group.name}: {row.verdict}: {group.why}: {row.why}" for group, row in unproved]
    print("\n".join(lines))  # noqa: T201
    return len(false_proofs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--sources", action="store_true")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--commands", action="store_true")
    given = vars(parser.parse_args())
    asked = verdict_of if given.pop("commands") else verdict_in_fork
    sys.exit(bool(main(**given, verdict=asked)))
