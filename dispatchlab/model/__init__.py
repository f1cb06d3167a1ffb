"""The values that every other package speaks of: keys, schemas, registrations, snapshots.
- `keys`: `DispatchKey` and what each key covers;
- `key_set`: `DispatchKeySet`, the sets that calls go by;
- `profile`: `Profile`, the facts by which the dispatchers of two versions of PyTorch differ;
- `slot_set`: sets of dispatch table slots, as bits;
- `names`: `OperatorName`;
- `schema`: `FunctionSchema`, the types of arguments and returns, and their printing;
- `schema_parser`: `parse_schema` and `parse_name`;
- `printed_schema`: schemas as PyTorch prints them, which its parser does not always read;
- `packet`: the overloads that a call of a name tries;
- `program_run`: the calls of a program on a device, and the kernels that serve them;
- `schema_difference`: whether a kernel fits the schema of its operator;
- `schema_compatibility`: whether callers of one schema can use another, by PyTorch's rule;
- `infer_schema`: the schema of a Python function's annotations;
- `cpp_signature`: the C++ signature of a schema;
- `registration`: `Def`, `Impl`, `Fallback`, `NameOnly`, `Claim`, `Block`, and where they were written;
- `short_names`: short names of registrations for pictures, all different;
- `kernel_identity`: kernels that share a debug text, marked;
- `dependence`: the dependences of the parts of an engine's state;
- `sequence`: sequences of registrations and releases;
- `snapshot`: the observable state of an operator, refusals, and violations of invariants;
- `operator_view`: an operator with the reason of each row of its table;
- `python_layer`: registrations of Python beside the dispatch tables, and facts about each registry;
- `dump_format`: the texts of dumps and computed tables;
- `installed_torch`: the installed PyTorch: its version, and the nearest PyTorch of which a model comes with
  dispatchlab;
- `order_run`: the state after one order of imports, as a value.
"""
