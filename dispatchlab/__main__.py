"""`python -m dispatchlab` is the command `dispatchlab`."""

from dispatchlab.cli import main

if __name__ == "__main__":
    main(prog_name="dispatchlab")
