"""The hook of the build: the README for the package index, where no file lies beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_SITE = "https://dispatchlab.github.io/dispatchlab/"
_SOURCE = "https://github.com/dispatchlab/dispatchlab/blob/main/"


def for_the_index(text: str) -> str:
    """A README whose links to files of the checkout lead to the site, or else to the file on GitHub."""
    return re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", lambda match: f"]({_address(match[1])})", text)


def _address(target: str) -> str:
    path, mark, anchor = target.partition("#")
    if not path.startswith("docs/"):
        return _SOURCE + target
    return _SITE + re.sub(r"\.md$", ".html", path.removeprefix("docs/")) + mark + anchor


class IndexReadme(MetadataHookInterface):
    """Puts the README into the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the README into the metadata, with links that lead somewhere."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_the_index(text)}
