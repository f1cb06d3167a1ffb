"""Find out why a program failed: the cause, a tried fix, and the evidence.

- `causes/`: the causes. FAMILY.toml has each under its number: what recognises it, its sentence and its fixes.
  FAMILY.py has conditions that need code. `pages/` has a page for each.
- `cause`, `row`: causes, and how their rows are read. `facts`: the names that a row may use.
- `diagnose`: find the cause of a failure and try its fixes, where the program ran.
- `run`: run a program, or read a traceback, and return the answer.
- `answer_blocks`: answers as blocks.
"""
