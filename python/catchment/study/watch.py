"""`catchment watch HOST:PORT|DIR`: a page on this machine that shows a running job. It changes nothing.

The server answers GET requests on 127.0.0.1 that have the token of the printed address and name this machine
as the host, so that no page of another site can read them.
"""

import contextlib
import dataclasses
import hmac
import http.server
import json
import os
import re
import secrets
import signal
import socket
import socketserver
import string
import subprocess
import threading
import time
import urllib.parse
from typing import IO, Any, Callable, Dict, Sequence, Tuple

from . import command_line, files, live, processes, run_facts
from .command_line import Argument, CommandLine, Security, Streams, add_security_flags, whole
from .errors import Refused
from .history import RunHistory
from .markup import html_paragraph
from .processes import SignalWaiter
from .run_page import live_page, run_content
from .words import parts_of

_HOST = "127.0.0.1"
_CONNECTIONS = 32  # at once; others are closed
_CONNECTION_SECONDS = 20.0  # of each
_PATIENCE_SECONDS = 10  # without an answer, before the page says so
_WORDS = parts_of("help/watch.txt")


class _Content:
    """A text that is made anew when it has changed, once for all who ask: at once if the one before was asked
    for, so that the next request does not wait, or else when it is asked for."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # of what the text is made from
        self._make: Callable[[], str] = str
        self._version = self._made = 0
        self._text, self._is_read = b"", False

    def change(self, make: Callable[[], str]) -> None:
        with self.lock:
            self._make, self._version = make, self._version + 1
            if self._is_read:
                self.get()
                self._is_read = False

    def get(self) -> Tuple[str, bytes]:
        """Returns the text, and its tag, which no other text has."""
        with self.lock:
            self._is_read = True
            if self._made != self._version:
                self._text, self._made = _encoded(self._make()), self._version
            return '"%d"' % self._made, self._text


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


class _Server(socketserver.ThreadingTCPServer):
    """Serves the page and its content on threads."""

    daemon_threads = True
    allow_reuse_address = True
    allow_reuse_port = False

    def __init__(self, port: int, content: _Content) -> None:
        self.token = secrets.token_hex(16)
        query = "?token=" + self.token
        self.page, self.content = live_page("Catchment", "content" + query), content
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        try:
            super().__init__((_HOST, port), _Request)
        except (OSError, OverflowError):
            remedy = "another program may use the port; --port=0 chooses a free one"
            raise Refused("cannot listen on %s:%d: %s" % (_HOST, port, remedy)) from None
        self.address = "http://%s:%d/%s" % (_HOST, self.server_address[1], query)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(_CONNECTION_SECONDS, _cut, [request])
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that disconnects is not an error."""


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)


class _Request(http.server.BaseHTTPRequestHandler):
    """A request. Each has a connection of its own."""

    server: _Server
    timeout = _CONNECTION_SECONDS
    server_version, sys_version = "Catchment", ""

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        token = urllib.parse.parse_qs(url.query).get("token", [""])[0]
        if not re.fullmatch(r"(127\.0\.0\.1|localhost)(:\d+)?", self.headers.get("Host", "")):
            self._answer(403, _encoded(_WORDS["other_host"]))
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(403, _encoded(_WORDS["no_token"]))
        elif url.path == "/":
            nonce = secrets.token_urlsafe(16)
            self._answer(200, _encoded(self.server.page.replace("$nonce", nonce)), "text/html", nonce)
        elif url.path == "/content":
            tag, text = self.server.content.get()
            if self.headers.get("If-None-Match") == tag:
                self._answer(304, b"", tag=tag)
            else:
                self._answer(200, text, "text/html", tag=tag)
        else:
            self._answer(404, b"")

    def _answer(
        self, status: int, body: bytes, kind: str = "text/plain", nonce: str = "none", tag: str = '""'
    ) -> None:
        self.send_response(status)
        words = dict(kind=kind, length=len(body), nonce=nonce, tag=tag)
        headers = string.Template(_WORDS["headers"]).substitute(words)
        for header in headers.splitlines():
            self.send_header(*header.split(": ", 1))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@dataclasses.dataclass
