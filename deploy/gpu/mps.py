"""NVIDIA's Multi-Process Service, by which several workers compute on one GPU at the same time.

Without it the driver divides the time of a GPU between processes, so several of them are as slow as one.
"""

import contextlib
import shutil
import subprocess
import tempfile

CONTROL = "nvidia-cuda-mps-control"


class Mps:
    """Runs the service between `start` and `stop`. `state` says for a table whether it does, or why not."""

    def __init__(self, env):
        self.env, self.control = env, shutil.which(CONTROL, path=env.get("PATH"))
        self.folder, self.state = None, "not started"

    def start(self, works):
        """Starts the service, and sets in `env` what its clients need.
        Stops it if `works()` raises an exception."""
        if self.control is None:
            self.state = f"time-sliced: there is no {CONTROL}"
            return
        # Sockets have short paths.
        self.folder = tempfile.mkdtemp(prefix="mps")
        self.env.update(CUDA_MPS_PIPE_DIRECTORY=self.folder, CUDA_MPS_LOG_DIRECTORY=self.folder)
        try:
            subprocess.run(
                [self.control, "-d"],
                env=self.env,
                timeout=30,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            works()
            self.state = "at the same time, by MPS"
        except Exception as why:  # whatever it is, the workers can do without
            self.stop()
            self.state = f"time-sliced: MPS does not work: {why}"

    def stop(self):
        if self.folder is None:
            return
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [self.control],
                env=self.env,
                input="quit\n",
                text=True,
                timeout=30,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        for variable in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            self.env.pop(variable, None)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder, self.state = None, "stopped"
