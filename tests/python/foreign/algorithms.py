"""The worker's half of the contributions `gradient`, `elastic` and `pseudo_gradient`, as
docs/wire_protocol.md and docs/job_reference.md describe them."""

import math

import numpy
from proto import wire_pb2

Block = wire_pb2.Block


def learning_rate(optimizer, progress):
    """The schedules CONSTANT and COSINE, with a warm-up."""
    schedule = optimizer.schedule
    p = min(max(progress, 0.0), 1.0)

    def decay(q):
        if schedule.decay == schedule.CONSTANT:
            return 1.0
        return schedule.final_fraction + (1 - schedule.final_fraction) * (1 + math.cos(math.pi * q)) / 2

    if p < schedule.warmup:
        return optimizer.learning_rate * decay(0) * p / schedule.warmup
    return optimizer.learning_rate * decay((p - schedule.warmup) / (1 - schedule.warmup))


class Parameters:
    """All shards together, as one flat vector."""

    def __init__(self, shards, ranges):
        self.shards, self.ranges = shards, ranges
        self.cut_next = False

    def pull(self, version, into):
        for shard in self.shards:
            shard.pull(version)
        return self._finish(into)

    def send(self, operation, values, samples, steps, into):
        """Returns whether the answers have values, where they should; they are written to `into`."""
        for shard, (begin, end) in zip(self.shards, self.ranges):
            shard.push(operation, values[begin:end], samples, steps)
        return self._finish(None if operation == Block.PUSH else into)

    def _finish(self, into):
        if self.cut_next:
            self.cut_next = False
            for shard in self.shards:
                shard.cut()
        good = True
        for shard, (begin, end) in zip(self.shards, self.ranges):
            answers = shard.finish()
            if into is not None:
                good = shard.values_of(answers, into[begin:end]) and good
        return good


class Gradient:
    """Pushes what has accrued every push_period steps, and fetches weights every fetch_period steps."""

    def __init__(self, job, parameters, size):
        self.config, self.parameters = job.algorithm.contribution.gradient, parameters
        self.x, self.accrued = numpy.zeros(size, numpy.float32), numpy.zeros(size, numpy.float32)
        self.steps = self.pushed_steps = self.samples = 0

    def start(self, version):
        self.parameters.pull(version, self.x)

    def step(self, samples, progress, gradient):
        del progress  # the servers have the learning rate
        self.steps += 1
        if samples > 0:
            self._accrue(samples, gradient(self.x))
        push = self.steps % self.config.push_period == 0
        fetch = self.steps % self.config.fetch_period == 0
        if push:
            self._push(Block.PUSH_PULL if fetch else Block.PUSH)
        elif fetch:
            self.parameters.pull(0, self.x)

    def _accrue(self, samples, g):
        self.x -= numpy.float32(self.config.local_learning_rate) * g
        self.samples += samples
        if self.config.mean:
            self.accrued += numpy.float32(samples / self.samples) * (g - self.accrued)
        else:
            self.accrued += g

    def _push(self, operation):
        self.parameters.send(operation, self.accrued, self.samples, self.steps, self.x)
        self.accrued[:], self.samples, self.pushed_steps = 0, 0, self.steps

    def finish(self):
        if self.pushed_steps != self.steps:
            self._push(Block.PUSH)


class Elastic:
    """Exchanges before steps 0, k, 2k, ... of its own, and once more at the end; EASGD,
    and EAMSGD with a momentum."""

    def __init__(self, job, parameters, size):
        self.period, self.optimizer = job.algorithm.contribution.elastic.communication_period, job.optimizer
        self.parameters = parameters
        self.momentum = numpy.float32(job.optimizer.momentum)
        self.x, self.v, self.d = (numpy.zeros(size, numpy.float32) for _ in range(3))
        self.steps = self.exchanged_steps = self.samples = 0

    def start(self, version):
        self.parameters.pull(version, self.x)

    def step(self, samples, progress, gradient):
        # The gradient is taken at the weights before the exchange.
        g = gradient(self.x + self.momentum * self.v) if samples > 0 else None
        if self.steps % self.period == 0 and not self._exchange():
            g = None if g is None else numpy.zeros_like(g)
        if samples > 0:
            rate = numpy.float32(learning_rate(self.optimizer, progress))
            self.v = self.momentum * self.v - rate * g
            self.x += self.v
        self.samples += samples
        self.steps += 1

    def _exchange(self):
        good = self.parameters.send(Block.EXCHANGE, self.x, self.samples, self.steps, self.d)
        self.exchanged_steps, self.samples = self.steps, 0
        if good:
            self.x -= self.d
        else:  # the weights are not finite any more: begin again from the center
            self.v[:] = 0
            self.parameters.pull(0, self.x)
        return good

    def finish(self):
        if self.exchanged_steps != self.steps:
            self._exchange()


class PseudoGradient:
    """Sends its move every local_steps steps, and at the end. It ignores calls, as a worker may."""

    def __init__(self, job, parameters, size):
        self.config, self.parameters = job.algorithm.contribution.pseudo_gradient, parameters
        self.momentum = numpy.float32(self.config.local_optimizer.momentum)
        self.x, self.y, self.v = (numpy.zeros(size, numpy.float32) for _ in range(3))
        self.steps = self.pushed_steps = self.samples = self.pushes = 0

    def start(self, version):
        self.parameters.pull(version, self.y)
        self.x[:] = self.y

    def step(self, samples, progress, gradient):
        if samples > 0:
            self.v = self.momentum * self.v + gradient(self.x)
            self.x -= numpy.float32(learning_rate(self.config.local_optimizer, progress)) * self.v
        self.samples += samples
        self.steps += 1
        if self.steps - self.pushed_steps == self.config.local_steps:
            self.finish()

    def finish(self):
        if self.pushed_steps == self.steps:
            return
        self.parameters.send(Block.PUSH_PULL, self.y - self.x, self.samples, self.steps, self.y)
        self.x[:], self.samples, self.pushed_steps = self.y, 0, self.steps
        self.pushes += 1
