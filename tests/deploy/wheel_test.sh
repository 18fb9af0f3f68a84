#!/usr/bin/env bash
# deploy/wheel.sh, and its wheel: what an installer makes of it, and a training with it alone. pip is tried
# where there is one.
set -euo pipefail
source tests/deploy/check.sh

readonly out=$TEST_TMPDIR/out
readonly site="$TEST_TMPDIR/site packages"
readonly rows=$TEST_TMPDIR/rows.csv
export TMPDIR=$TEST_TMPDIR

run deploy/wheel.sh --help
expect_status 0
expect_output "--out=DIR"
run deploy/wheel.sh --frobnicate
expect_status 2
expect_output "no such flag: --frobnicate"

run deploy/wheel.sh --bin=. --out="$out"
expect_status 0
wheel=$(compgen -G "$out/catchment-*-py3-none-manylinux_2_17_x86_64.whl")
expect_true "one wheel and nothing else is there" test "$(ls "$out")" = "$(basename "$wheel")"
cp "$wheel" "$TEST_TMPDIR/first.whl"
run deploy/wheel.sh --bin=. --out="$out"
expect_true "the same files make the same bytes" cmp "$wheel" "$TEST_TMPDIR/first.whl"

# As pip does: every file that RECORD names, with its hash, and executable where the archive says so.
run python3 - "$wheel" "$site" <<'PYTHON'
import base64, csv, hashlib, io, json, os, sys, zipfile
wheel, site = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
    record = next(name for name in names if name.endswith(".dist-info/RECORD"))
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
    assert sorted(rows) == sorted(names), set(rows) ^ set(names)
    for name in names:
        data = archive.read(name)
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert rows[name] == ["sha256=" + digest, str(len(data))], name
        path = archive.extract(name, site)
        if archive.getinfo(name).external_attr >> 16 & 0o111:
            os.chmod(path, 0o755)
    entry = archive.read(record.replace("RECORD", "entry_points.txt")).decode()
    for program in ("catchment", "catchment_server", "catchment_worker"):
        assert "\n%s = catchment._command:main\n" % program in entry, entry
    about = archive.read(record.replace("RECORD", "METADATA")).decode()
    for field in ("License: Apache-2.0", "Requires-Python: >=3.8", "Provides-Extra: keras", "Provides-Extra: notebook",
                  "Provides-Extra: mlflow", "Requires-Dist: wandb>=0.18; extra == \"wandb\""):
        assert "\n%s\n" % field in about, about
    # Every library's package is listed with its version, in the text and in the bill of materials (PEP 770).
    lines = archive.read("catchment/_bundle/LIBRARIES").decode().splitlines()
    bill = json.loads(archive.read(record.replace("RECORD", "sboms/catchment.spdx.json")))
    packages = {one["name"]: one["versionInfo"] for one in bill["packages"]}
    version = archive.read("catchment/_bundle/VERSION").decode().split()[1]
    listed = {line.split()[0]: line.split()[1] for line in lines if " (source " in line}
    assert "libgrpc29" in listed or not lines, lines
    assert packages == {"catchment": version, **listed}, (packages, lines)
    assert bill["spdxVersion"] == "SPDX-2.3" and bill["creationInfo"]["created"], bill
PYTHON
expect_status 0
for file in catchment/torch.py catchment/_bundle/lib/libc.so.6 catchment/_bundle/licenses/libc6 \
            catchment/_bundle/LIBRARIES catchment/_bundle/deploy/{make_certs.sh,slurm/{catchment.sbatch,servers.sbatch,workers.sbatch,parts.sh}} \
            catchment-*.data/data/share/doc/catchment/deploy/{README.md,prometheus/grafana.json}; do
  expect_true "$file is in the wheel" compgen -G "$site/$file" >/dev/null
done
run python3 - "$site"/catchment-*.data/data/share/doc/catchment <<'PYTHON'
import os, re, sys
for folder, _, names in os.walk(sys.argv[1]):
    for path in [os.path.join(folder, name) for name in names if name.endswith(".md")]:
        with open(path) as file:
            links = re.findall(r"\]\((?!\w+:)([^)#\s]+)", file.read())
        for link in links:
            if not os.path.exists(os.path.join(folder, link)):
                print(path, "links to", link)
PYTHON
expect_true "links of the pages resolve: $output" test -z "$output"
expect_true "type checkers read the package's hints" test -e "$site/catchment/py.typed"

# The command as an installer writes it, with nothing of the project but the program to train.
printf '%s\n' '#!/usr/bin/env python3' 'import sys' "sys.path.insert(0, '$site')" 'from catchment._command import main' \
  'sys.exit(main())' >"$TEST_TMPDIR/catchment"
chmod +x "$TEST_TMPDIR/catchment"
awk 'BEGIN { for (i = 0; i < 64; ++i) printf "%d,%d,1,0,%d,1,%d\n", i % 3, i % 5, i % 2, i % 3 }' >"$rows"
grep -v 'sys.path.insert' tests/cluster/attached_program.py >"$TEST_TMPDIR/program.py"
run env PYTHONPATH="$site" "$TEST_TMPDIR/catchment" train --program="python3 $TEST_TMPDIR/program.py $rows" --workers=2 \
  --set batch_size=8 --out="$TEST_TMPDIR/run"
expect_status 0
expect_output "outcome  done"

# An empty environment, as its user has it.
if python3 -m venv "$TEST_TMPDIR/venv" >/dev/null 2>&1; then
  export PATH=$TEST_TMPDIR/venv/bin:$PATH
  unset PYTHONPATH
  run pip install --no-index --disable-pip-version-check "$wheel"
  expect_status 0
  for program in catchment catchment_server catchment_worker; do
    run "$program" --version
    expect_status 0
    expect_output "$program 0.1.0"
  done
  expect_true "the pages are there" test -s "$TEST_TMPDIR/venv/share/doc/catchment/docs/python.md"
  expect_true "the manual page is there" test -s "$TEST_TMPDIR/venv/share/man/man1/catchment.1"
  expect_true "bash finds the completion" \
    grep -q "complete -F _catchment catchment catchment_server" "$TEST_TMPDIR/venv/share/bash-completion/completions/catchment"
  digits=()
  [[ -d ${CATCHMENT_DATA:-}/mnist ]] || digits=(--set "data.drawn_digits={train_samples: 256, test_samples: 64}")
  mkdir "$TEST_TMPDIR/work"
  cd "$TEST_TMPDIR/work"
  run catchment examples e
  expect_status 0
  run catchment train e/mnist_mlp.textproto --workers=2 --set samples=512 "${digits[@]}"
  expect_status 0
  expect_output "outcome  done"
  run env -u CATCHMENT_DATA HOME="$TEST_TMPDIR" XDG_CACHE_HOME= catchment train e/mnist_mlp.textproto --out=no-data
  expect_status 1
  expect_output "Fetch them with deploy/fetch_mnist.sh, which \`catchment examples DIR\` also writes"
  run python -c "if True:
    import catchment
    run = catchment.train('e/drawn_digits.textproto', workers=2, settings={'samples': 512})
    print(catchment.__version__, run.summary['phase'], run.summary['samples'])"
  expect_status 0
  expect_output "0.1.0 DONE 512"
else
  echo "there is no pip here: not tried"
fi
