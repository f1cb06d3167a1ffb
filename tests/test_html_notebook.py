"""What notebooks show: fragments of HTML for every public result, in which all texts are escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from dispatchlab import (
    Dispatcher,
    DispatchLabError,
    ExplainedCall,
    OperatorDump,
    OrderCheck,
    Result,
    check_order,
    diff,
    dump,
    explain,
    parse_scenario,
)
from dispatchlab.escape import printable
from dispatchlab.questions.upgrade.compare_sources import UpgradeReport
from dispatchlab.views.html.elements import Html, element, joined
from tests.hostile_texts import EVIL, write_hostile_files
from tests.scenario_texts import COMPOSITES, FIVE, TWO_DEFS


class Reader(HTMLParser):
    """Reads a fragment: its elements, its text, and whether it is well formed.

    Args:
        text: the fragment.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("br", "wbr", "meta", "link", "input"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An empty element of SVG."""
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        self.text += data


def test_a_text_is_escaped_once_and_markup_never() -> None:
    assert element("p", "a<b>&\"'\x1b") == "<p>a&lt;b&gt;&amp;&quot;&#x27;\\x1b</p>"
    assert element("p", element("b", "<"), class_='"x"') == '<p class="&quot;x&quot;"><b>&lt;</b></p>'
    assert joined(["<", Html("<b>"), None, 1234, ("&",)]) == "&lt;<b>1,234&amp;"
    assert (
        element("details", hidden=True, open=False, id=None, data_value=0)
        == '<details hidden data-value="0"></details>'
    )
    for bad in ("script>", "p onload=x", "P"):
        with pytest.raises(AssertionError):
            element(bad)


def test_a_verdict_shows_its_counterexample() -> None:
    found = Reader(check_order(parse_scenario(COMPOSITES))._repr_html_())
    assert "order-dependent" in found.text
    assert "+1 impl test::foo CompositeExplicitAutograd (fn_explicit)" in found.text
    assert (
        "decides which kernel a call of test::foo runs at 34 keys (AutogradCPU, ...). If fn_implicit comes first, "
        in found.text
    )
    refused = Reader(check_order(parse_scenario(TWO_DEFS))._repr_html_())
    assert "exclude one another" in refused.text


def test_an_operator_shows_its_kernels_and_who_lost() -> None:
    found = Reader(dump("aten::add.Tensor", of="torch-2.13")._repr_html_())
    assert "table" in found.names
    assert "Kernels of aten::add.Tensor" in found.text
    assert "torch/_meta_registrations.py:54" in found.text


def test_an_explanation_shows_each_hop() -> None:
    found = Reader(explain("aten::add.Tensor", "cpu requires_grad", "cpu")._repr_html_())
    assert "AutogradCPU" in found.text
    refused = Reader(explain("aten::relu", "xla")._repr_html_())
    assert "missing_kernel" in refused.text


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    files = write_hostile_files(tmp_path)
    check = check_order(files["scenario"])
    values: list[OrderCheck | OperatorDump | ExplainedCall | Result[UpgradeReport]] = [
        check,
        dump("test::foo", of=files["registry"]),
        dump("test::foo", of=files["scenario"]),
        explain("test::foo", "cpu", of=files["registry"]),
        diff(files["registry"], files["other"]),
    ]
    for value in values:
        text = value._repr_html_()
        found = Reader(text)
        assert not {"script", "img", "a", "iframe"} & {*found.names}
        assert not any(name.startswith("on") for name in found.attributes)
        assert all(character == "\n" or character.isprintable() for character in text)
    assert printable(EVIL) in Reader(check._repr_html_()).text


def test_a_dump_is_that_of_the_command_and_of_a_dispatcher() -> None:
    dispatcher = Dispatcher()
    with dispatcher.register(parse_scenario(FIVE).registrations[2]):
        found = dump("test::foo", of=dispatcher)
        assert str(found) == f"{dispatcher.dump('test::foo')}\n{dispatcher.dump_table('test::foo')}"
        assert "Kernels of test::foo" in found._repr_html_()
        with pytest.raises(DispatchLabError, match="leave after out"):
            dump("test::foo", of=dispatcher, after="+0")
    with pytest.raises(DispatchLabError):
        dump("test::foo", of=dispatcher)
    with pytest.raises(DispatchLabError, match="is a glob"):
        dump("aten::add*")
