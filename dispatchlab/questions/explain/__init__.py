"""Explain why a call runs a kernel: the key set of each hop.

- `argument_specs`: read descriptions of the arguments of a call, such as `cuda requires_grad`.
- `blocks`: explanations of calls as blocks and as JSON: which kernel runs, and why.
- `explain_operator`: explain a call of an operator of any source, and say if the source lacks kernels of the backend.
- `hops`: follow a call without running it: the key set of each hop, its kernel, and the kernels that lost.
- `kernel_rules`: the actions of the kernels at a key, by the file of their registration.
- `packet_calls`: read the arguments of a call of a name, and find the overload that it runs.
- `result`: the values of an explanation: hops, and the kernels that they choose.
"""
