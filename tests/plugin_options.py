"""The options with which pytest has the plugin of dispatchlab, installed or not."""

from __future__ import annotations

from importlib.metadata import entry_points

_IS_INSTALLED = any(point.name == "dispatchlab" for point in entry_points(group="pytest11"))
PLUGIN_OPTIONS = () if _IS_INSTALLED else ("-p", "dispatchlab.pytest_plugin")
