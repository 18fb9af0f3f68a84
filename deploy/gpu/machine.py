"""Finds out what this machine has for a check, and what makes its figures wrong or a check impossible.

Nothing here changes a setting of the GPU: nvidia-smi is only asked.
"""

import glob
import os
import shutil
import site
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_DRIVER = 580  # the first for CUDA 13
CUDNN = 9
IDLE_MIB = 1024  # what a GPU without programs may use itself

_GPU = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "mig.mode.current")
_PROCESS = ("gpu_uuid", "pid", "process_name", "used_memory")


def library_folders():
    """Returns the folders that may have libraries of CUDA: the bundle's, the toolkit's, a PyTorch's."""
    packages = [*site.getsitepackages(), site.getusersitepackages()]
    found = [folder for package in packages for folder in sorted(glob.glob(package + "/nvidia/*/lib"))]
    return [HERE + "/lib", "/usr/local/cuda/lib64", "/usr/local/cuda/lib", *found]


def folder_of(library):
    """Returns the first of these folders with a library; "" if there is none."""
    return next((folder for folder in library_folders() if os.path.exists(f"{folder}/{library}")), "")


def other_cudnn():
    """Returns the paths of cuDNNs of another major version."""
    found = [path for folder in library_folders() for path in glob.glob(folder + "/libcudnn.so.?")]
    return [path for path in found if not path.endswith(f".{CUDNN}")]


def _ask(what, fields):
    """Returns a dictionary for each line of nvidia-smi's answer; nothing if it does not answer."""
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=15, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split(", ") for line in answer.splitlines()]
    return [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]


def _number(text):
    """Returns a number, or 0 for "[N/A]"."""
    return int(text) if text.isdigit() else 0


def gpu():
    """Returns what nvidia-smi knows of the GPU that CUDA's device 0 is; nothing if it knows of none."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if shutil.which("nvidia-smi") is None:
        return {}
    return next(
        (one for one in _ask("gpu", _GPU) if one["index"] == chosen or one["uuid"].startswith(chosen or "-")),
        {},
    )


def remarks():
    """Returns a sentence for each thing that stops a check, or that its figures depend on."""
    one = gpu()
    if not one:
        return []
    name, said = "GPU " + one["index"], []
    if _number(one["driver_version"].split(".")[0]) < LEAST_DRIVER:
        said.append(
            f"the driver {one['driver_version']} is older than {LEAST_DRIVER}, the first for CUDA 13: "
            "install a newer one, or on a data centre GPU NVIDIA's package cuda-compat-13-0"
        )
    if one["mig.mode.current"] == "Enabled":
        said.append(
            f"{name} is in MIG mode, so that programs see at most one of its instances: figures are of that "
            "instance, and without one there is no device; the check leaves the mode as it is"
        )
    others = [process for process in _ask("compute-apps", _PROCESS) if process["gpu_uuid"] == one["uuid"]]
    for process in others:
        said.append(
            f"process {process['pid']} ({os.path.basename(process['process_name'])}, "
            f"{process['used_memory']} MiB) uses {name}, too: figures are of a shared GPU"
        )
    if not others and _number(one["memory.used"]) > IDLE_MIB:
        said.append(
            f"{one['memory.used']} of {name}'s {one['memory.total']} MiB are in use by processes that this "
            "user does not see: figures are of a shared GPU"
        )
    return said
