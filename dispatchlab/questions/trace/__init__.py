"""What operators did while a program ran: calls, hop by hop.

- `blocks`: recorded calls, and which kernels ran, as blocks and as JSON.
- `run_program`: run a Python file as a program, as `python FILE.py` would.
- `summary`: parts of a trace: the calls of some operators or keys, and which kernels ran how often.
- `torch_trace`: `TorchTrace`: what the installed PyTorch's operators do inside of a `with` block, as calls.
"""
