"""Why a program failed: the cause, a fix that was tried, and the evidence.

- `cause`: what a cause is, and the list of all of them.
- `causes/`: the causes, a module for each family, with a page each in `pages/`.
- `diagnose`: find the cause of a failure and try its fixes, where the program ran.
- `run`: run a program, or read a traceback, and return the answer.
- `answer_blocks`: how an answer is shown.
"""
