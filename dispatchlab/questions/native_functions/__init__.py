"""What is generated of native_functions.yaml: registrations and C++ declarations.

- `registrations`: what is generated for each native function.
- `blocks`: registrations as blocks and as JSON.
"""
