"""Reports of a running job, by `catchment status --door` (docs/doors.md)."""

import json
import subprocess
from typing import Any, Dict, List

from . import core, errors
from .command_line import Security
from .errors import Refused, Usage

NO_MASTER = 3  # exit code: no master answers
_PREFIX = "catchment status: "


def command(master: str, security: Security) -> List[str]:
    """Returns the command that prints the report of the job of HOST:PORT or of a run's directory."""
    return [core.binary(), "status", master, "--door", *security.flags()]


def report(master: str, security: Security) -> Dict[str, Any]:
    """Returns a report, or the object with the error of the call. Refuses a text that is not an address."""
    done = subprocess.run(command(master, security), stdin=subprocess.DEVNULL, capture_output=True)
    message = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == errors.USAGE:
        raise Usage(message[message.startswith(_PREFIX) * len(_PREFIX) :])
    if not done.stdout:
        raise Refused(message or "`catchment status` has ended without a report")
    return dict(json.loads(done.stdout.decode("utf-8")))
