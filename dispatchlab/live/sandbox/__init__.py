"""Sandboxes in the running PyTorch: fresh namespaces, what they show, and the engine that hands them out.

- `kept_in_python`: what the running PyTorch keeps in Python for an operator.
- `journal`: the sequence that a sandbox is at, readable after a crash.
- `observation`: snapshots and stale slots of a sandbox's operators.
- `sandbox`: registers and releases; `LocalEngine`, the PyTorch of this process, hands sandboxes out.
"""
