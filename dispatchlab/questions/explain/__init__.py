"""Why a call runs a kernel: the key set of each hop.

- `argument_specs`: read descriptions of the arguments of a call, such as `cuda requires_grad`.
- `blocks`: explanations of calls as blocks and as JSON: which kernel runs, and why.
- `explain_operator`: explain a call of an operator of any source, and find out whether the source can answer for its
  backend.
- `hops`: follow a call without running it: the key set of each hop, its kernel, and what lost to it.
- `kernel_rules`: what the kernels at a key do, by where they are registered: the table that all others read.
- `packet_calls`: read the arguments of a call of a name, and find the overload that it goes to.
- `result`: what is explained: hops, and the kernels that they choose.
"""
