"""Reports to keep, in a browser: no request, no message, hostile texts stay text, tables sort, pictures answer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.escape import printable
from tests.browser import Visit, chromium
from tests.command_line import run
from tests.effort import crossed
from tests.hostile_texts import EVIL, write_hostile_files
from tests.scenario_texts import FIVE, TWICE, TWO_DEFS, many

HOSTILE = {
    "permute": "permute {scenario}",
    "folder": "permute {scenario} {broken} {five} {conflict}",
    "permute registry": "permute {registry}",
    "permute live kinds": "permute {scenario} --operator * --semantics torch-2.13",
    "check": "check {registry} {scenario}",
    "diff": "diff {registry} {other} --all",
    "diff package": "diff {registry} {other} --for {scenario}",
    "coverage": "coverage {registry} --key CUDA",
}
"""Command lines on hostile files, each with a report."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, once for all tests here."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each command on hostile files."""
    folder = tmp_path_factory.mktemp("reports")
    files = write_hostile_files(folder)
    for name, text in (("five", FIVE), ("conflict", TWO_DEFS)):
        (folder / f"{name}.yaml").write_text(text)
        files[name] = str(folder / f"{name}.yaml")
    found = {}
    for name, command in HOSTILE.items():
        words = [word.strip("|").replace("~", " ").format(**files) for word in command.split()]
        page = folder / f"{name}.html"
        result = run(*words, "--report", str(page))
        assert result.exit_code in (0, 1, 2), result.output
        assert f"wrote {page}: a report to keep" in result.stderr
        found[name] = page
    return found


def written(folder: Path, text: str) -> Path:
    """The report of a scenario."""
    (folder / "scenario.yaml").write_text(text)
    assert run("permute", str(folder / "scenario.yaml"), "--report", str(folder / "page.html")).exit_code in (0, 1)
    return folder / "page.html"


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_report_asks_for_nothing_says_nothing_and_shows_hostile_texts_as_text(
    name: str, browser: Any, reports: dict[str, Path]
) -> None:
    text = reports[name].read_text(encoding="utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "http:" not in text
    assert "https:" not in text
    with Visit(browser, reports[name]) as visit:
        page = visit.page
        assert visit.requests == [reports[name].as_uri()]
        page.wait_for_timeout(50)
        assert visit.messages == []
        assert page.evaluate("document.scripts.length") == 1
        shown = page.evaluate("document.body.textContent")
        assert "$(touch RUN)" in shown
        if name in ("permute", "folder", "check", "coverage"):
            assert re.sub(r"\s+", " ", printable(EVIL)) in re.sub(r"\s+", " ", shown)
        assert page.title().endswith(f"dispatchlab {name.partition(' ')[0].replace('folder', 'permute')}")
        headings = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(each => +each.tagName[1])")
        assert headings[0] == 1
        assert headings.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(headings))
        for name_of_landmark in ("header", "main", "footer"):
            assert page.evaluate(f"document.querySelectorAll('body > {name_of_landmark}').length") == 1


@pytest.mark.parametrize(("name", "look"), crossed(sorted(HOSTILE), [(False, 1280), (True, 420)]))
def test_axe_finds_nothing_serious(name: str, look: tuple[bool, int], browser: Any, reports: dict[str, Path]) -> None:
    dark, width = look
    with Visit(browser, reports[name], dark=dark) as visit:
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
        assert visit.broken_rules() == []


_SHOWN = "table.data tbody tr, main summary, main p"
"""What a page says: rows, the titles of what is folded, and lines."""


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_without_scripts_everything_is_there(name: str, browser: Any, reports: dict[str, Path]) -> None:
    with Visit(browser, reports[name]) as with_scripts, Visit(browser, reports[name], scripts=False) as without:
        rows = [visit.page.locator(_SHOWN).all_text_contents() for visit in (with_scripts, without)]
        assert rows[0] == rows[1]
        assert len(rows[0]) > 0
        assert without.page.locator("button, input").count() == 0  # nothing that does nothing
        for each in without.page.locator("main > section > details").all()[:3]:
            if each.get_attribute("open") is None:
                each.locator("summary").first.click()
            assert each.locator(".inside").first.is_visible()


def test_tables_sort_by_numbers_and_texts_and_filter(browser: Any, tmp_path: Path) -> None:
    files = [tmp_path / f"{at}.yaml" for at in range(12)]
    for at, file in enumerate(files):
        file.write_text(many(at + 1))
    run("permute", *map(str, files), "--report", str(tmp_path / "page.html"))
    with Visit(browser, tmp_path / "page.html") as visit:
        page = visit.page
        table = page.locator("#overview-12 table")
        numbers = table.locator("tbody td:nth-child(5)")
        assert numbers.all_text_contents() == [str(index) for index in range(1, 13)]
        button = table.locator("thead button").nth(4)
        button.click()
        button.click()
        assert numbers.all_text_contents() == [str(index) for index in reversed(range(1, 13))]
        assert table.locator("thead th").nth(4).get_attribute("aria-sort") == "descending"
        page.locator("#overview-12 input").fill("11.yaml")
        assert sum(row.is_visible() for row in table.locator("tbody tr").all()) == 1
        assert page.locator("#overview-12 .tools span").inner_text() == "1 of 12 rows"
        page.locator("#overview-12 input").fill("")
        assert sum(row.is_visible() for row in table.locator("tbody tr").all()) == 12


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_no_cell_runs_into_its_neighbour_and_no_page_scrolls_sideways(
    name: str, width: int, browser: Any, reports: dict[str, Path]
) -> None:
    with Visit(browser, reports[name]) as visit:
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        elements = "[...document.querySelectorAll('td, th, p, dd, li')]"
        wide = f"{elements}.filter(each => each.scrollWidth > each.clientWidth + 1)"
        assert visit.page.evaluate(f"{wide}.map(each => each.textContent.slice(0, 80))") == []
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        clipped = "[...document.querySelectorAll('.table')].filter(each => each.scrollWidth > each.clientWidth + 1)"
        assert visit.page.evaluate(f"{clipped}.map(each => each.ariaLabel)") == []


def test_where_it_is_narrow_a_cell_stands_behind_the_title_of_its_column(browser: Any, tmp_path: Path) -> None:
    assert run("diff", "torch-2.12", "torch-2.13", "--report", str(tmp_path / "page.html")).exit_code in (0, 1)
    title = "getComputedStyle(document.querySelector('.data td:nth-child(3)'), '::before').content"
    shown = "[...document.querySelector('.data tbody tr').cells].filter(each => each.offsetWidth)"
    with Visit(browser, tmp_path / "page.html") as visit:
        for width in (1280, 400):
            visit.page.set_viewport_size({"width": width, "height": 900})
            wide = "[...document.querySelectorAll('.table')].filter(each => each.scrollWidth > each.clientWidth + 1)"
            assert visit.page.evaluate(f"{wide}.length") == 0
            assert visit.page.evaluate(title) == ("none" if width == 1280 else '"kernels at"')
            assert (len(set(visit.page.evaluate(f"{shown}.map(each => each.getBoundingClientRect().left)"))) == 1) == (
                width == 400
            )


def test_the_switch_changes_the_colours_and_paper_is_light(browser: Any, tmp_path: Path) -> None:
    with Visit(browser, written(tmp_path, TWICE), dark=True) as visit:
        page = visit.page
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(paper) == "rgb(13, 17, 23)"
        page.get_by_role("button", name="Light colours").click()
        assert page.evaluate(paper) == "rgb(255, 255, 255)"
        page.get_by_role("button", name="Dark colours").click()
        assert page.evaluate(paper) == "rgb(13, 17, 23)"
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert not page.locator(".switch").is_visible()
        assert page.evaluate(paper) == "rgb(255, 255, 255)"
