"""The faults. Each is a function of a cluster and a random generator that does it,
and starts what it ended again."""

import os
import signal
import subprocess
import time


class Fault:
    """name: for people. loses: "server" if the state of one server is lost with its process, "all" if that of
    all is, "worker" if a worker is, otherwise "". Only faults with keeps_bits may happen to a run whose bits
    are compared: they lose no worker."""

    def __init__(self, name, do, loses="", keeps_bits=False, servers=1, needs=""):
        self.name, self.do, self.loses, self.keeps_bits = name, do, loses, keeps_bits
        self.servers, self.needs = servers, needs


def restart(cluster, processes):
    for process in processes:
        process.start()
    return time.monotonic()


def kill_master(cluster, random):
    cluster.servers[0].kill()
    time.sleep(random.choice([0, 0, 0.5, 2]))
    return restart(cluster, cluster.servers[:1])


def kill_server(cluster, random):
    server = random.choice(cluster.servers[1:])
    server.kill()
    time.sleep(random.choice([0, 0, 0.5, 2]))
    return restart(cluster, [server])


def kill_all_servers(cluster, random):
    for server in cluster.servers:
        server.signal(signal.SIGKILL)
    for server in cluster.servers:
        server.kill()
    order = list(cluster.servers)
    random.shuffle(order)
    return restart(cluster, order)


def kill_server_twice(cluster, random):
    """The second time while the job goes back because of the first."""
    server = random.choice(cluster.servers)
    server.kill()
    server.start()
    time.sleep(random.uniform(0, 1))
    server.kill()
    return restart(cluster, [server])


def kill_two_servers(cluster, random):
    """One after the other within a second, and back in either order: the second may be lost while the job
    goes back."""
    first, second = random.sample(cluster.servers, 2)
    first.kill()
    back = random.random() < 0.5
    if back:
        first.start()
    time.sleep(random.uniform(0, 1))
    second.kill()
    return restart(cluster, [second] if back else [second, first])


def stop_and_kill_servers(cluster, random):
    """One does not answer while another is lost and comes back."""
    stopped, killed = random.sample(cluster.servers, 2)
    stopped.signal(signal.SIGSTOP)
    killed.kill()
    begin = restart(cluster, [killed])
    time.sleep(random.uniform(0.1, 2))
    stopped.signal(signal.SIGCONT)
    return begin


def kill_evaluator(cluster, random):
    cluster.evaluators[0].kill()
    time.sleep(random.choice([0, 0, 1]))
    cluster.evaluators[0].start()


def stop_evaluator(cluster, random):
    """As when it scores for a long time."""
    pause(cluster.evaluators[0], random.uniform(0.1, 4))


def kill_worker(cluster, random):
    number = random.randrange(len(cluster.workers))
    cluster.workers[number].kill()
    time.sleep(random.choice([0, 1]))
    cluster.workers[number] = cluster.start_worker(number)


def pause(process, seconds):
    process.signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.signal(signal.SIGCONT)


def stop_server(cluster, random):
    pause(random.choice(cluster.servers), random.uniform(0.1, 3))


def stop_worker(cluster, random):
    pause(random.choice(cluster.workers), random.uniform(0.1, 4))


def cut_one(cluster, random):
    host = random.randrange(cluster.num_servers + len(cluster.workers))
    cluster.network.cut_one(host, True)
    time.sleep(random.uniform(0.1, 4))
    cluster.network.cut_one(host, False)


def cut_all(cluster, random):
    cluster.network.cut_all(True)
    time.sleep(random.uniform(0.1, 4))
    cluster.network.cut_all(False)


def fill_disk(cluster, random):
    """Checkpoints and metrics cannot be written for some seconds; out is a small tmpfs."""
    path = os.path.join(cluster.out, "filler")
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    time.sleep(random.uniform(0.5, 4))
    os.unlink(path)


def complete_checkpoints(cluster):
    directory = os.path.join(cluster.out, "checkpoints")
    names = os.listdir(directory) if os.path.isdir(directory) else []
    complete = [
        name
        for name in names
        if name.startswith("checkpoint-")
        and not name.endswith(".unusable")
        and os.path.exists(os.path.join(directory, name, "manifest.textproto"))
    ]
    return [os.path.join(directory, name) for name in sorted(complete, key=lambda n: int(n.split("-")[1]))]


def damage_checkpoint(cluster, random):
    """All servers are killed, and a file of the newest checkpoint is cut short or has a wrong byte; an older
    one is whole."""
    for server in cluster.servers:
        server.signal(signal.SIGKILL)
    for server in cluster.servers:
        server.kill()
    complete = complete_checkpoints(cluster)
    if len(complete) > 1:
        names = [name for name in os.listdir(complete[-1]) if name.endswith(".safetensors")]
        path = os.path.join(complete[-1], random.choice(sorted(names)))
        with open(path, "r+b") as file:
            size = os.path.getsize(path)
            place = random.randrange(size)
            if random.random() < 0.5:
                file.truncate(place)
            else:
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ (1 << random.randrange(8))]))
    return restart(cluster, cluster.servers)


def move(cluster, random):
    """All processes are killed and started again at other ports, as after a requeue on other machines."""
    for process in cluster.processes():
        process.signal(signal.SIGKILL)
    for process in cluster.processes():
        process.kill()
    cluster.choose_ports()
    cluster.servers = [cluster.make_server(i) for i in range(cluster.num_servers)]
    begin = restart(cluster, cluster.servers)
    cluster.workers = [cluster.start_worker(i) for i in range(len(cluster.workers))]
    cluster.evaluators = [cluster.start_evaluator() for _ in cluster.evaluators]
    return begin


FAULTS = [
    Fault("kill the master", kill_master, loses="server", keeps_bits=True),
    Fault("kill a server", kill_server, loses="server", keeps_bits=True, servers=2),
    Fault("kill all servers", kill_all_servers, loses="all", keeps_bits=True),
    Fault("kill a server twice", kill_server_twice, loses="server", keeps_bits=True),
    Fault("kill two servers", kill_two_servers, loses="all", keeps_bits=True, servers=2),
    Fault("stop a server, kill another", stop_and_kill_servers, loses="server", keeps_bits=True, servers=2),
    Fault("kill the evaluator", kill_evaluator, keeps_bits=True, needs="evaluator"),
    Fault("stop the evaluator", stop_evaluator, keeps_bits=True, needs="evaluator"),
    Fault("damage a checkpoint", damage_checkpoint, loses="all", keeps_bits=True),
    Fault("kill a worker", kill_worker, loses="worker"),
    Fault("stop a server", stop_server, keeps_bits=True),
    Fault("stop a worker", stop_worker, loses="worker"),
    Fault("cut off a host", cut_one, loses="worker", needs="switch"),
    Fault("cut off all hosts", cut_all, loses="worker", needs="switch"),
    Fault("fill the disk", fill_disk, keeps_bits=True, needs="mount"),
    Fault("move to other ports", move, loses="all"),
]


def mount_small(path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "chaos", path], check=True)
