"""The dated facts about what PyTorch does otherwise, each shown by its program on the installed PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

import torch

from dispatchlab.model.profile import version_of
from dispatchlab.questions.upgrade.package_changes import BehaviourChange, behaviour_between, behaviour_changes

SHOWN = [one for one in behaviour_changes() if one.program]


@pytest.mark.parametrize("change", SHOWN, ids=[f"{one.since} {one.area}" for one in SHOWN])
def test_the_installed_pytorch_does_what_its_version_says(change: BehaviourChange) -> None:
    done = subprocess.run([sys.executable, "-c", change.program], capture_output=True, text=True, check=True)
    installed, since = version_of(torch.__version__), version_of(change.since)
    assert installed is not None
    assert since is not None
    assert (done.stdout.strip() == change.prints) == (installed >= since)


def test_an_upgrade_has_the_changes_behind_its_first_version_up_to_its_second() -> None:
    assert [one.since for one in behaviour_between("2.6.0", "2.8.1+cpu")] == ["2.7", "2.8"]
    assert behaviour_between("2.13.0", "2.12.0") == behaviour_between("2.13.0", "2.13.1") == ()
    assert behaviour_between("a build of mine", "2.13.0") == ()
    assert list(behaviour_changes()) == sorted(behaviour_changes(), key=lambda one: version_of(one.since) or (0, 0))
