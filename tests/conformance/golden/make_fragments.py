#!/usr/bin/env python3
"""Works out fragments.json: trajectories of Streaming and Decoupled DiLoCo, event by event, in double
precision and from the papers' formulas alone, as make_golden.py does for rules without fragments. README.md
describes the format.

    tests/conformance/golden/make_fragments.py > tests/conformance/golden/fragments.json
"""

import json
import math
import random

import make_golden as golden

golden.N = N = 48  # parameters: three chunks of 16
CHUNK = 16
EVENTS = 90


class Fragment:
    """A fragment at the servers: its center, and the round that is open for it."""

    def __init__(self, indices, initial, optimizer):
        self.indices, self.w, self.version = indices, [initial[i] for i in indices], 0
        self.v, self.optimizer = [0.0] * len(indices), optimizer
        # Pushes by worker; workers that were too late for the update before.
        self.waiting, self.late = {}, set()
        self.called = None  # the version for which workers were called last
        self.opened = self.deadline = None

    def move(self):
        """The outer step: Nesterov's momentum, with the mean of D over samples."""
        samples = sum(push["samples"] for push in self.waiting.values())
        eta, mu = self.optimizer["learning_rate"], self.optimizer["momentum"]
        for k in range(len(self.indices)):
            d = sum(push["d"][k] * push["samples"] for push in self.waiting.values()) / samples
            self.v[k] = mu * self.v[k] + d
            self.w[k] -= eta * (d + mu * self.v[k])
        self.version += 1


class Servers:
    """The gate of both algorithms. Its methods return the workers that are answered, with the fragment."""

    def __init__(self, job, fragments, step_seconds):
        ((self.kind, setting),) = job["algorithm"]["consistency"].items()
        self.minimum = setting.get("minimum", 1) if self.kind == "quorum" else math.inf
        self.gamma, self.longest = setting.get("grace"), setting.get("longest_grace_seconds", 10)
        self.tau = job["algorithm"]["contribution"]["pseudo_gradient"]["overlap_steps"]
        self.fragments, self.step_seconds = fragments, step_seconds
        self.members = set(range(job["workers"]))
        self.calls = []  # (worker, fragment, version) since they were taken last

    def push(self, worker, p, push, version, now):
        fragment = self.fragments[p]
        if version < fragment.version:
            fragment.late.add(worker)
            return [(worker, p, True)] + self.advance(p, now)
        if not fragment.waiting and self.minimum < len(self.members) and fragment.called != version:
            fragment.called = version
            self.calls += [(other, p, version) for other in self.members if other != worker]
        fragment.waiting[worker] = push
        fragment.late.discard(worker)
        return self.advance(p, now)

    def advance(self, p, now):
        """Makes the update of a fragment if it is due."""
        fragment = self.fragments[p]
        if not fragment.waiting:
            fragment.opened = fragment.deadline = None
            return []
        if len(fragment.waiting) < len(self.members):
            if fragment.opened is None:
                fragment.opened = now
            if len(fragment.waiting) < min(self.minimum, len(self.members - fragment.late)):
                fragment.deadline = None
                return []
            if fragment.deadline is None:
                left = self.tau * self.step_seconds - (now - fragment.opened)
                fragment.deadline = now + min(max(self.gamma * left, 0), self.longest)
            if now < fragment.deadline:
                return []
        fragment.move()
        answered, fragment.waiting, fragment.late = sorted(fragment.waiting), {}, set()
        fragment.opened = fragment.deadline = None
        return [(worker, p, False) for worker in answered]

    def advance_all(self, now):
        return [answer for p in range(len(self.fragments)) for answer in self.advance(p, now)]

    def leave(self, worker, now):
        self.members.discard(worker)
        for fragment in self.fragments:
            fragment.waiting.pop(worker, None)
            fragment.late.discard(worker)
        return self.advance_all(now)


