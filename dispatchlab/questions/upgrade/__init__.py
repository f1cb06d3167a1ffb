"""What an upgrade changes: two registries under the models of their PyTorch.

- `blocks`: upgrades as one document: a summary first, what differs below it.
- `compare_sources`: upgrades: two registries under the models of their PyTorch, and what the second means for users
  of the first.
- `operator_changes`: upgrades: what it means that one registry follows another, operator by operator; a pure function
  of the two.
- `package_changes`: what an upgrade means for a package: its registrations replayed on both registries, under the model
  of each.
- `python_changes`: what Python registers in two sources, compared: recordings, `live`, and records laid over their
  registry.
- `slot_models`: models for upgrades: the dispatcher of each registry's PyTorch, and what slots hold under it.
"""
