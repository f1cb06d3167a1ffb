"""Sandboxes in the running PyTorch: new namespaces, their observation, and the engine that makes them.

- `kept_in_python`: the entries that PyTorch keeps in Python for an operator.
- `journal`: the sequence that a sandbox has run, readable after a crash.
- `observation`: snapshots and stale slots of a sandbox's operators.
- `sandbox`: registers and releases; `LocalEngine`, the PyTorch of this process, makes sandboxes.
"""
