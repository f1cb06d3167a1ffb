"""Coverage of a backend: how its operators find a kernel.

- `blocks`: coverage of a backend as blocks: how it runs each operator.
- `coverage_on_lab`: coverage on the lab: which operators of a registry a backend can run.
- `program_coverage`: which kernels make programs run on a backend, most needed first.
"""
