"""What is ready for PyTorch 2: what the operators of a package have, and which call closes a gap.

- `blocks`: readiness for PyTorch 2 as blocks: the operators by what they have, and the gaps with the calls that close
  them.
- `known_failures`: a baseline of readiness: the cells that are known to fail, in a file that a review can read.
- `operator_readiness`: readiness for PyTorch 2: what each operator of a package has of what its users expect, and which
  call closes a gap.
- `package_readiness`: the readiness of installed packages: their operators read in a process of its own, and a row for
  each.
"""
