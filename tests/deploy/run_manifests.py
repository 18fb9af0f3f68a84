#!/usr/bin/env python3
"""Runs the Pods of rendered manifests as local processes, for tests/deploy/kubernetes_test.sh.

    run_manifests.py MANIFESTS.yaml WORK BUNDLE [--kill=POD] [--kill_container=POD]
    [--delete=POD] [--exec=POD]

Each Pod has a network namespace, an address and the names that the cluster's DNS would give, the declared
commands, arguments, environment, user, read-only root and volumes, probes with their periods and thresholds,
restarts, and its grace period at the end. --kill: once all servers are ready and there is a checkpoint, that
Pod's program is killed once. --kill_container: then all processes of its container are, as where its node
runs out of memory. --delete: then that Pod is deleted once, as by a drain, and comes again. --exec: then
`catchment status` runs in that Pod, as by kubectl exec, and at a server's localhost, as through kubectl
port-forward, and metrics are read from Pods that declare a port for them.

Runs as root in mount, PID, network and UTS namespaces that the caller has created. Ends with exit code 0 when
every Job (of a JobSet: those of its success policy) is complete and all other Pods have ended within their
grace period; prints what went wrong otherwise.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import yaml

sys.stdout.reconfigure(line_buffering=True)
PATIENCE = 1800  # seconds for the whole job, also on a machine ten times slower than most
BACKOFF = 2  # seconds before a container's second start, then twice as many each time; the kubelet's: 10
SAVING = 90  # seconds: a checkpoint that cannot be saved is tried again for a minute (docs/operating.md)
AFTER = 12  # seconds that servers must stay alive after it: more than a liveness probe's period

# A root that holds the machine's programs, read-only, and the Pod's volumes. "$@": the command.
LAUNCH = r"""
set -e
mount --make-rprivate /
hostname "$POD"
mount -t tmpfs root "$ROOT"
mkdir -p "$ROOT"/{usr,proc,dev,etc,opt/catchment}
for link in bin sbin lib lib64; do ln -s "usr/$link" "$ROOT/$link"; done
mount --bind /usr "$ROOT/usr"
mount --bind /dev "$ROOT/dev"
mount -t proc proc "$ROOT/proc"
cp "$HOSTS" "$ROOT/etc/hosts"
echo "hosts: files" >"$ROOT/etc/nsswitch.conf"
mount --bind "$BUNDLE" "$ROOT/opt/catchment"
while read -r from to mode; do
  mkdir -p "$ROOT$to"
  mount --bind "$from" "$ROOT$to"
  [[ $mode == rw ]] || mount -o remount,bind,ro "$ROOT$to"
done <<<"$VOLUMES"
mount -o remount,ro "$ROOT"
exec chroot "$ROOT" setpriv --reuid="$USER_ID" --regid="$USER_ID" --clear-groups --no-new-privs \
  --bounding-set=-all "$@"
