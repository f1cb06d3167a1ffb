"""Blocks in every format: the text is the contract, and no text of a user means anything to a format."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dispatchlab.escape import printable
from dispatchlab.views.blocks import (
    Block,
    Cell,
    Code,
    Difference,
    Document,
    Facts,
    Folded,
    Items,
    Line,
    Meter,
    Section,
    Side,
    Sides,
    Span,
    Stack,
    Table,
    Verdict,
    bad,
    code,
    mark,
    name,
    part,
    source,
    strong,
)
from dispatchlab.views.console import console
from dispatchlab.views.html.backend import html_page
from dispatchlab.views.markdown import markdown_document, markdown_of
from dispatchlab.views.terminal import draw
from dispatchlab.views.text import text_of
from tests.hostile_texts import EVIL

DEBUG = "registered at /__w/pytorch/pytorch/aten/src/ATen/core/MetaFallbackKernel.cpp:23"


def every_block(text: str) -> tuple[Block, ...]:
    """A block of each kind about a text."""
    rows = ((Cell(text, "name"), 1200, Cell(Stack((source(DEBUG), text)), "code"), (mark("yes", "good"), text)),)
    return (
        Verdict("order-dependent", "bad", f", {text}"),
        Facts((("operators", 1200), ("about", text))),
        Section(
            "A part",
            (
                Line((strong(text), ": ", bad("no"), Meter(1, 2, "half"))),
                Line(name(text), indent=2),
                Line(code(text), label="title", width=9, indent=2),
                Items((text, "two")),
                Folded(text, (Table("Rows", ("operator", "number", "at", "ready"), rows),), anchor="rows"),
                Sides((Side("expected: +0", "good", (Span(text),)), Side("actual:", "bad", ())), 0),
                Code(text, indent=2),
                Difference(f"--- a\n+++ b\n-{text}\n+{text}\n"),
            ),
            "part",
        ),
    )


def test_text_is_what_the_blocks_say() -> None:
    assert text_of(every_block("aten::add")) == (
        "order-dependent, aten::add\n"
        "operators: 1,200\n"
        "about: aten::add\n"
        "\n"
        "A part\n"
        "aten::add: no\n"
        "  aten::add\n"
        "  title    aten::add\n"
        "  aten::add\n"
        "  two\n"
        "aten::add\n"
        "expected: +0\n"
        "  aten::add\n"
        "actual:\n"
        "  aten::add\n"
        "--- a\n"
        "+++ b\n"
        "-aten::add\n"
        "+aten::add\n"
    )


def test_a_terminal_wraps_between_words_and_leaves_paths_whole() -> None:
    stream = io.StringIO()
    target = console(stream)
    target.width = 40
    draw(target, (Line(("at ", source(DEBUG), ", twice ", "and once more"), indent=2), Line(), Line("end")))
    assert stream.getvalue() == (
        "  at\n    aten/src/ATen/core/MetaFallbackKernel.cpp:23,\n    twice and once more\n\nend\n"
    )


def test_markdown_is_read_as_it_was_meant() -> None:
    blocks = every_block("aten::add_")
    made = markdown_document(Document("certify", "a_b under *strict*", (*blocks, Section("A `part`", blocks))))
    read = MarkdownIt("commonmark").render(made)
    assert "<h2>dispatchlab certify: a_b under *strict*</h2>" in read
    assert "<h3>A `part`</h3>" in read
    assert read.count("<pre><code>") == made.count("\n```\n\n") + 1
    assert "order-dependent, aten::add_" in read


def test_a_long_table_is_cut_where_it_has_a_limit_and_not_everything_is_asked_for() -> None:
    blocks = part("Rows", ("name", "number"), ((f"row {at}", at) for at in range(3)), marked=[1], most=2)
    head = "\nRows (3)\n  name   number\n  row 0  0\n  row 1  1\n"
    assert text_of(blocks) == f"{head}  ... and 1 more: see --all\n"
    assert text_of(blocks, whole=True) == f"{head}  row 2  2\n"
    assert part("Rows", ("name",), ()) == ()


def test_a_long_part_is_cut_in_markdown_and_says_so() -> None:
    lines = tuple(Line(str(number)) for number in range(210))
    assert markdown_of(lines).endswith("\n199\n... and 10 more lines\n```\n")


TEXTS = st.one_of(
    st.text(alphabet="ab_*`[](){}<>|#~$&@!\\-+=.1 \n", max_size=30),
    st.sampled_from((EVIL, "<script>alert(1)</script>", "[a](javascript:b)", "1. x", "| a |", "```", "    code")),
)


@given(text=TEXTS)
def test_a_text_means_nothing_to_markdown(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(markdown_of((Section(f"x{text}", (Line(("x", text)),)),)))
    assert [token.type for token in tokens] == ["heading_open", "inline", "heading_close", "fence"]
    shown = "".join(child.content for child in tokens[1].children or ())
    assert {child.type for child in tokens[1].children or ()} <= {"text", "text_special"}
    assert shown.split() == f"x{printable(text)}".split()
    assert tokens[3].content.split() == f"x{printable(text)}".split()


@pytest.mark.parametrize("text", [EVIL, "<b>", "a|b`c"])
def test_every_format_shows_hostile_texts_as_text(text: str) -> None:
    blocks = every_block(text)
    page = html_page(Document("certify", text, blocks))
    assert "<b><b>" not in page
    assert "\x1b" not in page + text_of(blocks) + markdown_of(blocks)
    read = MarkdownIt("commonmark").enable("table").render(markdown_of(blocks))
    assert "<b>" not in read


def test_a_page_leaves_out_the_columns_of_a_table_that_are_empty() -> None:
    rows = (("a::b", "", Cell("")), ("a::c", "", Cell("a::d")))
    page = html_page(Document("check", "found", (Table("", ("operator", "build", "others"), rows),)))
    assert re.findall('<th scope="col">([^<]*)', page) == ["operator", "others"]
    assert "a::d" in page
