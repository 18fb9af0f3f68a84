"""read_with_tensorboard.py OUT: TensorBoard's own reader finds in OUT/tensorboard what OUT/metrics.jsonl and
OUT/summary.json say."""

import json
import os
import struct
import sys

from tensorboard import version
from tensorboard.backend.event_processing import event_accumulator


def single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def main(out):
    everything = {event_accumulator.SCALARS: 0, event_accumulator.HISTOGRAMS: 0}
    events = event_accumulator.EventAccumulator(os.path.join(out, "tensorboard"), size_guidance=everything)
    events.Reload()
    scalars = sorted(events.Tags()["scalars"])
    print("TensorBoard", version.VERSION, "reads:")
    for tag in scalars:
        points = events.Scalars(tag)
        print(
            "  %-32s %3d points, the last %g at step %d"
            % (tag, len(points), points[-1].value, points[-1].step)
        )

    with open(os.path.join(out, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    with open(os.path.join(out, "summary.json")) as file:
        summary = json.load(file)
    for key, tag in (
        ("train_loss", "train/loss"),
        ("learning_rate", "optimizer/learning_rate"),
        ("staleness_p99", "staleness/p99"),
        ("bytes_pushed", "bytes/pushed"),
        ("momentum", "optimizer/momentum"),
    ):
        points = [(line["samples"], single(line[key])) for line in lines if line[key] is not None]
        assert [(point.step, point.value) for point in events.Scalars(tag)] == points, tag
    for key, tag in (("test_loss", "test/loss"), ("test_accuracy", "test/accuracy")):
        last = events.Scalars(tag)[-1]
        assert (last.step, last.value) == (summary["samples"], single(summary[key])), (tag, last)
    workers = {
        "worker_%d/%s" % (worker, key)
        for worker in (0, 1)
        for key in ("samples_per_second", "compute_share", "push_share", "pull_share", "data_share")
    }
    assert workers <= set(scalars), scalars

    assert events.Tags()["histograms"] == ["staleness"], events.Tags()
    histograms = events.Histograms("staleness")
    last = histograms[-1].histogram_value
    counts = summary["staleness_counts"]
    print(
        "  %-32s %3d histograms, the last of %d pushes: %s"
        % ("staleness", len(histograms), last.num, list(zip(last.bucket_limit, last.bucket)))
    )
    assert len(histograms) == sum(
        any(shard["pushes_applied"] for shard in line["per_shard"]) for line in lines
    )
    assert last.num == sum(count for _, count in counts)
    assert last.sum == sum(value * count for value, count in counts)
    assert (last.min, last.max) == (counts[0][0], counts[-1][0])
    assert [(limit - 0.5, count) for limit, count in zip(last.bucket_limit, last.bucket) if count] == [
        tuple(pair) for pair in counts
    ]
    print("PASSED")


if __name__ == "__main__":
    main(sys.argv[1])
