#!/usr/bin/env bash
# deploy/wheel.sh, and its wheel: what an installer makes of it, and a training with it alone. pip is tried where there is
# one.
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
import base64, csv, hashlib, io, os, sys, zipfile
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
    assert "catchment = catchment._command:main" in entry, entry
PYTHON
expect_status 0
for file in catchment/torch.py catchment/_bundle/lib/libc.so.6 catchment/_bundle/licenses/libc6; do
  expect_true "$file is in the wheel" test -s "$site/$file"
done

# The command as an installer writes it, with nothing of the project but the program to train.
printf '%s\n' '#!/usr/bin/env python3' 'import sys' "sys.path.insert(0, '$site')" 'from catchment._command import main' \
  'sys.exit(main())' >"$TEST_TMPDIR/catchment"
chmod +x "$TEST_TMPDIR/catchment"
awk 'BEGIN { for (i = 0; i < 64; ++i) printf "%d,%d,1,0,%d,1,%d\n", i % 3, i % 5, i % 2, i % 3 }' >"$rows"
grep -v 'sys.path.insert' tests/cluster/attached_program.py >"$TEST_TMPDIR/program.py"
run env PYTHONPATH="$site" "$TEST_TMPDIR/catchment" train --program="python3 $TEST_TMPDIR/program.py $rows" --workers=2 \
  --set batch_size=8 --out="$TEST_TMPDIR/run"
expect_status 0
expect_output "DONE"

if python3 -m venv "$TEST_TMPDIR/venv" >/dev/null 2>&1; then
  run "$TEST_TMPDIR/venv/bin/pip" install --no-index --disable-pip-version-check "$wheel"
  expect_status 0
  run "$TEST_TMPDIR/venv/bin/catchment" --version
  expect_status 0
  expect_output "catchment "
else
  echo "there is no pip here: not tried"
fi
