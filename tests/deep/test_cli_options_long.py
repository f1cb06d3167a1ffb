"""The long tests of tests/test_cli_options.py, which the quick tier leaves out."""

from __future__ import annotations

import click
import pytest

from tests.test_cli_options import VALUED, _ids, _refusal


@pytest.mark.parametrize(("name", "option"), VALUED, ids=_ids(VALUED))
def test_no_option_takes_an_empty_text(name: str, option: click.Option) -> None:
    for value in ("", " "):
        assert f"Invalid value for '{option.opts[0]}" in _refusal(name, option, value).replace("' / '", "")
