"""The programs of Catchment: those in the bundle that a wheel brings, or else those on the PATH."""

import os
import shutil
import sys
from typing import Optional

_BUNDLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bundle", "bin")


def find(name: str) -> Optional[str]:
    """Returns the path of a program; None if there is none."""
    bundled = os.path.join(_BUNDLE, name)
    return bundled if os.path.exists(bundled) else shutil.which(name)


def main() -> None:
    """Replaces the process by the program of its name: the commands that a wheel installs."""
    name = os.path.basename(sys.argv[0])
    program = os.path.join(_BUNDLE, name)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit("%s: cannot start %s: %s" % (name, program, error.strerror))
