"""The changes of an upgrade: two registries, each under the model of its PyTorch.

- `blocks`: upgrades as one document: a summary, then the differences.
- `compare_sources`: compare two registries, each under the model of its PyTorch, for users of the first one.
- `operator_changes`: the changes of each operator between two registries, as a pure function of the two.
- `package_changes`: the effect of an upgrade on a package: its registrations are replayed on both registries.
- `python_changes`: compare the registrations of Python in two sources.
- `slot_models`: models for upgrades: the dispatcher of each registry's PyTorch, and the content of its slots.
"""
