"""Files that others may have made or named.

Opening one never waits, as for a named pipe, and creating one follows no link, which could lead elsewhere.
Errors are Refused, which names the file.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from typing import Any, Dict, Iterator, List, Tuple

from .errors import Refused

_PART = 1 << 24


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turns an error of the system into Refused: "cannot open PATH: No such file or directory"."""
    try:
        yield
    except OSError as error:
        raise Refused("%s: %s" % (what, error.strerror)) from error


def open_file(path: str, flags: int, mode: int = 0o644) -> int:
    """Opens a regular file, with flags such as os.O_RDONLY, and returns its descriptor."""
    not_regular = Refused(path + ": is not a regular file")
    flags |= os.O_NOFOLLOW if flags & os.O_CREAT else 0
    with refusing("cannot open " + path):
        try:
            file = os.open(path, flags | os.O_NOCTTY | os.O_NONBLOCK, mode)
        except OSError as error:
            # A socket, or a named pipe without a reader; a directory; a link that is not followed.
            if error.errno in (errno.ENXIO, errno.EISDIR, errno.ELOOP):
                raise not_regular from error
            raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise not_regular
    return file


def read_text(path: str) -> str:
    """Returns the text of a file, without a byte order mark."""
    with refusing("cannot read " + path), os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        text = file.read().decode("utf-8", "surrogateescape")
    return text[1:] if text.startswith("\ufeff") else text


def read_lines(path: str, begin: int) -> Tuple[str, int]:
    """Returns complete lines of a growing file from an offset on, at most about 16 MB, and the offset where
    they end. A file that has become shorter is read from its beginning."""
    with refusing("cannot read " + path), os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        file.seek(begin if begin <= os.fstat(file.fileno()).st_size else 0)
        begin = file.tell()
        lines = file.read(_PART) + file.readline()
    lines = lines[: lines.rfind(b"\n") + 1]
    return lines.decode("utf-8", "surrogateescape"), begin + len(lines)


def text_or_empty_of(path: str) -> str:
    """Returns the text of a file; empty if it cannot be read."""
    with contextlib.suppress(Refused):
        return read_text(path)
    return ""


def read_summary(path: str) -> Dict[str, Any]:
    """Returns the content of a summary.json, or of another file with a JSON object."""
    text = read_text(path)
    with contextlib.suppress(ValueError, RecursionError):
        summary = json.loads(text)
        if isinstance(summary, dict):
            return summary
    raise Refused("%s is not a JSON object" % path)


def write_file(path: str, text: str) -> None:
    """Replaces the content of a file."""
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    with refusing("cannot write " + path), os.fdopen(file, "wb") as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def write_atomically(path: str, text: str) -> None:
    """Writes a file completely or not at all, so that it survives a power failure."""
    content, temporary = text.encode("utf-8", "surrogateescape"), "%s.%s.tmp" % (path, secrets.token_hex(8))
    with refusing("cannot create " + temporary):
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with refusing("cannot write %s, which needs %d bytes" % (path, len(content))):
            with os.fdopen(file, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(file)
            os.rename(temporary, path)
    except Refused:
        delete(temporary)
        raise
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # Some network file systems do not support it, and do not need it.
        os.fsync(directory)
    os.close(directory)


def create_directory(path: str) -> None:
    with refusing("cannot create the directory " + path):
        os.makedirs(path, exist_ok=True)


def delete(path: str) -> None:
    """Deletes a file, a link, or an empty directory; no error if there is none."""
    remove = os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink
    with refusing("cannot delete " + path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        remove(path)


def delete_inside(path: str, pattern: str) -> None:
    """Deletes the files of a directory whose whole names match, and then the directory, if it is empty."""
    for name in names_in(path):
        if re.fullmatch(pattern, name) and not os.path.isdir(os.path.join(path, name)):
            delete(os.path.join(path, name))
    with contextlib.suppress(OSError):
        os.rmdir(path)


def names_in(path: str) -> List[str]:
    """Returns the names in a directory; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return sorted(os.listdir(path))
    return []
