"""`dispatchlab explore` as a process: in a terminal, on a page in a browser, and where neither is there."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.test_cli_process import COMMAND, environment, imported_by, run
from tests.process.test_live_commands import children_of

pty = pytest.importorskip("pty", reason="terminals of POSIX are needed")
pytest.importorskip("textual", reason="the application needs textual: pip install 'dispatchlab[explore]'")

DEMO = Path(__file__).parents[2] / "dispatchlab" / "adopt" / "demo.yaml"
BUSY_S = 60


class Terminal:
    """A command in a terminal of 80 columns and 24 rows."""

    def __init__(self, folder: Path, *arguments: str, **extra: str) -> None:
        import fcntl
        import struct
        import termios

        self._end, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        variables = environment(TERM="xterm-256color", COLUMNS="80", LINES="24", **extra)
        self.process = subprocess.Popen(
            [*COMMAND, "explore", *arguments],
            cwd=folder,
            env=variables,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Read until a text is drawn."""
        end = time.monotonic() + BUSY_S
        while text not in self.seen:
            assert time.monotonic() < end, self.seen[-3000:]
            assert self._read() or self.process.poll() is None, self.seen[-3000:]

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._end, keys.encode())

    def close(self) -> None:
        """Let go of the terminal."""
        os.close(self._end)

    def ended(self) -> int:
        """The exit code, once all that was drawn is read."""
        end = time.monotonic() + BUSY_S
        while self.process.poll() is None:
            assert time.monotonic() < end
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        """Read what is there; whether there was something."""
        if not select.select([self._end], [], [], 0.1)[0]:
            return False
        try:
            text = os.read(self._end, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.seen += text.decode(errors="replace")
        return bool(text)


@contextmanager
def terminal(folder: Path, *arguments: str, **extra: str) -> Iterator[Terminal]:
    """A command in a terminal, ended whatever happens."""
    made = Terminal(folder, *arguments, **extra)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.close()


def test_it_opens_in_a_terminal_and_quits(tmp_path: Path) -> None:
    with terminal(tmp_path) as opened:
        opened.wait_for("CompositeImplicitAutograd")
        opened.press("1")
        opened.wait_for("changed 34 rows")
        opened.press("q")
        assert opened.ended() == 0
    assert "\x1b[?1049l" in opened.seen  # the screen of before is back


def test_without_colours_it_draws_none(tmp_path: Path) -> None:
    with terminal(tmp_path, NO_COLOR="1", COLORTERM="truecolor") as opened:
        opened.wait_for("CompositeImplicitAutograd")
        opened.press("q")
        assert opened.ended() == 0
    colours = set(re.findall(r"\x1b\[[0-9;]*?38;2;(\d+);(\d+);(\d+)", opened.seen))
    assert colours
    assert all(red == green == blue for red, green, blue in colours)  # shades of grey


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("after", ["CompositeImplicitAutograd", "order-dependent"])
def test_it_ends_with_a_signal_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, by: signal.Signals, code: int, after: str
) -> None:
    with terminal(tmp_path) as opened:
        opened.wait_for(after)
        opened.press("1u1u1u")
        opened.process.send_signal(by)
        assert opened.ended() == code
    assert "\x1b[?1049l" in opened.seen
    assert "Traceback" not in opened.seen


def test_an_error_that_nobody_expected_is_exit_70_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'explore' in sys.argv:\n"
        "    from dispatchlab.explorer_app.app import ExplorerApp\n"
        "    ExplorerApp.action_light = lambda self: 1 / 0\n",
        encoding="utf-8",
    )
    path = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    with terminal(tmp_path, PYTHONPATH=path, TMPDIR=str(tmp_path)) as opened:
        opened.wait_for("CompositeImplicitAutograd")
        opened.press("l")
        assert opened.ended() == 70
    assert "\x1b[?1049l" in opened.seen
    after = opened.seen.rpartition("\x1b[?1049l")[2]
    assert "ZeroDivisionError" in after
    assert "Traceback" not in after


