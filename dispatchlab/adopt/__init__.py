"""The first steps of a new user: the example, what works here, and the files for a package's checkout.

- `demo`: two kernels in two orders, and what a call returns after each; its scenario is `demo.yaml`.
- `doctor`: each feature, tried on the installed PyTorch; which commands need it.
- `live_probes`: these features, as they are tried in the process that has torch.
- `environment`: versions, the terminal, and optional tools.
- `first_files`: the files that `init` writes, planned and written.
- `checkout`: the root of a checkout and its modules.
- `pytest_option`: ini options of pytest, set in the file that pytest reads.
- `ci_workflow`: the workflow that `init` writes.
- `demo_text`, `doctor_text`, `init_text`: what these commands print.
"""
