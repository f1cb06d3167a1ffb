"""How registrations reach the running PyTorch: its bindings, `torch.library`, and the errors that come back.

- `torch`: import PyTorch, and packages that register on it.
- `native_libraries`: which compiled libraries have to do with PyTorch.
- `running_keys`: the keys of the running PyTorch, and those of its slots in order.
- `call_mark`: the file and line by which dumps show which call made a kernel.
- `call_sites`: the source line that asked for a registration.
- `expressible`: what the bindings can express, and the error for what they cannot.
- `torch_library_calls`: make the `torch.library` call of a block.
- `registration_calls`: turn a registration into calls on the bindings.
- `wrapped_functions`: functions of other modules that are wrapped for a while.
- `watch`: each call that registers, and its call site.
- `record_function`: each call of an operator, observed without a mode.
- `error_parser`: the kind and the facts of a refusal, from PyTorch's text.
- `reserved_namespaces`: the namespaces of sandboxes and probes.
"""
