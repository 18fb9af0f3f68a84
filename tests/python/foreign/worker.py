#!/usr/bin/env python3
"""A worker in plain Python, written from docs/wire_protocol.md, docs/codecs.md and docs/job_reference.md.

    worker.py MASTER [FAULT]

It trains jobs with dense and relu layers on CSV files, with the contributions `gradient`, `elastic` and, with
SGD for its own steps, `pseudo_gradient`, and every codec, and refuses all others. It has no shared memory:
its payloads are in messages.
MASTER: HOST:PORT. FAULT: what it does wrong on purpose: `cut` breaks its connections in every third step,
with a push under way; `replace` opens a second stream in the third step, which ends the first; `model`
registers another model, and `hello` opens its streams with another model's fingerprint; `member` opens its
streams with an incarnation that the master has not given; `silent` reports no progress; `calls` leaves the
job when it has ignored three calls and has sent three contributions after that.

Exit codes: 0 the job is done, 1 it is not, for the reason on stderr.
"""

import os
import re
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import grpc
from proto import master_pb2, master_pb2_grpc, wire_pb2

import algorithms
from job_check import check
from model import Model, Unsupported, read_table
from shard import Replaced, Shard

PROTOCOL_VERSION = 7
DEADLINE = 10.0  # seconds for each call to the master
WAIT = 3.0  # of them, at the master
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def read_page(path="docs/wire_protocol.md"):
    """Returns the functions that the page gives in Python, which are used as they are there."""
    functions = {}
    with open(path) as page:
        exec(re.search(r"^```python\n(.*?)^```", page.read(), re.DOTALL | re.MULTILINE)[1], functions)
    return functions


PAGE = read_page()


class Lost(Exception):
    """The membership is over: register again."""


class Master:
    def __init__(self, address):
        self.stub = master_pb2_grpc.MasterServiceStub(grpc.insecure_channel(address))
        self.patience, self.token = 60.0, b""

    def metadata(self):
        return [("catchment-token-bin", self.token)]

    def call(self, name, request):
        give_up, pause = time.monotonic() + self.patience, 0.05
        while True:
            try:
                return getattr(self.stub, name)(request, timeout=DEADLINE, metadata=self.metadata())
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED):
                    raise Lost(error.details()) from error
                if error.code() not in AGAIN or time.monotonic() > give_up:
                    raise RuntimeError("%s: %s: %s" % (name, error.code().name, error.details())) from error
            time.sleep(pause)
            pause = min(1.0, 2 * pause)


