"""The site: built with warnings as errors, complete, without dead links, and without a request to another host."""

from __future__ import annotations

import functools
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install -e '.[docs]'")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install -e '.[docs]'")

from tests.effort import crossed
from tools.site_pages import SITE, SOURCE, causes_with_pages, public_packages, topics

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")
AXE = ROOT / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
MAIN = (
    "index.html",
    "tutorial.html",
    "concepts.html",
    "gallery.html",
    "defects.html",
    "packages.html",
    "proof.html",
    "cli.html",
    "json.html",
    "explore.html",
    "reports.html",
    "scenario_format.html",
    "guides/operator_author.html",
    "lint/index.html",
    "notebooks/first_proof.html",
    "reference/index.html",
    "reference/check.html",
    "scenarios/table.html",
)


def _built(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is published."""
    folder = tmp_path_factory.mktemp("site")
    result = _built(ROOT / "mkdocs.yml", folder)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return folder


class _Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the links and anchors of a tag."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors += [values[name] for name in ("id", "name") if name in values and tag != "meta"]
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(values["href"])
        if "src" in values:
            self.loaded.append(values["src"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    """Every page of the site by its path."""
    return {path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_public_name_is_in_the_api_reference(pages: dict[str, _Page]) -> None:
    packages = public_packages()
    names = {f"{package}.{name}" for package, listed in packages.items() for name in listed}
    shown = {anchor for page, read in pages.items() if page.startswith("reference/") for anchor in read.anchors}
    assert sorted(names - shown) == []
    assert len(names) > 150
    assert {"dispatchlab", "dispatchlab.call", "dispatchlab.lab.overrides", "dispatchlab.scenario"} <= packages.keys()


def test_the_public_names_are_those_that_the_packages_export() -> None:
    import importlib

    for package, names in public_packages().items():
        module = importlib.import_module(package)
        assert sorted(names) == sorted(module.__all__)
        assert [name for name in names if not hasattr(module, name)] == []


def test_every_link_leads_to_a_page_and_an_anchor_that_exist(site: Path, pages: dict[str, _Page]) -> None:
    dead, checked = [], 0
    for page, read in pages.items():
        for link in read.links + read.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = unquote(urljoin(f"/{page}", parts.path).lstrip("/")) if parts.path else page
            if target in ("", "."):
                target = "index.html"
            anchors = pages[target].anchors if target in pages else []
            there = (site / target).is_file()
            if not there or (parts.fragment and target in pages and unquote(parts.fragment) not in anchors):
                dead.append((page, link))
    # The page for addresses that do not exist links by absolute paths, below the path that the site has on its host.
    below = urlsplit(SITE).path
    assert [(page, link) for page, link in dead if not (page == "404.html" and link.startswith(below))] == []
    assert checked > 5000


def test_links_to_other_hosts_are_encrypted_and_nothing_is_loaded_from_them(pages: dict[str, _Page]) -> None:
    outside = {link for read in pages.values() for link in read.links if urlsplit(link).scheme}
    assert [link for link in outside if not re.match(r"https://[\w.-]+\.\w+(/|$)", link)] == []
    assert any(link.startswith(SOURCE) for link in outside)
    assert [link for read in pages.values() for link in read.loaded if urlsplit(link).netloc] == []


def test_a_link_into_the_checkout_leads_to_a_file_of_it(pages: dict[str, _Page]) -> None:
    prefix = re.compile(re.escape(SOURCE) + r"/(?:blob|tree)/main/([^#]*)")
    named = {found[1] for read in pages.values() for link in read.links if (found := prefix.match(link))}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
    assert len(named) > 150


def test_every_scenario_is_on_the_page_of_its_topic(pages: dict[str, _Page]) -> None:
    for topic in topics():
        names = {path.stem for path in (ROOT / "scenarios" / topic).glob("*.yaml")}
        assert names
        assert names <= set(pages[f"scenarios/{topic}.html"].anchors)


def test_every_notebook_is_a_page_with_what_its_cells_show(site: Path) -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.ipynb")}
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (site / "notebooks").glob("*.html")}
    assert texts.keys() == names
    assert all(text.count('<div class="dl-shown"') >= 2 for text in texts.values())
    assert "Verdict.ORDER_DEPENDENT" in texts["first_proof"]  # what a line without a table shows


PLANTED = {
    "a dead link": ("[x](nowhere.md)", "nowhere.md"),
    "a dead anchor": ("[x](other.md#nowhere)", "does not contain an anchor '#nowhere'"),
    "a file that the checkout lacks": ("[x](../../no_such_file.py)", "which does not exist"),
    "a page that is not in the navigation": ("text", 'not included in the "nav"'),
    "a name that the reference lacks": ("[x][dispatchlab.no_such_name]", "dispatchlab.no_such_name"),
}


def test_what_is_wrong_with_a_page_ends_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Home\n\n" + "\n\n".join(text for text, _ in PLANTED.values()), encoding="utf-8")
    (docs / "other.md").write_text("# Another page\n", encoding="utf-8")
    (docs / "left_out.md").write_text("# Nobody names this page\n", encoding="utf-8")
    (tmp_path / "hooks.py").write_text("from tools.site_pages import on_page_markdown\n")  # and no pages that are made
    for name in ("dispatchlab", "tools"):  # what the configuration names by paths beside it
        (tmp_path / name).symlink_to(ROOT / name)
    config = tmp_path / "mkdocs.yml"
    lines = [
        f"INHERIT: {ROOT / 'mkdocs.yml'}",
        f"docs_dir: {docs}",
        "extra_css: []",
        "extra_javascript: []",
        "hooks: [hooks.py]",
        "nav: [index.md, other.md]",
    ]
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = _built(config, tmp_path / "site")
    assert result.returncode != 0
    assert [name for name, (_, message) in PLANTED.items() if message not in result.stderr] == []


# -- in a browser


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window, and without a wish to call home."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    flags = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[*flags.split(), "--no-first-run"])
        yield chromium
        chromium.close()


def _opened(browser: Any, width: int, scheme: str) -> tuple[Any, list[str], list[str]]:
    """A page of the browser, and what it requests and prints from now on."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    requested: list[str] = []
    printed: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: printed.append(message.text))
    page.on("pageerror", lambda error: printed.append(str(error)))
    return page, requested, printed


