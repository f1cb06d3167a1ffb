"""Record what packages register when they are imported, and compare several orders of imports.

- `module_blocks`: the registrations of each module body, as one module of a scenario.
- `module_watch`: the registrations and imports of each module body, in program order.
- `record_package`: the registrations of packages, as a scenario.
- `package_facts`: the facts for all questions about packages, from one process that imports them once.
- `order_runs`: orders of imports, each in a new process, and the state after each.
"""
