"""A release is compared with the record of the last one: by the command, and by an item of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")


from tests.live.packages import HELPER, ROOT, SHOP, dispatchlab, package
from tests.plugin_options import PLUGIN_OPTIONS

INI = "[pytest]\ndispatchlab_records = records\ntestpaths = tests\npythonpath = .\naddopts = --strict-config\n"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    package(tmp_path, "shop", init=SHOP, helper=HELPER, lazy="")
    (tmp_path / "records").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_own.py").write_text("def test_own():\n    pass\n")
    (tmp_path / "pytest.ini").write_text(INI)
    done = dispatchlab(tmp_path, "record", "shop", "-o", "records/shop.yaml")
    assert done.returncode == 0, done.stderr
    return tmp_path


def pytest_in(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(ROOT), str(folder)))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *PLUGIN_OPTIONS, "-q"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "EXPECTTEST_ACCEPT": "", "CI": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_release_that_registers_the_same_passes_and_one_that_does_not_shows_what_differs(shop: Path) -> None:
    done = dispatchlab(shop, "record", "--check", "records/shop.yaml")
    refused = "left out: define for shop::plain at shop/__init__.py:50 was refused"
    assert (done.returncode, done.stderr) == (0, f"records/shop.yaml: {refused}\n")
    assert done.stdout == "records/shop.yaml: shop registers the same as when it was recorded: 16 registrations\n"

    init = shop / "shop" / "__init__.py"
    changed = SHOP.replace('\nlib.define("plain(Tensor x)', '\n# moved\nlib.define("plain(Tensor y)')
    lost = changed.replace('@torch.library.register_fake("shop::bought")\n', "")
    init.write_text(lost)
    done = dispatchlab(shop, "record", "--check", "records/shop.yaml", "--format", "json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["same"], found["packages"]) == (False, ["shop"])
    assert [(change["kind"], change["registration"]) for change in found["changes"]] == [
        ("went", "impl shop::bought Meta"),
        ("went", "register_fake shop::bought"),
        ("changed", "def shop::plain"),
    ]


def test_a_record_is_an_item_of_pytest(shop: Path) -> None:
    done = pytest_in(shop)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout
    init = shop / "shop" / "__init__.py"
    init.write_text(SHOP.replace('"plain(Tensor x)', '"plain(Tensor y)'))
    done = pytest_in(shop)
    assert (done.returncode, "1 failed, 1 passed" in done.stdout) == (1, True), done.stdout
    assert "records/shop.yaml: shop registers something else: 1 changed" in done.stdout
    assert "    - (Tensor x) -> Tensor\n    + (Tensor y) -> Tensor\n" in done.stdout
    assert "EXPECTTEST_ACCEPT=1 pytest" in done.stdout
    assert "Traceback" not in done.stdout
    done = pytest_in(shop, EXPECTTEST_ACCEPT="1")
    assert done.returncode == 0, done.stdout
    assert "plain(Tensor y)" in (shop / "records" / "shop.yaml").read_text()
    assert dispatchlab(shop, "record", "--check", "records/shop.yaml").returncode == 0


def test_a_record_is_accepted_before_its_golden_file(shop: Path) -> None:
    (shop / "pytest.ini").write_text(f"{INI}dispatchlab_scenarios = records\ndispatchlab_expect = golden\n")
    assert pytest_in(shop, EXPECTTEST_ACCEPT="1").returncode == 0
    init = shop / "shop" / "__init__.py"
    init.write_text(SHOP.replace('"plain(Tensor x)', '"plain(Tensor y)'))
    assert pytest_in(shop).returncode == 1
    assert pytest_in(shop, EXPECTTEST_ACCEPT="1").returncode == 0
    done = pytest_in(shop)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout


def test_a_record_is_not_skipped_where_pytorch_is_there_and_cannot_be_imported(shop: Path) -> None:
    (shop / "torch").mkdir()
    (shop / "torch" / "__init__.py").write_text("raise OSError('a library cannot be mapped')\n")
    done = pytest_in(shop)
    assert (done.returncode, "1 failed" in done.stdout) == (1, True), done.stdout
    assert "importing it raises OSError: a library cannot be mapped" in done.stdout
