#!/usr/bin/env python3
"""Makes a Python wheel of a bundle (deploy/wheel.sh, which calls it).

    deploy/make_wheel.py BUNDLE FOLDER

BUNDLE: what deploy/bundle.sh has made. FOLDER: where the wheel goes, under the name that its version asks for.
"""
import base64
import hashlib
import os
import re
import sys
import tarfile
import zipfile

PACKAGE = "python/catchment"
# The bundle brings its own C library; this is the oldest one that any Python for PyTorch 2.1 runs with.
TAG = "py3-none-manylinux_2_17_x86_64"
METADATA = """Metadata-Version: 2.1
Name: catchment
Version: {version}
Summary: Trains PyTorch and NumPy models with asynchronous or synchronous SGD on parameter servers
Requires-Python: >=3.8
License-File: LICENSE
Provides-Extra: torch
Requires-Dist: torch>=2.1; extra == "torch"

Linux on x86-64 with AVX2. The programs bring all of their libraries, the C library included.
"""
WHEEL = """Wheel-Version: 1.0
Generator: catchment (deploy/make_wheel.py)
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """[console_scripts]
catchment = catchment._command:main
"""
# The same bytes from the same files.
TIME = (1980, 1, 1, 0, 0, 0)


class Wheel:
    def __init__(self, path):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, TIME)
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self, record):
        self._record.append(record + ",,")
        text = "\n".join(self._record) + "\n"
        info = zipfile.ZipInfo(record, TIME)
        info.external_attr = 0o100644 << 16
        self._zip.writestr(info, text)
        self._zip.close()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def add_bundle(wheel, bundle):
    """Adds programs, libraries and licenses, and the package that the bundle has. Returns the version."""
    version = None
    with tarfile.open(bundle) as tar:
        for member in sorted(tar.getmembers(), key=lambda one: one.name):
            folder, _, name = member.name.partition("/")
            version = version or re.fullmatch(r"catchment-(.+)", folder)[1]
            if not member.isfile():
                continue
            data = tar.extractfile(member).read()
            if name.startswith(("bin/", "lib/", "licenses/")) or name == "VERSION":
                wheel.add("catchment/_bundle/" + name, data, 0o755 if member.mode & 0o100 else 0o644)
            elif name.startswith(PACKAGE + "/"):
                wheel.add(name[len("python/"):], data)
            elif name == "LICENSE":
                wheel.add("catchment-%s.dist-info/LICENSE" % version, data)
    return version


def main():
    bundle, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    unnamed = os.path.join(folder, "wheel.part")
    wheel = Wheel(unnamed)
    version = add_bundle(wheel, bundle)
    about = "catchment-%s.dist-info/" % version
    wheel.add(about + "METADATA", METADATA.format(version=version).encode())
    wheel.add(about + "WHEEL", WHEEL.format(tag=TAG).encode())
    wheel.add(about + "entry_points.txt", ENTRY_POINTS.encode())
    wheel.close(about + "RECORD")
    path = os.path.join(folder, "catchment-%s-%s.whl" % (version, TAG))
    os.rename(unnamed, path)
    print("wheel: %s: %d MB" % (path, os.path.getsize(path) >> 20))


if __name__ == "__main__":
    main()
