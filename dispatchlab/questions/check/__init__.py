"""Check a package: all questions about its registrations, from one import.

- `annotations`: findings as the annotations of a GitHub workflow.
- `blocks`: the check as blocks: a line for each question, then the findings.
- `check_packages`: import packages once, and answer every question about their registrations.
- `configuration`: the settings of a project for its check: `[tool.dispatchlab]` in pyproject.toml.
- `findings`: the results of all questions as findings.
- `trial_process`: the process that imports packages and runs the trials of their operators.
- `trials`: start this process, and make findings of the failed trials.
- `report`: the values: an answer for each question, and the report of all.
"""
