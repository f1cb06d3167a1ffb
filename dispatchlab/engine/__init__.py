"""The lab engine: registrations, dispatch tables and front ends, with PyTorch's semantics and two others.

- `dispatcher`: `Dispatcher`, which changes the state of registrations, and its queries;
- `library`: `Library`, the front end of `torch.library`, and the base of all front ends;
- `handle`: `RegistrationHandle`, which releases a registration;
- `kernel`: wrappers of Python functions, registered kernels, and entries of the dispatch table;
- `fallbacks`: the backend fallbacks of a dispatcher;
- `operator_entry`: `OperatorEntry`, the registrations and slots of one operator;
- `state`: the state of a dispatcher, including entries that Python keeps, and transactions on it;
- `lowering`: convert a registration to primitive registrations; and the state that a dispatcher
  starts from;
- `primitives`: the primitive registrations, which check and write;
- `torch_library`: the calls of `torch.library`, which also check and write in Python;
- `refusals`: the errors of refused registrations;
- `semantics`: `strict`, `torch-2.13` and its kind, and `pr35061`, with the backend fallbacks that PyTorch ships;
- `precedence`: the precedence of a profile, and the dispatch table, computed on sets of slots;
- `reference_precedence`: the same, computed key by key;
- `invariants`: the invariants of an operator;
- `in_force`: the invariants of a state and all registrations;
- `introspection`: dumps, snapshots and invariants of operators;
- `row_reasons`: `operator_view`, an operator with the reasons behind the rows of its table;
- `dependences`: the dependences of each part of an operator's state;
- `lab_engine`: `LabEngine`, the engine as the explorer uses it: its states as values, and why two of them differ.
"""
