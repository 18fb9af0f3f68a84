"""Chromium for tests: one page that stays open."""

import json
import os
import signal
import subprocess
import sys
import time

PATIENCE = 600


def install():
    """Installs Debian's chromium if it is missing, which needs root. Returns whether it is there."""

    def is_there():
        return subprocess.run(["which", "chromium"], stdout=subprocess.DEVNULL).returncode == 0

    if not is_there() and os.geteuid() == 0:
        subprocess.run(
            "apt-get --quiet update && DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes "
            "--no-install-recommends install chromium",
            shell=True,
        )
    return is_there()


def wait_for(what, condition):
    """Returns the first value of `condition` that is true."""
    end = time.monotonic() + PATIENCE
    value = condition()
    while not value:
        if time.monotonic() > end:
            sys.exit("FAILED: %s did not come true" % what)
        time.sleep(0.2)
        value = condition()
    return value


class Chromium:
    """A page, by the protocol of Chromium's developer tools over a pair of pipes: JSON, each message with a
    zero byte."""

    def __init__(self, profile, url):
        self._count, self._buffer = 0, b""
        command_out, self._out = os.pipe()
        self._in, command_in = os.pipe()
        # It reads descriptor 3 and writes to 4.
        script = 'exec chromium "$@" 3<&%d 4>&%d' % (command_out, command_in)
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--user-data-dir=" + profile,
            "--remote-debugging-pipe",
        ]
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", script, "chromium", *flags],
            stderr=subprocess.DEVNULL,
            pass_fds=(command_out, command_in),
            start_new_session=True,
        )
        os.close(command_out)
        os.close(command_in)
        target = self._call("Target.createTarget", {"url": url})["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})[
            "sessionId"
        ]

    def _call(self, method, parameters, **more):
        self._count += 1
        message = dict({"id": self._count, "method": method, "params": parameters}, **more)
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                data = os.read(self._in, 65536)
                if not data:
                    sys.exit("FAILED: chromium has ended")
                self._buffer += data
            answer, self._buffer = self._buffer.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self._count:
                return answer.get("result", {})

    def evaluate(self, expression):
        """Returns the value of a JavaScript expression, if it is a promise that with which it is resolved."""
        parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = self._call("Runtime.evaluate", parameters, sessionId=self._session)
        return answer.get("result", {}).get("value", "")

    def text(self):
        """Returns the text of the page as a reader sees it."""
        return self.evaluate("document.body ? document.body.innerText : ''")

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
