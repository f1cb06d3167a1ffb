"""Code that is generated from native_functions.yaml: registrations and C++ declarations.

- `registrations`: the generated code for each native function.
- `blocks`: registrations as blocks and as JSON.
"""
