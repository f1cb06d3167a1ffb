"""The machine code of probe.c for Linux on x86-64, written by tools/build_probe.py."""

from __future__ import annotations

import base64
from typing import Final

SOURCE: Final = "857be58b30f3d3bfacf47908c8babf0299aee78ecb028ff1209f7c32201856a4"
"""The SHA-256 of the probe.c that this was made of."""

CONTROL: Final = 0
"""Where the address of the control block goes."""

ENTRY: Final = 8
"""Where probes go."""

CHECK: Final = 50
"""What takes the place of `OperatorEntry::checkInvariants`."""

RETURN: Final = 77
"""Where kernels return to."""

PERSONALITY: Final = 752
"""The personality routine for exceptions that pass there."""

CLOCK: Final = 105
"""A function of no argument that gives the time of records."""

CODE: Final = base64.b64decode(
    """
    AAAAAAAAAABQQVFBUFFSVldIiz3o////TIneSIni6F0AAABJicNfXlpZQVhBWVhB/+NIif5Iiz3E////V+guAwAAXkiJx0iLRnj/4JBIg+wIUFJR
    SIs9pf///0iNdCQY6BsCAABZWljDDzFIweIgSAnQw2ZmLg8fhAAAAAAAZpBJifO4AQAAAEnB4wVMA18Y8EgPwQdIO0cID4OZAQAATI0MgEFVSYny
    SYnQScHhBEwDTxBBVEmNSDhVvQIAAABTSI0dhv///2RIiwQlAAAAAGRIizQlCAAAAEmJQQhJi0MISDkCD5XAD7bAjVABSGPSSYsU0EmJURBIi5eI
    AAAATYtgOEghykgDl4AAAABJOdx0CUyJIjHtSYlYOEmJSRhIi08gMdtIixJIweEESYlRQEiLVyhIAxQxSIsKSYlJIEmLTMMQSItSCIsBSYlRKIXA
    D4WBAAAASYlZMEmJaUgPMUjB4iBJg8IBSAnQSYlBOE2JEVtJiwNdQVxBXcMPH0AAQYnUJf///wBBg+T9icZBg/wEdVxJi0AYSMHmBEiLQAhIKfBI
    i3AIg/4BdHmD+gZ1F4X2SInoD5XCSIPIAYTSSA9F6A8fRAAAi0EESIPBBIXAD4R/////icLB6hiD+gd1n0iDzQHr4WYPH4QAAAAAAEyNJPUAAAAA
    g/gFSI009RAAAABMieBID0fGTAHAg/oDdC5IiwCD+gF0C4B4CAB0qIP6BXS8SIsQSItHMEgLHALrlmYPH0QAAEmLA8MPH0AATItgCE2F5A+Ee///
    /0yLbzBIixAxwGYuDx+EAAAAAABIizJIg8ABSIPCCEoLHC5MOeB17OlP////Dx+AAAAAAEiLl4gAAABIi4eAAAAASCHySIsEAkiJBrgBAAAA8EgP
    wQdIO0cIcgjDDx+AAAAAAEiNDIBIweEESANPEGRIiwQlAAAAAEiJcRhIiUEIDzFIweIgSAnQSIlBOEi4AAAAAAAAAIBIiQHDDx+EAAAAAACD5gJT
    SIsdBf3//3QZTInH/5OQAAAAugEAAADwSA/BE0g7UwhyCrgIAAAAW8MPHwBIjQySSIPoCEjB4QRIA0sQZEiLFCUAAAAASIlBGEiJUQgPMUjB4iBI
    CdBIiUE4SLgBAAAAAAAAgEiJAbgIAAAAW8NmZi4PH4QAAAAAAA8fAEiJ+bgBAAAA8EgPwUdwMdJIi39QSPdxaEgPr9dIA1FgSMHvA3QjMcAPH4QA
    AAAAAEiLPMZIiTzCSIt5UEiDwAFIwe8DSDn4cudIi0FISIPg+EiDeVgAdDsx9kyNBAJmkEmLBPBIi3k4SDn4chxIO0FAcxZIKfhIwegESMHgBUgD
    QRhIiwBJiQTwSIPGAUg7cVhyzUiJ0MM=
    """
)
