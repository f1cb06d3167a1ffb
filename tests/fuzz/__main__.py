"""`python -m tests.fuzz [TARGET]...`: mutate inputs and see how reading them ends."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from tests.fuzz.run import limit_memory, run, run_kept
from tests.fuzz.targets import TARGETS


def _main() -> int:
    parser = ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"Of {', '.join(TARGETS)}. Default: all.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed. Default: 1.")
    parser.add_argument("--count", type=int, help="Number of cases of each target. Default: as for a release.")
    parser.add_argument("--first", type=int, default=0, help="Number of the first case. Default: 0.")
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="Keep there what became of cases, and go on from there."
    )
    options = parser.parse_args()
    unknown = sorted(set(options.targets) - TARGETS.keys())
    if unknown:
        parser.error(f"unknown target {unknown[0]}")
    limit_memory()
    findings = 0
    for target in options.targets or TARGETS:
        count = TARGETS[target][1] if options.count is None else options.count
        numbers = range(options.first, options.first + count)
        result = (
            run(target, options.seed, numbers)
            if options.log is None
            else run_kept(target, options.seed, numbers, options.log)
        )
        print(result, flush=True)  # noqa: T201
        for finding in result.findings[:20]:
            print(f"  {finding}", flush=True)  # noqa: T201
        findings += len(result.findings)
    print(f"{findings} findings" if findings != 1 else "1 finding")  # noqa: T201
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(_main())
