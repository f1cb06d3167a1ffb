"""The GitHub workflow that `dispatchlab init` writes; other CIs run the same commands."""

from __future__ import annotations

_HEAD = """\
# What importing this package registers: the scenarios still hold, and findings annotate pull requests.
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
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683  # v4.2.2
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065  # v5.6.0
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
        steps.append(
            f"      - run: dispatchlab check {module} --format sarif > dispatchlab.sarif\n"
            "      - uses: github/codeql-action/upload-sarif@48ab28a6f5dbc2a99bf1e0131198dd8f1df78169  # v3.28.0\n"
            "        if: always()\n"
            "        with:\n"
            "          sarif_file: dispatchlab.sarif\n"
        )
    return _HEAD + "".join(steps)
