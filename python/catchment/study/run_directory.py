"""The directories that runs and comparisons write to: locks, and the names in them that are Catchment's.

DIRECTORY/catchment.claim lists the names, one on each line. A name is claimed before anything is written
under it, and only if there is nothing yet, or an empty directory, so a user's logs/ or metrics.jsonl is never
mistaken for a run's. The formats are those of common/checkpoint/directory_claim.h and
common/base/directory_lock.h.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
import sys
from typing import Iterable, Set

from . import files
from .errors import Refused

_HEADER = "# Catchment writes these names in this directory, and deletes them to start again.\n"
_NOT_OURS = "%s was not written by Catchment: move it, or choose another directory"
_NOT_LISTED = (
    "%s was not written by Catchment (%s/catchment.claim does not list it), and would be overwritten: choose "
    "another --out, or move it"
)
_NO_LOCKS = "the file system of %s has no locks (%s): make sure that no other process writes there\n"
_LINK = "%s is a symbolic link, whose files are not deleted: remove the link, or choose another --out"
_SET_LOCK = 37  # F_OFD_SETLK, which fcntl has since Python 3.9
_RUN_NAMES = (
    "job.textproto initial.safetensors program.txt logs metrics.jsonl tensorboard summary.json "
    "model.safetensors model-best.safetensors master.address master.run checkpoints"
)
# The files that a run writes to directories of these names.
_INSIDE = {
    "logs": r"(server|worker)-[0-9]+\.log|(evaluator|workers|sbatch|slurm|scancel|validate|certs)\.log",
    "tensorboard": r"events\.out\.tfevents\..*",
}
_CHECKPOINT = r"checkpoint-[0-9]+(\.unusable(-[0-9]+)?)?"
_TEMPORARY = r"\.[0-9a-f]{16}\.tmp"
_CHECKPOINT_FILE = (
    r"(manifest\.textproto|(shard-[0-9]+-of-[0-9]+|worker-[0-9]+)\.safetensors)(%s)?" % _TEMPORARY
)
_RUN_RECORD = re.compile(
    r"(\s*(job_fingerprint|run_id|ended|recoveries|updates_computed_again|servers|phase|reason|told|evaluators)"
    r": .*\n)*"
)


def claimed_names(directory: str) -> Set[str]:
    """Returns the names that the record claims; none if there is no record."""
    path = directory + "/catchment.claim"
    if not os.path.exists(path):
        return set()
    text = files.read_text(path)
    if not text.startswith(_HEADER):
        raise Refused(_NOT_OURS % path)
    return set(text[len(_HEADER) :].split("\n")) - {""}


def check_claim(directory: str, names: Iterable[str], ours: bool = False) -> None:
    """Refuses names that cannot be claimed. Changes nothing. `ours`: an earlier version has written what is
    not claimed."""
    claimed = claimed_names(directory)
    for name in () if ours else names:
        path = "%s/%s" % (directory, name)
        if name not in claimed and _is_in_use(path):
            raise Refused(_NOT_LISTED % (path, directory))


def _is_in_use(path: str) -> bool:
    """Returns whether there is something to lose: anything but an empty directory."""
    try:
        return bool(os.listdir(path))
    except OSError:
        return os.path.lexists(path)


def claim_names(directory: str, names: Iterable[str], ours: bool = False) -> None:
    """Claims the names. On an error nothing has changed."""
    check_claim(directory, names, ours)
    claimed = claimed_names(directory)
    if not claimed.issuperset(names):
        text = _HEADER + "\n".join(sorted(claimed.union(names))) + "\n"
        files.write_atomically(directory + "/catchment.claim", text)


class DirectoryLock:
    """Holds a file in a directory, whose content is "HOST PID", until it is closed or deleted, or the process
    ends in any way. `user` is the other process, in errors."""

    def __init__(self, directory: str, file: str = "master.lock", user: str = "another master") -> None:
        path = "%s/%s" % (directory, file)
        held = os.fdopen(files.open_file(path, os.O_RDWR | os.O_CREAT, 0o600), "rb+", 0)
        self.close = held.close
        content, size = held.read(512), os.fstat(held.fileno()).st_size
        if size and not (size == len(content) and re.fullmatch(rb"[^ ]+ [0-9\n]*", content)):
            raise Refused(_NOT_OURS % path)
        # Only users who may write to the directory may use it: a reader's lock would keep this one
        # from being taken. It may be another user's, who has set its mode.
        mode = os.stat(directory).st_mode
        wanted = 0o600 | (0o060 if mode & 0o020 else 0) | (0o006 if mode & 0o1002 == 0o002 else 0)
        with contextlib.suppress(OSError):
            os.fchmod(held.fileno(), wanted)
        try:
            # A struct flock of the whole file.
            fcntl.fcntl(held, _SET_LOCK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                sys.stderr.write(_NO_LOCKS % (directory, error.strerror))
                return
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise Refused("cannot lock %s: %s" % (path, error.strerror)) from error
            owner = re.match(r"(.*?) (.*)\n", content.decode("utf-8", "replace"))
            by = " on host %s with pid %s" % owner.groups() if owner else ""
            wait = "wait until it has ended, or choose another directory"
            raise Refused("%s is in use by %s%s: %s" % (directory, user, by, wait)) from error
        with contextlib.suppress(OSError):  # It is read only for the messages of others.
            held.truncate(0)
            os.pwrite(held.fileno(), ("%s %d\n" % (socket.gethostname(), os.getpid())).encode(), 0)


def lock_directory(path: str, command: str, names: Iterable[str], ours: bool) -> DirectoryLock:
    """Claims the names in a directory, and returns a lock: no other command uses it until that is closed."""
    check_claim(path, names, ours)
    files.create_directory(path)
    lock = DirectoryLock(path, "command.lock", "another running `%s`" % command)
    claim_names(path, names, ours)
    return lock


def prepare_run_directory(path: str, job: str) -> None:
    """Creates the directory of a run, without anything of an earlier one, and writes the text of the job to
    it, unless it is the same. All that is in it must be a run's."""
    check_claim(path, _RUN_NAMES.split(), ours=True)
    for place in (path, path + "/checkpoints"):
        if os.path.exists(place + "/master.lock"):
            DirectoryLock(place).close()
    with contextlib.closing(lock_directory(path, "catchment train", _RUN_NAMES.split(), ours=True)):
        _delete_names(path, [name for name in _RUN_NAMES.split() if name != "job.textproto"])
        files.create_directory(path + "/logs")
        if files.text_or_empty_of(path + "/job.textproto") != job:
            files.write_file(path + "/job.textproto", job)


