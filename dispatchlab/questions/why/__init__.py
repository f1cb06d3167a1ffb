"""Why a program failed: the cause, a fix that was tried, and the evidence.

- `causes/`: the causes. FAMILY.toml has each under its number: what recognises it, its sentence and its fixes.
  FAMILY.py has what only code can see. `pages/` has a page of each.
- `cause`, `row`: what a cause is, and how its rows are read. `facts`: what a row may name.
- `diagnose`: find the cause of a failure and try its fixes, where the program ran.
- `run`: run a program, or read a traceback, and return the answer.
- `answer_blocks`: how an answer is shown.
"""