class Worker:
    """Its weights x, the weights y that it received last, and for each fragment what it has made since it
    sent it."""

    def __init__(self, job, index, servers, gradient):
        self.f = job["algorithm"]["contribution"]["pseudo_gradient"]
        self.index, self.gradient, self.servers = index, gradient, servers
        self.synchronous = servers.kind == "synchronous"
        self.inner = golden.make_optimizer(self.f["local_optimizer"])
        self.x, self.y, self.lates = [0.0] * N, [0.0] * N, 0
        self.parts = [
            {
                "steps": 0,
                "samples": 0,
                "sent": False,
                "flies": False,
                "answer": None,
                "uses_in": 0,
                "version": fragment.version,
                "called": None,
            }
            for fragment in servers.fragments
        ]
        for fragment in servers.fragments:
            for k, i in enumerate(fragment.indices):
                self.x[i] = self.y[i] = fragment.w[k]
            # Calls of rounds that are open are sent to a connection that is new.
        for part, fragment in zip(self.parts, servers.fragments):
            if fragment.called == fragment.version:
                part["called"] = fragment.called

    def would_wait(self):
        """Returns True if its next step needs an answer that has not come."""
        return any(
            part["uses_in"] == 1 if self.synchronous else part["steps"] + 1 >= self.f["local_steps"]
            for part in self.parts
            if part["flies"] and part["answer"] is None
        )

    def step(self, deliver):
        """deliver(fragment, push, version): sends."""
        self.inner.step(self.x, self.gradient(self.x), self.f["local_optimizer"]["learning_rate"])
        for part in self.parts:
            part["steps"] += 1
            part["samples"] += self.index + 1
        for p, part in enumerate(self.parts):
            if part["flies"]:
                part["uses_in"] -= 1
                if part["uses_in"] == 0 if self.synchronous else part["answer"] is not None:
                    self.use(p)
        for p, part in enumerate(self.parts):
            every = self.f["local_steps"]
            first = math.ceil((p + 1) * every / self.f["fragments"])
            called = not part["flies"] and part["called"] is not None and part["called"] == part["version"]
            if part["steps"] >= (every if part["sent"] else first) or called:
                if part["flies"]:
                    self.use(p)
                indices, samples = self.servers.fragments[p].indices, part["samples"]
                part.update(
                    steps=0, samples=0, sent=True, flies=True, answer=None, uses_in=self.f["overlap_steps"]
                )
                deliver(
                    p, {"d": [self.y[i] - self.x[i] for i in indices], "samples": samples}, part["version"]
                )

    def answered(self, p, late):
        fragment = self.servers.fragments[p]
        self.parts[p]["answer"] = (list(fragment.w), fragment.version)
        self.lates += late

    def use(self, p):
        part, alpha = self.parts[p], self.f.get("blend", 0.0)
        (weights, part["version"]), part["flies"], part["answer"] = part["answer"], False, None
        for w, i in zip(weights, self.servers.fragments[p].indices):
            self.x[i] = alpha * self.x[i] + (1 - alpha) * w
            self.y[i] = w