"""


def fail(message):
    print("FAILED:", message)
    sys.exit(1)


class Pod:
    """One Pod with its only container. `owner`: "StatefulSet" or the name of a Job."""

    def __init__(self, name, owner, index, subdomain, template, backoff):
        self.name, self.owner, self.index, self.subdomain = name, owner, index, subdomain
        self.labels = template["metadata"]["labels"]
        self.spec = template["spec"]
        self.grace = self.spec["terminationGracePeriodSeconds"]
        if len(self.spec["containers"]) != 1:
            fail(f"{name} has not exactly one container")
        self.container = self.spec["containers"][0]
        self.backoff = backoff
        self.process = None
        self.start_at = 0.0
        self.kill_at = None  # when the grace period of a deleted Pod ends
        self.restarts = 0
        self.life = 0  # counts the Pods of this name: a Job's that has failed is replaced
        self.done = self.started = self.ready = self.was_ready = False
        self.failures = {}  # of each kind of probe, one after the other
        self.due = {}
        self.probes = {}  # under way

    def env(self):
        """The image's, the kubelet's, the container's; $(NAME) refers to what is before."""
        env = {
            "PATH": "/opt/catchment/bin:/usr/local/bin:/usr/bin:/bin",
            "CATCHMENT_DATA": "/data",
            "PYTHONPATH": "/opt/catchment/python",
            "HOSTNAME": self.name,
        }
        if self.index is not None:
            env["JOB_COMPLETION_INDEX"] = str(self.index)
        for variable in self.container.get("env", []):
            env[variable["name"]] = expand(variable["value"], env)
        return env

    def check_restarts(self, cluster):
        """A StatefulSet starts a lost container again where it was, a Job a new Pod in its place, which only
        Pods that are never started again let it do without counting disruptions. A server has the time to
        save before it is killed."""
        policy = self.spec.get("restartPolicy", "Always")
        if policy != ("Always" if self.owner == "StatefulSet" else "Never"):
            fail(f"{self.name}: restartPolicy is {policy}")
        if self.backoff == 0:
            fail(f"{self.name}: backoffLimitPerIndex is 0, so that the first restart ends the job")
        if "readinessProbe" in self.container and self.grace < SAVING:
            fail(
                f"{self.name}: terminationGracePeriodSeconds is {self.grace}, and saving may take {SAVING} s"
            )
        if self.owner == "StatefulSet":
            budgets = [
                b["spec"]
                for b in cluster.of("PodDisruptionBudget")
                if b["spec"]["selector"]["matchLabels"].items() <= self.labels.items()
            ]
            if [b["maxUnavailable"] for b in budgets] != [1]:
                fail(f"{self.name}: drains do not take one server after the other: {budgets}")

    def check_security(self):
        pod, own = self.spec["securityContext"], self.container["securityContext"]
        wanted = {
            "runAsNonRoot": pod["runAsNonRoot"],
            "user": pod["runAsUser"] != 0,
            "readOnlyRootFilesystem": own["readOnlyRootFilesystem"],
            "allowPrivilegeEscalation": not own["allowPrivilegeEscalation"],
            "capabilities": own["capabilities"] == {"drop": ["ALL"]},
            "requests": bool(self.container["resources"]["requests"]),
        }
        for what, good in wanted.items():
            if not good:
                fail(f"{self.name}: securityContext or resources: {what}")

    def volumes(self, cluster):
        """Lines "FROM TO MODE" for LAUNCH."""
        sources = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        lines = []
        for mount in self.container.get("volumeMounts", []):
            source = cluster.volume(self, sources[mount["name"]])
            lines.append(f"{source} {mount['mountPath']} {'ro' if mount.get('readOnly') else 'rw'}")
        return "\n".join(lines)

    def start(self, cluster):
        root = os.path.join(cluster.work, "roots", self.name)
        os.makedirs(root, exist_ok=True)
        env = self.env()
        words = self.container.get("command", []) + self.container.get("args", [])
        command = ["env", "-i", *(f"{k}={v}" for k, v in env.items()), *(expand(w, env) for w in words)]
        launch = dict(
            os.environ,
            POD=self.name,
            ROOT=root,
            BUNDLE=cluster.bundle,
            HOSTS=os.path.join(cluster.work, "hosts"),
            VOLUMES=self.volumes(cluster),
            USER_ID=str(self.spec["securityContext"]["runAsUser"]),
        )
        log = open(os.path.join(cluster.work, f"{self.name}.log"), "ab")
        self.process = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                self.name,
                "unshare",
                "--mount",
                "--uts",
                "bash",
                "-c",
                LAUNCH,
                "bash",
                *command,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=launch,
        )
        self.started = "startupProbe" not in self.container
        self.ready = False
        self.failures, self.due, self.probes = {}, {}, {}

    def inside(self, command):
        """The command in the container, as the kubelet runs it."""
        user = str(self.spec["securityContext"]["runAsUser"])
        return [
            "nsenter",
            "--target",
            str(self.process.pid),
            "--net",
            "--mount",
            "--uts",
            "--root",
            "--wdns=/",
            "--setuid",
            user,
            "--setgid",
            user,
            "env",
            "-i",
            *(f"{k}={v}" for k, v in self.env().items()),
            *command,
        ]

    def start_probe(self, probe, cluster):
        if "grpc" in probe:
            where = f"{cluster.address(self)}:{probe['grpc']['port']}"
            command = [
                f"{cluster.bundle}/bin/catchment",
                "health",
                where,
                "--insecure",
                "--service=" + probe["grpc"].get("service", ""),
            ]
        else:
            command = self.inside(probe["exec"]["command"])
        log = open(os.path.join(cluster.work, f"{self.name}-probes.log"), "ab")
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def check_metrics(self, cluster):
        """Reads the metrics of a Pod that declares a port for them."""
        for port in (p["containerPort"] for p in self.container.get("ports", []) if p["name"] == "metrics"):
            with urllib.request.urlopen(f"http://{cluster.address(self)}:{port}/metrics") as answer:
                if b"catchment_" not in answer.read():
                    fail(f"{self.name} serves no metrics")

    def probe(self, kind, cluster, now):
        """None when there is no new answer; else whether the container passes, by its threshold."""
        probe = self.container.get(kind)
        if probe is None:
            return None
        if kind not in self.probes:
            if now >= self.due.get(kind, 0):
                self.due[kind] = now + probe.get("periodSeconds", 10)
                self.probes[kind] = self.start_probe(probe, cluster), now + probe.get("timeoutSeconds", 1)
            return None
        process, deadline = self.probes[kind]
        if process.poll() is None:
            if now < deadline:
                return None
            process.kill()
        del self.probes[kind]
        good = process.wait() == 0
        self.failures[kind] = 0 if good else self.failures.get(kind, 0) + 1
        if not good and self.failures[kind] < probe.get("failureThreshold", 3):
            return None
        return good

    def look_after(self, cluster, now):
        if self.done:
            return
        if self.process is None:
            if now >= self.start_at:
                self.start(cluster)
            return
        code = self.process.poll()
        if code is not None:
            self.kill_at = None
            self.on_end(code, now)
            return
        if self.kill_at is not None and now > self.kill_at:
            fail(f"{self.name} does not end within its grace period of {self.grace} s")
        if not self.started:
            passed = self.probe("startupProbe", cluster, now)
            if passed is False:
                fail(f"{self.name}: its startup probe failed for good")
            self.started = bool(passed)
            if passed:
                print(f"{self.name} has started")
            return
        if self.probe("livenessProbe", cluster, now) is False:
            fail(f"{self.name}: its liveness probe failed: the kubelet would kill it")
        ready = self.probe("readinessProbe", cluster, now)
        if ready is not None:
            if ready != self.ready:
                print(f"{self.name} is {'ready' if ready else 'not ready'}")
            self.ready = ready
            self.was_ready |= ready

    def on_end(self, code, now):
        if self.owner != "StatefulSet" and code == 0:
            self.done = True
            return
        print(f"{self.name} ended with exit code {code}, and is started again")
        self.restarts += 1
        if self.restarts > self.backoff:
            fail(f"{self.name} was started again {self.restarts} times")
        self.process = None
        self.life += self.owner != "StatefulSet"
        self.start_at = now + (BACKOFF * 2 ** (self.restarts - 2) if self.restarts > 1 else 0)

    def kill_program(self):
        """As the kernel does where memory is short: the container's program,
        not the script that started it."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            os.kill(int(children.read().split()[0]), signal.SIGKILL)

    def kill_container(self):
        """As the kubelet does: all processes of the container,
        the script that is its first one among them."""
        pids = [self.process.pid]
        for pid in pids:
            with open(f"/proc/{pid}/task/{pid}/children") as children:
                pids += map(int, children.read().split())
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def terminate(self):
        """As when a Pod is deleted."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(self.grace)
        except subprocess.TimeoutExpired:
            fail(f"{self.name} does not end within its grace period of {self.grace} s")
        print(f"{self.name} ended with exit code {code}, {time.monotonic() - begin:.1f} s after SIGTERM")
        if code != 0:
            fail(f"{self.name} ended with exit code {code} when it was deleted")


