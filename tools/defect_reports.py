"""Write docs/defects/reports: a page for each defect that can be filed as an issue of PyTorch as it stands.

Run it from the root of the checkout: `python tools/defect_reports.py`. What happens, the program and the versions come
from the records of `tools/defects.py`, `tools/python_defects.py` and `tools/defect_programs.py`; defect_reports.yaml
beside this file has what a maintainer asks besides. A patch of Python code is a file in docs/defects/patches.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.defect_programs import FIXED, HAS, PROGRAMS, outcomes, programs  # noqa: E402  # of this checkout
from tools.defects import DEFECTS  # noqa: E402
from tools.python_defects import PYTHON_DEFECTS  # noqa: E402

PAGES, PATCHES = PROGRAMS / "reports", PROGRAMS / "patches"
PACKAGED = ROOT / "dispatchlab" / "adopt" / "defects.json"
"""What `dispatchlab defects` has of each defect."""


@cache
def reports() -> dict[str, dict[str, str]]:
    """What a maintainer asks of each defect, by its name."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = yaml.safe_load(text)
    return found


def page(name: str) -> str:
    """The page of a defect."""
    report = reports()[name]
    what = next(one.what for one in (*DEFECTS, *PYTHON_DEFECTS) if one.name == name)
    program = programs()[name].read_text(encoding="utf-8")
    sections = {
        "What happens": what,
        "Program": f"Exit code 1 where PyTorch has the defect, 0 where it does not.\n\n```python\n{program}```",
        "Versions": f"The program was run on public wheels.\n\n{versions(name)}",
        "Expected": report["expected"],
        "Cause": report["cause"],
        "What else it breaks": report["breaks"],
        "Proposed patch": _patch(name),
    }
    if "test" in report:
        needs = (
            " It needs the qualified name of [unchecked_name](unchecked_name.md)."
            if "commute" in report["test"]
            else ""
        )
        sections["Test"] = f"A method of `TestDispatch`.{needs}\n\n```python\n{report['test']}```"
    return f"# {report['title']}\n" + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())


def _patch(name: str) -> str:
    file, proposed = PATCHES / f"{name}.patch", reports()[name].get("patch", "")
    if file.exists():
        text = file.read_text(encoding="utf-8")
        return f"Applied to a copy of PyTorch 2.13, it makes the program end with 0.\n\n```diff\n{text}```"
    return f"It was not compiled.\n\n```diff\n{proposed}```" if proposed.startswith("---") else proposed


def versions(name: str) -> str:
    """What the program found on each PyTorch, a line for each outcome."""
    found = outcomes()[name]
    lines = {
        "has it": [version for version, outcome in found.items() if outcome == HAS],
        "does not have it": [version for version, outcome in found.items() if outcome == FIXED],
        "could not run it": [f"{version} ({why})" for version, why in found.items() if why not in (HAS, FIXED)],
    }
    return "\n".join(f"- {what}: {', '.join(which)}" for what, which in lines.items() if which)


def packaged() -> str:
    """What `dispatchlab defects` has: for each page the defects on it, each with its name, a line, and its program."""

    def row(name: str) -> tuple[str, str, str]:
        return name, reports()[name]["title"].partition("] ")[2], programs()[name].read_text(encoding="utf-8")

    pages = {
        "defects": [row(one.name) for one in DEFECTS],
        "python_defects": [row(one.name) for one in PYTHON_DEFECTS],
    }
    return json.dumps(pages) + "\n"


def main() -> None:
    """Write all pages, and what `dispatchlab defects` has."""
    PACKAGED.write_text(packaged(), encoding="utf-8", newline="\n")
    PAGES.mkdir(exist_ok=True)
    for name in reports():
        (PAGES / f"{name}.md").write_text(page(name), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
