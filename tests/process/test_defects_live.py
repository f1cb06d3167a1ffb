"""The programs of known defects show on the installed PyTorch what its model says."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from dispatchlab.model.installed_torch import installed_torch, model_for
from dispatchlab.model.profile import bundled_profiles, version_of
from tools.defects import DEFECTS, has

TORCH = installed_torch()


@pytest.mark.skipif(
    TORCH is None or version_of(TORCH) not in map(version_of, bundled_profiles()), reason="no PyTorch with a model"
)
def test_the_command_finds_the_defects_that_the_version_has() -> None:
    done = CliRunner().invoke(main, ["doctor", "--defects", "--format", "json"])
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert document["torch"] == TORCH
    found = {one["name"]: one["found"] for one in document["defects"]}
    known = {defect.name: has(defect, model_for(TORCH)) for defect in DEFECTS}
    without_library = {"hidden_signature", "refused_signature"}  # which some builds have
    not_run = {name for name, has_it in found.items() if has_it is None}
    assert not_run <= without_library | (found.keys() - known.keys()), document
    assert {name: found[name] for name in known if name not in not_run} == {
        name: has_it for name, has_it in known.items() if name not in not_run
    }
    assert {*found.values()} >= {True, False}
    assert all(bool(one["said"]) is (one["found"] is not False) for one in document["defects"])
