"""Compile pytorch/tracing/probe.c and write what comes out into probe_code.py.

    python tools/build_probe.py            write it
    python tools/build_probe.py --check    exit 1 when probe_code.py is that of another probe.c

Needs gcc and binutils. Another gcc may well make other code of the same source, so `--check` compares the source that
is named in probe_code.py, by its hash, and never the code.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "dispatchlab/live/tracing"
_SOURCE, _WRITTEN = _FOLDER / "probe.c", _FOLDER / "probe_code.py"
_FLAGS = (
    *("-O2", "-c", "-fPIC", "-ffreestanding", "-fno-builtin", "-mgeneral-regs-only", "-fno-stack-protector"),
    *("-fcf-protection=none", "-fno-asynchronous-unwind-tables", "-fno-tree-vectorize"),
    *("-fno-tree-loop-distribute-patterns", "-fvisibility=hidden"),
)
_TEMPLATE = '''"""The machine code of probe.c for Linux on x86-64, written by tools/build_probe.py."""

from __future__ import annotations

import base64
from typing import Final

SOURCE: Final = "{source}"
"""The SHA-256 of the probe.c that this was made of."""

CONTROL: Final = {probe_control}
"""Where the address of the control block goes."""

ENTRY: Final = {probe_entry}
"""Where probes go."""

CHECK: Final = {probe_check}
"""What takes the place of `OperatorEntry::checkInvariants`."""

RETURN: Final = {probe_return}
"""Where kernels return to."""

PERSONALITY: Final = {probe_raised}
"""The personality routine for exceptions that pass there."""

CLOCK: Final = {probe_clock}
"""A function of no argument that gives the time of records."""

CODE: Final = base64.b64decode(
    """
{code}
    """
)
'''


def source_hash() -> str:
    """The SHA-256 of probe.c."""
    return hashlib.sha256(_SOURCE.read_bytes()).hexdigest()


def built() -> str:
    """What probe_code.py should hold."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, linked, raw = (f"{folder}/probe.{kind}" for kind in ("o", "elf", "bin"))
        _run("gcc", *_FLAGS, "-o", compiled, str(_SOURCE))
        # Nothing but .text may be there: the code is copied to another address as it is.
        _run("ld", "-static", "-Ttext=0", "-e", "0", "-o", linked, compiled)
        _run("objcopy", "-O", "binary", "--only-section=.text", linked, raw)
        symbols = {
            name: int(address, 16)
            for address, _, name in map(str.split, _run("nm", linked).splitlines())
            if name in ("probe_control", "probe_entry", "probe_check", "probe_return", "probe_raised", "probe_clock")
        }
        code = Path(raw).read_bytes()
    text = textwrap.indent("\n".join(textwrap.wrap(base64.b64encode(code).decode(), 112)), "    ")
    return _TEMPLATE.format(source=source_hash(), code=text, **symbols)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Write the file, or check it."""
    if "--check" in sys.argv[1:]:
        return 0 if source_hash() in _WRITTEN.read_text(encoding="utf-8") else 1
    _WRITTEN.write_text(built(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
