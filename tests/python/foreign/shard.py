"""One server's shard of the weights: a Train stream that is opened again when it breaks."""

import queue
import threading
import time

import grpc
from proto import wire_pb2, wire_pb2_grpc

import block_codecs

Block = wire_pb2.Block
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)


class Replaced(Exception):
    """The server does not count on this registration any more: register again."""


class Shard:
    """Pushes, pulls and exchanges one after the other; each is a dictionary of requests by block."""

    def __init__(self, address, hello, sizes, compression, patience):
        # Channels of one process share a connection to an address otherwise.
        self.channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self.stub = wire_pb2_grpc.ShardServiceStub(self.channel)
        self.hello, self.sizes, self.patience = hello, sizes, patience
        self.begins = [sum(sizes[:b]) for b in range(len(sizes))]
        self.push_codec = codec_name(compression, compression.push)
        self.pull_codec = codec_name(compression, compression.pull)
        self.error_feedback = block_codecs.error_feedback(self.push_codec, compression, sum(sizes))
        self.versions = [0] * len(sizes)
        self.sequence = 0
        self.calls = 0
        self.condition = threading.Condition()
        self.call = None

    # ------------------------------------------------------------------------------------------ the stream

    def open(self):
        requests = queue.SimpleQueue()
        self.requests, self.ended = requests, None
        self.call = self.stub.Train(
            iter(requests.get, None), metadata=[("catchment-hello-bin", self.hello.SerializeToString())]
        )
        threading.Thread(target=self._read, args=(self.call,), daemon=True).start()

    def _read(self, call):
        """Takes answers until the stream ends; from its opening on,
        since the server stops reading otherwise."""
        code, why = grpc.StatusCode.UNAVAILABLE, "the stream was closed"
        try:
            for answer in call:
                # Not an answer, though its sequence is that of one to a pull.
                if answer.operation == Block.CALL:
                    self.calls += 1
                    continue
                with self.condition:
                    if self.waiting.pop((answer.sequence, answer.block), None) is not None:
                        self.answers[answer.block] = answer
                        # The next contribution is computed at the weights that came, if any did.
                        if answer.payload:
                            self.versions[answer.block] = answer.version
                        self.condition.notify()
        except grpc.RpcError as error:
            code, why = error.code(), error.details()
        with self.condition:
            if call is self.call:
                self.ended = (code, why)
                self.condition.notify()

    def cut(self):
        """Breaks the connection as a fault in the network would."""
        self.call.cancel()

    def await_end(self):
        with self.condition:
            self.condition.wait_for(lambda: self.ended)

    def close(self):
        if self.call is not None:
            self.requests.put(None)
            self.call.cancel()
        self.channel.close()

    # -------------------------------------------------------------------------------------------- requests

    def pull(self, version):
        self._send({b: Block(operation=Block.PULL, block=b, version=version) for b in range(len(self.sizes))})

    def push(self, operation, values, samples, steps):
        """Begins a contribution; `values` are the shard's. The next one begins when finish() has returned."""
        self.sequence += 1
        requests = {}
        for b, (begin, size) in enumerate(zip(self.begins, self.sizes)):
            payload, scale = self._encode(begin, values[begin : begin + size], samples)
            requests[b] = Block(
                operation=operation,
                sequence=self.sequence,
                version=self.versions[b],
                block=b,
                samples=samples,
                steps=steps,
                payload=payload,
            )
            if scale is not None:
                requests[b].scale = scale
        self._send(requests)

    def _encode(self, begin, values, samples):
        if self.error_feedback is not None:
            return self.error_feedback.encode(begin, values, samples), None
        return block_codecs.encode(self.push_codec, values)

    def _send(self, requests):
        with self.condition:
            self.answers = {}
            self.waiting = {(request.sequence, b): request for b, request in requests.items()}
        for request in requests.values():
            self.requests.put(request)

    def finish(self):
        """Returns the answers, by block, when all are there; opens the stream again where it breaks."""
        give_up = time.monotonic() + self.patience
        while True:
            with self.condition:
                self.condition.wait_for(lambda: not self.waiting or self.ended)
                if not self.waiting:
                    return self.answers
                code, why = self.ended
                unanswered = list(self.waiting.values())
            if code == grpc.StatusCode.ABORTED:
                raise Replaced(why)
            if code not in AGAIN or time.monotonic() > give_up:
                raise RuntimeError("shard %d ended the stream, %s: %s" % (self.hello.shard, code.name, why))
            time.sleep(0.05)
            self.requests.put(None)
            self.open()
            for request in unanswered:
                self.requests.put(request)

    def values_of(self, answers, into):
        """Writes what came back; False: nothing did, for a NaN in the contribution."""
        if any(not answer.payload for answer in answers.values()):
            return False
        for b, answer in answers.items():
            into[self.begins[b] : self.begins[b] + self.sizes[b]] = block_codecs.decode(
                self.pull_codec, answer.payload, answer.scale, self.sizes[b]
            )
        return True


def codec_name(compression, value):
    return compression.DESCRIPTOR.enum_types_by_name["Codec"].values_by_number[value].name
