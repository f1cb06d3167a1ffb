"""The machine code of probe.c for Linux on x86-64, written by tools/build_probe.py."""

from __future__ import annotations

import base64
from typing import Final

SOURCE: Final = "ef2d42b12e5f6d1c47bca361bc2eb3e0144a95e2daffa0771333c5a1da4d4a43"
"""The SHA-256 of the probe.c that this was made of."""

CONTROL: Final = 0
"""Where the address of the control block goes."""

ENTRY: Final = 8
"""Where probes go."""

CHECK: Final = 50
"""What takes the place of `OperatorEntry::checkInvariants`."""

RETURN: Final = 80
"""Where kernels return to."""

PERSONALITY: Final = 752
"""The personality routine for exceptions that pass there."""

CLOCK: Final = 108
"""A function of no argument that gives the time of records."""

CODE: Final = base64.b64decode(
    """
    AAAAAAAAAABQQVFBUFFSVldIiz3o////TIneSIni6F0AAABJicNfXlpZQVhBWVhB/+NIif5Iiz3E////V+guAwAAXkiJx0iLhoAAAAD/4JBIg+wI
    UFJRSIs9ov///0iNdCQY6BgCAABZWljDDzFIweIgSAnQw2YuDx+EAAAAAABJifNIi0cgScHjBUwDXxjwSIME8AG4AQAAAPBID8EHSDtHCA+DjwEA
    AEyNDIBBVUmJ8kmJ0EnB4QRMA08QQVRJjUg4Vb0CAAAAU0iNHX////9kSIsEJQAAAABkSIs0JQgAAABJiUEISYtDCEg5Ag+VwA+2wI1QAUhj0kmL
    FNBJiVEQSIuXkAAAAE2LYDhIIcpIA5eIAAAASTncdAlMiSIx7UmJWDhJiUkYSItPKDHbSIsSSMHhBEmJUUBIi1cwSAMUMUiLCkmJSSBJi0zDEEiL
    UgiLAUmJUSiFwHV/SYlZMEmJaUgPMUjB4iBJg8IBSAnQSYlBOE2JEVtJiwNdQVxBXcNmDx9EAABBidQl////AEGD5P2JxkGD/AR1VEmLQBhIweYE
    SItACEgp8EiLcAiD/gF0cYP6BnUXhfZIiegPlcJIg8gBhNJID0XoDx9EAACLQQRIg8EEhcB0gYnCweoYg/oHdaNIg80B6+UPH0QAAEyNJPUAAAAA
    g/gFSI009RAAAABMieBID0fGTAHAg/oDdC5IiwCD+gF0C4B4CAB0sIP6BXTASIsQSItHOEgLHALrnmYPH0QAAEmLA8MPH0AATItgCE2F5HSHTItv
    OEiLEDHAZg8fRAAASIsySIPAAUiDwghKCxwuTDngdezpX////2ZmLg8fhAAAAAAADx9AAEiLl5AAAABIi4eIAAAASCHySIsEAkiJBrgBAAAA8EgP
    wQdIO0cIcgjDDx+AAAAAAEiNDIBIweEESANPEGRIiwQlAAAAAEiJcRhIiUEIDzFIweIgSAnQSIlBOEi4AAAAAAAAAIBIiQHDDx+EAAAAAACD5gJT
    SIsdBf3//3QZTInH/5OYAAAAugEAAADwSA/BE0g7UwhyCrgIAAAAW8MPHwBIjQySSIPoCEjB4QRIA0sQZEiLFCUAAAAASIlBGEiJUQgPMUjB4iBI
    CdBIiUE4SLgBAAAAAAAAgEiJAbgIAAAAW8NmZi4PH4QAAAAAAA8fAEiJ+bgBAAAA8EgPwUd4MdJIi39YSPdxcEgPr9dIA1FoSMHvA3QjMcAPH4QA
    AAAAAEiLPMZIiTzCSIt5WEiDwAFIwe8DSDn4cudIi0FQSIPg+EiDeWAAdDsx9kyNBAJmkEmLBPBIi3lASDn4chxIO0FIcxZIKfhIwegESMHgBUgD
    QRhIiwBJiQTwSIPGAUg7cWByzUiJ0MM=
    """
)
