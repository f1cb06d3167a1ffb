"""The live engine: the installed PyTorch behind the protocol of the explorer, and the only package that imports torch.

From the bottom up; a floor imports only from floors below it:

- `bridge`: how registrations reach PyTorch: its bindings, `torch.library`, and the errors that come back.
- `introspection`: what PyTorch shows: dumps, tables, slots in memory, and its whole registry.
- `sandbox`: fresh namespaces where registrations are made, released and observed; the engine of this process.
- `worker`: the process that has torch, and the engine that drives it from outside.
- `recording`: what importing packages registers: watched, recorded as scenarios, and tried in an order.
- `tracing`: the calls of its operators inside of a block.
- `registry`: the registry of the running PyTorch, read in a process of its own.
- `program`: a counterexample as a short program that needs PyTorch alone.

`worker.engine.LiveEngine` is what commands use; it never imports torch into their process.
"""
