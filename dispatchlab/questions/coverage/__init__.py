"""What covers a backend: how its operators find a kernel, and what one more registration would change.

- `blocks`: coverage of a backend as blocks: how it runs each operator, and what further registrations would change.
- `coverage_on_lab`: coverage on the lab: which operators of a registry a backend can run, and what further
  registrations would change.
- `program_coverage`: which kernels make programs run on a backend, most needed first.
"""
