"""Typical mistakes: each is answered with its line or the nearest right name, and with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import run

_FOO = "claim: ok\nregistrations:\n  - def: test::foo(Tensor x) -> Tensor\n"
FILES = {
    "good.yaml": f"{_FOO}  - impl: test::foo\n    dispatch: CPU\n",
    "key.yaml": f"{_FOO}  - impl: test::foo\n    dispatch: CPUU\n",
    "field.yaml": f"{_FOO}  - impl: test::foo\n    dispach: CPU\n",
    "no_claim.yaml": _FOO.removeprefix("claim: ok\n"),
    "no_registrations.yaml": "claim: ok\n",
    "tab.yaml": "claim: ok\nregistrations:\n\t- def: test::foo(Tensor x) -> Tensor\n",
    "colon.yaml": "claim: a: b\nregistrations: []\n",
    "type.yaml": _FOO.replace("Tensor x", "Tensr x"),
    "arrow.yaml": _FOO.replace(" ->", ""),
    "outcome.yaml": f"expect: order-independant\n{_FOO}",
    "semantics.yaml": f"semantics: torch-2.99\n{_FOO}",
    "twice.yaml": f"claim: first\n{_FOO}",
    "alias.yaml": f"{_FOO}    alias: PURE\n",
    "both.yaml": f"{_FOO}    impl: test::foo\n",
    "indent.yaml": f"{_FOO} - impl: test::foo\n",
    "list.yaml": "- claim: ok\n",
    "empty.yaml": "",
    "rows.yaml": f"keys: [CUDAA]\n{_FOO}",
    "fallback.yaml": "claim: ok\nregistrations:\n  - fallback: fallthru\n    dispatch: CPU\n",
    "notes.txt": "hello\n",
}
_NEWEST = "torch-2.15"
MISTAKES: dict[str, tuple[str, ...]] = {
    # files
    "permute key.yaml": ("key.yaml:5:15: expected a dispatch key but found 'CPUU'; did you mean CPU?",),
    "permute field.yaml": ("field.yaml:5:5: 'dispach' is not a field of an impl; did you mean dispatch?",),
    "permute no_claim.yaml": ("no_claim.yaml:1:1: `claim` is missing", "what the scenario shows, in a sentence"),
    "permute no_registrations.yaml": ("no_registrations.yaml:1:1: `registrations` is missing", "what is registered"),
    "permute tab.yaml": ("tab.yaml:3:1: this is not YAML", "indent with blanks, not with tabs"),
    "permute colon.yaml": ("colon.yaml:1:9: this is not YAML", "put a text with a colon in quotes"),
    "permute type.yaml": ("type.yaml:3:20: expected a type (did you mean Tensor?) but found 'Tensr'",),
    "permute arrow.yaml": ("arrow.yaml:3:30: expected '->' and the returns but found 'Tensor'",),
    "permute outcome.yaml": ("outcome.yaml:1:9: expected an outcome", "did you mean order-independent?"),
    "permute semantics.yaml": ("semantics.yaml:1:12: expected the name of a semantics", "did you mean torch-2.9?"),
    "permute twice.yaml": ("twice.yaml:2:1: `claim` appears twice, first on line 1; keep one of them",),
    "permute alias.yaml": ("alias.yaml:4:12: expected an alias kind", "the values are CONSERVATIVE, FROM_SCHEMA"),
    "permute both.yaml": ("both.yaml:4:5: an entry is one registration", "start a new entry with a dash"),
    "permute indent.yaml": ("indent.yaml:4:2: this is not YAML", "from line 1 on"),
    "permute list.yaml": ("list.yaml:1:1: expected a scenario but found a list; write a mapping with `claim`",),
    "permute empty.yaml": ("empty.yaml:1:1: the file is empty; write `claim` and `registrations`",),
    "permute rows.yaml": ("rows.yaml:1:8: expected a dispatch key but found 'CUDAA'; did you mean CUDA?",),
    "permute fallback.yaml": ("fallback.yaml:3:15: expected fallthrough, boxed or", "did you mean fallthrough?"),
    "permute notes.txt": ("notes.txt:1:1: expected a scenario but found 'hello'; write a mapping",),
    "permute god.yaml": ("god.yaml: there is no such file; did you mean good.yaml?",),
    "lint god.yaml": ("god.yaml: there is no such file; did you mean good.yaml?",),
    "trace god.py": ("god.py cannot be read", "name a Python file to run"),
    # commands and options
    "permut good.yaml": ("No such command 'permut'. Did you mean 'permute'?",),
    "permute": ("no scenario was named: name scenario files or folders",),
    "permute good.yaml --fromat json": ("No such option", "--fromat", "--at", "--format"),
    "permute good.yaml --json": ("No such option", "--json", "Did you mean", "--format json"),
    "permute good.yaml --format jsn": ("'jsn' is not one of 'rich', 'text', 'json', 'markdown'",),
    "permute good.yaml --engine gpu": ("'gpu' is not one of 'lab', 'torch'",),
    "permute good.yaml --walk grph": ("'grph' is not one of 'auto', 'graph', 'orders', 'sample'",),
    "permute good.yaml --timeout 0": ("0.0 is not in the range x>0",),
    "permute good.yaml --report out.txt": ("--report out.txt: expected a file that ends in .html; --format json",),
    "permute good.yaml --report away/out.html": ("there is no folder away; make it, or name another one",),
    "permute good.yaml --graph x.pdf": ("--graph x.pdf: expected a file that ends in .dot or .svg",),
    "permute good.yaml --save notes.txt": ("dispatchlab did not write it", "or write over this one with --force"),
    "permute good.yaml --semantics strct": ("unknown semantics 'strct'", "did you mean strict?"),
    "permute good.yaml --semantics torch-2.99": ("unknown semantics 'torch-2.99'", f"did you mean {_NEWEST}?"),
    "completion tcsh": ("'tcsh' is not one of 'bash', 'zsh', 'fish'",),
    "schema dmp": ("dmp prints no JSON: choose from", "did you mean dump?"),
    "coverage torch-2.13": ("Missing option '--key'", "Try 'dispatchlab coverage --help'"),
    "diff torch-2.12": ("Missing argument 'B'", "Try 'dispatchlab diff --help'"),
    # operators and keys
    "dump": ("no operator was named: name one, or a glob such as 'aten::add*', or list them all with --list",),
    "dump aten::ad": ("there is no operator aten::ad in", "did you mean aten::add"),
    "dump aten:add": ("there is no operator aten:add in", "did you mean aten::add?"),
    "dump aten::add.Tenser": ("there is no operator aten::add.Tenser in", "did you mean aten::add.Tensor"),
    "dump torch.addd": ("note: torch.addd is taken as aten::addd", "did you mean aten::add"),
    "dump test::fo --from good.yaml": ("there is no operator test::fo in good.yaml; did you mean test::foo?",),
    "dump aten::add.Tensor --key CPUU": ("'CPUU' is not a dispatch key; did you mean CPU?",),
    "dump aten::add.Tensor --key Autograd": ("Autograd has no row in a table: name a runtime key, such as CPU",),
    "dump test::foo --from good.yaml --after +9": ("expected a registration from 0 to 1 but found '+9'",),
    "dump test::foo --from good.yaml --after 0": ("expected a step such as +0 or -0 but found '0'",),
    "coverage torch-2.13 --key GPU": ("'GPU' is not a dispatch key; did you mean CUDA?",),
    "coverage torch-2.13 --key CPU --what-if impl": ("--what-if 'impl': expected 'impl OPERATOR KEY'",),
    "certify good.yaml --operator test::bar": ("there is no operator test::bar in this registry; it has test::foo",),
    "lint good.yaml --select DL99": ("there is no rule 'DL99': expected DL001 to DL024", "did you mean DL019?"),
    "explain aten::relu --arg gpu": ("'gpu' does not describe a tensor; did you mean cuda?",),
    "explain aten::relu --arg cpu --arg cpu": ("'cpu' is one argument too many: aten::relu has 1",),
    "explain aten::relu --arg slef=cpu": ("aten::relu has no argument 'slef'", "did you mean self?"),
    "explain aten::relu --exclude Autocst": ("'Autocst' is not a dispatch key; did you mean Autocast",),
    # versions and registries
    "explain aten::relu --across 2.3": ("no registry of PyTorch 2.3 is bundled: choose from 2.4 to",),
    "explain aten::relu --across 2.12 latest": ("no registry of PyTorch latest is bundled: choose from 2.4 to",),
    "dump aten::relu --across 2.12": ("--across shows every version: leave 2.12 out",),
    "dump aten::relu --from latest": ("there is no registry 'latest'", f"the newest is {_NEWEST}"),
    "permute good.yaml --semantics latest": ("unknown semantics 'latest'", f"the newest is {_NEWEST}"),
    "dump aten::relu --from torch-2.99": ("there is no registry 'torch-2.99'", f"the newest is {_NEWEST}"),
    "diff torch-2.12 2.99": ("note: 2.99 is taken as torch-2.99", f"the newest is {_NEWEST}"),
    "diff torch-2.12 torch-2.13 --key CUDAA": ("'CUDAA' is not a dispatch key; did you mean CUDA?",),
    "diff torch-2.12 torch-2.13 --for goood.yaml": ("goood.yaml: there is no such file; did you mean good.yaml?",),
    "certify torch_2.13": ("there is no registry 'torch_2.13'", "torch-2.4 to"),
    # packages
    "lint no_such_package": ("there is no registry 'no_such_package'", "in its checkout with `pip install -e .`"),
    "record": ("no package was named: name packages to import, or use --all",),
    "check": ("has no package: name the module that registers operators",),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with files that have mistakes, in which commands run."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_answered_with_its_place_and_what_to_do(line: str) -> None:
    result = run(*line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    said = " ".join(result.stderr.replace("\u2502", " ").split())
    assert [part for part in MISTAKES[line] if part not in said] == [], said
    assert "Traceback" not in said


def test_there_are_sixty_at_least_and_each_file_is_used() -> None:
    assert len(MISTAKES) >= 60
    assert {name for name in FILES if not any(name in line for line in MISTAKES)} == set()
