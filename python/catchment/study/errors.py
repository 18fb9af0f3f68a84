"""Errors of commands: what they print, and their exit codes."""

FAILED = 1
USAGE = 2
SIGNAL = 128  # a signal N ends a command with SIGNAL + N


class Failed(Exception):
    """Ends a command: it prints the message and ends with `exit_code`."""

    exit_code = FAILED

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Refused(Failed):
    """A mistake in a file, in a job or by the user."""


class Unavailable(Failed):
    """The program catchment is missing or has died. What goes on after other errors does not after this."""


class Usage(Refused):
    """A wrong command line."""

    exit_code = USAGE
