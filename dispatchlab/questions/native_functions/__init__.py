"""What is generated of native_functions.yaml: registrations, and the frames of a call.

- `blocks`: the frames of a call and what is generated for native functions, as blocks and as JSON.
- `cpp_frames`: the frames of a call in C++, from the Python binding down to the function by hand, as generated code
  names them.
- `generated_registrations`: what is generated for each native function, beside what a recorded PyTorch has: equal, or
  different by a named rule.
- `lab_frames`: the frames of a call of a structured operator in the lab, from the Python binding down to the kernel by
  hand.
- `walk_calls`: walk through a call of a native function: find the function by any of its names, and the frames of the
  call.
"""
