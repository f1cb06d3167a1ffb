"""A package for each question of a user: it finds the answer, and has the result as values and its views.

Commands, the pytest plugin and `api` call these packages.

- `leaks`: registrations that a test leaves behind: it compares two moments, on lab dispatchers and on the running
  PyTorch.
- `check`: find mistakes in a package: all questions about its registrations, from one import.
- `certify`: for every operator of a registry, prove that the order of its registrations does not matter.
- `coverage`: how the operators of a backend find a kernel.
- `dump`: the content of the dispatcher for an operator: dumps, tables with their reasons, listings.
- `explain`: why a call runs a kernel: the key set of each hop, with and without a mode of Python.
- `imports`: whether the order of imports matters: packages are imported in every order, each in a new process.
- `lint`: rules that find registrations that work today and may fail later.
- `native_functions`: code that is generated from native_functions.yaml.
- `order`: whether the order matters: explore a scenario on an engine; its counterexample, its report and its golden
  file.
- `record`: whether packages still register what their record contains.
- `explore`: an interactive sequence of steps, and the changes of each step.
- `trace`: the calls of operators while a program ran, with each redispatch.
- `upgrade`: the changes of an upgrade: two registries, each under the model of its PyTorch.
"""
