"""A dispatch key that is added is one of every table, by what CONTRIBUTING.md says alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dispatchlab.model import keys

PROGRAM = """
import json, sys
from importlib.util import spec_from_file_location

class Planted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return spec_from_file_location(name, sys.argv[1]) if name == "dispatchlab.model.keys" else None

sys.meta_path.insert(0, Planted)

from dispatchlab import Dispatcher, Library
from dispatchlab.engine.semantics import semantics_of, unknown_keys
from dispatchlab.model.profile import bundled_profile, profile_of, profile_text

profile = profile_of(json.loads(profile_text(bundled_profile("torch-2.4")).replace('"Named"', '"Planted"')))
assert unknown_keys(profile) == ()
dispatcher = Dispatcher(semantics_of(profile))
library = Library("my", "DEF", dispatcher=dispatcher)
library.define("op(Tensor x) -> Tensor")
library.impl("op", lambda x: x, "Planted")
dispatcher.check_invariants()
print(*(text.partition(":")[0] for text in dispatcher.dump("my::op").splitlines()), sep=", ")
print([text[:16] for text in dispatcher.dump_table("my::op").splitlines() if text.startswith("Planted:")])
"""


def test_a_key_is_added_by_a_member_its_name_among_those_of_other_versions_and_a_profile(tmp_path: Path) -> None:
    text = Path(keys.__file__).read_text(encoding="utf-8")
    member, former = "    Named = 156\n", "FORMER_KEYS: tuple[DispatchKey, ...] = (DispatchKey.Named,"
    assert text.count(member) == text.count(former) == 1
    planted = text.replace(member, f"{member}    Planted = 157\n").replace(former, f"{former} DispatchKey.Planted")
    (tmp_path / "keys.py").write_text(planted, encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "keys.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["name, schema, debug, alias analysis kind, Planted", "['Planted: registe']"]