@pytest.mark.parametrize(("width", "scheme", "until"), [(1280, "light", "networkidle"), (400, "dark", "load")])
def test_the_main_pages_ask_no_other_host_and_fit_the_window(
    browser: Any, address: str, width: int, scheme: str, until: str
) -> None:
    page, requested, printed = _opened(browser, width, scheme)
    wide = []
    for name in MAIN:
        page.goto(address + name, wait_until=until)
        scrolled, shown = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        wide += [(name, scrolled)] if scrolled > shown else []
        assert page.locator("h1").count() == 1, name
    page.context.close()
    assert len(requested) > 3 * len(MAIN)
    assert {urlsplit(url).netloc for url in requested if not url.startswith("data:")} == {urlsplit(address).netloc}
    assert printed == []
    assert wide == []


def test_the_search_finds_a_word_and_asks_no_other_host(browser: Any, address: str) -> None:
    page, requested, printed = _opened(browser, 1280, "light")
    page.goto(address, wait_until="networkidle")
    for _ in range(20):  # what is asked before the search is ready is lost, and a single letter is a wrong question
        page.locator("input.md-search__input").fill("neighbourhoods")
        page.locator("input.md-search__input").press("End")
        page.wait_for_timeout(1500)
        if page.locator(".md-search-result__item").count():
            break
    assert "proof.html" in " ".join(page.eval_on_selector_all(".md-search-result__link", "all => all.map(a => a.href)"))
    page.context.close()
    assert {urlsplit(url).netloc for url in requested if url.startswith("http")} == {urlsplit(address).netloc}
    assert printed == []


def test_drawings_follow_the_scheme_that_a_reader_chooses(browser: Any, address: str) -> None:
    page, _, _ = _opened(browser, 1280, "dark")
    page.goto(address + "concepts.html", wait_until="networkidle")
    assert page.locator(".dl-drawing svg[role=img][aria-label]").count() == 7
    ink = "getComputedStyle(document.querySelector('.dl .node text')).fill"
    dark = page.evaluate(ink)
    page.locator("label[title='Switch to light']").click()
    light = page.evaluate(ink)
    page.context.close()
    assert dark == "rgb(230, 233, 242)"
    assert light == "rgb(29, 34, 48)"


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed in .venv/npm, as .ci/run installs it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_main_pages(browser: Any, address: str, scheme: str) -> None:
    page, _, _ = _opened(browser, 1280, scheme)
    found = []
    for name, _ in (each for each in crossed(MAIN, ["light", "dark"]) if each[1] == scheme):
        page.goto(address + name)
        page.add_script_tag(path=str(AXE))
        results = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [
            (name, each["id"], each["nodes"][0]["html"][:200])
            for each in results["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    page.context.close()
    assert found == []


PASTED = {
    "WHY306": "This could be because the operator doesn't exist for this backend, or was omitted during",
    "WHY101": "'_OpNamespace' object has no attribute",
    "WHY401": "there was no fake impl registered",
    "WHY612": "must not also be an input to this custom operator",
    "WHY202": "Only a single TORCH_LIBRARY can be used to register the namespace",
    "WHY601": "Batching rule not implemented for",
    "WHY801": "handlers returned NotImplemented",
    "WHY201": "Tried to register an operator with the same name and overload name multiple times",
    "WHY503": "Inference tensors cannot be saved for backward",
    "WHY207": "infer_schema(func): Parameter has unsupported type",
    "WHY406": "Could not guard on data-dependent expression",
    "WHY704": "does not have a sharding strategy registered",
}
"""What PyTorch says, as a user pastes it into the search."""


@pytest.mark.parametrize("code", PASTED)
def test_the_page_of_a_cause_has_the_words_of_the_message(code: str, site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    parts = [part["text"] for part in index["docs"] if part["location"].startswith(f"causes/{code}.html")]
    text = html.unescape(re.sub(r"<[^>]+>", " ", " ".join(parts)))
    assert [word for word in PASTED[code].split() if word.strip("',") not in text] == []


def test_the_messages_are_of_causes_with_pages() -> None:
    messages = json.loads((ROOT / "tools" / "cause_messages.json").read_text(encoding="utf-8"))
    assert messages.keys() <= {cause.code for cause in causes_with_pages()}
    assert sum(map(bool, messages.values())) > 120
