"""What pytest loads: the plugin is `dispatchlab.pytest_plugin`.

pytest rewrites the assertions of the outermost package of a plugin's entry point, in every module below it. With this
module as the entry point it rewrites the plugin alone, and imports the rest of dispatchlab as Python compiled it.
"""

from __future__ import annotations

pytest_plugins = ["dispatchlab.pytest_plugin"]
