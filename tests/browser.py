"""Pages in a real browser: headless Chromium, and axe-core for accessibility."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]
AXE = Path(__file__).parent.parent / ".venv/npm/node_modules/axe-core/axe.min.js"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not os.access(CHROMIUM, os.X_OK) and shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        program = CHROMIUM if os.access(CHROMIUM, os.X_OK) else shutil.which("chromium")
        browser = started.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is open, with all that it asked for and said.

    Args:
        browser: see `chromium`.
        path: the file.
        dark: prefer dark colours.
        scripts: run scripts.
    """

    def __init__(self, browser: Any, path: Path, *, dark: bool = False, scripts: bool = True) -> None:
        self.requests: list[str] = []
        self.messages: list[str] = []
        self._context = browser.new_context(
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            viewport={"width": 1280, "height": 900},
        )
        self.page = self._context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))
        self.page.goto(path.resolve().as_uri())

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def broken_rules(self) -> list[str]:
        """What axe-core finds to be serious or critical; the test is skipped where it is not installed."""
        if not AXE.exists():
            pytest.skip("axe-core is not installed: npm install --prefix .venv/npm axe-core")
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("() => axe.run(document)")
        return [
            f"{each['id']}: {json.dumps([node['html'][:200] for node in each['nodes'][:3]])}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
