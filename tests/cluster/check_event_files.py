"""check_event_files.py OUT: what TensorBoard would read in OUT/tensorboard is what OUT/metrics.jsonl says."""

import json
import os
import struct
import sys
import tempfile

import event_files

# Names that users rely on; there may be more.
SCALARS = {
    "train_loss": "train/loss",
    "train_accuracy": "train/accuracy",
    "samples_per_second": "rate/samples_per_second",
    "learning_rate": "optimizer/learning_rate",
    "momentum": "optimizer/momentum",
    "implicit_momentum": "optimizer/implicit_momentum",
    "noise_scale": "gradient/noise_scale",
    "staleness_mean": "staleness/mean",
    "staleness_p50": "staleness/p50",
    "staleness_p99": "staleness/p99",
    "bytes_pushed": "bytes/pushed",
    "bytes_pulled": "bytes/pulled",
    "recoveries": "recovery/recoveries",
    "updates_computed_again": "recovery/updates_computed_again",
}


def single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def expected_scalars(lines):
    """Tag -> [(step, value)], by metrics.jsonl alone."""
    expected = {}

    def add(tag, step, number):
        if number is not None:
            expected.setdefault(tag, []).append((step, single(number)))

    tested = None
    for line in lines:
        test = (line["tested_at_samples"], line["test_loss"], line["test_accuracy"])
        if test != tested and test[0] is not None:
            add("test/loss", test[0], test[1])
            add("test/accuracy", test[0], test[2])
            tested = test
        for key, tag in SCALARS.items():
            add(tag, line["samples"], line[key])
        for name, mean in line["program"].items():
            add("program/" + name, line["samples"], mean)
        for worker in line["worker_rates"]:
            for key in (
                "samples_per_second",
                "compute_share",
                "push_share",
                "pull_share",
                "data_share",
                "bytes_per_second",
                "bytes_per_step",
                "exchanges_per_step",
                "bytes_read_per_second",
                "read_threads",
            ):
                add("worker_%d/%s" % (worker["worker"], key), line["samples"], worker[key])
    return expected


def quantile(pairs, share):
    total, seen = sum(count for _, count in pairs), 0
    for value, count in pairs:
        seen += count
        if seen >= share * total:
            return value
    return 0


def counts_of(histogram):
    """[(value, count)] of buckets that are half a unit to either side of a value each."""
    assert len(histogram.limits) == len(histogram.counts), histogram
    assert list(histogram.limits) == sorted(set(histogram.limits)), "limits ascend"
    return [(limit - 0.5, count) for limit, count in zip(histogram.limits, histogram.counts) if count]


def check_histogram(histogram, line):
    pairs = counts_of(histogram)
    assert histogram.num == sum(count for _, count in pairs), histogram
    assert histogram.sum == sum(count * value for value, count in pairs), histogram
    assert histogram.sum_squares == sum(count * value**2 for value, count in pairs), histogram
    assert (histogram.min, histogram.max) == (pairs[0][0], pairs[-1][0]), histogram
    assert abs(histogram.sum / histogram.num - line["staleness_mean"]) < 1e-9, (histogram, line)
    assert quantile(pairs, 0.5) == line["staleness_p50"], (pairs, line)
    assert quantile(pairs, 0.99) == line["staleness_p99"], (pairs, line)


def check_reader(path):
    """It sees any byte that is not as it was."""
    assert event_files.crc32c(b"123456789") == 0xE3069283  # RFC 3720, appendix B.4, has the next two
    assert event_files.crc32c(bytes(32)) == 0x8A9136AA
    assert event_files.crc32c(bytes(range(32))) == 0x46DD794E
    with open(path, "rb") as file:
        data = bytearray(file.read())
    for at in (0, 9, 14, len(data) - 1):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(damaged)
            copy.flush()
            try:
                list(event_files.records(copy.name))
            except ValueError:
                continue
        raise AssertionError("byte %d was changed, and nothing noticed" % at)


def main(out):
    with open(os.path.join(out, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    with open(os.path.join(out, "summary.json")) as file:
        summary = json.load(file)
    files = event_files.read_directory(os.path.join(out, "tensorboard"))
    assert files, "no event files"
    check_reader(files[-1].path)
    for file in files:
        assert file.version == "brain.Event:2", file.version
        assert file.start is not None, file.path

    expected, found = expected_scalars(lines), {}
    for file in files:
        for tag, points in file.scalars.items():
            found.setdefault(tag, []).extend((point.step, point.value) for point in points)
            times = [point.wall_time for point in points]
            assert times == sorted(times), tag
            assert int(os.path.basename(file.path).split(".")[3]) <= times[0] + 1, file.path
    # A resumed run may test the weights that it begins with again.
    for tag in ("test/loss", "test/accuracy"):
        found[tag] = [point for i, point in enumerate(found[tag]) if i == 0 or point != found[tag][i - 1]]
    assert set(expected) <= set(found), (sorted(found), sorted(expected))
    for tag, points in expected.items():
        assert found[tag] == points, (tag, found[tag], points)

    histograms = [point for file in files for point in file.histograms["staleness"]]
    stale = [line for line in lines if any(shard["pushes_applied"] > 0 for shard in line["per_shard"])]
    assert [point.step for point in histograms] == [line["samples"] for line in stale]
    for point, line in zip(histograms, stale):
        check_histogram(point.value, line)
    # The final evaluation's line comes when all pushes are in.
    assert counts_of(histograms[-1].value) == [tuple(pair) for pair in summary["staleness_counts"]]
    print("%d files, %d tags, %d lines: as metrics.jsonl says" % (len(files), len(found), len(lines)))


if __name__ == "__main__":
    main(sys.argv[1])
