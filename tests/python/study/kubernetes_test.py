#!/usr/bin/env python3
"""Tests runs on Kubernetes with a shell script in place of kubectl: the sequence of its calls. The file
`applied` names the directory of the run in the cluster, and the directory `volume` is its volume.
tests/deploy/kubernetes_test.sh renders the manifests with the real kubectl and trains with them."""

import os
import signal
import unittest
from unittest import mock

from catchment.study.errors import Usage
from catchment.study.launchers import Interrupted, kubernetes
from catchment.study.options import CompareOptions
from launcher_case import LauncherCase

DONE = """echo '{"phase": "DONE", "test_accuracy": 0.5, "wall_seconds": 3}' >volume/summary.json
echo '{"samples": 1000}' >volume/metrics.jsonl
echo weights >volume/model.safetensors"""
SYNC, DOWNPOUR = "sync-2-workers-seed-1", "downpour-2-workers-seed-1"
RESULTS = ("cp model.safetensors", "cp metrics.jsonl", "cp summary.json")


class KubectlLauncherTest(LauncherCase):
    def setUp(self):
        super().setUp()
        self.options.launcher = "kubectl"
        self.options.image = "registry.example/catchment:0.1.0"
        self.kubectl(DONE)
        # Prints how it was called, as manifests.
        self.program(
            "catchment",
            """for word; do
  case $word in --run=*) echo "  run: ${word#--run=}";; --out=*) ;; *) echo "# $word";; esac
done""",
        )
        patch = mock.patch.dict(os.environ, CATCHMENT_BINARY=self.root + "/catchment")
        patch.start()
        self.addCleanup(patch.stop)

    def kubectl(self, apply):
        """Makes kubectl, which does `apply` when a run, in the directory RUN, has been applied."""
        self.program(
            "kubectl",
            r"""run=$(dirname -- "$3")
[ "$1" != cp ] || run=$(dirname "$run")
[ "$1" = get ] || [ "$1" = exec ] || [ "$1" = logs ] || echo "$1 ${2##*/} $(basename "$run")" >>calls
case "$1 $2" in
  "get configmap") [ ! -e applied ] || echo "run=$(cat applied)";;
  "get job") [ ! -e applied ] || echo "failed=$(cat job_failed 2>/dev/null)";;
  "get pods") echo "catchment-server-0 0/1 Pending";;
  "apply -k")
    RUN=$(sed -n 's/^  run: //p' "$3/run.yaml")
    echo "$RUN" >applied
    mkdir volume
    %s
    ;;
  "exec catchment-server-0")
    for word; do command=$word; done
    [ -d volume ] || exit 1
    cat says 2>/dev/null
    sh -c "$(echo "$command" | sed "s:/out:$PWD/volume:g")";;
  "cp catchment-server-0:"*) cp -P "volume/${2##*/}" "$3";;
  "delete -k") rm -rf applied volume;;
  "logs catchment-server-0") echo "no such data";;
esac"""
            % apply,
        )

    def calls(self):
        """Returns the calls that change something."""
        return self.read("calls").splitlines()

    def launcher(self):
        launcher = kubernetes.KubectlLauncher(self.options, self.root + "/kubectl", self.signals)
        launcher.poll_seconds = 0.02
        return launcher

    def launch(self):
        if os.path.exists(self.root + "/calls"):
            os.remove(self.root + "/calls")
        super().launch()

    def interrupted(self):
        self.kubectl("")
        os.kill(os.getpid(), signal.SIGINT)
        error = self.refused(self.launch)
        self.assertIsInstance(error, Interrupted)
        self.assertEqual(error.exit_code, 128 + signal.SIGINT)

    def test_every_run_is_applied_collected_and_deleted(self):
        self.launch()
        calls = ("delete -k", "apply -k", *RESULTS, "delete -k")
        self.assertEqual(self.calls(), ["%s %s" % (call, run) for run in (SYNC, DOWNPOUR) for call in calls])
        self.assertPrinted(
            "sync, 2 workers, seed 1: applied; `kubectl get pods` shows its Pods\n",
            "[2/2] downpour, 2 workers, seed 1: 50.00 % in 3.0 s\n",
        )
        self.assertEqual(self.read("out/runs/%s/model.safetensors" % SYNC), "weights\n")
        self.assertEqual(
            sorted(os.listdir(self.options.out + "/runs/" + SYNC)),
            ["catchment.claim", "command.lock", "job.textproto", "logs", "manifests", "metrics.jsonl"]
            + ["model.safetensors", "summary.json"],
        )
        self.launch()
        self.assertEqual(self.calls(), [])
        self.assertPrinted("2 of 2 runs are already done\n")

    def test_files_that_a_pod_names_are_not_written_unless_they_are_results(self):
        self.write("victim", "mine")
        names = (
            "../../../victim",
            self.root + "/victim",
            "",
            ".",
            "..",
            "job.textproto",
            "summary.json/../x",
        )
        self.write("says", "".join("result=%s\n" % name for name in names))
        self.kubectl(DONE + "\nfor name in victim job.textproto x; do echo theirs >volume/$name; done")
        self.launch()
        self.assertPrinted("[2/2] downpour, 2 workers, seed 1: 50.00 %")
        self.assertEqual(self.read("victim"), "mine")
        for name in ("victim", "job.textproto", "cp x"):
            self.assertNotIn(name, self.read("calls"))

    def test_a_result_that_is_a_link_is_not_kept(self):
        self.options.stall_seconds = 0.1
        self.write("secret", "mine")
        self.kubectl("%s\nln -sf %s/secret volume/model.safetensors" % (DONE, self.root))
        self.launch()
        self.assertPrinted("copying its results failed: /out/model.safetensors is not a regular file")
        self.assertEqual(self.read("out/runs/%s/model.safetensors" % SYNC), "")

    def test_what_a_killed_command_has_copied_is_deleted_and_no_more(self):
        self.interrupted()
        run = self.options.out + "/runs/" + SYNC
        os.mkdir(run + "/catchment-results-1")
        os.mkdir(run + "/mine")
        for name in ("catchment-results-1/metrics.jsonl", "mine/metrics.jsonl"):
            self.write(run + "/" + name, "")
        os.symlink(run + "/mine", run + "/catchment-results-2")
        self.write("volume/summary.json", '{"phase": "DONE"}')
        self.kubectl(DONE)
        self.launch()
        self.assertFalse(os.path.exists(run + "/catchment-results-1"))
        self.assertTrue(os.path.exists(run + "/mine/metrics.jsonl"))

    def test_a_signal_leaves_the_run_and_the_same_command_finds_it(self):
        self.interrupted()
        path = self.options.out + "/runs/" + SYNC
        self.assertPrinted(
            "The run continues in the cluster; `kubectl delete -k %s/manifests` ends it\n" % path
        )
        self.assertEqual(self.calls(), ["delete -k " + SYNC, "apply -k " + SYNC])
        self.write("volume/summary.json", '{"phase": "DONE"}')
        self.kubectl(DONE)
        self.runs.reverse()
        self.launch()
        self.assertPrinted("sync, 2 workers, seed 1: is already in the cluster\n", "[1/2] sync", "[2/2] down")
        self.assertNotIn("apply -k sync", self.read("calls"))
        self.assertIn("apply -k downpour", self.read("calls"))

    def test_with_overwrite_the_old_run_is_deleted_and_a_run_is_applied(self):
        self.interrupted()
        self.overwrite = True
        self.kubectl(DONE)
        self.launch()
        self.assertEqual(self.calls()[:2], ["delete -k " + SYNC, "apply -k " + SYNC])

    def test_another_job_in_the_namespace_is_left_alone(self):
        for applied, job, command in (
            ("/somewhere/runs/x", "/somewhere/runs/x", "kubectl delete -k /somewhere/runs/x/manifests"),
            ("/x;touch y", "/x;touch y", "kubectl delete -k '/x;touch y/manifests'"),
            ("", "not of a comparison", "kubectl delete -f FILE"),
        ):
            self.write("applied", applied + "\n")
            self.assertEqual(
                self.refused(self.launch).message,
                "kubectl's namespace has another job of Catchment (%s); delete it with `%s`, or choose "
                "another namespace with `kubectl config set-context --current --namespace=NAME`"
                % (job, command),
            )
        self.assertEqual(self.calls(), [])

    def test_a_failure_is_reported_and_the_others_go_on(self):
        failed = '{"phase": "FAILED", "reason": "weights are NaN"}'
        self.kubectl("case $RUN in */sync*) echo '%s' >volume/summary.json;; *) %s;; esac" % (failed, DONE))
        self.launch()
        self.assertPrinted(
            "[1/2] sync, 2 workers, seed 1: failed: weights are NaN",
            "[2/2] downpour, 2 workers, seed 1: 50.00 %",
        )
        self.kubectl(DONE)
        self.launch()
        self.assertIn("apply -k sync", self.read("calls"))
        self.assertNotIn("apply -k downpour", self.read("calls"))

    def test_a_run_without_progress_is_a_failure_with_its_pods(self):
        self.options.stall_seconds = 0.1
        self.kubectl("rmdir volume")
        self.launch()
        self.assertPrinted(
            "failed: no progress for 0.1 s (--stall_seconds); its Pods:\n",
            "Pods:\n    catchment-server-0 0/1 Pending\n",
            "logs/server-0.log:\n    no such data",
        )

    def test_workers_that_have_failed_are_a_failure(self):
        self.write("job_failed", "True")
        self.kubectl("")
        self.launch()
        self.assertPrinted("failed: the Job catchment-worker has failed")

    def test_what_kubectl_cannot_do_ends_everything(self):
        self.kubectl("echo 'error: no matches for Id StatefulSet' >&2; exit 1")
        message = self.refused(self.launch).message
        self.assertEqual(
            message, "kubectl apply: kubectl failed (exit code 1):\n    error: no matches for Id StatefulSet"
        )
        self.program("kubectl", "exit 1")
        message = self.refused(self.launch).message
        self.assertIn("\nkubectl's current cluster and namespace must be reachable", message)

    def test_manifests_have_the_runs_numbers_and_an_overlay_changes_them(self):
        self.options.servers, self.options.threads = 3, 4
        self.options.one_node = True
        os.mkdir(self.root + "/overlay")
        self.options.overlay = self.root + "/overlay"
        self.launch()
        run = self.options.out + "/runs/" + SYNC
        self.assertEqual(
            self.read(run + "/manifests/run.yaml").splitlines(),
            ["# manifests", "# %s/manifests/job.textproto" % run]
            + ["# --image=registry.example/catchment:0.1.0", "# --one_node=true", "# --servers=3"]
            + ["# --threads=4", "  run: " + run],
        )
        self.assertEqual(self.read(run + "/manifests/job.textproto"), self.read(run + "/job.textproto"))
        self.assertEqual(
            self.read(run + "/manifests/kustomization.yaml"),
            kubernetes._KUSTOMIZATION + 'components:\n  - "../../../../overlay"\n',
        )

    def test_flags_that_do_not_suit_are_refused(self):
        for options, message in (
            ({}, "--image=IMAGE is required"),
            ({"overlay": self.root + "/a"}, "--overlay=%s/a: there is no %s/a/kust" % (self.root, self.root)),
            ({"program": "python train.py"}, "--program: is not supported with --launcher=kubectl"),
        ):
            checked = CompareOptions(**options)
            checked.image = "a" if options else ""
            with self.assertRaisesRegex(Usage, message):
                kubernetes.check_for_kubernetes(checked)

    def test_without_kubectl_it_is_named(self):
        with mock.patch.dict(os.environ, PATH=self.root + "/nothing"):
            message = self.refused(kubernetes.find_program).message
        self.assertEqual(
            message,
            "--launcher=kubectl: no kubectl in PATH; install it (Debian: kubernetes-client), or leave out "
            "--launcher to train on this machine",
        )

    def test_values_are_found_beside_warnings(self):
        self.assertEqual(kubernetes.value_of("run", "W1123 memcache.go\nrun=/out/a\n"), "/out/a")
        self.assertEqual(kubernetes.value_of("run", "run=\n"), "")
        self.assertIsNone(kubernetes.value_of("run", "Error: run=\n"))
        self.assertEqual(kubernetes.value_of("a", "a=1\na=2\n"), "2")


if __name__ == "__main__":
    unittest.main()
