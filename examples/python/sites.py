"""Two sites of this machine that a slow link joins: network namespaces, for gpt_two_sites.py."""

import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INSIDE = "CATCHMENT_TWO_SITES_INSIDE"  # in the environment of the process that may make namespaces
SITES = ("site0", "site1")
ADDRESS, PORT = "10.213.77.%d", 7000  # as tests/cluster/network_switch has them


class Failure(Exception):
    """Says what is wrong, in a sentence or two."""


def separate():
    """Starts this program anew where it may make network namespaces, if that is possible. Call it first."""
    if INSIDE not in os.environ:
        try:
            command = _may_separate()
        except Failure as failure:
            _say_without_link(failure)
        else:
            os.environ[INSIDE] = "1"
            os.execvp(command[0], [*command, sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]])


def join(mbit, delay_ms, log):
    """Returns two sites that a link joins, or, if this machine cannot have it, one."""
    if INSIDE in os.environ:
        try:
            return _TwoSites(mbit, delay_ms, log)
        except Failure as failure:
            _say_without_link(failure)
            _must("ip", "link", "set", "lo", "up")
    return _OneSite()


def _say_without_link(failure):
    print(f"Trains without a link, and exchanges cost next to nothing: {failure}.", flush=True)


def _may_separate():
    """Returns the command in which this program may make network namespaces, which end with it. Raises
    Failure if there is none."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        raise Failure(
            "network namespaces are made with the commands unshare and ip: install util-linux and iproute2"
        )
    command = ["unshare", "--net", "--mount"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    done = subprocess.run(
        [*command, "mount", "-t", "tmpfs", "tmpfs", "/run"], stderr=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise Failure(
            f"this machine does not let network namespaces be made ({done.stderr.strip()}): become "
            "root, or start the container with --privileged"
        )
    return command


def built(path):
    """Returns the path of what Bazel has built; None if it has not."""
    places = (os.path.join(ROOT, folder, path) for folder in ("bazel-bin", ""))  # "": in a test of Bazel's
    return next(filter(os.path.isfile, places), None)


def spawn(command, **options):
    """Starts a process that is killed when this one ends, however that ends. Ctrl-C does not reach it."""

    def end_with_parent():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=end_with_parent, **options
    )


def _quietly(*command):
    """Returns whether a command succeeds."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def _must(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failure(f"{shlex.join(command)} failed: {done.stdout.strip()}")


class _OneSite:
    """No link: all processes are at the loopback interface."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.master = "127.0.0.1:%d" % taken.getsockname()[1]

    def prefix(self, site):
        return []

    def link_bytes(self):
        return None

    def close(self):
        pass


class _TwoSites:
    """Two network namespaces, joined by netem, or else by the switch of the project's tests."""

    def __init__(self, mbit, delay_ms, log):
        self.switch = None
        self.master = f"{ADDRESS % 1}:{PORT}"
        # For `ip netns`, in this process's own mount namespace.
        _must("mount", "-t", "tmpfs", "tmpfs", "/run")
        for site in SITES:
            _must("ip", "netns", "add", site)
            _must("ip", "-n", site, "link", "set", "lo", "up")
        if not self._join_with_netem(mbit, delay_ms):
            self._join_with_switch(mbit, delay_ms, log)

    def _join_with_netem(self, mbit, delay_ms):
        _must(
            "ip",
            "link",
            "add",
            "wire0",
            "netns",
            SITES[0],
            "type",
            "veth",
            "peer",
            "name",
            "wire0",
            "netns",
            SITES[1],
        )
        for i, site in enumerate(SITES):
            _must("ip", "-n", site, "address", "add", f"{ADDRESS % (i + 1)}/24", "dev", "wire0")
            _must("ip", "-n", site, "link", "set", "wire0", "up")
            if not _quietly(
                *self.prefix(i),
                "tc",
                "qdisc",
                "add",
                "dev",
                "wire0",
                "root",
                "netem",
                "rate",
                f"{mbit:g}mbit",
                "delay",
                f"{delay_ms:g}ms",
                "limit",
                "10000",
            ):
                _must("ip", "-n", SITES[0], "link", "delete", "wire0")
                return False
        return True

    def _join_with_switch(self, mbit, delay_ms, log):
        program = built("tests/cluster/network_switch")
        if not program:
            raise Failure(
                "this kernel has no netem, which delays packets: load the module sch_netem, or build the "
                "packet switch of the project's tests, bazel build //tests/cluster:network_switch"
            )
        self.switch = spawn(
            [program, f"--mbit={mbit:g}", f"--delay_ms={delay_ms:g}", *SITES],
            stdout=subprocess.PIPE,
            stderr=log,
        )
        if self.switch.stdout.readline() != b"ready\n":
            raise Failure(f"{program} cannot join the sites; {log.name} says why")

    def prefix(self, site):
        return ["nsenter", f"--net=/run/netns/{SITES[site]}"]

    def link_bytes(self):
        """Returns the bytes that have crossed the link, both ways."""
        devices = subprocess.run(
            [*self.prefix(1), "cat", "/proc/net/dev"], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        counts = devices.partition("wire0:")[2].split()
        return int(counts[0]) + int(counts[8])

    def close(self):
        if self.switch:
            self.switch.terminate()
            self.switch.wait()
