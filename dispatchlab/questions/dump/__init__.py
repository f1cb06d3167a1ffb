"""The content of the dispatcher for an operator: dumps, tables with their reasons, and listings.

- `inspect_operators`: inspect operators of a scenario, a registry or the installed PyTorch, with the reasons behind
  their tables.
- `listing_blocks`: registries as blocks and as JSON: listings and counts.
- `operator_blocks`: an operator as blocks: its properties, stale slots, kernels with the keys that run them, kernels
  that lost; the overloads of a name.
- `operator_text`: the plain text of operators: the dump with its table, registrations of Python, and refused steps.
- `python_layer_blocks`: the registrations of Python for an operator as blocks.
- `show_operators`: the output of `dump`: operators with their kernels and tables, or a listing.
- `table_groups`: the dispatch table of an operator grouped by kernel: the keys that run it and why, the keys where it
  lost, and stale slots.
"""
