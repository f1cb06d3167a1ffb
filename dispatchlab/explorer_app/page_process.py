"""The process of an application on a page, as seen from inside: it ends with its server."""

from __future__ import annotations

import os
from threading import Thread
from time import sleep
from typing import Final

SERVER: Final = "DISPATCHLAB_SERVER"
"""The environment variable that has the number of the server's process."""

_LOOK_EVERY_S: Final = 0.3


def follow_server() -> bool:
    """End this process as soon as the server that started it is gone, however that ended.

    Returns:
        Whether there is one.
    """
    server = os.environ.pop(SERVER, "")
    if not server:
        return False
    if os.name == "posix":
        Thread(target=_follow, args=(int(server),), name="server", daemon=True).start()
    return True


def _follow(server: int) -> None:
    while os.getppid() == server:
        sleep(_LOOK_EVERY_S)
    os._exit(1)
