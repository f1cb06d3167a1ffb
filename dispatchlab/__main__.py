"""`python -m dispatchlab` is `dispatchlab`."""

from __future__ import annotations

from dispatchlab.cli import main

if __name__ == "__main__":
    main()
