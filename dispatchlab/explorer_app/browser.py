"""The application on a page of this machine, with textual-serve: each page that is opened is a process of its own."""

# Note [Who may open the page]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A page of the application can write files as its user can, so it is for the browser that was given its address. The
# server listens on the loopback address, where every user of the machine can ask; so every path begins with a token,
# which is new each time, and nothing is answered without it. A cookie would not do: a browser sends it to all ports of
# this machine, where another user may serve a page. A page from elsewhere may ask a browser to open a socket to this
# machine, but its `Origin` shows where it is from, and a name that was made to lead here shows in `Host`. No page may
# hold this one in a frame, and there are few at once.

from __future__ import annotations

import os
import secrets
import shlex
import signal
import socket
import sys
from asyncio import Task, create_task, new_event_loop, open_connection, sleep
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from threading import Timer

from aiohttp import web
from textual_serve.server import Server

from dispatchlab.errors import DispatchLabError
from dispatchlab.explorer_app.page_process import SERVER

HOST = "127.0.0.1"

_LOOK_EVERY_S = 0.02
_MOST_PAGES = 8
_END_S = 1.5
"""How long pages that do not answer may hold the server up, once it was asked to end."""


class PortError(DispatchLabError):
    """The page cannot be served at the port."""

    port: int
    reason: str

    def __str__(self) -> str:
        return f"port {self.port} of {HOST} cannot be used: {self.reason}; leave --port out for a free one"


def free_port(asked: int | None) -> int:
    """A port without a listener: the one that is asked for, or any.

    Raises:
        PortError: it cannot be used.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, asked or 0))
        except (OSError, OverflowError) as error:
            raise PortError(asked or 0, getattr(error, "strerror", None) or str(error)) from None
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def serve(words: Sequence[str], *, port: int, ready: Callable[[str], None]) -> signal.Signals:
    """Serve the application until Ctrl-C or SIGTERM.

    Args:
        words: the arguments of `dispatchlab` that run it in a terminal.
        port: where.
        ready: is called with the address as soon as the page can be opened.

    Returns:
        Which of the two it was.
    """
    command = "exec " * (os.name == "posix") + shlex.join((sys.executable, "-m", "dispatchlab", *words))
    os.environ[SERVER] = str(os.getpid())
    with as_file(files("dispatchlab.explorer_app").joinpath("page")) as page:
        server = _LocalServer(command, port=port, templates=page, ready=ready)
        server.serve()
    return server.ended_by


class _LocalServer(Server):
    """See Note [Who may open the page]."""

    def __init__(self, command: str, *, port: int, templates: Path, ready: Callable[[str], None]) -> None:
        super().__init__(command, host=HOST, port=port, title="dispatchlab explore", templates_path=str(templates))
        self._ready = ready
        self._reporting: Task[None] | None = None
        self._host = f"{HOST}:{port}"
        self._token = secrets.token_urlsafe(24)
        self._pages = 0
        self.ended_by = signal.SIGINT

    def initialize_logging(self) -> None:
        """Leave logging as it is: standard output is for the address alone."""

    async def on_startup(self, app: web.Application) -> None:
        """Report the address as soon as a server listens there, which is after this."""
        self._reporting = create_task(self._report())

    async def _report(self) -> None:
        while True:
            try:
                _, writer = await open_connection(HOST, self.port)
            except ConnectionRefusedError:
                await sleep(_LOOK_EVERY_S)
            else:
                writer.close()
                break
        self._ready(f"{self.public_url}/{self._token}/")

    def serve(self, debug: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is inherited
        """Serve until a signal ends it; what is inherited does not say which one it was."""
        loop = new_event_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows raises KeyboardInterrupt
                loop.add_signal_handler(each, self._end, each)
        web.run_app(self._make_app(), host=HOST, port=self.port, handle_signals=False, loop=loop, print=lambda *_: None)

    def _end(self, by: signal.Signals) -> None:
        """End, whether browsers and applications answer or not."""
        self.ended_by = by
        last = Timer(_END_S, os._exit, (128 + by,))
        last.daemon = True
        last.start()
        raise web.GracefulExit

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run an application for a page, if there are not too many."""
        if self._pages >= _MOST_PAGES:
            raise web.HTTPServiceUnavailable(text=f"{_MOST_PAGES} pages are open: close one\n")
        self._pages += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._pages -= 1

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._refuse_others])
        app.add_subapp(f"/{self._token}", await super()._make_app())
        return app

    @property
    def _refuse_others(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        @web.middleware
        async def refuse(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            given, _, asked = request.path[1:].partition("/")
            origin = request.headers.get("Origin", None if asked == "ws" else f"http://{self._host}")
            is_theirs = secrets.compare_digest(given.encode(errors="replace"), self._token.encode())
            if not is_theirs or request.host != self._host or origin != f"http://{self._host}":
                raise web.HTTPForbidden(text="this page is for the browser that opens the address that was printed\n")
            answer = await handler(request)
            if not answer.prepared:
                answer.headers["Content-Security-Policy"] = "frame-ancestors 'none'"
                answer.headers["Referrer-Policy"] = "no-referrer"
            return answer

        return refuse
