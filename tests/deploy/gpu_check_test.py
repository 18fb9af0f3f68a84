#!/usr/bin/env python3
"""Tests of deploy/gpu with the programs of a bundle, and stand-ins for what a machine with a GPU has.

gpu_check_test.py PLUGIN    a plugin that computes on the processor
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, "deploy/gpu")
import check_gpu  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position
import results  # pylint: disable=wrong-import-position

PLUGIN = os.path.abspath(sys.argv.pop())
PROGRAMS = (
    "cli/catchment",
    "server/catchment_server",
    "worker/catchment_worker",
    "tests/kernels/cuda/cuda_layers_test",
    "tests/benchmarks/network/train_speed",
    "kernels/cuda/libcatchment_cuda.so",
)
GROUPED = ("device", "tests", "sanitizer", "speed", "attached")
# So many minutes that no row depends on the processor's speed.
ENOUGH = "--minutes=600"

NVIDIA_SMI = """#!/bin/sh
echo "nvidia-smi $*" >> {folder}/calls
case "$*" in
  --query-gpu*) echo "0, GPU-a, NVIDIA H200, {driver}, 143771, {used}, {mig}" ;;
  --query-compute-apps*) printf '{processes}' ;;
esac
"""
TOOL = """#!/bin/sh
echo "$(basename $0) $*" >> {folder}/calls
printf '{says}\\n'
exit {status}
"""
TORCH = """
import types
__version__, version = "2.9", types.SimpleNamespace(cuda="13.0")
cuda = types.SimpleNamespace(is_available=lambda: True)
"""
# Answers as pytorch_speed.py does.
SPEED = """
import sys
with open({folder!r} + "/calls", "a") as file:
    print("pytorch", *sys.argv[1:], file=file)
print("ready", flush=True)
for line in sys.stdin:
    print(0.5, flush=True)
