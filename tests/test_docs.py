"""The pages of docs/: commands and options that exist, links that lead somewhere, pictures as they were drawn."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from dispatchlab.cli import main
from dispatchlab.commands.overview import COMMANDS, HIDDEN

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "scenarios" / "README.md", *sorted(DOCS.rglob("*.md"))]
_FENCED = re.compile(r"^( *)```(?:bash)?(?: [^\n]*)?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def _commands(page: Path) -> Iterator[str]:
    """The commands that a page shows in blocks, and between backticks."""
    text = page.read_text(encoding="utf-8")
    for block in _FENCED.finditer(text):
        for line in block[2].splitlines():
            found = re.match(r'(?:[A-Z_]+=\S+ |eval "\$\(|\$ | *)*(dispatchlab [a-z].*)', line)
            if found is not None:
                yield found[1]
    yield from re.findall(r"^ {4}(?:\$ )?(dispatchlab [a-z].*)$", re.sub(_FENCED, "", text), re.MULTILINE)
    yield from re.findall(r"`(dispatchlab [a-z][^`]*)`", re.sub(_FENCED, "", text))


def _problem(line: str) -> str | None:
    """What is wrong with a command; None when the program would take its options."""
    try:
        _, name, *arguments = shlex.split(re.split(r' [|>] | && |\)"', line)[0], comments=True)
    except ValueError as error:
        return str(error)
    command = main.get_command(click.Context(main), name)
    if command is None:
        return f"there is no command {name}"
    try:
        command.make_parser(click.Context(command, help_option_names=["-h", "--help"])).parse_args(arguments)
    except click.UsageError as error:
        return error.format_message()
    return None


def test_every_command_that_a_page_shows_exists_with_its_options() -> None:
    shown = {(page, line) for page in PAGES if page.name != "cli.md" for line in _commands(page)}
    assert [(page.name, line, _problem(line)) for page, line in sorted(shown) if _problem(line)] == []
    assert len(shown) > 80
    assert {line.split()[1] for _, line in shown} == {*COMMANDS, *HIDDEN}


@pytest.mark.parametrize(
    "line", ["dispatchlab permut a.yaml", "dispatchlab dump --no-such-option", "dispatchlab dump 'a"]
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert _problem(line) is not None


def _linked(text: str) -> list[str]:
    """The files that a page links to, without those in blocks."""
    text = re.sub(r"^ *(```+).*?^ *\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^()\s]+)\)", text)
    return [link.partition("#")[0] for link in found if not re.match(r"https?://|#|mailto:", link)]


def test_every_link_of_a_page_leads_to_a_file() -> None:
    links = [(page, link) for page in PAGES for link in _linked(page.read_text(encoding="utf-8"))]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
    assert len(links) > 100


def _named(nav: object) -> Iterator[str]:
    """The pages that the navigation names."""
    match nav:
        case str():
            yield nav
        case dict():
            for value in nav.values():
                yield from _named(value)
        case list():
            for value in nav:
                yield from _named(value)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    named = list(_named(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert len(named) == len(set(named))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    made = {"contributing.md", "changelog.md"}
    listed = {page for page in pages if page.startswith(("lint/", "defects/reports/", "defects/packages/"))}
    assert sorted(pages - set(named) - made - listed) == []
    assert sorted(name for name in set(named) - pages - made if not name.endswith("/")) == []