class Membership:
    """From one registration to the next: a worker index, an incarnation, leases numbered from 1."""

    def __init__(self, client, me):
        self.client, self.me = client, me
        self.progress = master_pb2.Progress()
        self.reported = master_pb2.Progress()
        self.stop, self.lost, self.ended = False, None, threading.Event()
        self.last_push = 3  # the contribution that is the last one with the fault `calls`
        threading.Thread(target=self._send_heartbeats, daemon=True).start()
        self.shards = self._connect()
        parameters = algorithms.Parameters(self.shards, client.ranges)
        kind = client.job.algorithm.contribution.WhichOneof("kind")
        make = {
            "gradient": algorithms.Gradient,
            "elastic": algorithms.Elastic,
            "pseudo_gradient": algorithms.PseudoGradient,
        }[kind]
        self.algorithm = make(client.job, parameters, client.model.size)
        self.parameters = parameters

    def _send_heartbeats(self):
        wait = 0.0
        while not self.ended.wait(min(wait, self.me.heartbeat_timeout_seconds / 4)):
            request = master_pb2.HeartbeatRequest(
                worker=self.me.worker, incarnation=self.me.incarnation, progress=self.reported
            )
            try:
                reply = self.client.master.stub.Heartbeat(
                    request,
                    timeout=self.me.heartbeat_timeout_seconds / 3,
                    metadata=self.client.master.metadata(),
                )
                self.stop, wait = self.stop or reply.stop, reply.again_in_seconds
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    self.lost = error.details()
                    return

    def hello(self, shard):
        client = self.client
        other = 1 if client.fault == "hello" else 0
        return wire_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            job=client.job.name,
            fingerprint=PAGE["fingerprint"](client.model.tensors) ^ other,
            shard=shard,
            num_shards=len(client.servers),
            worker=self.me.worker,
            incarnation=self.me.incarnation + client.take_fault("member"),
            run_id=client.run_id,
            token=self.me.token,
        )

    def _connect(self):
        job = self.client.job
        sizes = [PAGE["block_sizes"](r, job.block_kib) for r in self.client.ranges]
        return [
            Shard(address, self.hello(s), sizes[s], job.compression, job.faults.connect_timeout_seconds)
            for s, address in enumerate(self.client.servers)
        ]

    # ----------------------------------------------------------------------------------------------- training

    def train(self):
        number, started = 0, False
        while not self.stop:
            lease = self.client.master.call(
                "GetLease",
                master_pb2.GetLeaseRequest(
                    worker=self.me.worker,
                    incarnation=self.me.incarnation,
                    after=number,
                    progress=self.reported,
                    wait_seconds=WAIT,
                ),
            )
            if lease.state == lease.FINISHED:
                return None if lease.stopped or not started else self.algorithm.finish()
            if lease.state == lease.WAIT:
                if lease.flush and started:
                    self.algorithm.finish()
                time.sleep(lease.retry_seconds)
                continue
            number = lease.number
            if not started:
                for shard in self.shards:
                    shard.open()
                self.algorithm.start(lease.first_version)
                started = True
            self._work_on(lease)
        return None

    def _work_on(self, lease):
        for done, minibatch in enumerate(lease.minibatches):
            if self.stop:
                return
            if self.lost:
                raise Lost(self.lost)
            self._step(minibatch, lease.total_samples)
            self.progress.steps += 1
            self.progress.lease, self.progress.lease_steps = lease.number, done + 1
            report = master_pb2.Progress()
            report.CopyFrom(self.progress)
            if self.client.fault != "silent":
                self.reported = report

    def _step(self, minibatch, total_samples):
        client, spans = self.client, minibatch.spans
        samples = [client.order(span.epoch)[i] for span in spans for i in range(span.begin, span.end)]
        progress = 0.0
        if spans and total_samples > 0:
            progress = (spans[0].epoch * len(client.labels) + spans[0].begin) / total_samples

        def gradient(weights):
            values, loss, correct = client.model.gradient(
                weights, client.inputs[samples], client.labels[samples]
            )
            self.progress.loss_sum += loss
            self.progress.correct += correct
            self.progress.samples += len(samples)
            return values

        third = (self.progress.steps + 1) % 3 == 0
        self.parameters.cut_next = third and client.fault == "cut"
        if third and client.take_fault("replace"):
            intruder = Shard(client.servers[0], self.hello(0), [], client.job.compression, 0)
            intruder.open()
            self.shards[0].await_end()
            intruder.close()
        self.algorithm.step(len(samples), progress, gradient)
        if client.fault == "calls":
            self._leave_after_calls()

    def _leave_after_calls(self):
        if sum(shard.calls for shard in self.shards) < 3:
            self.last_push = self.algorithm.pushes + 3
        elif self.algorithm.pushes >= self.last_push:
            print("ignored calls, and sent contributions after them", flush=True)
            self.stop = True

    def leave(self, reason, failed=False):
        self.ended.set()
        for shard in self.shards:
            shard.close()
        request = master_pb2.LeaveRequest(
            worker=self.me.worker,
            incarnation=self.me.incarnation,
            reason=reason,
            failed=failed,
            progress=self.reported,
        )
        try:
            return self.client.master.stub.Leave(
                request, timeout=DEADLINE, metadata=self.client.master.metadata()
            ).job_failed
        except grpc.RpcError:
            return ""


class Client:
    def __init__(self, address, fault):
        self.master, self.fault, self.orders = Master(address), fault, {}

    def run(self):
        while True:
            self._ask_for_job()
            try:
                me = self._register()
            except Lost as lost:
                print("asking for the job again:", lost, flush=True)
                continue
            membership = Membership(self, me)
            try:
                membership.train()
            except (Lost, Replaced) as lost:
                print("registering again:", lost, flush=True)
                failure = membership.leave("it registers again")
            except Exception as error:
                membership.leave(str(error), failed=True)
                raise
            else:
                failure = membership.leave("")
                if not failure:
                    return
            if failure:
                raise RuntimeError("the job has failed: " + failure)

    def _ask_for_job(self):
        reply = self.master.call("GetJob", master_pb2.GetJobRequest())
        if reply.protocol_version != PROTOCOL_VERSION:
            raise Unsupported("the master's protocol version is %d" % reply.protocol_version)
        check(reply.job)
        self.job, self.servers, self.run_id = reply.job, list(reply.servers), reply.run_id
        self.master.patience = self.job.faults.connect_timeout_seconds
        self.inputs, self.labels = read_table(self.job.data.table)
        self.model = Model(self.job)
        self.ranges = [
            PAGE["shard_range"](self.model.size, s, len(self.servers)) for s in range(len(self.servers))
        ]

    def _register(self):
        wrong = 1 if self.fault == "model" else 0
        me = self.master.call(
            "Register",
            master_pb2.RegisterRequest(
                tensors=[
                    master_pb2.TensorInfo(name=name, shape=[shape[0] + wrong, *shape[1:]])
                    for name, shape in self.model.tensors
                ],
                train_samples=len(self.labels),
                host="localhost",
                pid=os.getpid(),
                device="python",
                run_id=self.run_id,
                protocol_version=PROTOCOL_VERSION,
            ),
        )
        self.master.token = me.token
        return me

    def order(self, epoch):
        if epoch not in self.orders:
            self.orders = {epoch: PAGE["epoch_order"](self.job.seed, epoch, len(self.labels))}
        return self.orders[epoch]

    def take_fault(self, fault):
        """Returns 1 the first time that it is asked for the fault to make, otherwise 0."""
        if self.fault != fault:
            return 0
        self.fault = ""
        return 1


def main():
    client = Client(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    try:
        client.run()
    except (RuntimeError, Unsupported) as error:
        sys.exit("worker.py: %s" % error)


if __name__ == "__main__":
    main()
