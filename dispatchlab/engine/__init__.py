"""The lab engine: registrations, dispatch tables and front ends, with PyTorch's semantics and two others.

- `dispatcher`: `Dispatcher`, where the state of registrations changes, and what can be asked of it;
- `library`: `Library`, the front end of `torch.library`, and the base of all front ends;
- `handle`: `RegistrationHandle`, which releases a registration;
- `kernel`: wrappers of Python functions, registered kernels, and entries of the dispatch table;
- `fallbacks`: the backend fallbacks of a dispatcher;
- `operator_entry`: `OperatorEntry`, all that is known of one operator;
- `state`: the state of a dispatcher, what Python keeps included, and transactions on it;
- `lowering`: from a registration as it was written to primitive registrations, and the state that a dispatcher
  starts from;
- `primitives`: the primitive registrations, which check and write;
- `torch_library`: the calls of `torch.library`, which check and write in Python as well;
- `refusals`: the errors of refused registrations;
- `semantics`: `strict`, `torch-2.13` and its kind, and `pr35061`, with the backend fallbacks that PyTorch ships;
- `precedence`: what a profile says of it, and the dispatch table, computed on sets of slots;
- `reference_precedence`: the same, computed key by key;
- `invariants`: what must hold of an operator;
- `in_force`: what must hold of a state and all that is registered;
- `introspection`: dumps, snapshots and invariants of operators;
- `row_reasons`: `operator_view`, an operator with the reasons behind the rows of its table;
- `dependences`: what each part of an operator's state depends on;
- `lab_engine`: `LabEngine`, the engine as the explorer uses it: its states as values, and why two of them differ.
"""
