"""Ctrl-C ends a process at once while the command line is imported; imported first of all."""

import os
import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
