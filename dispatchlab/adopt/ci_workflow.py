"""The GitHub workflow that `dispatchlab init` writes; other CIs run the same commands."""

from __future__ import annotations

_HEAD = """\
# What importing this package registers: the scenarios still hold, and lint annotates pull requests.
name: dispatchlab

on:
  push:
  pull_request:

permissions:
  contents: read
  security-events: write

jobs:
  dispatchlab:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.13"
      - run: pip install torch --index-url https://download.pytorch.org/whl/cpu
      - run: pip install . dispatchlab pytest
"""


def workflow(folder: str, scenario: str, module: str | None) -> str:
    """The text of the workflow.

    Args:
        folder: the folder of the scenarios.
        scenario: the scenario that was recorded.
        module: the module that it is a record of; None for an example.
    """
    steps = [f"      - run: pytest {folder}\n"]
    if module is not None:
        # NB: a finding ends lint with 1 and is for the annotations; anything else fails the job.
        steps.append(
            f"      - run: dispatchlab lint live --import {module} --format sarif > dispatchlab.sarif"
            " || test $? -eq 1\n"
            "      - uses: github/codeql-action/upload-sarif@v3\n"
            "        with:\n"
            "          sarif_file: dispatchlab.sarif\n"
        )
    return _HEAD + "".join(steps)
