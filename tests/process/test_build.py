"""The build: the version with and without tags, from a shallow clone, without git, and from the sdist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REASON = "builds without a network, with hatchling and hatch-vcs, which are not installed: pip install -e '.[build]'"
for module in ("build", "hatchling", "hatch_vcs"):
    pytest.importorskip(module, reason=REASON)

ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> None:
    """Run git."""
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def build(folder: Path, kind: str) -> Path:
    """Build a wheel or an sdist, and return the file."""
    out = folder / "out"
    result = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(out), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (file,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return file


def version_of(wheel: Path, folder: Path) -> str:
    """What the code in a wheel says, with nothing installed but what it needs; its demo runs."""
    shutil.unpack_archive(wheel, folder, "zip")
    script = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import dispatchlab; from dispatchlab.cli import main; "
        "print(dispatchlab.__version__, dispatchlab.__file__); main(['demo'])"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    version, where = result.stdout.splitlines()[0].split(" ", 1)
    assert (result.returncode, Path(where).parent) == (0, folder / "dispatchlab")
    assert "returns 2.0" in result.stdout
    assert wheel.name.startswith(f"dispatchlab-{version}-")
    return version


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of this one in one commit, and no tag."""
    folder = tmp_path_factory.mktemp("repository")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this is no clone: there is no list of the files that belong to the source")
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@example.org")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    return folder


def test_without_a_tag_it_is_a_development_version(repository: Path, tmp_path: Path) -> None:
    git(repository, "clone", "-q", str(repository), str(tmp_path / "clone"))
    found = version_of(build(tmp_path / "clone", "wheel"), tmp_path / "wheel")
    assert re.fullmatch(r"0\.1\.0\.dev\d+\+g[0-9a-f]+", found)


def test_a_tag_is_the_version_also_from_the_sdist_without_git(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(repository, "clone", "-q", str(repository), str(clone))
    git(clone, "tag", "v1.2.3")
    with tarfile.open(build(clone, "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    names = {path.name for path in (tmp_path / "dispatchlab-1.2.3").iterdir()}
    assert {"dispatchlab", "tests", "scenarios", "expect", "docs", "conftest.py", "README.md", "LICENSE"} <= names
    described = (tmp_path / "dispatchlab-1.2.3" / "PKG-INFO").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]*)\)", described)
    assert (len(targets) > 10, [one for one in targets if not one.startswith("https://")]) == (True, [])
    assert f"![{described.partition('![')[2].partition('](')[0]}](https://dispatchlab.github.io/" in described
    assert version_of(build(tmp_path / "dispatchlab-1.2.3", "wheel"), tmp_path / "wheel") == "1.2.3"


def test_a_shallow_clone_can_be_built(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "one more")
    git(repository, "clone", "-q", "--depth", "1", repository.as_uri(), str(tmp_path / "clone"))
    found = version_of(build(tmp_path / "clone", "wheel"), tmp_path / "wheel")
    assert re.fullmatch(r"0\.1\.0\.dev\d+\+g[0-9a-f]+", found)


def test_a_copy_without_git_can_be_built(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository, tmp_path / "copy", ignore=shutil.ignore_patterns(".git"))
    assert version_of(build(tmp_path / "copy", "wheel"), tmp_path / "wheel") == "0.1.0.dev0"
