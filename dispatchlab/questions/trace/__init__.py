"""The calls of operators while a program ran, with each redispatch.

- `blocks`: recorded calls, and which kernels ran, as blocks and as JSON.
- `run_program`: run a Python file as a program, as `python FILE.py` would.
- `summary`: parts of a trace: the calls of some operators or keys, and how often each kernel ran.
- `torch_trace`: `TorchTrace`: the calls of the installed PyTorch's operators inside of a `with` block.
"""
