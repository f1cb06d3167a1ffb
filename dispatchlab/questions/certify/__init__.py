"""Certify a registry: prove for each operator that the order of its registrations does not matter.

- `blocks`: certificates of a registry as blocks.
- `certificate`: the certificates: for each operator, whether the order of its registrations matters, and their sources.
- `certify_registry`: certify a registry: prove each pattern, and compare every operator with its pattern.
- `operator_neighbourhoods`: neighbourhoods of an operator: the registrations that reach the same slots, in all orders.
- `slot_neighbourhoods`: neighbourhoods of slots: one kernel of each role, each kernel in turn.
"""