"""


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.tree = folder.name, folder.name + "/bundle"
        os.makedirs(self.tree + "/bin")
        os.mkdir(self.folder + "/tools")
        for name in os.listdir("deploy/gpu"):
            if not name.startswith("__"):
                shutil.copy("deploy/gpu/" + name, self.tree)
        for name in PROGRAMS:
            os.symlink(os.path.abspath(name), f"{self.tree}/bin/{os.path.basename(name)}")
        for name in ("examples", "python"):
            os.symlink(os.path.abspath(name), f"{self.tree}/{name}")
        self.write("bundle/VERSION", "catchment 0.1.0\ncommit: abc\n")
        self.environ = dict(os.environ, PATH=f"{self.folder}/tools:/usr/bin:/bin", HOME=self.folder)
        self.environ.update(CATCHMENT_CUDNN="off", PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1")
        self.out = self.folder + "/out"

    def write(self, path, text):
        """Writes a file that takes the place of a link to a real one."""
        path = f"{self.folder}/{path}"
        if os.path.lexists(path):
            os.remove(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def tool(self, name, says="", status=0):
        self.write("tools/" + name, TOOL.format(folder=self.folder, says=says, status=status))

    def gpu(self, driver="580.65.06", mig="Disabled", used="0", processes=""):
        self.write(
            "tools/nvidia-smi",
            NVIDIA_SMI.format(folder=self.folder, driver=driver, mig=mig, used=used, processes=processes),
        )

    def calls(self, name):
        with open(self.folder + "/calls", encoding="utf-8") as file:
            return [line.rstrip("\n") for line in file if line.startswith(name + " ")]

    def command(self, *flags):
        return [self.tree + "/run.sh", *flags]

    def check(self, *flags, status=0, plugin=True, **environ):
        """Runs the check, and returns its rows by part and name."""
        flags = [ENOUGH, *flags] + ["--plugin=" + PLUGIN] * plugin
        done = subprocess.run(
            self.command("--out=" + self.out, *flags),
            env=dict(self.environ, **environ),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.assertEqual(done.returncode, status, done.stdout)
        return self.rows()

    def rows(self):
        with open(self.out + "/results.json", encoding="utf-8") as file:
            self.facts = json.load(file)
        return {(row["part"], row["name"]): row for row in self.facts["rows"]}

    def notes(self):
        with open(self.out + "/results.md", encoding="utf-8") as file:
            return file.read()

    def plan(self, *flags, status=0):
        done = subprocess.run(
            self.command("--dry-run", *flags),
            env=self.environ,
            text=True,
            capture_output=True,
            check=False,
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    # ------------------------------------------------------------------------------------------- plans

    def test_plans_two_parts_of_nine_minutes(self):
        plan = self.plan()
        self.assertEqual(plan, self.plan("--minutes=9"))
        self.assertIn("part 1: 300 s\n  device: ", plan)
        self.assertIn("part 2: 240 s\n  speed: ", plan)
        seconds = [float(line.split()[0]) for line in plan.splitlines() if " s  " in line]
        self.assertAlmostEqual(sum(seconds), 540)
        for example in ("resnet20_cifar10", "mnist_cnn", "resnet50"):
            for precision in ("TF32", "BFLOAT16"):
                self.assertIn(f" s  {example}, {precision}, ", plan)
        self.assertFalse(os.path.exists(self.tree + "/results"))
        # The table as it is: nothing was scaled.
        for total, tables in (
            (300, (check_gpu.DEVICE, check_gpu.TESTS, check_gpu.SANITIZER)),
            (240, (check_gpu.SPEEDS, check_gpu.ATTACHED)),
        ):
            self.assertEqual(sum(sum(table.values()) for table in tables), total)

    def test_the_time_of_other_parts_goes_to_those_that_are_named(self):
        self.assertIn("part 1: 540 s\n", self.plan("--parts=1"))
        plan = self.plan("--parts=device,attached", "--minutes=2")
        self.assertIn("part 1: 41 s\n", plan)
        self.assertIn("part 2: 79 s\n  attached: 79 s\n", plan)
        self.assertNotIn("layers_test", plan)
        self.assertIn("other parts: 120 s\n  profile: 120 s", self.plan("--parts=profile", "--minutes=2"))

    def test_refuses_what_it_cannot_plan(self):
        self.assertIn("there is no 3; there are 1, 2, device", self.plan("--parts=1,3", status=2))
        for minutes in ("0", "-1", "nan"):
            self.assertIn("is not a time", self.plan("--minutes=" + minutes, status=2))

    def test_keeps_the_results_of_an_earlier_check(self):
        self.check("--parts=device", plugin=False, CUDA_VISIBLE_DEVICES="")
        said = self.plan("--out=" + self.out, status=2)
        self.assertIn("results.json is of an earlier check", said)
        self.assertIn(
            "out.tar.gz is of an earlier check", self.plan("--archive=" + self.out + ".tar.gz", status=2)
        )

    # ---------------------------------------------------------------------------------------- machines

    def why_nothing_runs(self, rows, parts=GROUPED):
        whys = {rows[part, "all"]["detail"] for part in parts}
        self.assertEqual(len(whys), 1)
        self.assertEqual({rows[part, "all"]["status"] for part in parts}, {results.NOT_RUN})
        return whys.pop()

    def test_names_an_old_driver(self):
        self.gpu(driver="535.104.05")
        why = self.why_nothing_runs(self.check(plugin=False, CUDA_VISIBLE_DEVICES="0"))
        self.assertIn("device: CUDA: ", why)
        self.assertIn(
            "the driver 535.104.05 is older than 580, the first for CUDA 13: install a newer one", why
        )

    def test_names_mig_and_leaves_it(self):
        self.gpu(mig="Enabled")
        why = self.why_nothing_runs(self.check(plugin=False, CUDA_VISIBLE_DEVICES="GPU-a"))
        self.assertIn("GPU 0 is in MIG mode", why)
        self.assertNotIn("is older than", why)

    def test_names_other_programs_on_the_gpu(self):
        self.gpu(used="2100", processes="GPU-a, 42, /usr/bin/python3, 2048\\nGPU-b, 43, x, 1\\n")
        self.check(plugin=False)
        self.assertIn("process 42 (python3, 2048 MiB) uses GPU 0, too: figures are of a shared", self.notes())
        self.assertNotIn("process 43", self.notes())

    def test_names_memory_that_programs_of_others_use(self):
        self.gpu(used="2100")
        self.check(plugin=False)
        self.assertIn(
            "2100 of GPU 0's 143771 MiB are in use by processes that this user does not", self.notes()
        )

    def test_has_no_remarks_about_an_idle_gpu(self):
        self.gpu()
        self.check(plugin=False)
        self.assertNotIn("**", self.notes())
        self.assertEqual(self.facts["gpu"], "NVIDIA H200, driver 580.65.06, 143771 MiB")

    def test_says_where_the_first_step_does_not_fit(self):
        self.gpu(processes="GPU-a, 42, trainer, 143000\\n")
        why = self.why_nothing_runs(self.check(CATCHMENT_HOST_DEVICE_BYTES="100000"))
        self.assertRegex(
            why, "^loss: the device has too little memory: with minibatches of 8 samples the model"
        )
        self.assertIn("; use a smaller batch_size", why)
        self.assertIn("process 42 (trainer, 143000 MiB) uses GPU 0", why)

    def cudnn(self, version):
        path = self.folder + "/libcudnn.so.9"
        source = f"unsigned long cudnnGetVersion(void) {{ return {version}; }}"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", path, "-xc", "-"], input=source, text=True, check=True
        )
        return path

    def test_names_a_cudnn_of_another_version(self):
        path = self.cudnn(8907)
        row = self.check("--parts=device", CATCHMENT_CUDNN=path)["device", "cudnn"]
        self.assertEqual(row["status"], results.NOT_RUN)
        self.assertIn(
            f"{path} is cuDNN 8.9.7, and Catchment needs 9; convolutions use patches", row["detail"]
        )

    def test_names_the_cudnn_that_there_is(self):
        path = self.cudnn(91900)
        row = self.check("--parts=device", CATCHMENT_CUDNN=path)["device", "cudnn"]
        self.assertEqual((row["status"], row["detail"]), (results.PASSED, f"9.19.0, {path}"))

    def test_says_that_there_is_no_cudnn(self):
        other = self.folder + "/.local/lib/python%d.%d/site-packages/nvidia/cudnn/lib" % sys.version_info[:2]
        os.makedirs(other)
        os.symlink("/dev/null", other + "/libcudnn.so.8")
        row = self.check("--parts=device", CATCHMENT_CUDNN="/none/libcudnn.so.9", PYTHONNOUSERSITE="")
        row = row["device", "cudnn"]
        self.assertEqual(row["status"], results.NOT_RUN)
        self.assertIn("there is no /none/libcudnn.so.9 that can be loaded, but " + other, row["detail"])
        self.assertIn("pip install nvidia-cudnn-cu13", row["detail"])

    # ------------------------------------------------------------------------------------------- tools

    def test_a_tool_that_the_machine_refuses_has_not_failed(self):
        self.tool("compute-sanitizer", "========= Error: attaching is not permitted", 1)
        self.tool("ncu", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1)
        rows = self.check("--parts=sanitizer,profile")
        for name in (("sanitizer", "memcheck"), ("sanitizer", "racecheck"), ("profile", "ncu")):
            self.assertEqual(rows[name]["status"], results.NOT_RUN)
        self.assertIn(
            "sanitizer work: Error: attaching is not permitted", rows["sanitizer", "memcheck"]["detail"]
        )
        self.assertIn("does not let ncu work: ERR_NVGPUCTRPERM", rows["profile", "ncu"]["detail"])

    def test_a_tool_that_is_not_installed_has_not_failed(self):
        rows = self.check("--parts=sanitizer")
        self.assertEqual(rows["sanitizer", "memcheck"]["detail"], "there is no compute-sanitizer")

    def test_what_the_sanitizer_finds_is_a_failure(self):
        self.tool("compute-sanitizer", "[ RUN      ] A.B\\n========= ERROR SUMMARY: 2 errors", 9)
        rows = self.check("--parts=sanitizer", status=1)
        self.assertEqual(rows["sanitizer", "memcheck"]["status"], results.FAILED)

    def test_a_profiler_without_kernels_has_not_failed(self):
        self.tool("ncu", "==WARNING== No kernels were profiled.")
        self.assertEqual(self.check("--parts=profile")["profile", "ncu"]["status"], results.NOT_RUN)

    def test_changes_no_setting_of_the_gpu(self):
        self.gpu()
        self.tool("ncu", "==PROF== Profiling")
        self.tool("compute-sanitizer", "[ RUN      ] A.B")
        rows = self.check("--parts=device,sanitizer,profile")
        self.assertEqual(rows["profile", "ncu"]["status"], results.PASSED)
        (ncu,) = self.calls("ncu")
        self.assertIn(" --clock-control=none ", ncu)
        self.assertEqual(len(self.calls("compute-sanitizer")), 2)
        for call in self.calls("nvidia-smi"):
            self.assertRegex(call, "^nvidia-smi (|--query-(gpu|compute-apps)=[a-z_.,]+ --format=[a-z,]+)$")

    # ----------------------------------------------------------------------------------------- PyTorch

    def test_starts_pytorch_once_for_each_row(self):
        os.mkdir(self.folder + "/packages")
        self.write("packages/torch.py", TORCH)
        self.write("bundle/pytorch_speed.py", SPEED.format(folder=self.folder))
        rows = self.check("--parts=speed", PYTHONPATH=self.folder + "/packages")
        asked = [row for (part, name), row in rows.items() if part == "speed" and "resnet50" not in name]
        self.assertEqual(len(self.calls("pytorch")), len(asked))
        for row in asked:
            self.assertEqual(row["pytorch_all"], [0.5, 0.5], row)
            # The rate in the row is rounded to whole samples.
            self.assertAlmostEqual(row["ratio"] * 0.5, row["samples_per_s"], delta=0.51, msg=row)

    def test_measures_without_a_pytorch_that_ends(self):
        os.mkdir(self.folder + "/packages")
        self.write("packages/torch.py", TORCH)
        self.write("bundle/pytorch_speed.py", "raise MemoryError('none left')")
        rows = self.check("--parts=speed", PYTHONPATH=self.folder + "/packages")
        row = rows["speed", "mnist_cnn, TF32, batch 4"]
        self.assertEqual(row["status"], results.PASSED)
        self.assertIn("no PyTorch beside it: it ended: MemoryError: none left", row["detail"])

    def test_waits_for_no_answer_without_limit(self):
        log = self.folder + "/log"
        command = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(1e6)"]
        with programs.Talk(command, None, log, lambda: 600) as talk:
            self.assertEqual(talk.ask(), "ready")
            process = talk._process
            talk._limit = lambda: 0.1
            with self.assertRaises(results.NotRun):
                talk.ask("1")
            with unittest.mock.patch("programs.GRACE_SECONDS", 0.1):
                talk.__exit__()
        self.assertIsNotNone(process.returncode)

    def test_ends_programs_that_do_not_end(self):
        os.mkdir(self.out)
        running = programs.Programs(self.out, 1, "", [])
        # The grandchild holds the output open.
        command = ["sh", "-c", "trap '' TERM; sleep 1000000 & echo $!; wait"]
        with unittest.mock.patch.multiple("programs", GRACE_SECONDS=0.1, LEAST_SECONDS=0):
            running.begin_row(running.seconds() + 1, 60)
            with self.assertRaises(results.NotRun):
                running.once("hangs", command)
            running.begin_row(running.seconds() + 1, 0.5)
            with self.assertRaises(programs.TooSlow):
                running.once("hangs", command)
        with open(self.out + "/hangs.log", encoding="utf-8") as file:
            grandchild = f"/proc/{int(file.read())}/cmdline"
        # It is killed, and may be a zombie for a while.
        with contextlib.suppress(FileNotFoundError):
            while programs.read(grandchild):
                time.sleep(0.05)

    # --------------------------------------------------------------------------------------- what stays

    def start_and_hang(self):
        """Starts a check whose tests of layers hang. Returns it and them."""
        hanging = f"#!/bin/sh\necho $$ > {self.folder}/pid\nexec sleep 1000000\n"
        self.write("bundle/bin/cuda_layers_test", hanging)
        process = subprocess.Popen(
            self.command(ENOUGH, "--out=" + self.out, "--parts=device,tests,speed", "--plugin=" + PLUGIN),
            env=self.environ,
            stdout=subprocess.DEVNULL,
        )
        pid = ""
        while not pid and process.poll() is None:
            time.sleep(0.05)
            if os.path.exists(self.folder + "/pid"):
                with open(self.folder + "/pid", encoding="utf-8") as file:
                    pid = file.read().strip()
        return process, int(pid)

    def test_a_killed_check_leaves_what_it_has_measured(self):
        process, child = self.start_and_hang()
        process.kill()
        process.wait()
        os.kill(child, signal.SIGKILL)
        self.assertEqual(self.rows()["device", "first steps"]["status"], results.PASSED)
        self.assertIn("| first steps | passed |", self.notes())
        with tarfile.open(self.out + ".tar.gz") as archive:
            self.assertIn("out/mnist_mlp.log", archive.getnames())

    def test_a_signal_ends_a_check_in_order(self):
        process, child = self.start_and_hang()
        process.terminate()
        self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        with self.assertRaises(ProcessLookupError):
            os.kill(child, 0)
        self.assertIn("stopped by SIGTERM", self.notes())
        with tarfile.open(self.out + ".tar.gz") as archive:
            self.assertIn(b"stopped by SIGTERM", archive.extractfile("out/results.md").read())

    def test_a_row_that_fails_stops_no_other(self):
        self.write("bundle/bin/cuda_layers_test", "#!/bin/sh\necho broken >&2\nexit 3\n")
        rows = self.check("--parts=tests,speed", status=1)
        self.assertIn("exit code 3: broken", rows["tests", "layers_test"]["detail"])
        self.assertEqual(rows["speed", "mnist_cnn, TF32, batch 4"]["status"], results.PASSED)


if __name__ == "__main__":
    unittest.main()
