"""The jobs of the rounds, and what their results must be."""

import array
import glob
import json
import os
import re
import struct

# Presets whose updates add the pushes themselves, with fields that make each push count by 1, however stale.
# In a group of two, the rule averages the contributions of the members; worker_scaling undoes this, also
# while one of them is away. Not hybrid: a worker that takes the place of a lost one shares a group with
# another one until the master has noticed the loss.
ADD = "kind: SGD learning_rate: %d momentum: 0 nesterov: false schedule { decay: CONSTANT }"
# With these local steps a worker moves its weights as far as the gradients of its samples add up to.
STEPS = "local_steps: 4 fragments: 4 local_optimizer { %s }" % (ADD % 1)
COUNTED = {
    "sync": ("", ADD % 2 + " worker_scaling: LINEAR"),
    "sync_backup": ("", ADD % 1),
    "downpour": ("compensation { none {} }", ADD % 1),
    "ssp": ("compensation { none {} }", ADD % 1),
    "dc_asgd": (
        "compensation { delay_compensated { lambda: 0 } delay_adaptive { threshold: 1000000 } }",
        ADD % 1,
    ),
    "dana": ("contribution { look_ahead { momentum: 0 } } compensation { none {} }", ADD % 1),
    "streaming_diloco": ("contribution { pseudo_gradient { %s overlap_steps: 1 } }" % STEPS, ADD % 1),
    "diloco_async": (
        "contribution { pseudo_gradient { %s steps_by_speed: false } } compensation { none {} }" % STEPS,
        ADD % 1,
    ),
    "decoupled_diloco": ("contribution { pseudo_gradient { %s overlap_steps: 1 } }" % STEPS, ADD % 1),
}
# Presets whose updates are means of contributions with different numbers of samples (of a worker that has
# joined during a round, or in a quorum), so that a push counts by 1 only in the accounts of the blocks.
IN_ACCOUNTS = {"streaming_diloco", "decoupled_diloco"}
# Presets that average the contributions of as many workers as there are, less those that are not waited for:
# a push counts by 1 only while there are two workers, and not while one takes the place of another whose loss
# was not noticed.
TWO_MEMBERS = {"sync_backup"}
DROPS_LATE = {"sync_backup"}  # contributions that arrive too late are not applied, by design

# Presets whose runs end with the same bits; all but sync have states of workers,
# which checkpoints must contain.
REPEATABLE = {
    "sync": "",
    "easgd_sync": "worker_state: true",
    "local_sgd": "worker_state: true",
    "diloco": "worker_state: true",
    "streaming_diloco": "worker_state: true",
}

COPIES, SAMPLES, BATCH, WORKERS = 4, 512, 8, 2
STEP_SECONDS = 0.004

REAL = """
model {
  layers { flatten {} } layers { dense { units: 32 } } layers { relu {} } layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 2000 } }
"""
CHANCE = 0.1  # of ten classes
# The fields that may end an evaluated job early: none, a target that is reached soon, evaluations that are
# not better.
STOPS = ["", "target_accuracy: 0.5", "patience: 3"]


class Job:
    """A job of a round. kind: "counted", "real", "evaluated" (real, with an evaluator) or "repeatable".
    seconds: about how long it trains, where a message from one host to another takes `delay` seconds. stops:
    a field of `evaluation` that may end an evaluated job early."""

    def __init__(self, preset, kind, seed, seconds, delay, heartbeat_timeout, standby, stops=""):
        self.preset, self.kind, self.seed, self.standby = preset, kind, seed, standby
        self.evaluated, self.stops = kind == "evaluated", stops
        self.heartbeat_timeout = heartbeat_timeout
        self.shared_memory = True  # for payloads; otherwise they cross the network
        samples = SAMPLES if kind == "counted" else 2000
        steps = seconds / ((STEP_SECONDS if kind == "counted" else 0.001) + 2 * delay)
        self.epochs = max(2, round(steps * BATCH * WORKERS / samples))
        self.budget = self.epochs * samples

    def text(self, directory):
        algorithm, optimizer, model = "", "", REAL
        if self.kind == "counted":
            algorithm, optimizer = COUNTED[self.preset]
            optimizer = "optimizer { %s }" % optimizer
            path = directory + "/zeros.safetensors"
            write_zeros(path)
            model = (
                'model { external { tensors { name: "counts" shape: %d shape: %d } } '
                'initial_weights: "%s" }\n'
                "data { external { train_samples: %d } }" % (COPIES, SAMPLES, path, SAMPLES)
            )
        repeatable = self.kind == "repeatable"
        state = REPEATABLE[self.preset] if repeatable else ""
        return f"""
name: "chaos"
{model}
algorithm {{ preset: "{self.preset}" {algorithm} }}
{optimizer}
workers: {WORKERS}
batch_size: {BATCH}
epochs: {self.epochs}
seed: {self.seed}
block_kib: 1
shared_memory: {str(self.shared_memory).lower()}
device: CPU
deterministic: {str(repeatable).lower()}
{"evaluation { every_epochs: 1 keep_best: true %s }" % self.stops if self.evaluated else ""}
checkpoint {{ every_seconds: 0.3 keep: 3 {state} }}
faults {{ connect_timeout_seconds: 60 heartbeat_timeout_seconds: {self.heartbeat_timeout}
  {"standby: 1" if self.standby else ""} }}
"""


def write_zeros(path):
    header = json.dumps(
        {"counts": {"dtype": "F32", "shape": [COPIES, SAMPLES], "data_offsets": [0, 4 * COPIES * SAMPLES]}}
    ).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(4 * COPIES * SAMPLES))


def read_weights(path):
    """Returns the values of all float32 tensors of a safetensors file, by name."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = array.array("f", data[8 + size + begin : 8 + size + end])
    return tensors


def read_metrics(out):
    """Returns the lines of a job's metrics.jsonl."""
    with open(out + "/metrics.jsonl") as file:
        return [json.loads(line) for line in file]


def count(weights, epochs):
    """Returns how many applications of samples are missing, how many there are more than once in an epoch,
    over all copies, and the largest number of such in a copy.
    Raises ValueError if a weight is not a count."""
    lost = doubled = most = 0
    for copy in range(COPIES):
        values = weights[copy * SAMPLES : (copy + 1) * SAMPLES]
        for value in values:
            if value < 0 or value != int(value):
                raise ValueError(f"a weight is {value}, which is not a number of applications")
        lost += sum(int(max(0, epochs - value)) for value in values)
        more = sum(int(max(0, value - epochs)) for value in values)
        doubled, most = doubled + more, max(most, more)
    return lost, doubled, most


def read_accounts(out):
    """Returns the samples that each block of the last checkpoint has taken, with those that came too late."""
    complete = [
        path
        for path in glob.glob(out + "/checkpoints/checkpoint-*")
        if os.path.exists(path + "/manifest.textproto") and not path.endswith(".unusable")
    ]
    last = max(complete, key=lambda path: int(path.rsplit("-", 1)[1]))
    accounts = []
    for path in glob.glob(last + "/shard-*.safetensors"):
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            state = json.loads(file.read(size))["__metadata__"]["catchment"]
        for block in re.findall(r"\bblocks \{((?:[^{}]|\{[^{}]*\})*)\}", state):
            fields = dict(re.findall(r"(\w+): (\d+)", re.sub(r"\{[^{}]*\}", "", block)))
            accounts.append(int(fields.get("samples", 0)) + int(fields.get("late_samples", 0)))
    return accounts