def delete_run(path: str) -> None:
    """Deletes what a run has written to its directory, and the directory if nothing else is in it."""
    _delete_names(path, _RUN_NAMES.split())
    files.delete_inside(path, r"command\.lock|master\.lock|catchment\.claim")


def delete_run_checkpoints(path: str) -> None:
    """Deletes the checkpoints of a run, and their directory if nothing else is in it."""
    path += "/checkpoints"
    for name in files.names_in(path):
        checkpoint = "%s/%s" % (path, name)
        if re.fullmatch(_CHECKPOINT, name) and not os.path.islink(checkpoint):
            # Without its manifest, a checkpoint that is partly deleted does not count as complete.
            files.delete(checkpoint + "/manifest.textproto")
            files.delete_inside(checkpoint, _CHECKPOINT_FILE)
    record = path + "/run.textproto"
    if os.path.exists(record) and _RUN_RECORD.fullmatch(files.text_or_empty_of(record)):
        files.delete(record)
    files.delete_inside(path, r"..*%s|master\.lock|master\.address|master\.run|catchment\.claim" % _TEMPORARY)


def refuse_link(path: str) -> None:
    """Refuses a link: the files behind it are not known to be Catchment's."""
    if os.path.islink(path):
        raise Refused(_LINK % path)


def _delete_names(directory: str, names: Iterable[str]) -> None:
    for name in _RUN_NAMES.split():
        refuse_link("%s/%s" % (directory, name))
    for name in names:
        if name == "checkpoints":
            delete_run_checkpoints(directory)
        elif name in _INSIDE:
            files.delete_inside("%s/%s" % (directory, name), _INSIDE[name])
        else:
            files.delete("%s/%s" % (directory, name))
