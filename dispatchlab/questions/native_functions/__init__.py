"""What is generated of native_functions.yaml: registrations, C++ declarations, and the frames of a call.

- `registrations`: what is generated for each native function.
- `lab_frames`: the frames of a call of a structured operator in the lab, from the Python binding down to the kernel by
  hand.
- `blocks`: both as blocks and as JSON.
"""