def test_without_a_terminal_it_says_what_to_do(tmp_path: Path) -> None:
    result = run(tmp_path, "explore")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "explore needs a terminal, and standard input, output or error is none: use --browser, or `dispatchlab dump` "
        "for output that can be piped\n"
    )


@pytest.mark.parametrize("option", [(), ("--browser",)])
def test_without_textual_it_says_what_to_install(tmp_path: Path, option: tuple[str, ...]) -> None:
    missing = "textual_serve" if option else "textual"
    script = (
        "import sys, importlib.util\nfind = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *more: None if name == {missing!r} else find(name, *more)\n"
        f"from dispatchlab.cli import main\nmain(['explore', *{option!r}])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr == (
        f"explore needs {missing.replace('_', '-')}, which is not installed: pip install 'dispatchlab[explore]'\n"
    )


@pytest.mark.parametrize("arguments", [["explore", "--help"], ["dump", "aten::add.Tensor"], ["permute", str(DEMO)]])
def test_nothing_else_imports_the_application(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "demo.yaml").write_bytes(DEMO.read_bytes())
    assert imported_by(tmp_path, *arguments) & {"textual", "textual_serve", "aiohttp", "jinja2"} == set()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("aten::no_such", "--browser"), "there is no operator aten::no_such"),
        (("nothing.yaml", "--browser"), "nothing.yaml"),
        (("torch-2.13-cpu", "--from", "torch-2.6", "--browser"), "leave one of the two out"),
        (("torch-2.13-cpu", "--after", "+0", "--browser"), "name a scenario or one operator"),
        (("--after", "+7", "--browser"), "+7"),
        (("--after", "-1", "--browser"), "-1"),
        (("--semantics", "nothing", "--browser"), "nothing"),
        (("--import", "json", "--browser"), "--engine torch"),
        (("--port", "8000"), "--port is for --browser"),
    ],
)
def test_what_cannot_be_opened_is_a_sentence(tmp_path: Path, arguments: tuple[str, ...], error: str) -> None:
    result = run(tmp_path, "explore", *arguments)
    assert result.returncode == 2
    assert error in result.stderr
    assert "Traceback" not in result.stderr


