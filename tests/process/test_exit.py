"""Processes end clean: they print nothing and do not hang, whatever holds registrations when Python exits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

START = """
import atexit, gc, os, sys, threading, time, warnings
from dispatchlab import Claim, Def, Dispatcher, Impl, Lab, Library, parse_name, parse_schema
from dispatchlab.model.keys import DispatchKey

warnings.simplefilter("ignore")
SEMANTICS = sys.argv[1]
dispatcher = Dispatcher.for_scenario(SEMANTICS)

def opened(namespace="test"):
    library = Library(namespace, "FRAGMENT", dispatcher=dispatcher)
    library.define("foo(Tensor x) -> Tensor")
    library.impl("foo", lambda x: x, "CPU")
    return library
"""

PROGRAMS = {
    "globals": "library = opened()",
    "private globals, which go first": "_library = opened(); _dispatcher = dispatcher; del dispatcher",
    "the library before the dispatcher": "a_library = opened(); z_dispatcher = dispatcher; del dispatcher",
    "handles": """
handle = dispatcher.register(Def(parse_schema("test::foo(Tensor x) -> Tensor")))
_kernel = dispatcher.register(Impl(parse_name("test::foo"), DispatchKey.CPU))
""",
    "a cycle": """
library = opened()
library.itself = [library, dispatcher]
del library, dispatcher
""",
    "a cycle that the collector finds at the end": "gc.disable(); library = opened(); library.itself = [library]",
    "an attribute of a module that goes late": "import builtins; builtins.kept = opened(); sys.kept = opened('other')",
    "an attribute of a class and a default": """
class Holder:
    library = opened()
    def __del__(self, library=opened("other")):
        library.release()
holder = Holder()
""",
    "a library whose dispatcher is gone": "library = opened(); del dispatcher; gc.collect(); library.release()",
    "a handle whose dispatcher is gone": """
handle = dispatcher.register(Claim("test")) if SEMANTICS != "pr35061" else opened()
del dispatcher
gc.collect()
""",
    "an exit in a with block": """
with opened() as library:
    sys.exit(0)
""",
    "a release at exit": """
library = opened()
atexit.register(library.release)
atexit.register(lambda: opened("other"))
""",
    "a finalizer of the user's that releases": """
class Owner:
    def __init__(self): self.library = opened()
    def __del__(self): self.library.release()
owner = Owner(); owner.itself = owner
""",
    "a thread that registers until the end": """
ready = threading.Event()
def work():
    while True:
        with opened("busy"):
            ready.set()
threading.Thread(target=work, daemon=True).start()
ready.wait()
library = opened()
""",
    "a thread that holds a library when the program ends": """
def work():
    library = opened("held")
    ready.set()
    time.sleep(0.3)
ready = threading.Event()
threading.Thread(target=work).start()
ready.wait()
""",
    "a listener": """
class Listening:
    def on_operator_registered(self, name, schema): heard.append(str(name))
    def on_operator_deregistered(self, name, schema): heard.append(str(name))
heard = []
listening = dispatcher.add_listener(Listening())
library = opened()
assert heard == ["test::foo"]
""",
    "a child that is forked": """
library = opened()
child = os.fork() if hasattr(os, "fork") else 0
if child:
    assert os.waitpid(child, 0)[1] == 0
""",
    "no exit at all": "library = opened(); os._exit(0)",
    "a layer and an operator": """
from dispatchlab import operator, tensor
library = opened()
call = operator(dispatcher, "test::foo") if SEMANTICS != "pr35061" else None
lab = Lab()
""",
    "the data of a thread": "local = threading.local(); local.library = opened()",
    "the front ends of other years": """
from dispatchlab.registration_2020 import Import
from dispatchlab.registration_2020 import RegisterOperators
old = RegisterOperators(dispatcher=dispatcher).op("old::foo(Tensor x) -> Tensor")
older = Import("older", dispatcher=dispatcher) if SEMANTICS == "pr35061" else None
""",
}


def ends(program: str, semantics: str) -> tuple[int, str, str]:
    """The exit code of a program and what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", START + program, semantics],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
def test_programs_end_without_a_word(semantics: str) -> None:
    found = {name: ends(program, semantics) for name, program in PROGRAMS.items()}
    assert {name: ended for name, ended in found.items() if ended != (0, "", "")} == {}
    assert len(found) >= 20
