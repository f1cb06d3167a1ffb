"""The first steps of a new user: the example, the features that work here, and the files for a package's checkout.

- `demo`: two kernels in two orders, and the result of a call after each; its scenario is `demo.yaml`.
- `doctor`: each feature, tried on the installed PyTorch; which commands need it.
- `defects`: the known defects that the installed PyTorch has; their programs are in `defects.json`.
- `live_probes`: the probes of these features in the process that has torch.
- `environment`: versions, the terminal, and optional tools.
- `first_files`: the files that `init` writes, planned and written; the workflow for GitHub among them.
- `checkout`: the root of a checkout and its modules.
- `pytest_option`: ini options of pytest, set in the file that pytest reads.
- `check_subject`: the subject of `check`: the packages of the checkout with its settings, or named packages.
"""
