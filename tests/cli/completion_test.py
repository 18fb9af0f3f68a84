#!/usr/bin/env python3
"""Completes command lines in real shells, on a terminal, with the scripts that `catchment completion` prints.

`catchment` is replaced by a function that prints its arguments, so that a word which Tab has completed is
seen after Enter.
"""

import os
import pty
import select
import shutil
import subprocess
import sys
import time

PROGRAM = os.path.abspath("cli/catchment")
SCRATCH = os.path.join(os.environ["TEST_TMPDIR"], "completion")
PATIENCE = 120  # seconds; a shell that does not answer has failed
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
PREPARE = {
    "bash": "bind 'set enable-bracketed-paste off'",
    "zsh": "unsetopt prompt_sp zle_bracketed_paste; autoload -Uz compinit; compinit -u -D",
}
# The words that are typed before Tab, and the arguments after it. Only words with a single completion: shells
# show several in their own ways.
CASES = [
    ("catchment adv", ["advise"]),
    ("catchment stat", ["status"]),
    ("catchment completion z", ["completion", "zsh"]),
    ("catchment status --js", ["status", "--json"]),
    ("catchment stop --reas", ["stop", "--reason="]),
    ("catchment doctor --chec", ["doctor", "--checkpoint_dir="]),
    ("catchment train first.text", ["train", "first.textproto"]),
    ("catchment train --out=a_dir", ["train", "--out=a_directory/"]),
    ("catchment train --out a_dir", ["train", "--out", "a_directory/"]),
    ("catchment status a_dir", ["status", "a_directory/"]),
    ("catchment status --json a_dir", ["status", "--json", "a_directory/"]),
    ("catchment status --watch a_dir", ["status", "--watch", "a_directory/"]),
    ("catchment train --resume=au", ["train", "--resume=auto"]),
    ("catchment train --device=cu", ["train", "--device=cuda"]),
    ("catchment train --set=optimizer.learning_r", ["train", "--set=optimizer.learning_rate="]),
    ("catchment train --set optimizer.learning_r", ["train", "--set", "optimizer.learning_rate="]),
    ("catchment compare --algorithms=sync,downp", ["compare", "--algorithms=sync,downpour"]),
    ("catchment_worker --role=eval", ["--role=evaluator"]),
    ("catchment_worker --role eval", ["--role", "evaluator"]),
    ("catchment_server --log_format=js", ["--log_format=json"]),
    ("catchment_server --checkpoint_dir=a_dir", ["--checkpoint_dir=a_directory/"]),
]
# With "-" in place of "_", which zsh does not complete.
BASH_CASES = [("catchment_server --checkpoint-dir=a_dir", ["--checkpoint-dir=a_directory/"])]
failures = []


class Shell:
    def __init__(self, name):
        pid, self._terminal = pty.fork()
        if pid == 0:
            os.chdir(SCRATCH)
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": SCRATCH,
                "TERM": "dumb",
                "PS1": "",
                "LC_ALL": "C",
            }
            os.execvpe(SHELLS[name][0], SHELLS[name], environment)
        self._pid = pid
        self._seen = ""

    def type(self, text):
        os.write(self._terminal, text.encode())

    def await_text(self, wanted):
        """Returns what the shell has printed up to the text."""
        deadline = time.monotonic() + PATIENCE
        while wanted not in self._seen:
            ready = select.select([self._terminal], [], [], max(0, deadline - time.monotonic()))[0]
            if not ready:
                raise AssertionError(f"the shell has not printed {wanted!r}, but {self._seen!r}")
            self._seen += os.read(self._terminal, 65536).decode(errors="replace")
        text, self._seen = self._seen.split(wanted, 1)
        return text

    def end(self):
        self.type("\x03\nexit\n")
        os.close(self._terminal)
        os.waitpid(self._pid, 0)


def check(shell_name):
    script = os.path.join(SCRATCH, "script." + shell_name)
    with open(script, "w") as file:
        subprocess.run([PROGRAM, "completion", shell_name], stdout=file, check=True)
    subprocess.run([SHELLS[shell_name][0], "-n", script], check=True)
    shell = Shell(shell_name)
    shell.type(PREPARE[shell_name] + f"; source {script}; ")
    for name in ("catchment", "catchment_server", "catchment_worker"):
        shell.type(name + """() { printf '<%s>' "$@"; echo '|end'; }; """)
    shell.type("echo rea''dy\n")
    shell.await_text("ready")
    for typed, wanted in CASES + (BASH_CASES if shell_name == "bash" else []):
        shell.type(typed + "\t\n")
        got = shell.await_text("|end\r\n")
        if shell_name == "zsh":
            # It removes a "/" or "=" that it has added from the end of the line.
            wanted = wanted[:-1] + [wanted[-1].rstrip("/=")]
        if not got.endswith("".join(f"<{word}>" for word in wanted)):
            failures.append(f"{shell_name}: {typed!r} + Tab: expected {wanted}, the terminal shows {got!r}")
    shell.end()


def check_lists():
    """Bash's lists of several completions, without a terminal."""
    script = os.path.join(SCRATCH, "script.bash")
    ask = """source "$0"; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _catchment; printf '%s\\n' "${COMPREPLY[@]}" """
    for words, wanted in [
        (["catchment", ""], {"train", "validate", "doctor", "completion", "man", "help", "--version"}),
        (["catchment", "help", "st"], {"status", "stop"}),
        (["catchment", "status", "--"], {"--json", "--watch", "--certs=", "--help"}),
        (["catchment_worker", "--role", "=", ""], {"worker", "evaluator"}),
        (["catchment_worker", "--role="], {"--role=worker", "--role=evaluator"}),
        (["catchment", "completion", ""], {"bash", "zsh"}),
    ]:
        done = subprocess.run(
            ["bash", "-c", ask, script, *words], stdout=subprocess.PIPE, text=True, check=True, cwd=SCRATCH
        )
        if not wanted <= set(done.stdout.split("\n")):
            failures.append(f"{words}: expected {wanted}, got {done.stdout!r}")


def main():
    os.makedirs(os.path.join(SCRATCH, "a_directory"))
    open(os.path.join(SCRATCH, "first.textproto"), "w").close()
    for name in SHELLS:
        if shutil.which(name) is None:
            print(f"{name} is not installed: not tested")
            continue
        check(name)
    check_lists()
    for failure in failures:
        print("FAILED:", failure)
    sys.exit(1 if failures else 0)


main()
