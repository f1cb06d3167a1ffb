"""Rules of native_functions.yaml: a file breaks each of them, and the problems of that file are pinned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dispatchlab.codegen import NativeYamlError, Rule, load_native_functions, read_native_functions, runtime
from dispatchlab.codegen.read.entry import META_BASES
from dispatchlab.codegen.read.native_functions import TAGS, read_tags
from dispatchlab.model.registration import SourceLocation
from dispatchlab.scenario.yaml_tree import Problem

BAD = Path(__file__).parent / "data" / "codegen" / "bad"
RULES = sorted(Rule)


def problems_of(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(NativeYamlError) as caught:
        read_native_functions(path.read_bytes(), file=path.name)
    return caught.value.problems


@pytest.mark.parametrize("rule", RULES)
def test_a_file_that_breaks_a_rule_is_refused_in_pinned_words(rule: Rule) -> None:
    problems = problems_of(BAD / f"{rule}.yaml")
    assert rule in {problem.rule for problem in problems}
    text = "".join(f"{problem}\n" for problem in problems)
    pinned = BAD / f"{rule}.txt"
    if os.environ.get("EXPECTTEST_ACCEPT"):
        pinned.write_text(text, encoding="utf-8")
    assert text == pinned.read_text(encoding="utf-8")


def test_every_file_that_is_wrong_belongs_to_a_rule() -> None:
    assert sorted(path.stem for path in BAD.glob("*.yaml")) == [str(rule) for rule in RULES]
    assert sorted(path.stem for path in BAD.glob("*.txt")) == [str(rule) for rule in RULES]


@pytest.mark.parametrize("rule", RULES)
def test_every_problem_has_a_line_of_its_file(rule: Rule) -> None:
    path = BAD / f"{rule}.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    for problem in problems_of(path):
        assert isinstance(problem.where, SourceLocation)
        assert problem.where.file == path.name
        assert 1 <= problem.where.line <= len(lines) + 1
        if problem.where.line <= len(lines):
            assert 1 <= problem.where.column <= len(lines[problem.where.line - 1]) + 1


def test_problems_come_all_at_once_in_the_order_of_the_file() -> None:
    files = ("unknown_field", "unknown_tag", "unknown_key", "out_count")
    text = "\n".join((BAD / f"{name}.yaml").read_text(encoding="utf-8").replace("foo", name) for name in files)
    with pytest.raises(NativeYamlError) as caught:
        read_native_functions(text)
    found = [problem.rule for problem in caught.value.problems]
    assert found == [Rule.UNKNOWN_FIELD] * 2 + [Rule.UNKNOWN_TAG] + [Rule.UNKNOWN_KEY] * 2 + [Rule.OUT_COUNT]
    locations = [problem.where for problem in caught.value.problems]
    assert all(isinstance(location, SourceLocation) for location in locations)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NativeYamlError, match=r"none\.yaml: the file cannot be read: No such file or directory"):
        load_native_functions(tmp_path / "none.yaml")


def test_tags_beside_the_file_are_the_tags_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "native_functions.yaml"
    file.write_text("- func: foo(Tensor self) -> Tensor\n  tags: sweet\n", encoding="utf-8")
    with pytest.raises(NativeYamlError, match="'sweet' is not a tag"):
        load_native_functions(file)
    (tmp_path / "tags.yaml").write_text("- tag: sweet\n  desc: Tastes well.\n", encoding="utf-8")
    (function,) = load_native_functions(file).functions
    assert function.tags == {"sweet"}


def test_a_tag_needs_a_name_and_a_description() -> None:
    with pytest.raises(NativeYamlError) as caught:
        read_tags("- tag: sweet\n- desc: nameless\n- tag: sour\n  desc: ' '\n", "tags.yaml")
    assert str(caught.value).splitlines() == [
        "tags.yaml:1:3: the tag sweet has no description; add `desc: ...`",
        "tags.yaml:2:3: found a tag without a name; add `tag: name`",
        "tags.yaml:3:3: the tag sour has no description; add `desc: ...`",
    ]
    with pytest.raises(NativeYamlError, match="found no list of tags"):
        read_tags("tag: sweet", "tags.yaml")
    assert read_tags("- tag: sweet\n  desc: >\n    Tastes well.\n", "tags.yaml") == {"sweet"}
    assert len(TAGS) == 20


def test_every_class_that_a_meta_class_may_inherit_from_is_in_the_runtime() -> None:
    for name in META_BASES:
        assert issubclass(getattr(runtime, name), runtime.MetaBase)
