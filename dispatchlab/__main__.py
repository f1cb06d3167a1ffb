"""`python -m dispatchlab` is the command `dispatchlab`."""

from __future__ import annotations

import os


def run() -> None:
    """Run the command line; Ctrl-C while it is imported ends with 130."""
    try:
        from dispatchlab.cli import main

        main(prog_name="dispatchlab")
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    run()
