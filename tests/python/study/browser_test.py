#!/usr/bin/env python3
"""The pages of reports in Chromium: nothing is cut off or drawn over at three widths of the window, on paper
the command that repeats a report is there to be copied, and updates of the page of a run keep its nodes.

bazel test //tests/python/study:browser_test

Installs Debian's chromium and poppler-utils where they are missing, which needs root.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

CATCHMENT = "cli/catchment" if os.path.exists("cli/catchment") else "bazel-bin/cli/catchment"
OUT = tempfile.TemporaryDirectory(prefix="browser-")
JOB = [
    "examples/drawn_digits.textproto",
    "--set=data.drawn_digits={train_samples: 64000, test_samples: 64}",
    "--step=lognormal:0.1ms:0.3",
    "--gradient=quadratic:10:0.1",
]
PAGES = {
    "simulate": [
        "simulate",
        *JOB,
        "--algorithms=sync,downpour,staleness_aware,easgd",
        "--workers=1,4,16",
        "--seeds=2",
        "--budget=samples:600000",
    ],
    "tune": [
        "tune",
        "--simulate",
        *JOB,
        "--over=optimizer.learning_rate=log:0.001..0.1",
        "--trials=9",
        "--budget=samples:600000",
    ],
}
PROBLEMS = """
<script>
const problems = [];
if (document.documentElement.scrollWidth > innerWidth) problems.push("the page is wider than the window");
for (const svg of document.querySelectorAll("svg")) {
  const picture = svg.getBoundingClientRect(), scale = picture.width / svg.viewBox.baseVal.width;
  const name = svg.getAttribute("aria-label");
  const texts = [...svg.querySelectorAll("text")].map(text => [text, text.getBoundingClientRect()]);
  for (const [text, box] of texts) {
    if (text.getAttribute("font-size") * scale < 7.4)
      problems.push(name + ": too small: " + text.textContent);
    if (box.left < picture.left - 0.5 || box.right > picture.right + 0.5)
      problems.push(name + ": cut off: " + text.textContent);
    for (const [other, its] of texts) {
      const across = Math.min(box.right, its.right) - Math.max(box.left, its.left);
      const along = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
      // Boxes of text include space above and below the letters.
      if (other !== text && across > 0.5 && along > 2 * scale)
        problems.push(name + ": " + text.textContent + " is over " + other.textContent);
    }
  }
}
if (!document.querySelector("svg")) problems.push("there is no picture");
parent.postMessage(JSON.stringify([innerWidth, problems]), "*");
</script>
"""
# Updates a page as the script of `catchment watch` does, and checks which nodes are still there.
UPDATE = """<!DOCTYPE html><title></title>
<div id="old"><p>kept</p><p id="chosen">chosen</p>
<table><tr data-key="a"><td>1</td></tr><tr data-key="b"><td>2</td></tr></table
><details data-key="d"><summary>s</summary>text</details><i>gone</i></div>
<script>
%s
const old = document.getElementById("old"), nodes = [...old.querySelectorAll("*")].slice(0, -1);
old.querySelector("details").open = true;
getSelection().selectAllChildren(document.getElementById("chosen"));
const wanted = '<p class="x">kept</p><p id="chosen">other</p><table><tbody>' +
  '<tr data-key="b"><td>3</td></tr><tr data-key="c"><td>4</td></tr>' +
  '<tr data-key="a"><td>1</td></tr></tbody></table>' +
  '<details data-key="d"><summary>s</summary>text 2</details>';
function update() {
  const fresh = old.cloneNode(false);
  fresh.innerHTML = wanted;
  morph(old, fresh);
}
update();
const kept = nodes.every(node => node.isConnected), selection = getSelection().toString();
getSelection().removeAllRanges();
update();
document.title = JSON.stringify([kept, selection, old.innerHTML.replace(' open=""', "") === wanted,
  old.querySelector("details").open]);
</script>
"""
# Chromium's own windows are at least 500 pixels wide.
FRAME = """<!DOCTYPE html><title></title><script>onmessage = event => document.title = event.data;</script>
<iframe width="%d" height="900" style="border: 0" src="%s"></iframe>
"""


def install():
    """Installs the two packages if they are missing; returns why they are not there, or nothing."""

    def missing():
        return [
            name
            for name in ("chromium", "pdftotext")
            if subprocess.run(["which", name], stdout=subprocess.DEVNULL).returncode != 0
        ]

    if missing() and os.geteuid() == 0:
        subprocess.run(
            "apt-get --quiet update && DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes "
            "--no-install-recommends install chromium poppler-utils",
            shell=True,
        )
    return ", ".join(missing())


def chromium(page, *flags):
    command = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--user-data-dir=" + OUT.name + "/profile",
        *flags,
        "file://" + page,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name, command in PAGES.items():
            subprocess.run(
                [CATCHMENT, *command, "--out=%s/%s" % (OUT.name, name)], check=True, stdout=subprocess.DEVNULL
            )
        run = sorted(glob.glob(OUT.name + "/simulate/runs/*"))[0]
        kinds = ("lost", "recovered", "checkpoint")
        events = [{"wall_seconds": 0.1, "event": kind, "kind": kind, "worker": 0} for kind in kinds]
        with open(run + "/metrics.jsonl", "a") as file:
            file.write(json.dumps({"events": events}) + "\n")
        subprocess.run(
            [CATCHMENT, "report", run, "--out=%s/run" % OUT.name], check=True, stdout=subprocess.DEVNULL
        )

    def test_nothing_is_cut_off(self):
        for path in glob.glob(OUT.name + "/*/report.html"):
            with open(path) as file:
                page = file.read()
            measured = path.replace("report.html", "measured.html")
            with open(measured, "w") as file:
                file.write(page.replace("</body>", PROBLEMS + "</body>"))
            for width in (400, 800, 1600):
                with self.subTest(page=path, width=width):
                    frame = path.replace("report.html", "frame.html")
                    with open(frame, "w") as file:
                        file.write(FRAME % (width, measured))
                    dom = chromium(
                        frame, "--window-size=1700,1000", "--virtual-time-budget=10000", "--dump-dom"
                    )
                    self.assertEqual(json.loads(re.search("<title>(.*?)</title>", dom)[1]), [width, []])

    def test_an_update_keeps_nodes_the_selection_and_what_is_open(self):
        with open("python/catchment/study/page.html") as file:
            script = file.read().split('<script nonce="$nonce">')[1].split("let tag")[0]
        with open(OUT.name + "/update.html", "w") as file:
            file.write(UPDATE % script)
        dom = chromium(OUT.name + "/update.html", "--virtual-time-budget=1000", "--dump-dom")
        self.assertEqual(json.loads(re.search("<title>(.*?)</title>", dom)[1]), [True, "chosen", True, True])

    def test_the_command_can_be_copied_from_paper(self):
        for path in ["%s/%s/report.html" % (OUT.name, name) for name in PAGES]:
            with self.subTest(page=path):
                pdf = path.replace(".html", ".pdf")
                chromium(path, "--no-pdf-header-footer", "--print-to-pdf=" + pdf)
                text = subprocess.run(
                    ["pdftotext", "-layout", pdf, "-"], stdout=subprocess.PIPE, text=True, check=True
                ).stdout
                with open(path.replace(".html", ".json")) as file:
                    command = json.load(file)["command"]
                copied = text.split("How to repeat it")[1].replace("\\\n", " ")
                self.assertEqual(" ".join(copied.split())[: len(command)], command)


if __name__ == "__main__":
    absent = install()
    if absent:
        sys.exit(print("SKIPPED: %s could not be installed" % absent))
    unittest.main()
