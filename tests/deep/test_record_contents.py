"""Records of packages against what their imports put into PyTorch's registries, which are read without dispatchlab."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.effort import only_whole
from tests.live import forked

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

PACKAGES = "optimum.quanto", "torchao", "torch_harmonics", "bitsandbytes", "attn_gym", "xformers.ops"


@only_whole()
@pytest.mark.parametrize("package", [one for one in PACKAGES if find_spec(one.partition(".")[0])])
def test_everything_that_an_import_registers_in_python_is_in_the_record_and_nothing_else(
    package: str, tmp_path: Path
) -> None:
    record = str(tmp_path / "record.yaml")
    made = forked.module("dispatchlab", "record", package, "-o", record, "--once")
    assert made.returncode == 0, made.stderr
    done = forked.module("tests.live.record_contents", package, record)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["before"] > 5000
    assert found["added"] > 0
    assert [*found["gone"], *found["unrecorded"], *found["not there"]] == []
