"""Every file of somebody else is read with a limit: also configuration, golden files and start files of shells."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dispatchlab.adopt.checkout import find_checkout
from dispatchlab.adopt.pytest_option import ConfigEditError, pytest_config
from dispatchlab.codegen.emit.generate import differing
from dispatchlab.files import bounded_read

PACKAGE = Path(__file__).parent.parent / "dispatchlab"

OPENED_ELSEWHERE = {
    "adopt/demo.py": "a file of the package",
    "adopt/defects.py": "a file of the package",
    "files/atomic_write.py": "written",
    "files/bounded_read.py": "with a limit",
    "codegen/emit/generate.py": "one line, with a limit",
    "codegen/kernels/lab.py": "a file of the package",
    "commands/schema.py": "a file of the package",
    "commands/output.py": "the standard streams",
    "files/file_kinds.py": "the first bytes",
    "pytorch/bridge/native_libraries.py": "a library that is loaded is mapped; what the kernel shows of this process",
    "pytorch/introspection/backend_parts.py": "the null device",
    "pytorch/introspection/function_content.py": "what the kernel shows of this process",
    "pytorch/introspection/site_log.py": "no file",
    "pytorch/recording/order_runs.py": "no file",
    "pytorch/sandbox/journal.py": "mapped: a file of the worker",
    "pytorch/worker/main.py": "no file",
    "model/measured.py": "a lock, and the first bytes",
    "model/profile.py": "a file of the package",
    "processes/machine.py": "what the kernel shows of this process",
    "records/file.py": "the first bytes",
    "overrides/torch_functions.py": "a file of the package",
    "records/ownership.py": "a file of the package",
    "views/html/backend.py": "files of the package",
    "questions/lint/rule.py": "files of the package",
}


def _opens(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    if not re.search(r"\bopen\b|\bread_text\b|\bread_bytes\b", text):
        return False
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "open":
                return True
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("open", "read_text", "read_bytes"):
                return True
    return False


def test_files_are_opened_through_the_bounded_reader_alone() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if _opens(path)}
    assert found == OPENED_ELSEWHERE.keys()


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.cfg", "setup.py"])
def test_a_configuration_beyond_the_limit_is_not_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "pyproject.toml": '[project]\nname = "mine"\n',
        "setup.cfg": "[metadata]\nname = mine\n",
        "setup.py": 'setup(name="mine")\n',
    }
    (tmp_path / name).write_text(texts[name])
    (tmp_path / "mine.py").touch()
    checkout = find_checkout(tmp_path)
    assert checkout.modules == ("mine",)
    monkeypatch.setattr(bounded_read, "MAX_CONFIGURATION", 10)
    checkout = find_checkout(tmp_path)
    assert checkout.modules == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 100_000, "it cannot be read (a value is nested too deep)"),
        ("a = " + "9" * 5_000, "it cannot be read (Exceeds the limit"),
        ("a = \n", "it cannot be read (Invalid value"),
        ("#" * (2**20 + 1), "the file is larger than 1 MiB, the limit for configuration files"),
    ],
    ids=["deep", "digits", "syntax", "long"],
)
def test_a_hostile_configuration_is_a_short_error(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigEditError) as caught:
        pytest_config(tmp_path)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 500
    checkout = find_checkout(tmp_path)
    assert checkout.modules == ()


def test_what_is_generated_is_compared_as_far_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []

    def counted(path: Path, *, limit: int, what: str) -> bytes:
        limits.append(limit)
        return read(path, limit=limit, what=what)

    read = bounded_read.read_file
    monkeypatch.setattr("dispatchlab.codegen.emit.generate.read_file", counted)
    (tmp_path / "a.py").write_bytes(b"one\n" * 10_000)
    (tmp_path / "b.py").write_bytes(b"one\n")
    assert differing(tmp_path, {"a.py": "one\n", "b.py": "one\n", "c.py": "one\n"}) == ("a.py", "c.py")
    assert limits == [4, 4, 4]
