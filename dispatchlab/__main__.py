"""`python -m dispatchlab` is the command `dispatchlab`."""

from __future__ import annotations

import os
import sys


def run() -> None:
    """Run the command line; Ctrl-C while it is imported ends with 130."""
    try:
        if sys.argv[1:] in (["-h"], ["--help"]):  # which needs no other module
            from dispatchlab.commands.overview import overview

            sys.stdout.write(overview())
            return
        from dispatchlab.cli import main

        main(prog_name="dispatchlab")
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    run()
