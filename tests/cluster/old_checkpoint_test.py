#!/usr/bin/env python3
"""Resumes the checkpoint of the first release, 0.1, which every later version must read (docs/versions.md).

tests/cluster/checkpoint_0_1 is what `catchment train` of 0.1 wrote with two servers and two workers, without
logs. It is never written again. Training continues with a learning rate of 1e-30, so the final weights are
those of the checkpoint on any processor; the servers have their momentum from it, too.
"""

import json
import os
import shutil
import struct
import subprocess
import sys

OLD = "tests/cluster/checkpoint_0_1"
RATE = 1e-30


def weights(path):
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:begin])
    return {
        name: struct.unpack(
            "<%df" % ((about["data_offsets"][1] - about["data_offsets"][0]) // 4),
            data[begin + about["data_offsets"][0] : begin + about["data_offsets"][1]],
        )
        for name, about in tensors.items()
        if name != "__metadata__"
    }


def resume(out, servers):
    shutil.copytree(OLD, out)
    subprocess.run(["chmod", "-R", "u+w", out], check=True)
    # Removes what the release's own run left, so that what is compared below is of this one.
    for name in ("model.safetensors", "summary.json"):
        os.remove(os.path.join(out, name))
    subprocess.run(
        [
            "cli/catchment",
            "train",
            "--resume",
            f"--out={out}",
            f"--servers={servers}",
            "--set",
            "epochs=3",
            "--set",
            f"optimizer.learning_rate={RATE}",
        ],
        check=True,
    )


def main():
    with open(f"{OLD}/summary.json", encoding="utf-8") as file:
        before = json.load(file)
    expected = weights(f"{OLD}/model.safetensors")
    failures = []
    for servers in (2, 1):
        out = os.path.join(os.environ["TEST_TMPDIR"], f"{servers}-servers")
        resume(out, servers)
        with open(f"{out}/summary.json", encoding="utf-8") as file:
            after = json.load(file)
        if after["samples"] != before["samples"] * 3 // 2:
            failures.append(
                f"{servers} servers: {after['samples']} samples in all, after {before['samples']} of 0.1"
            )
        found = weights(f"{out}/model.safetensors")
        if found.keys() != expected.keys():
            failures.append(f"{servers} servers: tensors {sorted(found)} instead of {sorted(expected)}")
            continue
        for name, values in expected.items():
            if len(found[name]) != len(values) or any(
                abs(a - b) > 1e-20 for a, b in zip(found[name], values)
            ):
                failures.append(f"{servers} servers: {name} has other values than the checkpoint of 0.1")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
