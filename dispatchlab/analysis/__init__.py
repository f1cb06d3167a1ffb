"""The room for the proof: what needs both an engine and a walk. Commands and the pytest plugin show what it finds.

Scenarios:

- `run_scenario`: explore one scenario, replay a counterexample on it, compare it with its model.
- `run_scenarios`: several scenarios, one after the other or at once; `scenario_tasks`: each in a process of its own, on
  this machine or a cluster, or one in shares.
- `stand_ins`: boxed kernels for the C++ kernels, and classes for the custom classes, that PyTorch cannot register.
- `report`: what was found, beside what the scenario expects.
- `counterexamples`: replay them, explain them, cut scenarios down to them, print programs that show them.
- `conformance`: compare the live engine with its model step by step.
- `state_graph`: the states of a scenario as a value to draw.
- `session`: a sequence that is changed step by step, what is seen after each step, and the states around it.

Registries:

- `certify`: certificates for all operators, in several processes; `certificate` has the values.
- `neighbourhoods`: the registrations that reach the same slots, explored in all orders; `slot_neighbourhoods` has those
  that play different parts at one slot, and which of them are equal up to renaming.
- `stale_slots`: the slots that a kernel changes and its refresh does not reach.
- `coverage`: what a backend can run, and what further registrations would change.
- `readiness`: what operators have of what users of PyTorch 2 expect; `package_readiness` reads packages for it,
  and `readiness_runs` has the cells that runs on inputs decide.
- `upgrade`: what one registry means for whoever used another; `upgrade_backend` for a backend, `upgrade_package` for a
  package, `upgrade_python` for what Python registers, `upgrade_models` has the dispatcher of each.
- `generated_registrations`: what is generated for native functions, beside what a registry has.
- `walk_calls`: a native function by any of its names, and the frames of a call of it.
- `replay_on_lab`: a dispatcher with the registrations of a registry.

Both:

- `inspect_operators`: operators of any source, with the reasons behind their tables.
- `table_groups`: the table of an operator by kernel, for every view that shows one.
- `across_versions`: operators in every bundled version of PyTorch.
- `sources`: scenarios, registries and operators by the texts that name them.
- `engines`: engines by name.
- `session_subject`: what an interactive session is about, and its sequence as a scenario.
- `executors`: where tasks run; `installation`: what all machines of a cluster must have alike.
- `explain_calls`: a call of an operator of any source, and whether the source can answer.
- `check_record`: whether packages register what a record of them has.
- `import_orders`: packages imported in every order; `import_groups`: those that share something.
- `run_program`: a Python file as a program; `torch_trace`: calls of the installed PyTorch, traced.
"""
