"""Sandboxes in the running PyTorch: fresh namespaces, what they show, and the engine that hands them out.

- `journal`: the sequence that a sandbox is at, readable after a crash.
- `observation`: snapshots and stale slots of a sandbox's operators.
- `sandbox`: registers and releases; `LocalEngine`, the PyTorch of this process, hands sandboxes out.
"""
