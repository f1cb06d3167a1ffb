"""Write the registries of Python, and what PyTorch does with registrations there by version, into their page.

    python -m tests.live.library_rules > rules-2.13.json     # with each version of PyTorch
    python tools/library_rules.py rules-2.4.json rules-2.13.json ...

A version that is not given stays as it is known. Without files, the page is written anew. `tools/add_version.py` does
both for a version that is added.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.model.python_layer import PYTHON_REGISTRIES, PythonRegistry, Second  # noqa: E402

DATA = ROOT / "tests" / "data" / "library_rules.json"
PAGE = ROOT / "docs" / "python_layer.md"
SECTIONS = {
    "## Registered twice, or in another order": "The functions are those of `torch.library` where no other module is\n"
    "named. Of what is refused, the first words of the error are given.",
    "## What a library takes with it, by version": "What is left of each when its library is destroyed.",
}
"""The headings of the tables, and what stands before them. The second is of what a library releases."""

Outcomes: TypeAlias = dict[str, dict[str, list[str]]]
"""The versions in which a rule comes to an outcome, by rule and outcome."""


def version_key(version: str) -> tuple[int, ...]:
    """What versions are sorted by."""
    return tuple(map(int, version.split(".")))


def known() -> Outcomes:
    """What the data of the tests has."""
    found: Outcomes = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    return found


def with_version(outcomes: Outcomes, version: str, measured: Mapping[str, str]) -> Outcomes:
    """The outcomes with those of one more version, which take the place of what was known of it."""
    found: Outcomes = {}
    for rule, outcome in measured.items():
        versions = {text: [one for one in has if one != version] for text, has in outcomes.get(rule, {}).items()}
        versions.setdefault(outcome, []).append(version)
        known = {text: sorted(has, key=version_key) for text, has in versions.items() if has}
        found[rule] = dict(sorted(known.items(), key=lambda item: version_key(item[1][0])))
    return found


def data_text(outcomes: Outcomes) -> str:
    """What the file of the data has."""
    rows = [f" {json.dumps(rule)}: {json.dumps(has)}" for rule, has in outcomes.items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def by_version(outcomes: Mapping[str, Sequence[str]]) -> str:
    """The outcomes of a rule as a sentence: `until 2.8: refused; since 2.9: the last one runs`."""
    every = sorted((one for has in outcomes.values() for one in has), key=version_key)
    of = {version: text for text, has in outcomes.items() for version in has}
    runs: list[tuple[str, list[str]]] = []
    for version in every:
        if runs and runs[-1][0] == of[version]:
            runs[-1][1].append(version)
        else:
            runs.append((of[version], [version]))
    return "; ".join(f"{_when(has, every)}{text}" for text, has in runs)


def _when(has: Sequence[str], every: Sequence[str]) -> str:
    first, last = has[0] == every[0], has[-1] == every[-1]
    if first and last:
        return ""
    if last:
        return f"since {has[0]}: "
    return f"until {has[-1]}: " if first else f"{has[0]} to {has[-1]}: " if len(has) > 1 else f"{has[0]}: "


def table(outcomes: Outcomes, rules: Iterable[str]) -> str:
    """The rows of these rules."""
    from tests.live.library_rules import MORE_RULES, RULES

    titles = {name: (rule.__doc__ or "").rstrip(".") for name, rule in {**RULES, **MORE_RULES}.items()}
    return "\n".join(f"| {titles[rule]} | {by_version(outcomes[rule])} |" for rule in rules)


def registry_row(registry: PythonRegistry) -> str:
    """The row of a registry."""
    rule = registry.rule
    if rule is None:
        second = "not explored"
    else:
        notes = ("" if rule.by_object else "by name", "not made live" if registry.no_call else "")
        second = "; ".join(filter(None, (_SECOND[rule.second], *notes)))
    needs = f"`{registry.needs}`" if registry.needs else ""
    cells = (f"`{registry.name}`", registry.title, f"`{registry.home}`", needs, registry.applies, second)
    return f"| {' | '.join(cells)} |\n"


_SECOND = {Second.REPLACES: "wins", Second.REFUSED: "is refused", Second.SAME: "changes nothing"}


def page_with(text: str, outcomes: Outcomes) -> str:
    """The page with its tables as they are to be."""
    before, head, rest = text.partition(
        "| name | holds | where | needs | applies | a second one |\n|---|---|---|---|---|---|\n"
    )
    assert head, "the page has a table of the registries"
    _, _, after = rest.partition("\n\n")
    text = f"{before}{head}{''.join(map(registry_row, PYTHON_REGISTRIES))}\n{after}"
    versions = sorted({one for has in outcomes.values() for of in has.values() for one in of}, key=version_key)
    measured = f"Measured on the public wheels of PyTorch {', '.join(versions[:-1])} and {versions[-1]}."
    for (heading, intro), of_releases in zip(SECTIONS.items(), (False, True), strict=True):
        rules = [rule for rule in outcomes if _is_of_release(rule) == of_releases]
        before, _, rest = text.partition(heading + "\n")
        after = re.split(r"\n(?=## )", rest, maxsplit=1)[1]
        head = f"{heading}\n\n{intro}\n{measured}\n\n| what | on PyTorch |\n|---|---|\n"
        text = f"{before}{head}{table(outcomes, rules)}\n\n{after}"
    return text


def _is_of_release(rule: str) -> bool:
    return "release" in rule or "stale" in rule


def main(files: Sequence[str]) -> int:
    """Write the data and the page; returns the exit code."""
    found = known()
    for path in map(Path, files):
        version = path.stem.removeprefix("rules-")
        found = with_version(found, version, json.loads(path.read_text(encoding="utf-8")))
    DATA.write_text(data_text(found), encoding="utf-8")
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
