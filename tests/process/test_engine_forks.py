"""A forked process can register on the dispatchers that it inherited, whatever other threads were doing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_children_of_a_process_whose_threads_register_do_not_deadlock() -> None:
    program = "from tests.engine_stress import *\nprint(many_forks(20))"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "0\n"