class _Options:
    master: str = dataclasses.field(default_factory=lambda: os.environ.get("CATCHMENT_MASTER", ""))
    security: Security = dataclasses.field(default_factory=Security)
    port: int = 8080


class _Watch:
    """Follows a job by its reports, to its end."""

    def __init__(self, master: str) -> None:
        self._directory = master if os.path.isdir(master) else ""
        self._history, self._read = RunHistory(), 0
        self._answered, self._failures = time.monotonic(), 0
        self._report: Dict[str, Any] = {}
        self._warnings: Sequence[run_facts.Advice] = ()  # of the last report while the job trained
        self.content, self.ended = _Content(), False
        if self._directory:
            self._follow_metrics()

    def _follow_metrics(self) -> None:
        """Adds what the run has appended to its metrics."""
        with contextlib.suppress(Refused):
            while lines := self._lines():
                self._history.add_metrics(lines)

    def _lines(self) -> str:
        lines, self._read = files.read_lines(self._directory + "/metrics.jsonl", self._read)
        return lines

    def take(self, report: Dict[str, Any]) -> None:
        with self.content.lock:
            if "error" in report:
                self._miss(report["error"])
                return
            self._answered, self._failures, self.ended = time.monotonic(), 0, report["ended"]
            self._report = report
            if report["status"]["phase"] == "TRAINING":
                self._warnings = run_facts.warnings_of(report, run_facts.FOUND_AT_END)
            if self._directory:
                self._follow_metrics()
            else:
                self._history.add_report(report)
            self.content.change(self._text)

    def _text(self) -> str:
        return run_content(run_facts.of_report(self._report, self._history)) if self._report else ""

    def _miss(self, error: str) -> None:
        self._failures += 1
        self.ended = bool(self._directory) and _has_summary(self._directory)
        if self._failures > 1 and time.monotonic() - self._answered >= _PATIENCE_SECONDS:
            words = html_paragraph("The master does not answer: " + error)
            self.content.change(lambda: words + self._text())

    def follow(self, output: IO[bytes]) -> None:
        for line in output:
            self.take(json.loads(line.decode("utf-8")))
            if self.ended:
                break

    def end(self) -> None:
        """Shows the report of the run, if its files are there."""
        with self.content.lock, contextlib.suppress(Refused):
            if self._directory:
                facts = run_facts.of_directory(self._directory, self._warnings)
                self.content.change(lambda: run_content(facts))


def _has_summary(directory: str) -> bool:
    with contextlib.suppress(Refused):
        return bool(files.read_summary(directory + "/summary.json"))
    return False


def _run(options: _Options, streams: Streams) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a browser goes away
    with SignalWaiter() as signals:
        watch, report = _Watch(options.master), live.report(options.master, options.security)
        watch.take(report)
        if "error" in report and not watch.ended:
            streams.err.write("catchment watch: %s\n" % report["error"])
            return live.NO_MASTER
        server = _Server(options.port, watch.content)
        streams.out.write(server.address + "\n")
        command = [*live.command(options.master, options.security), "--watch=1"]
        status = processes.start("catchment status", command, subprocess.PIPE, None)
        follower = threading.Thread(target=watch.follow, args=[status.stdout], daemon=True)
        follower.start()
        try:
            while not watch.ended:
                # The process of the reports ends with the job.
                if signals.wait(0.5) not in (0, signal.SIGCHLD):
                    return 0
                if not (follower.is_alive() or watch.ended):
                    raise Refused("`catchment status`, which reads the status, has ended unexpectedly")
        finally:
            status.kill()
            status.wait()
        watch.end()
        streams.out.write("the job has ended; the page shows its report until Ctrl-C\n")
        while signals.wait(60) in (0, signal.SIGCHLD):
            pass
        return 0


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    options = _Options()
    line = CommandLine("catchment watch", _WORDS["usage"], _WORDS["notes"])
    set_master, has_master = lambda word: setattr(options, "master", word), lambda: bool(options.master)
    line.argument = Argument("HOST:PORT|DIR", "node0:7000", set_master, has_master)
    line.flags.declare(options, _WORDS["flags"], port=whole(0))
    add_security_flags(options.security, line.flags)
    return command_line.run(line, args, streams, lambda: _run(options, streams))