def expand(text, env):
    return re.sub(r"\$\(([A-Za-z_][A-Za-z_0-9]*)\)", lambda m: env.get(m.group(1), m.group(0)), text)


class Cluster:
    def __init__(self, manifests, work, bundle):
        self.work, self.bundle = work, bundle
        self.documents = [d for d in manifests if d]
        self.pods = []
        self.wanted = set()  # Jobs that must complete
        for document in self.documents:
            self.add(document)
        self.addresses = {pod.name: f"10.214.7.{10 + i}" for i, pod in enumerate(self.pods)}
        for pod in self.pods:
            pod.check_security()
            pod.check_restarts(self)

    def of(self, kind):
        return [d for d in self.documents if d["kind"] == kind]

    def add(self, document):
        name, spec = document["metadata"]["name"], document.get("spec", {})
        if document["kind"] == "StatefulSet":
            for i in range(spec["replicas"]):
                self.pods.append(
                    Pod(f"{name}-{i}", "StatefulSet", None, spec["serviceName"], spec["template"], 5)
                )
        elif document["kind"] == "Job":
            self.add_job(name, spec, None)
            self.wanted.add(name)
        elif document["kind"] == "JobSet":
            for replicated in spec["replicatedJobs"]:
                for r in range(replicated["replicas"]):
                    self.add_job(
                        f"{name}-{replicated['name']}-{r}",
                        replicated["template"]["spec"],
                        spec["network"]["subdomain"],
                    )
                    if replicated["name"] in spec["successPolicy"]["targetReplicatedJobs"]:
                        self.wanted.add(f"{name}-{replicated['name']}-{r}")

    def add_job(self, name, spec, subdomain):
        indexed = spec.get("completionMode") == "Indexed"
        for i in range(spec["completions"]):
            self.pods.append(
                Pod(
                    f"{name}-{i}",
                    name,
                    i if indexed else None,
                    subdomain,
                    spec["template"],
                    spec["backoffLimitPerIndex"],
                )
            )

    def has_names(self, pod):
        """Returns True if DNS knows the Pod: a headless Service selects it, ready or not;
        JobSet makes one by itself."""
        if pod.owner != "StatefulSet":
            return pod.subdomain is not None
        for service in self.of("Service"):
            spec = service["spec"]
            if (
                service["metadata"]["name"] == pod.subdomain
                and spec["clusterIP"] == "None"
                and spec.get("publishNotReadyAddresses")
                and spec["selector"].items() <= pod.labels.items()
            ):
                return True
        return False

    def address(self, pod):
        return self.addresses[pod.name]

    def volume(self, pod, volume):
        if "configMap" in volume:
            path = os.path.join(self.work, "volumes", "config-" + volume["configMap"]["name"])
        elif "secret" in volume:  # made by the test
            path = self.secret(pod, volume["secret"])
        elif "persistentVolumeClaim" in volume:
            path = os.path.join(self.work, "volumes", "claim-" + volume["persistentVolumeClaim"]["claimName"])
        else:
            path = os.path.join(self.work, "volumes", f"{pod.name}-{pod.life}-{volume['name']}")
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o777)
        if not os.path.isdir(path):
            fail(f"{pod.name} mounts {volume}, which no manifest declares")
        return path

    def secret(self, pod, secret):
        whole = os.path.join(self.work, "secrets", secret["secretName"])
        if "items" not in secret:
            return whole
        path = os.path.join(self.work, "volumes", f"{pod.name}-{secret['secretName']}")
        os.makedirs(path, exist_ok=True)
        for item in secret["items"]:
            shutil.copy(os.path.join(whole, item["key"]), os.path.join(path, item["path"]))
        return path

    def prepare(self):
        os.makedirs(os.path.join(self.work, "roots"))
        for config in self.of("ConfigMap"):
            path = os.path.join(self.work, "volumes", "config-" + config["metadata"]["name"])
            os.makedirs(path)
            for name, text in config["data"].items():
                with open(os.path.join(path, name), "w") as file:
                    file.write(text)
        for claim in self.of("PersistentVolumeClaim"):
            path = os.path.join(self.work, "volumes", "claim-" + claim["metadata"]["name"])
            os.makedirs(path)
            group = {p.spec["securityContext"].get("fsGroup") for p in self.pods} - {None}
            os.chown(path, 0, group.pop())
            os.chmod(path, 0o2775)
        with open(os.path.join(self.work, "hosts"), "w") as hosts:
            hosts.write("127.0.0.1 localhost\n")
            for pod in self.pods:
                names = [f"{pod.name}.{pod.subdomain}"] if self.has_names(pod) else []
                hosts.write(" ".join([self.address(pod), *names, pod.name]) + "\n")
        os.chmod(os.path.join(self.work, "hosts"), 0o644)

        def run(*words):
            return subprocess.run(words, check=True)

        run("ip", "link", "set", "lo", "up")
        run("mount", "-t", "tmpfs", "run", "/run")  # for `ip netns`
        run("ip", "link", "add", "pods", "type", "bridge")
        run("ip", "address", "add", "10.214.7.1/24", "dev", "pods")
        run("ip", "link", "set", "pods", "up")
        for i, (pod, address) in enumerate(self.addresses.items()):
            run("ip", "netns", "add", pod)
            run(
                "ip",
                "link",
                "add",
                f"pod{i}",
                "master",
                "pods",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                pod,
            )
            run("ip", "link", "set", f"pod{i}", "up")
            for words in (
                ("address", "add", address + "/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                run("ip", "--netns", pod, *words)

    def servers(self):
        return [pod for pod in self.pods if "readinessProbe" in pod.container]

    def complete(self):
        return all(pod.done for pod in self.pods if pod.owner in self.wanted)

    def run_until(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                fail(f"not within {seconds} s: {what}")
            for pod in self.pods:
                pod.look_after(self, time.monotonic())
            time.sleep(0.2)

    def run(self, kill, kill_container, delete, execute):
        self.prepare()
        for pod in self.pods:
            pod.start(self)
        name = kill or kill_container or delete
        if name or execute:
            self.run_until(
                lambda: all(p.ready for p in self.servers()) and self.has_checkpoint(),
                PATIENCE,
                "all servers are ready, and there is a checkpoint",
            )
            victim = next(p for p in self.pods if p.name == (name or execute))
            if execute:
                subprocess.run(victim.inside(["catchment", "status"]), check=True)
                if victim in self.servers():  # at the address that kubectl port-forward connects to
                    subprocess.run(victim.inside(["catchment", "status", "localhost:7000"]), check=True)
                for pod in self.pods:
                    pod.check_metrics(self)
            elif kill:
                victim.kill_program()
            elif kill_container:
                victim.kill_container()
            else:
                victim.process.send_signal(signal.SIGTERM)
                victim.kill_at = time.monotonic() + victim.grace
            print(f"{victim.name} is {'deleted' if delete else 'killed' if name else 'asked'}")
        self.run_until(self.complete, PATIENCE, "the job is complete")
        for pod in self.servers():
            if not pod.was_ready:
                fail(f"{pod.name} was never ready")
        restarted = {pod.name for pod in self.pods if pod.restarts}
        if not name and restarted:
            fail(f"started again: {restarted}")
        if name and name not in restarted:
            fail(f"{name} was not started again")
        if (kill or kill_container) and restarted != {name}:
            fail(f"only {name} was lost, and these were started again: {restarted}")
        print("the job is complete; started again:", sorted(restarted) or "none")
        before = {pod.name: pod.restarts for pod in self.pods}
        ends = time.monotonic() + AFTER
        if any(not pod.done for pod in self.pods):
            self.run_until(lambda: time.monotonic() > ends, AFTER + 60, "the time after the job")
        for pod in self.pods:
            if pod.restarts != before[pod.name]:
                fail(f"{pod.name} was started again after the job")
        for pod in self.pods:
            if not pod.done:
                pod.terminate()

    def has_checkpoint(self):
        claim = self.of("PersistentVolumeClaim")[0]["metadata"]["name"]
        path = os.path.join(self.work, "volumes", f"claim-{claim}", "checkpoints")
        return os.path.isdir(path) and any(
            os.path.exists(os.path.join(path, name, "manifest.textproto")) for name in os.listdir(path)
        )


def main():
    manifests, work, bundle = sys.argv[1:4]
    flags = dict(argument.split("=", 1) for argument in sys.argv[4:])
    with open(manifests) as file:
        cluster = Cluster(list(yaml.safe_load_all(file)), work, bundle)
    cluster.run(
        flags.get("--kill"), flags.get("--kill_container"), flags.get("--delete"), flags.get("--exec")
    )


main()
