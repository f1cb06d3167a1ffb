"""What is certified: for every operator of a registry, whether the order of its registrations can matter.

- `blocks`: certificates of a registry as blocks: in text by operator, on a terminal by owner, in a page by what is
  proved.
- `certificate`: certificates: for every operator of a registry, whether the order of its registrations matters, and who
  owns them.
- `certify_registry`: certify a registry: hold every operator to what was proved of its pattern, in several processes.
- `operator_neighbourhoods`: neighbourhoods of an operator: which registrations reach the same slots, and what they show
  in all orders.
- `slot_neighbourhoods`: neighbourhoods of slots: one kernel of each role, each kernel in turn.
"""
