#!/usr/bin/env python3
"""Works out the golden trajectories, trajectories.json, in double precision and from the papers' formulas
alone: nothing of the C++ code is used. README.md describes the format.

    tests/conformance/golden/make_golden.py > tests/conformance/golden/trajectories.json
"""

import json
import math
import random

N = 6  # parameters
TENSORS = [3, 1, 2]  # their sizes, where the optimizer takes norms over whole tensors
OPERATIONS = 60  # with the servers, in each trajectory


def vector(source, low=-1.0, high=1.0):
    # Few digits, so that float32 and double hold almost the same number.
    return [round(source.uniform(low, high), 3) for _ in range(N)]


def plus(a, b, factor=1.0):
    return [x + factor * y for x, y in zip(a, b)]


# ------------------------------------------------------------------------------------------------ optimizers
# step(w, g, rate, momentum=None): in place; PyTorch's definitions.


class Sgd:
    def __init__(self, momentum=0.0, nesterov=False):
        self.momentum, self.nesterov, self.v = momentum, nesterov, [0.0] * N

    def step(self, w, g, rate, momentum=None):
        mu = self.momentum if momentum is None else momentum
        for i in range(N):
            self.v[i] = mu * self.v[i] + g[i]
            w[i] -= rate * (g[i] + mu * self.v[i] if self.nesterov else self.v[i])


class DelayedNesterov:
    """arXiv:2401.09135, algorithm 3, with a momentum activation of 0."""

    def __init__(self, momentum, every):
        self.momentum, self.every, self.t = momentum, every, 0
        self.m, self.sum = [0.0] * N, [0.0] * N

    def step(self, w, g, rate, momentum=None):
        self.t += 1
        self.sum = plus(self.sum, g)
        moved = [x / self.every for x in g]
        if self.t % self.every == 0:
            self.m = [self.momentum * m + s / self.every for m, s in zip(self.m, self.sum)]
            self.sum = [0.0] * N
            moved = plus(moved, self.m, self.momentum)
        w[:] = plus(w, moved, -rate)


class Adam:
    def __init__(self, beta1=0.9, beta2=0.999, epsilon=1e-8, decay=0.0):
        self.beta1, self.beta2, self.epsilon, self.decay = beta1, beta2, epsilon, decay
        self.m, self.s, self.t = [0.0] * N, [0.0] * N, 0

    def step(self, w, g, rate, momentum=None):
        self.t += 1
        for i in range(N):
            w[i] *= 1 - rate * self.decay
            self.m[i] = self.beta1 * self.m[i] + (1 - self.beta1) * g[i]
            self.s[i] = self.beta2 * self.s[i] + (1 - self.beta2) * g[i] ** 2
            m = self.m[i] / (1 - self.beta1**self.t)
            s = self.s[i] / (1 - self.beta2**self.t)
            w[i] -= rate * m / (math.sqrt(s) + self.epsilon)


def norm(values):
    return math.sqrt(sum(x * x for x in values))


class Lars:
    """tensors: indices of each tensor's parameters."""

    def __init__(self, tensors, momentum=0.9, trust=0.001, decay=0.0, most=math.inf):
        self.tensors, self.mu, self.trust, self.decay, self.v = tensors, momentum, trust, decay, [0.0] * N
        self.most = most  # of the ratio: 1 is LARC

    def step(self, w, g, rate, momentum=None):
        for tensor in self.tensors:
            w_norm, g_norm = norm(w[i] for i in tensor), norm(g[i] for i in tensor)
            local = self.trust * w_norm / (g_norm + self.decay * w_norm) if w_norm > 0 and g_norm > 0 else 1.0
            local = min(local, self.most)
            for i in tensor:
                self.v[i] = self.mu * self.v[i] + rate * local * (g[i] + self.decay * w[i])
                w[i] -= self.v[i]


