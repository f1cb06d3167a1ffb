"""A room for each question of a user: what it finds, its result as values, and its views.

Commands, the pytest plugin and `api` ask.

- `leaks`: registrations that something leaves behind: two moments compared, on lab dispatchers and on the running
  PyTorch.
- `check`: what is wrong with a package: all questions about its registrations, asked of one import.
- `certify`: what is certified: for every operator of a registry, whether the order of its registrations can matter.
- `coverage`: what covers a backend: how its operators find a kernel, and what one more registration would change.
- `dump`: what the dispatcher holds for an operator: dumps, tables with their reasons, listings, versions side by side.
- `explain`: why a call runs a kernel: the key set of each hop, with and without a mode of Python.
- `imports`: whether import order matters: packages imported in every order, each order in a process of its own.
- `lint`: what is wrong: rules that find what works today and fails later.
- `native_functions`: what is generated of native_functions.yaml: registrations, and the frames of a call.
- `order`: whether order matters: a scenario explored on an engine, with its counterexample, its report and its golden
  file.
- `record`: whether packages still register what was recorded of them.
- `session`: what each step changes: a sequence that is changed step by step, for `explore` and notebooks.
- `trace`: what operators did while a program ran: calls, hop by hop.
- `upgrade`: what an upgrade changes: two registries under the models of their PyTorch.
"""
