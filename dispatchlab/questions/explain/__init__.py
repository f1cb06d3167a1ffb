"""Why a call runs a kernel: the key set of each hop, with and without a mode of Python.

- `across`: one call on several versions of PyTorch: what it does on each, what changed, and since when.
- `argument_specs`: read descriptions of the arguments of a call, such as `cuda requires_grad`.
- `blocks`: explanations of calls as blocks and as JSON: which kernel runs, and why.
- `dtensor`: what DTensor asks: what says how the results are sharded, or takes the place of that.
- `explain_operator`: explain a call of an operator of any source, and find out whether the source can answer for its
  backend.
- `fake_tensor`: what FakeTensorMode asks for the result of a call.
- `graph_modes`: what make_fx, torch.compile and torch.export ask for a call that is traced into a graph.
- `hops`: follow a call without running it: the key set of each hop, its kernel, and what lost to it.
- `kernel_rules`: what the kernels at a key do, by where they are registered: the table that all others read.
- `mode_facts`: what is known of each mode: its title, its registries, its imports, its keys.
- `modes`: explain a call under a mode of Python: what is asked for an implementation, and in which order.
- `packet_calls`: read the arguments of a call of a name, and find the overload that it goes to.
- `registered`: what is registered for an operator in the registries of Python and in its dispatch table.
- `result`: what is explained: hops, the kernels that they choose, and the implementations under a mode.
- `transforms`: explain a call inside of functorch's transforms or autocast: each hop, and what runs.
"""