class Lamb:
    def __init__(self, tensors, decay=0.0):
        # Adam with rate 1 moves zeros by what LAMB calls the direction.
        self.tensors, self.decay, self.adam = tensors, decay, Adam(epsilon=1e-6)

    def step(self, w, g, rate, momentum=None):
        direction = [0.0] * N
        self.adam.step(direction, g, 1.0)
        u = [self.decay * x - d for x, d in zip(w, direction)]
        for tensor in self.tensors:
            w_norm, u_norm = norm(w[i] for i in tensor), norm(u[i] for i in tensor)
            for i in tensor:
                w[i] -= rate * (w_norm / u_norm if w_norm > 0 and u_norm > 0 else 1.0) * u[i]


def make_optimizer(config, sizes=(N,)):
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    tensors = [range(end - size, end) for end, size in zip(ends, sizes)]
    decay = config.get("weight_decay", 0.01 if config["kind"] == "ADAMW" else 0.0)
    if config["kind"] == "SGD":
        return Sgd(config.get("momentum", 0.0), config.get("nesterov", False))
    if config["kind"] in ("LARS", "LARC"):
        return Lars(
            tensors,
            config.get("momentum", 0.9),
            config.get("trust_coefficient", 0.001),
            decay,
            1.0 if config["kind"] == "LARC" else math.inf,
        )
    if config["kind"] == "LAMB":
        return Lamb(tensors, decay)
    return Adam(decay=decay)


# ---------------------------------------------------------------------------------------------- compensation


class Compensation:
    """Does what the servers do to contributions; `config` is algorithm.compensation."""

    BESIDE = ("delay_adaptive", "step_bound", "of")

    def __init__(self, config, optimizer_config):
        kinds = {name: fields for name, fields in (config or {}).items() if name not in self.BESIDE}
        ((self.kind, self.fields),) = kinds.items() if kinds else (("none", {}),)
        beside = config or {}
        self.threshold = beside.get("delay_adaptive", {}).get("threshold")
        self.of_gradient = beside.get("of") == "GRADIENT"
        self.bound = beside.get("step_bound", 1.5 if self.kind == "open_loop_momentum" else math.inf)
        self.target = optimizer_config.get("momentum", 0.0)
        self.eta = optimizer_config["learning_rate"]
        self.state, self.t, self.tau_mean = [0.0] * N, 0, None

    def factor(self, tau):
        factor = self.factor_of_kind(tau)
        return factor if self.threshold is None else factor * self.threshold / max(self.threshold, tau)

    def factor_of_kind(self, tau):
        if self.kind == "inverse":
            return 1 / max(1, tau)
        if self.kind == "power":
            return (1 + tau) ** -self.fields.get("exponent", 1)
        if self.kind == "exponential":
            return math.exp(-self.fields.get("rate", 0.1) * tau)
        return 1.0

    def gradient(self, g, w, sent):
        if self.kind == "delay_compensated":
            adaptive = self.fields.get("adaptive", False)
            lam = [self.fields.get("lambda", 2 if adaptive else 0.04)] * N
            if adaptive:
                m = self.fields.get("decay", 0.95)
                self.state = [m * s + (1 - m) * x * x for s, x in zip(self.state, g)]
                lam = [c / math.sqrt(s + 1e-7) for c, s in zip(lam, self.state)]
            return [x + c * x * x * (a - b) for x, c, a, b in zip(g, lam, w, sent)]
        if self.kind == "gap_aware":
            corrected = [s / (1 - 0.999**self.t) if self.t else 0.0 for s in self.state]
            usual = [self.eta * (math.sqrt(s) + 1e-8) for s in corrected]
            return [x / (1 + abs(a - b) / u) for x, a, b, u in zip(g, w, sent, usual)]
        return g

    def momentum(self, tau):
        """The momentum and the rate's factor; None where the optimizer keeps its own."""
        a = self.fields.get("averaging", 0.01 if self.kind == "open_loop_momentum" else 0.1)
        self.tau_mean = tau if self.tau_mean is None else (1 - a) * self.tau_mean + a * tau
        if self.kind != "open_loop_momentum":
            return None, min(1.0, self.bound / (1 + self.tau_mean))
        mu = self.target - self.tau_mean / (1 + self.tau_mean)
        mu = min(max(mu, self.fields.get("min_momentum", 0.0)), self.target)
        wanted = ((1 - mu) / (1 - self.target)) ** self.fields.get("rate_correction", 0.7)
        return mu, min(wanted, self.bound / ((1 - self.target) * (1 + self.tau_mean)))

    def stepped(self, optimizer):
        self.t += 1
        if self.kind == "gap_aware":
            self.state = [0.999 * s + 0.001 * v * v for s, v in zip(self.state, optimizer.v)]


