"""What is wrong with a package: all questions about its registrations, asked of one import.

- `annotations`: findings as the annotations of a GitHub workflow.
- `blocks`: the check as blocks: a line for each question, then the findings.
- `check_packages`: import packages once, and ask every question about what they register.
- `configuration`: what a project says about its check: `[tool.dispatchlab]` in pyproject.toml.
- `findings`: what each question found, as findings of one kind.
- `trial_process`: the process that imports packages and runs the trials of their operators.
- `trials`: start that process, and make findings of what failed.
- `report`: the values: an answer for each question, and the report of all.
"""
