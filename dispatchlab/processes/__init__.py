"""Processes of our own: they end with the process that started them, in time, and within memory.

- `parent`: a worker process ends when its parent has ended, however that ended.
- `pool`: worker processes that run one task each at a time, so that a crash is blamed on its task.
- `deadline`: a deadline that interrupts whatever is running.
- `memory`: how much memory this process uses, and how much of the machine's it may use.
"""
