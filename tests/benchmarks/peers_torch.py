"""PyTorch's side of peers.py: DistributedDataParallel on gloo, and a parameter server on PyTorch's RPC.

    peers_torch.py pytorch_ddp|pytorch_rpc WORKERS SECONDS BATCH DIRECTORY

Prints the samples per second of all workers together. Processes find each other through files in DIRECTORY.
"""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc
from torch.multiprocessing import spawn

from attached_program import ddp_steps_per_second, make_model

LEARNING_RATE = 0.01
WARM_UP = 20  # steps


def write_result(directory, rank, speed):
    with open(os.path.join(directory, f"speed-{rank}"), "w") as file:
        file.write(str(speed))


def make_mlp():
    """Returns the model and its minibatches."""
    torch.set_num_threads(1)
    return make_model("mnist_mlp")


def run_ddp(rank, workers, seconds, batch, directory):
    steps = ddp_steps_per_second(*make_mlp(), seconds, rank, workers, directory)
    write_result(directory, rank, steps * batch)


class ParameterServer:
    """The weights as one flat tensor; each call applies one worker's gradient and answers with the
    weights."""

    instance = None

    def __init__(self):
        self.lock = threading.Lock()
        self.weights = nn.utils.parameters_to_vector(make_mlp()[0].parameters()).detach()

    @staticmethod
    @rpc.functions.async_execution
    def exchange(gradient):
        server = ParameterServer.instance
        answer = torch.futures.Future()
        with server.lock:
            server.weights.add_(gradient, alpha=-LEARNING_RATE)
            answer.set_result(server.weights.clone())
        return answer


class FlatModel:
    """A model whose parameters and gradients are views of two flat tensors."""

    def __init__(self):
        self.model, self.batches = make_mlp()
        self.weights = nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()
        self.gradient = torch.zeros_like(self.weights)
        at = 0
        for parameter in self.model.parameters():
            part = slice(at, at + parameter.numel())
            parameter.data = self.weights[part].view_as(parameter)
            parameter.grad = self.gradient[part].view_as(parameter)
            at = part.stop


def run_rpc(rank, workers, seconds, batch, directory):
    if rank == workers:
        ParameterServer.instance = ParameterServer()
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=max(2, workers), init_method=f"file://{directory}/store"
    )
    name = "server" if rank == workers else f"worker{rank}"
    rpc.init_rpc(name, rank=rank, world_size=workers + 1, rpc_backend_options=options)
    if rank < workers:
        write_result(directory, rank, run_rpc_worker(workers, seconds, batch, directory))
    rpc.shutdown()


def run_rpc_worker(workers, seconds, batch, directory):
    flat = FlatModel()

    def run_step(step):
        x, y = flat.batches[step % len(flat.batches)]
        flat.gradient.zero_()
        nn.functional.cross_entropy(flat.model(x), y).backward()
        flat.weights.copy_(rpc.rpc_sync("server", ParameterServer.exchange, args=(flat.gradient,)))

    for step in range(WARM_UP):
        run_step(step)
    # Workers begin together.
    store = dist.FileStore(os.path.join(directory, "begin"), workers)
    store.add("arrived", 1)
    while store.add("arrived", 0) < workers:
        time.sleep(0.01)
    start, steps = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        run_step(steps)
        steps += 1
    return steps * batch / (time.monotonic() - start)


def main():
    system, workers, seconds, batch, directory = sys.argv[1:]
    workers = int(workers)
    run, processes = (run_ddp, workers) if system == "pytorch_ddp" else (run_rpc, workers + 1)
    spawn(run, (workers, float(seconds), int(batch), directory), nprocs=processes)
    speeds = []
    for rank in range(workers):
        with open(os.path.join(directory, f"speed-{rank}")) as file:
            speeds.append(float(file.read()))
    print(sum(speeds))


if __name__ == "__main__":
    main()