def trajectory(name, case, seed):
    job, pace, changes = case
    source = random.Random(seed)
    initial, curvature = golden.vector(source), golden.vector(source, 0.2, 1.5)
    targets = [[golden.vector(source) for _ in range(3)] for _ in range(job["workers"])]
    taken = [0] * job["workers"]
    count = job["algorithm"]["contribution"]["pseudo_gradient"]["fragments"]
    fragments = [
        Fragment([i for i in range(N) if i // CHUNK % count == p], initial, job["optimizer"])
        for p in range(count)
    ]
    servers = Servers(job, fragments, min(pace))

    def gradient_of(i):
        def gradient(x):
            target = targets[i][taken[i] % len(targets[i])]
            taken[i] += 1
            return [k * (a - b) for k, a, b in zip(curvature, x, target)]

        return gradient

    workers = {i: Worker(job, i, servers, gradient_of(i)) for i in range(job["workers"])}
    due = {i: round(pace[i] * source.uniform(0.8, 1.2), 3) for i in workers}
    events, updates, lates, now = [], [], [0] * job["workers"], 0.0
    delay = 0.0  # by which the clock of the servers is late

    def give(answers):
        for worker, p, late in answers:
            if worker in workers:
                workers[worker].answered(p, late)
        for worker, p, version in servers.calls:
            if worker in workers:
                workers[worker].parts[p]["called"] = version
        servers.calls.clear()

    while len(events) < EVENTS:
        before = [fragment.version for fragment in fragments]
        change = changes.get(len(events))
        i = min(due, key=lambda worker: (due[worker], worker))
        deadlines = [fragment.deadline for fragment in fragments if fragment.deadline is not None]
        tick = math.ceil((min(deadlines) + delay) * 1000 + 0.5) / 1000 if deadlines else math.inf
        if change is not None:
            kind, who = change
            if kind == "leave":
                lates[who] += workers.pop(who).lates
                due.pop(who)
                give(servers.leave(who, now))
            else:
                servers.members.add(who)
                give(servers.advance_all(now))
                workers[who] = Worker(job, who, servers, gradient_of(who))
                due[who] = now + pace[who]
            events.append({"kind": kind, "worker": who, "at": now})
        elif tick <= due[i]:
            now, delay = tick, source.choice([0.0, 0.0, 0.3])
            events.append({"kind": "tick", "at": now})
            give(servers.advance_all(now))
        elif workers[i].would_wait():
            due[i] = round(due[i] + 0.05, 3)
            continue
        else:
            now = due[i]
            assert all(abs(now - deadline) > 1e-6 for deadline in deadlines)
            events.append({"kind": "step", "worker": i, "at": now})
            workers[i].step(lambda p, push, version: give(servers.push(i, p, push, version, now)))
            due[i] = round(now + pace[i] * source.uniform(0.8, 1.2), 3)
        updates += [
            {
                "event": len(events) - 1,
                "indices": fragment.indices,
                "center": [float(f"{x:.9g}") for x in fragment.w],
            }
            for p, fragment in enumerate(fragments)
            if fragment.version != before[p]
        ]
    for i, worker in workers.items():
        lates[i] += worker.lates
    return {
        "name": name,
        "job": job,
        "step_seconds": servers.step_seconds,
        "initial": initial,
        "curvature": curvature,
        "targets": targets,
        "events": events,
        "updates": updates,
        "late": lates,
    }


def job(workers, consistency, contribution, local):
    contribution = {**contribution, "local_optimizer": {**local, **golden.CONSTANT}}
    return golden.job(
        workers,
        consistency,
        {"pseudo_gradient": contribution},
        {"kind": "SGD", "learning_rate": 0.7, "momentum": 0.9, "nesterov": True},
    )


SYNC = {"synchronous": {}}
ADAMW = {"kind": "ADAMW", "learning_rate": 0.02, "weight_decay": 0.1}
THREE = {"local_steps": 6, "fragments": 3, "overlap_steps": 2}
TWO = {"local_steps": 4, "fragments": 2, "overlap_steps": 2}

# The job, the seconds of each worker's step, and workers that leave or join at an event.
CASES = {
    "streaming": (job(3, SYNC, {**THREE, "blend": 0.5}, golden.HEAVY), [1, 1, 1.5], {}),
    "streaming_overwrites": (job(2, SYNC, {**TWO, "overlap_steps": 1}, ADAMW), [1, 1.3], {}),
    # Several fragments fly at the same time.
    "streaming_far": (job(2, SYNC, {**THREE, "overlap_steps": 5, "blend": 0.25}, ADAMW), [1, 1.3], {}),
    "decoupled": (
        job(3, {"quorum": {"minimum": 1, "grace": 0.5}}, THREE, ADAMW),
        [1, 1.2, 2.9],
        {37: ("leave", 1), 58: ("join", 1)},
    ),
    "decoupled_of_two": (
        job(4, {"quorum": {"minimum": 2, "grace": 0.75}}, TWO, golden.HEAVY),
        [1, 1.1, 1.9, 4.2],
        {31: ("leave", 0), 52: ("join", 0)},
    ),
    "decoupled_at_once": (
        job(3, {"quorum": {"minimum": 1, "grace": 0}}, {**TWO, "blend": 0.5}, ADAMW),
        [1, 1.4, 2.2],
        {},
    ),
    "decoupled_of_all": (
        job(3, {"quorum": {"minimum": 3, "grace": 0.5}}, THREE, golden.HEAVY),
        [1, 1.2, 1.7],
        {40: ("leave", 2)},
    ),
}

if __name__ == "__main__":
    cases = [trajectory(name, case, seed) for seed, (name, case) in enumerate(CASES.items(), 1)]
    lines = ",\n".join(json.dumps(case) for case in cases)
    print(f'{{"format": "catchment fragments 1", "trajectories": [\n{lines}\n]}}')
