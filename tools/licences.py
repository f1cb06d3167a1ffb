"""Write docs/licences.md: what dispatchlab and each of its extras bring, with the licence of each.

Run it from the root of the checkout, in an environment with all extras: `pip install -e '.[torch,dev]'`, then
`python tools/licences.py`. What is brought is read from pyproject.toml and from the metadata of what is installed. A
licence is the SPDX expression of the metadata, or else what its words and the text of the licence say; one that these
do not tell is an error.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
OWN = "dispatchlab"

_HEAD = """\
# Licences of what is installed

dispatchlab is under BSD-3-Clause. `pip install dispatchlab` brings four distributions and what these need; each extra
brings more. This is all of it, with the licence as an [SPDX expression](https://spdx.org/licenses/). The wheel of
dispatchlab has none of it inside: pip takes each from its own project, under its own licence.

The list is of Linux and Python 3.11. Other systems bring a few more, such as `pywin32` on Windows. Builds of
PyTorch with CUDA bring NVIDIA's libraries, too, which are under NVIDIA's own licences and not open source; builds for
the CPU bring none of them. The extra `dev` brings all other extras but `torch`; `dev` is named where it alone does.

`python tools/licences.py` writes this page from the metadata of an environment with all extras.

| distribution | licence | comes with |
|---|---|---|
"""

_WORDS = {
    "Apache-2.0": r"apache",
    "MIT": r"mit\b",
    "MPL-2.0": r"mozilla public license 2|mpl-2",
    "PSF-2.0": r"psf|python software foundation",
    "ISC": r"isc\b",
    "BSD-3-Clause": r"(new )?bsd[- ]3",
    "BSD-2-Clause": r"bsd[- ]2",
}
"""An SPDX identifier -> how a licence is called that has it."""

_ORDER = ("", "torch", "test", "cluster", "explore", "notebooks", "browser", "docs", "build", "dev")


class UnknownLicenceError(Exception):
    """The metadata of a distribution do not tell its licence."""


def licence(name: str, metadata: Mapping[str, list[str]], texts: Iterable[str]) -> str:
    """The SPDX expression of a distribution's licence.

    Args:
        name: the distribution.
        metadata: the values of each field.
        texts: its licence files.

    Raises:
        UnknownLicenceError: neither its metadata nor its files name a licence that is known.
    """
    if expression := metadata.get("License-Expression"):
        return expression[0]
    classified = [text.rpartition("::")[2].strip() for text in metadata.get("Classifier", []) if "License ::" in text]
    said = [*metadata.get("License", []), *classified]
    for text in said:
        for identifier, words in _WORDS.items():
            if re.match(words, text.strip(), re.IGNORECASE):
                return identifier
    if any(re.match("bsd", text.strip(), re.IGNORECASE) for text in said):
        for text in texts:
            if "Redistributions in binary form" in text:
                return (
                    "BSD-3-Clause"
                    if re.search(r"neither\s+the\s+names?|may\s+not\s+be\s+used\s+to", text, re.IGNORECASE)
                    else "BSD-2-Clause"
                )
    raise UnknownLicenceError(f"{name}: its metadata say {said}; add the words to tools/licences.py")


def _licence_of(found: Distribution) -> str:
    metadata = {
        name: list(map(str, found.metadata.get_all(name) or []))
        for name in ("License-Expression", "License", "Classifier")
    }
    files = [each for each in found.files or [] if re.search("licen[sc]e|copying", each.name, re.IGNORECASE)]
    return licence(
        found.metadata["Name"],
        metadata,
        (each.read_text(encoding="utf-8") for each in files if each.suffix not in (".py", ".pyc")),
    )


def direct() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for: of each extra, and of none under the empty name; not by other extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: [each for each in map(Requirement, texts) if canonicalize_name(each.name) != OWN]
        for extra, texts in lists.items()
    }


def brought(requirements: Iterable[Requirement]) -> dict[str, Distribution]:
    """Everything that requirements bring, by canonical name.

    Raises:
        PackageNotFoundError: something of it is not installed.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = list(requirements)
    while todo:
        one = todo.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found[name] = distribution(name)
        for each in map(Requirement, found[name].requires or []):
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                todo.append(each)
    return found


def page() -> str:
    """The text of the page."""
    of_extra = {extra: brought(requirements) for extra, requirements in direct().items()}
    rows = []
    for name, found in sorted({name: one for some in of_extra.values() for name, one in some.items()}.items()):
        extras = [extra for extra in _ORDER if name in of_extra[extra]]
        shown = [OWN if not extra else f"`{extra}`" for extra in extras if extra != "dev" or extras == ["dev"]]
        rows.append(f"| {name} | {_licence_of(found)} | {', '.join(shown)} |\n")
    return _HEAD + "".join(rows)


def main() -> None:
    """Write the page."""
    try:
        PAGE.write_text(page(), encoding="utf-8")
    except PackageNotFoundError as error:
        sys.exit(f"{error.name} is not installed: run pip install -e '.[torch,dev]' first")


if __name__ == "__main__":
    main()