# --------------------------------------------------------------------------------------------------- servers


class Push:
    def __init__(self, worker, values, samples, version, sent):
        self.worker, self.values, self.samples = worker, values, samples
        self.version, self.sent = version, sent


class Servers:
    """One center. push() returns the workers that are answered now."""

    def __init__(self, job, initial, tensors):
        self.algorithm, self.workers = job["algorithm"], job["workers"]
        self.optimizer_config = job["optimizer"]
        self.w, self.version = list(initial), 0
        ((self.consistency, self.setting),) = self.algorithm["consistency"].items()
        self.groups = 1 if self.consistency == "synchronous" else self.setting.get("groups", 0)
        self.elastic = self.algorithm["contribution"].get("elastic")
        self.optimizer = make_optimizer(self.optimizer_config, tensors)
        delayed = self.algorithm.get("compensation", {}).get("delayed_nesterov")
        if delayed is not None:
            self.optimizer = DelayedNesterov(self.optimizer_config["momentum"], delayed["every"])
        self.compensation = Compensation(self.algorithm.get("compensation"), self.optimizer_config)
        self.waiting = []  # pushes
        self.held = []  # pushes of SSP whose answer is held back
        self.base = [0] * max(1, self.groups)
        self.clocks = [0] * self.workers
        self.differences = {}

    def apply(self, pushes):
        pushes = sorted(pushes, key=lambda push: push.worker)
        if self.elastic is not None:
            center = list(self.w)
            for push in pushes:
                d = [self.elastic["moving_rate"] * (x - c) for x, c in zip(push.values, center)]
                self.differences[push.worker] = d
                self.w = plus(self.w, d)
            self.version += 1
            return
        samples = sum(push.samples for push in pushes)
        total, weight = [0.0] * N, 0.0
        for push in pushes:
            share = push.samples * self.compensation.factor(self.version - push.version)
            total = plus(total, self.compensation.gradient(push.values, self.w, push.sent), share)
            weight += share
        mu, rate_factor = self.compensation.momentum(self.version - pushes[0].version)
        divisor = samples if self.compensation.of_gradient else weight
        rate = self.optimizer_config["learning_rate"] * divisor / samples * rate_factor
        self.optimizer.step(self.w, [x / divisor for x in total], rate, mu)
        self.compensation.stepped(self.optimizer)
        self.version += 1

    def push(self, push):
        if self.groups > 0:
            return self.push_to_group(push, push.worker % self.groups)
        if self.consistency == "n_softsync":
            self.waiting.append(push)
            size = self.setting.get("size")
            due = max(1, self.workers // self.setting["n"]) if size is None else min(size, self.workers)
            if len(self.waiting) >= due:
                pushes, self.waiting = self.waiting, []
                self.apply(pushes)
            return [push.worker]
        delay = self.setting.get("emulated_delay", 0)
        if delay:
            self.waiting.append(push)
            if len(self.waiting) > delay:
                self.apply([self.waiting.pop(0)])
            return [push.worker]
        if self.version - push.version >= self.setting.get("staleness_limit", math.inf):
            return [push.worker]  # too old: dropped
        self.apply([push])
        if self.consistency == "bounded_staleness":
            self.clocks[push.worker] += 1
            self.held.append(push.worker)
            free = [i for i in self.held if self.clocks[i] <= min(self.clocks) + self.setting["bound"]]
            self.held = [i for i in self.held if i not in free]
            return free
        return [push.worker]

    def push_to_group(self, push, group):
        groups, backup_workers = self.groups, self.setting.get("backup_workers", 0)
        if push.version < self.base[group]:
            return [push.worker]  # too late: dropped
        self.waiting.append(push)
        mine = [p for p in self.waiting if p.worker % groups == group]
        members = len([i for i in range(self.workers) if i % groups == group])
        if len(mine) < max(1, members - backup_workers):
            return []
        self.waiting = [p for p in self.waiting if p.worker % groups != group]
        self.apply(mine)
        self.base[group] = self.version
        return [p.worker for p in mine]


# --------------------------------------------------------------------------------------------------- workers


class Worker:
    """Its own weights x, and what it sends. gradient(x) is that of its next minibatch."""

    def __init__(self, job, index, initial, gradient):
        ((self.kind, self.fields),) = job["algorithm"]["contribution"].items()
        self.index, self.gradient, self.x, self.version = index, gradient, list(initial), 0
        self.sent, self.samples = list(initial), index + 1
        self.rate = job["optimizer"]["learning_rate"]
        self.delta = job["optimizer"].get("momentum", 0.0)
        self.v, self.pending = [0.0] * N, None
        self.proxy, self.last = [0.0] * N, None
        if self.kind == "pseudo_gradient":
            self.inner = make_optimizer(self.fields["local_optimizer"])
        self.exchanges = 0

    def contribution(self):
        f = self.fields
        if self.kind == "gradient":
            period, total = f.get("push_period", 1), [0.0] * N
            for _ in range(period):
                g = self.gradient(self.x)
                total = plus(total, g)
                self.x = plus(self.x, g, -f.get("local_learning_rate", 0.0))
            return total, self.samples * period
        if self.kind == "look_ahead":
            mu, g = f.get("momentum", 0.9), self.gradient(self.x)
            self.v = plus(g, self.v, mu)
            return plus(g, self.v, mu), self.samples
        if self.kind == "pseudo_gradient":
            for _ in range(f["local_steps"]):
                self.inner.step(self.x, self.gradient(self.x), f["local_optimizer"]["learning_rate"])
            return plus(self.sent, self.x, -1.0), self.samples * f["local_steps"]
        if self.kind == "energy_matching":
            u = [-f.get("learning_rate", 0.01) * g for g in self.gradient(self.x)]
            self.proxy = plus(u, self.proxy, f.get("momentum", 0.9))
            c = [0.0] * N if self.last is None else plus(self.x, self.last, -1.0)
            self.last = list(self.x)
            pi = [
                min(max((f.get("energy", 1.0) * abs(m) - abs(d)) / (abs(y) + 1e-16), 0), 5)
                for m, d, y in zip(self.proxy, c, u)
            ]
            return [-p * y for p, y in zip(pi, u)], self.samples
        # Elastic: the steps between the last exchange and this one; the gradient of the step that exchanges
        # is taken before x moves.
        for step in range(f["communication_period"] if self.exchanges else 0):
            if step > 0:
                self.pending = self.own_gradient()
            self.move()
        self.exchanges += 1
        self.pending = self.own_gradient()
        return list(self.x), self.samples * (f["communication_period"] if self.exchanges > 1 else 0)

    def own_gradient(self):
        return self.gradient(plus(self.x, self.v, self.delta))

    def move(self):
        self.v = [self.delta * v - self.rate * g for v, g in zip(self.v, self.pending)]
        self.x = plus(self.x, self.v)

    def answered(self, servers):
        if self.kind == "elastic":
            self.x = plus(self.x, servers.differences[self.index], -1.0)
        else:
            self.x, self.sent = list(servers.w), list(servers.w)
        self.version = servers.version


# ---------------------------------------------------------------------------------------------- trajectories


def trajectory(name, job, seed):
    source = random.Random(seed)
    initial, curvature = vector(source), vector(source, 0.2, 1.5)
    targets = [[vector(source) for _ in range(5)] for _ in range(job["workers"])]
    taken = [0] * job["workers"]

    def gradient_of(i):
        def gradient(x):
            target = targets[i][taken[i] % len(targets[i])]
            taken[i] += 1
            return [k * (a - b) for k, a, b in zip(curvature, x, target)]

        return gradient

    tensors = TENSORS if job["optimizer"]["kind"] in ("LARS", "LARC", "LAMB") else [N]
    servers = Servers(job, initial, tensors)
    workers = [Worker(job, i, initial, gradient_of(i)) for i in range(job["workers"])]
    ready, order, centers, versions = set(range(job["workers"])), [], [], []
    for _ in range(OPERATIONS):
        i = source.choice(sorted(ready))
        values, samples = workers[i].contribution()
        for answered in servers.push(Push(i, values, samples, workers[i].version, workers[i].sent)):
            workers[answered].answered(servers)
            ready.add(answered)
        if not answered_now(servers, i):
            ready.discard(i)
        order.append(i)
        centers.append([float(f"{x:.9g}") for x in servers.w])
        versions.append(servers.version)
    return {
        "name": name,
        "job": job,
        "tensors": tensors,
        "initial": initial,
        "curvature": curvature,
        "targets": targets,
        "order": order,
        "centers": centers,
        "versions": versions,
    }


def answered_now(servers, i):
    return i not in servers.held and (servers.groups == 0 or all(p.worker != i for p in servers.waiting))


def job(workers, consistency, contribution, optimizer, compensation=None):
    algorithm = {"consistency": consistency, "contribution": contribution}
    if compensation is not None:
        algorithm["compensation"] = compensation
    return {"workers": workers, "algorithm": algorithm, "optimizer": {**optimizer, **CONSTANT}}


SYNC, ASYNC = {"synchronous": {}}, {"asynchronous": {}}
DELAYED = {"asynchronous": {"emulated_delay": 5}}
GRADIENT = {"gradient": {}}
CONSTANT = {"schedule": {"decay": "CONSTANT"}}
PLAIN = {"kind": "SGD", "learning_rate": 0.1, "momentum": 0}
HEAVY = {"kind": "SGD", "learning_rate": 0.05, "momentum": 0.8}
NESTEROV = {**HEAVY, "nesterov": True}
LARS = {
    "kind": "LARS",
    "learning_rate": 0.5,
    "momentum": 0.8,
    "trust_coefficient": 0.05,
    "weight_decay": 0.02,
}
LARC = {**LARS, "kind": "LARC", "learning_rate": 0.1, "trust_coefficient": 0.5}
LAMB = {"kind": "LAMB", "learning_rate": 0.02, "weight_decay": 0.1}

CASES = {
    "sync": job(3, SYNC, GRADIENT, HEAVY),
    "downpour": job(3, ASYNC, GRADIENT, HEAVY),
    "downpour_periods": job(3, ASYNC, {"gradient": {"push_period": 3, "local_learning_rate": 0.05}}, PLAIN),
    "adam": job(2, ASYNC, GRADIENT, {"kind": "ADAM", "learning_rate": 0.02}),
    "nesterov": job(2, ASYNC, GRADIENT, NESTEROV),
    "easgd": job(3, ASYNC, {"elastic": {"communication_period": 2, "moving_rate": 0.3}}, PLAIN),
    "easgd_sync": job(3, SYNC, {"elastic": {"communication_period": 2, "moving_rate": 0.3}}, PLAIN),
    "eamsgd": job(3, ASYNC, {"elastic": {"communication_period": 3, "moving_rate": 0.2}}, NESTEROV),
    "inverse": job(4, ASYNC, GRADIENT, HEAVY, {"inverse": {}}),
    "power": job(4, ASYNC, GRADIENT, HEAVY, {"power": {"exponent": 0.5}}),
    "exponential": job(4, ASYNC, GRADIENT, HEAVY, {"exponential": {"rate": 0.3}}),
    "dc_asgd": job(4, ASYNC, GRADIENT, PLAIN, {"delay_compensated": {"lambda": 0.5}}),
    "dc_asgd_adaptive": job(
        4, ASYNC, GRADIENT, PLAIN, {"delay_compensated": {"adaptive": True, "lambda": 0.2, "decay": 0.9}}
    ),
    "gap_aware": job(4, ASYNC, GRADIENT, HEAVY, {"gap_aware": {}}),
    "sync_backup": job(4, {"synchronous": {"backup_workers": 1}}, GRADIENT, HEAVY),
    "hybrid": job(4, {"grouped": {"groups": 2}}, GRADIENT, HEAVY),
    "hybrid_inverse": job(
        5, {"grouped": {"groups": 2, "backup_workers": 1}}, GRADIENT, HEAVY, {"inverse": {}}
    ),
    "softsync": job(4, {"n_softsync": {"n": 1}}, GRADIENT, HEAVY),
    "softsync_power": job(5, {"n_softsync": {"n": 2}}, GRADIENT, PLAIN, {"power": {}}),
    "ssp": job(4, {"bounded_staleness": {"bound": 2}}, GRADIENT, HEAVY),
    "emulated_delay": job(2, DELAYED, GRADIENT, PLAIN),
    "emulated_delay_dc_asgd": job(2, DELAYED, GRADIENT, PLAIN, {"delay_compensated": {"lambda": 0.5}}),
    "dana": job(3, ASYNC, {"look_ahead": {"momentum": 0.8}}, PLAIN),
    "gem": job(
        3,
        ASYNC,
        {"energy_matching": {"learning_rate": 0.05, "momentum": 0.8, "energy": 1.5}},
        {"kind": "SGD", "learning_rate": 1, "momentum": 0},
    ),
    "local_sgd": job(
        3,
        SYNC,
        {"pseudo_gradient": {"local_steps": 3, "local_optimizer": {**HEAVY, **CONSTANT}}},
        {"kind": "SGD", "learning_rate": 1, "momentum": 0},
    ),
    "diloco": job(
        3,
        SYNC,
        {
            "pseudo_gradient": {
                "local_steps": 3,
                "local_optimizer": {"kind": "ADAMW", "learning_rate": 0.02, "weight_decay": 0.1, **CONSTANT},
            }
        },
        {"kind": "SGD", "learning_rate": 0.7, "momentum": 0.9, "nesterov": True},
    ),
    "staleness_aware": job(4, ASYNC, GRADIENT, HEAVY, {"open_loop_momentum": {"averaging": 0.2}}),
    "lars": job(3, ASYNC, GRADIENT, LARS),
    "lars_sync": job(3, SYNC, GRADIENT, LARS),
    "lamb": job(3, ASYNC, GRADIENT, LAMB),
    "lamb_hybrid_inverse": job(4, {"grouped": {"groups": 2}}, GRADIENT, LAMB, {"inverse": {}}),
    "delayed_nesterov": job(4, ASYNC, GRADIENT, NESTEROV, {"delayed_nesterov": {"every": 2}}),
    "diloco_async": job(
        3,
        ASYNC,
        {
            "pseudo_gradient": {
                "local_steps": 3,
                "local_optimizer": {"kind": "ADAMW", "learning_rate": 0.02, "weight_decay": 0.1, **CONSTANT},
            }
        },
        {"kind": "SGD", "learning_rate": 0.7, "momentum": 0.9, "nesterov": True},
        {"delayed_nesterov": {"every": 3}},
    ),
    "staleness_aware_bound": job(
        4,
        ASYNC,
        GRADIENT,
        HEAVY,
        {"open_loop_momentum": {"averaging": 0.5}, "step_bound": 0.3, "delay_adaptive": {"threshold": 3}},
    ),
    "delay_adaptive": job(4, ASYNC, GRADIENT, HEAVY, {"delay_adaptive": {"threshold": 2}}),
    "delay_adaptive_power": job(
        5,
        {"n_softsync": {"n": 2}},
        GRADIENT,
        HEAVY,
        {"delay_adaptive": {"threshold": 1}, "power": {"exponent": 0.5}},
    ),
    "delay_adaptive_dc_asgd": job(
        4, ASYNC, GRADIENT, PLAIN, {"delay_adaptive": {"threshold": 2}, "delay_compensated": {"lambda": 0.5}}
    ),
    "delay_adaptive_gap_aware": job(
        4, ASYNC, GRADIENT, HEAVY, {"delay_adaptive": {"threshold": 2}, "gap_aware": {}}
    ),
    "staleness_limit": job(4, {"asynchronous": {"staleness_limit": 3}}, GRADIENT, HEAVY),
    "staleness_limit_dana": job(
        3, {"asynchronous": {"staleness_limit": 2}}, {"look_ahead": {"momentum": 0.8}}, PLAIN
    ),
    "dana_bound": job(3, ASYNC, {"look_ahead": {"momentum": 0.8}}, PLAIN, {"step_bound": 1.5}),
    "gem_bound": job(
        3,
        ASYNC,
        {"energy_matching": {"learning_rate": 0.05, "momentum": 0.8, "energy": 1.5}},
        {"kind": "SGD", "learning_rate": 1, "momentum": 0},
        {"step_bound": 1.5, "delay_adaptive": {"threshold": 2}},
    ),
    "inverse_of_gradient": job(4, ASYNC, GRADIENT, HEAVY, {"inverse": {}, "of": "GRADIENT"}),
    "adam_of_step": job(
        4,
        ASYNC,
        GRADIENT,
        {"kind": "ADAM", "learning_rate": 0.02},
        {"delay_adaptive": {"threshold": 2}, "of": "STEP"},
    ),
    "adam_of_gradient": job(
        4,
        ASYNC,
        GRADIENT,
        {"kind": "ADAM", "learning_rate": 0.02},
        {"delay_adaptive": {"threshold": 2}, "of": "GRADIENT"},
    ),
    "softsync_power_of_gradient": job(
        5, {"n_softsync": {"n": 2}}, GRADIENT, HEAVY, {"power": {}, "of": "GRADIENT"}
    ),
    "gap_aware_of_gradient": job(
        4, ASYNC, GRADIENT, HEAVY, {"gap_aware": {}, "delay_adaptive": {"threshold": 2}, "of": "GRADIENT"}
    ),
    "lars_of_gradient": job(3, ASYNC, GRADIENT, LARS, {"inverse": {}, "of": "GRADIENT"}),
    "larc": job(3, ASYNC, GRADIENT, LARC),
    "larc_sync": job(3, SYNC, GRADIENT, LARC),
    "fedbuff": job(
        5,
        {"n_softsync": {"size": 3}},
        {"pseudo_gradient": {"local_steps": 2, "local_optimizer": {**HEAVY, **CONSTANT}}},
        {"kind": "SGD", "learning_rate": 0.3, "momentum": 0},
        {"power": {"exponent": 0.5}, "delay_adaptive": {"threshold": 5}},
    ),
    "fedbuff_of_few": job(
        2,
        {"n_softsync": {"size": 10}},
        {"pseudo_gradient": {"local_steps": 2, "local_optimizer": {**HEAVY, **CONSTANT}}},
        {"kind": "SGD", "learning_rate": 0.3, "momentum": 0},
        {"power": {"exponent": 0.5}},
    ),
    # The program's own optimizer steps along what it reports: the job's local step is the identity.
    "muloco": job(
        3,
        SYNC,
        {
            "pseudo_gradient": {
                "local_steps": 4,
                "local_optimizer": {"kind": "SGD", "learning_rate": 0.1, "momentum": 0, **CONSTANT},
            }
        },
        {"kind": "SGD", "learning_rate": 0.7, "momentum": 0.6, "nesterov": True},
    ),
}

if __name__ == "__main__":
    cases = [trajectory(name, case, seed) for seed, (name, case) in enumerate(CASES.items(), 1)]
    lines = ",\n".join(json.dumps(case) for case in cases)
    print(f'{{"format": "catchment trajectories 1", "trajectories": [\n{lines}\n]}}')
