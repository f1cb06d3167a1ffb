"""What the dispatcher holds for an operator: dumps, tables with their reasons, and listings.

- `inspect_operators`: inspect operators of a scenario, a registry or the installed PyTorch, with the reasons behind
  their tables.
- `listing_blocks`: registries as blocks and as JSON: listings and counts.
- `operator_blocks`: an operator as blocks: what it is, what is stale, its kernels with the keys that run them, and who
  lost; the overloads of a name.
- `operator_text`: the plain text of operators: the dump with its table, what Python registers, and the steps that were
  refused.
- `python_layer_blocks`: what Python has registered for an operator as blocks and as JSON, and how much each registry
  has.
- `show_operators`: what `dump` shows: operators with their kernels and tables, or a listing.
- `table_groups`: the dispatch table of an operator grouped by kernel: which keys run it and why, where it lost, and
  what is stale.
"""
