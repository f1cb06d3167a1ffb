"""No view for a terminal breaks a word or a path, at any width."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.questions.dump.inspect_operators import inspect_registry
from dispatchlab.questions.dump.inspect_scenario import Inspection
from dispatchlab.questions.dump.operator_blocks import operator_blocks
from dispatchlab.questions.dump.operator_text import operator_text
from dispatchlab.questions.sources.find_sources import recorded_from
from dispatchlab.views.blocks import Line, source
from dispatchlab.views.console import console
from dispatchlab.views.formatting import key_names
from dispatchlab.views.source_locations import link_of, located
from dispatchlab.views.styles import REASON_STYLES
from dispatchlab.views.terminal import draw as draw_blocks
from tests.command_line import run
from tests.test_views import Terminal

ROOT = Path(__file__).parents[1]
TORCH = "torch-2.13-cuda"
MOST = 10
"""How many operators are looked at here: those that have the most kernels."""


@cache
def most_kernels(most: int = MOST) -> tuple[OperatorView, ...]:
    """The operators that have the most kernels."""
    recorded = recorded_from(TORCH)
    counts = {name: len(found.kernels) for name in recorded.names if (found := recorded.operator(name)) is not None}
    names = sorted(counts, key=lambda name: (-counts[name], name))[:most]
    assert counts[names[MOST - 1]] >= 18
    return tuple(inspection(name).only_view for name in names)


@cache
def inspection(name: str) -> Inspection:
    """An operator of PyTorch."""
    return inspect_registry(recorded_from(TORCH), name, source=TORCH)


def drawn(draw: Callable[[Console], None], width: int, *, terminal: bool = False) -> str:
    """What a view prints at a width, without colours and links."""
    stream = Terminal() if terminal else io.StringIO()
    target = console(stream)
    target.width = width
    draw(target)
    return re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\", "", stream.getvalue())


def known_words(*texts: str) -> set[str]:
    """The words that a view may show: those of the texts, and the paths in them as they are shown."""
    found: set[str] = set()
    for text in texts:
        for word in text.split():
            core = word.strip("()[],;:")
            found |= {core, *(piece.text for piece in located(core))}
    return found


def is_whole(word: str, known: set[str]) -> bool:
    """Whether a word is one of these."""
    return word.strip("()[],;:") in known


def check_width(text: str, width: int) -> None:
    """No line is longer than this, but for a word that is."""
    for line in text.splitlines():
        assert cell_len(line) <= width or cell_len(line.rpartition(" ")[0].rstrip()) <= width, line


def words_of(view: OperatorView) -> set[str]:
    """Every word about an operator."""
    texts = [view.name, view.schema or "", view.debug or "", *view.tags, *(row.stale or "" for row in view.table)]
    texts += (f"{kernel.key} {kernel.debug} {kernel.inferred or ''}" for kernel in view.kernels)
    texts += (f"{row.key} {row.debug} {row.source}" for row in view.table)
    texts += (f"{one.source} {one.debug} {one.why}" for row in view.table for one in row.beaten)
    texts += key_names([row.key for row in view.table])
    texts += (word for name in key_names([row.key for row in view.table]) for word in name.split())
    return known_words(*texts)


def check_words(views: Sequence[OperatorView], width: int) -> None:
    """No word of these operators is broken at a width."""
    seen = 0
    for view in views:
        known = words_of(view)
        text = drawn(lambda target, view=view: draw_blocks(target, operator_blocks(view)), width)  # type: ignore[misc]
        check_width(text, width)
        for word in text.split():
            if len(word) > 12 or "/" in word or "::" in word:  # the words of the view itself are shorter
                assert is_whole(word, known) or word.isalpha(), word
                seen += 1
    assert seen > 20 * len(views)


@pytest.mark.parametrize("width", [60, 100])
def test_no_word_of_an_operator_is_broken(width: int) -> None:
    check_words(most_kernels(), width)


# -- source locations


@pytest.mark.parametrize(
    ("debug", "shown", "link"),
    [
        (
            "registered at /__w/pytorch/pytorch/aten/src/ATen/core/MetaFallbackKernel.cpp:23",
            "aten/src/ATen/core/MetaFallbackKernel.cpp:23",
            "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/core/MetaFallbackKernel.cpp#L23",
        ),
        (
            "registered at ../torch/csrc/jit/python/init.cpp:7",  # PyTorch 2.4
            "torch/csrc/jit/python/init.cpp:7",
            "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/python/init.cpp#L7",
        ),
        (
            "registered at torch/_meta_registrations.py:54",
            "torch/_meta_registrations.py:54",
            "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_meta_registrations.py#L54",
        ),
        # what a build generates is in no repository
        (
            "registered at /__w/p/p/build/aten/src/ATen/RegisterCPU_0.cpp:1",
            "build/aten/src/ATen/RegisterCPU_0.cpp:1",
            "",
        ),
        ("registered at aten/src/ATen/RegisterSchema.cpp:6", "aten/src/ATen/RegisterSchema.cpp:6", ""),
        (
            "/pytorch/torch/csrc/autograd/generated/TraceType_2.cpp:7",
            "torch/csrc/autograd/generated/TraceType_2.cpp:7",
            "",
        ),
        ("registered at my_package/ops.py:12", "my_package/ops.py:12", ""),
        ("/a/lib/python3.11/site-packages/my_package/ops.py:12", "my_package/ops.py:12", ""),
        ("fn_cpu", "fn_cpu", ""),
    ],
)
def test_a_source_location_is_short_and_leads_to_the_release(debug: str, shown: str, link: str) -> None:
    (piece,) = located(debug)
    assert (piece.text, link_of(piece, "2.13.0+cpu")) == (shown, link)
    assert link_of(piece, "2.13.0a0+git1234") == link_of(piece, "") == ""


def test_a_local_file_is_a_link_that_hides_nothing(tmp_path: pytest.TempPathFactory) -> None:
    (piece,) = located(f"{__file__}:3")
    assert link_of(piece, "") == f"file://{__file__}"
    hostile = located("registered at torch/\x1b]8;;http://evil\x1b\\.py:3 torch/é\"'.py:4")
    for part in hostile:
        assert re.fullmatch(r"[\w:/.#%'-]*", link_of(part, "2.13.0"), re.ASCII)


def test_links_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    view = inspection("aten::add.Tensor").only_view
    for term, stream, linked in (
        ("xterm", Terminal(), True),
        ("dumb", Terminal(), False),
        ("xterm", io.StringIO(), False),
    ):
        monkeypatch.setenv("TERM", term)
        target = console(stream, color=False)
        draw_blocks(target, operator_blocks(view), torch="2.13.0+cpu")
        assert ("]8;id=" in stream.getvalue()) is linked
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", stream.getvalue())


def test_every_reason_has_a_colour_of_the_palette() -> None:
    assert set(REASON_STYLES) == set(Provenance)
    assert {style.split()[-1] for style in REASON_STYLES.values()} <= {"green", "cyan", "blue", "magenta", "red"}


def test_a_word_that_is_longer_than_the_line_is_whole() -> None:
    long = "x" * 90
    line = Line(f"a {long} b", label="first ", indent=4)
    assert drawn(lambda target: draw_blocks(target, [line]), 60).split() == ["first", "a", long, "b"]


def test_the_plain_text_of_an_operator_is_what_the_engine_prints() -> None:
    (snapshot,) = inspection("aten::add.Tensor").snapshots
    assert operator_text(snapshot) == f"{snapshot.dump}\n{snapshot.table}"


COMMANDS = (
    "check scenarios/lint/dl006_found.yaml",
    "coverage torch-2.13-cpu --key PrivateUse1 --operator aten::mm* --list composite",
    "diff torch-2.12 torch-2.13 --operator aten::_c* --all",
    "permute scenarios/defects/stale_slots_torch.yaml --semantics strict",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_breaks_a_word(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_command(command, monkeypatch)


def test_sequences_whose_words_do_not_fit_side_by_side_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "60")
    shown = run("permute", "scenarios/defects/stale_slots_torch.yaml", "--format", "rich").stdout
    first = "> +1 impl test::foo CompositeExplicitAutograd (fn_default)"
    assert shown.index("one order") < shown.index(first) < shown.index("the other order")


@pytest.mark.parametrize("width", [120, 80, 60])
def test_a_stale_slot_says_what_calls_use_and_what_it_should_hold(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(width))
    source = ["--from", "scenarios/defects/stale_slots_torch.yaml"]
    shown = run("dump", "test::foo", *source, "--semantics", "torch-2.13", "--format", "rich").stdout
    check_width(shown, width)
    stale = shown.partition("Stale slots (")[2].partition("\n\n")[0]
    assert "  AutogradCPU\n      calls use fn_math [math kernel]\n      should hold" in stale
    words = " ".join(stale.split())
    fallback = "aten/src/ATen/core/VariableFallbackKernel.cpp:66 [backend fallback]"
    assert f"AutogradCPU calls use fn_math [math kernel] should hold {fallback}" in words
    assert stale.count("calls use ") == stale.count("should hold") == int(stale.partition(")")[0])


def check_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word of what a command shows is broken."""
    monkeypatch.chdir(ROOT)
    line = [word.replace("|", " ") for word in command.split()]
    known: set[str] = set()
    for width in (400, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = run(*line, "--format", "rich").stdout
        if not known:
            known = known_words(shown)
        for word in shown.split():
            assert len(word) <= 12 or is_whole(word, known), word
        assert len(shown.split()) > 20


def test_where_only_ascii_can_be_shown_nothing_else_is() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    target = console(stream)
    target.width = 60
    draw_blocks(target, operator_blocks(inspection("aten::add.Tensor").only_view))
    stream.seek(0)
    assert "build/aten/src/ATen/RegisterZeroTensor_0.cpp" in stream.read()


def test_a_terminal_without_colours_is_as_wide_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "62")
    stream = Terminal()
    draw_blocks(console(stream), operator_blocks(inspection("aten::add.Tensor").only_view))
    check_width(stream.getvalue(), 62)
    assert "\x1b" not in stream.getvalue()


def test_control_characters_in_words_are_spelled_out_and_none_vanishes() -> None:
    evil = "a\x1f/b\x85.py:3\x1b[31m c\x1cd"

    lines = drawn(lambda target: draw_blocks(target, [Line(source(evil)), Line(evil)]), 200).splitlines()
    assert lines == ["a\\x1f/b\\x85.py:3\\x1b[31m c\\x1cd"] * 2
