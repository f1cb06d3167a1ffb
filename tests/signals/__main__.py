"""`python -m tests.signals [COMMAND]...`: send signals to long commands at random moments and see what is left."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.signals.run import COMMANDS, run


def _main() -> int:
    parser = ArgumentParser(prog="python -m tests.signals", description=__doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=f"Of {', '.join(COMMANDS)}. Default: all.")
    parser.add_argument("--moments", type=int, default=30, help="Number of moments for each command. Default: 30.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed. Default: 1.")
    parser.add_argument("--first", type=int, default=0, help="Number of the first moment. Default: 0.")
    parser.add_argument("--within", type=float, default=2.0, help="Seconds to end, and to be gone. Default: 2.")
    options = parser.parse_args()
    unknown = sorted(set(options.commands) - COMMANDS.keys())
    if unknown:
        parser.error(f"unknown command {unknown[0]}")
    findings = 0
    for name in options.commands or COMMANDS:
        with TemporaryDirectory() as folder:
            numbers = range(options.first, options.first + options.moments)
            result = run(name, options.seed, numbers, Path(folder), within_s=options.within)
        print(result, flush=True)  # noqa: T201
        for finding in result.findings[:20]:
            print(f"  {finding}", flush=True)  # noqa: T201
        findings += len(result.findings)
    print(f"{findings} findings" if findings != 1 else "1 finding")  # noqa: T201
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(_main())