# -- on a page


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of the application on a page."""
    process = subprocess.Popen(
        [*COMMAND, "explore", *arguments, "--browser"], cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(BUSY_S) == 130
    finally:
        process.kill()
        process.communicate()


def status(address: str, **headers: str) -> int:
    """The status of a request."""
    request = urllib.request.Request(address, headers={name.replace("_", "-"): text for name, text in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=BUSY_S) as answer:
            code = answer.status
            assert isinstance(code, int)
            return code
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_a_page_is_for_the_browser_that_has_its_address(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve", reason="pages need textual-serve: pip install 'dispatchlab[explore]'")
    with served(tmp_path) as address, served(tmp_path) as other:
        found = re.fullmatch(r"((http://127\.0\.0\.1:([0-9]+))/([\w-]{32}))/", address)
        assert found is not None, address
        page, here, port, token = found.groups()
        with urllib.request.urlopen(address, timeout=BUSY_S) as answer:
            assert "Set-Cookie" not in answer.headers  # which every port of this machine would be sent
            assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
            assert f'"ws://127.0.0.1:{port}/{token}/ws"'.encode() in answer.read()
        assert status(address, Origin=here) == status(f"{page}/static/js/textual.js", Origin=here) == 200
        assert status(f"{page}/ws") == 403  # a socket says where it is from
        wrong = other.split("/")[3]
        for path in ("", "/", "/ws", "/static/js/textual.js", "/download/a"):
            for start in (here, f"{here}/{wrong}", f"{here}/{token[:-1]}", f"{here}//{token}", f"{here}/%F0"):
                assert status(f"{start}{path}", Origin=here) == 403
            assert status(f"{here}{path}?token={token}", Origin=here) == 403
            assert status(f"{page}{path}", Host=f"evil.example:{port}", Origin=here) == 403
            for origin in ("http://evil.example", "https://127.0.0.1:1", f"http://evil.example:{port}", "null", ""):
                assert status(f"{page}{path}", Origin=origin) == 403


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_applications_end_with_their_server_although_no_browser_answers(tmp_path: Path, sent: signal.Signals) -> None:
    pytest.importorskip("textual_serve", reason="pages need textual-serve: pip install 'dispatchlab[explore]'")
    process = subprocess.Popen(
        [*COMMAND, "explore", "--browser"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # `nohup` ignores it
    )
    sockets: list[socket.socket] = []
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        here, token = address.removesuffix("/").rsplit("/", 1)
        host, port = here.removeprefix("http://").split(":")
        for _ in range(12):  # more than are let in
            one = socket.create_connection((host, int(port)), BUSY_S)
            sockets.append(one)
            one.sendall(
                f"GET /{token}/ws HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {here}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
            )
        answers = sorted(one.recv(12)[9:12] for one in sockets)
        assert answers == [b"101"] * 8 + [b"503"] * 4
        children = children_of(process.pid)
        until = time.monotonic() + BUSY_S
        while len(children) < 8 and time.monotonic() < until:
            time.sleep(0.1)
            children = children_of(process.pid)
        assert len(children) == 8
        process.send_signal(sent)
        assert process.wait(BUSY_S) == (128 + sent if sent in (signal.SIGINT, signal.SIGTERM) else -sent)
        while any(map(is_alive, children)) and time.monotonic() < until:
            time.sleep(0.1)
        assert not any(map(is_alive, children))
    finally:
        process.kill()
        process.communicate()
        for one in sockets:
            one.close()


def is_alive(pid: int) -> bool:
    """Whether a process is there and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve", reason="pages need textual-serve: pip install 'dispatchlab[explore]'")
    with served(tmp_path) as address:
        port = address.rpartition(":")[2].partition("/")[0]
        result = run(tmp_path, "explore", "--browser", "--port", port)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"port {port} of 127.0.0.1 cannot be used: ")


def test_a_registration_is_toggled_in_chromium(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve", reason="pages need textual-serve: pip install 'dispatchlab[explore]'")
    playwright = pytest.importorskip("playwright.sync_api", reason="browsers are driven with playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    arguments = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
    requested: list[str] = []
    with served(tmp_path) as address, playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=chromium, args=[*arguments, "--disable-sync", "--no-first-run"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 700})
        page.on("request", lambda request: requested.append(request.url))
        page.on("websocket", lambda socket: requested.append(socket.url))
        frames: list[str] = []
        page.on("websocket", lambda socket: socket.on("framereceived", lambda data: frames.append(_text(data))))
        page.goto(address)
        _wait(page, frames, "CompositeImplicitAutograd")
        page.locator("#terminal").click()
        frames.clear()
        page.keyboard.press("1")
        _wait(page, frames, "changed 34 rows")
        page.keyboard.press("q")
        page.get_by_text("The session has ended.").wait_for(timeout=BUSY_S * 1000)
        browser.close()
    assert any(url.startswith("ws://127.0.0.1") for url in requested)
    assert [url for url in requested if not re.match(r"(http|ws)://127\.0\.0\.1:|data:", url)] == []


def _text(frame: object) -> str:
    return frame.decode(errors="replace") if isinstance(frame, bytes) else str(frame)


def _wait(page: object, frames: list[str], text: str) -> None:
    """Wait until the application has drawn a text."""
    end = time.monotonic() + BUSY_S
    while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", "".join(frames)):
        assert time.monotonic() < end, frames[-3:]
        page.wait_for_timeout(100)  # type: ignore[attr-defined]
