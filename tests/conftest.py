"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal

# A shell that starts pytest in the background has it ignore Ctrl-C, and so would the processes that tests start and
# interrupt: an ignored signal is inherited, a handled one is not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
