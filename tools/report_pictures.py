"""Draw the pictures of docs/reports.md: `python tools/report_pictures.py`. It needs PyTorch, Graphviz and Chromium."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.cli import main  # noqa: E402  # of this checkout
from tests.browser import chromium  # noqa: E402

FOLDER = ROOT / "docs" / "pictures" / "reports"
VIOLATED = "scenarios/order/the_newest_kernel_wins.yaml"
PROVED = "scenarios/basics/five_registrations.yaml"
_WIDE, _HIGH = 1180, 760


def _run(*arguments: str) -> None:
    result = CliRunner().invoke(main, [*arguments, "--force"])
    if result.exit_code > 1:
        raise SystemExit(result.output)


def draw() -> None:
    """Write the pictures."""
    os.chdir(ROOT)  # a report names its scenario as it was given
    FOLDER.mkdir(parents=True, exist_ok=True)
    _run("permute", PROVED, "--graph", str(FOLDER / "states.svg"))
    with TemporaryDirectory() as folder, chromium() as browser:
        pages = {name: Path(folder) / f"{name}.html" for name in ("violated", "proved")}
        _run("permute", VIOLATED, "--report", str(pages["violated"]))
        _run("permute", PROVED, "--report", str(pages["proved"]))
        size = {"width": _WIDE, "height": _HIGH}
        page = browser.new_page(viewport=size)
        page.goto(pages["violated"].as_uri())
        page.screenshot(path=FOLDER / "permute.png")
        page = browser.new_page(viewport=size, color_scheme="dark")
        page.goto(pages["proved"].as_uri())
        page.locator("a.box").nth(8).click()
        page.locator("#s0-states").scroll_into_view_if_needed()
        page.evaluate("document.querySelector('#s0-states').scrollIntoView()")
        page.screenshot(path=FOLDER / "states-dark.png")


if __name__ == "__main__":
    draw()
