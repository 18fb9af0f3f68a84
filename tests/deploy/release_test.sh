#!/usr/bin/env bash
# deploy/release.sh in a small checkout whose bundle holds a few stand-ins: what it makes, and what it
# refuses. Building is bundle_test's and wheel_test's.
set -euo pipefail
source tests/deploy/check.sh

readonly tree=$TEST_TMPDIR/tree
readonly out=$TEST_TMPDIR/out
export HOME=$TEST_TMPDIR GIT_CONFIG_NOSYSTEM=1

# The checkout. Its bundle says that it was built from commit $TEST_BUILT.
mkdir -p "$tree/deploy/container"
cp -L deploy/release.sh deploy/release_documents.py deploy/make_wheel.py "$tree/deploy/"
cp -L deploy/container/Dockerfile "$tree/deploy/container/"
cat >"$tree/deploy/bundle.sh" <<'END'
#!/usr/bin/env bash
set -eu
for argument in "$@"; do [[ $argument != --out=* ]] || out=${argument#*=}; done
work=$(mktemp -d)
mkdir -p "$work/catchment-1.2.3"/{bin,python/catchment}
cd "$work/catchment-1.2.3"
echo program >bin/catchment
echo '__version__ = "1.2.3"' >python/catchment/__init__.py
printf 'catchment 1.2.3\ncommit: %s\noneDNN: 2.6.3\n' "$TEST_BUILT" >VERSION
printf 'libone1 1.0+b1-2 (source one)\nlibtwo 3 (source two)\n' >LIBRARIES
tar -czf "$out" -C "$work" catchment-1.2.3
rm -r "$work"
END
chmod +x "$tree/deploy/bundle.sh"
cat >"$tree/CHANGELOG.md" <<'END'
# Changes

## 1.2.4

Later.

## 1.2.3 (2026-12-01)

- Adds [a page](docs/page.md), and [a site](https://example.org).

## 1.2.2

Earlier.
END
git -C "$tree" init --quiet
git -C "$tree" add .
git -C "$tree" -c user.name=Test -c user.email=test@example.org commit --quiet --message="Begin"
TEST_BUILT=$(git -C "$tree" rev-parse --short=12 HEAD)
export TEST_BUILT
cd "$tree"

run deploy/release.sh --help
expect_status 0
expect_output "SHA256SUMS"
run deploy/release.sh --frobnicate
expect_status 2
expect_output "no such flag: --frobnicate"
run deploy/release.sh
expect_status 2
expect_output "--out=DIR is missing"

run deploy/release.sh --bin=. --out="$out"
expect_status 0
expect_output "catchment-1.2.3, commit $TEST_BUILT"
readonly wheel=catchment-1.2.3-py3-none-manylinux_2_17_x86_64.whl
expect_true "the files of a release are there, and no others" diff <(ls "$out") <(LC_ALL=C sort <<END
RELEASE_NOTES.md
SHA256SUMS
catchment-1.2.3-source.tar.gz
catchment-1.2.3.spdx.json
catchment-1.2.3.tar.gz
$wheel
END
)
(cd "$out" && expect_true "all checksums agree" sha256sum --check --quiet SHA256SUMS)
expect_true "SHA256SUMS has all other files" test "$(wc -l <"$out/SHA256SUMS")" -eq 5

output=$(cat "$out/RELEASE_NOTES.md")
expect_output "# Catchment 1.2.3"
expect_output "Commit $TEST_BUILT"
expect_output "- Adds a page, and [a site](https://example.org)."
expect_no_output "Later"
expect_no_output "Earlier"

output=$(tar -xzOf "$out/catchment-1.2.3-source.tar.gz" catchment-1.2.3/RELEASE catchment-1.2.3/CHANGELOG.md)
expect_output "commit $TEST_BUILT"
expect_output "Later"
# As `git get-tar-commit-id` does, which in git 2.39 fails if an earlier system call of its own has failed.
run python3 -c 'import sys, tarfile; print(tarfile.open(sys.argv[1]).pax_headers["comment"])' \
  "$out/catchment-1.2.3-source.tar.gz"
expect_output "$(git rev-parse HEAD)"
output=$(python3 -c 'import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).read("catchment/_bundle/VERSION").decode())' "$out/$wheel")
expect_output "commit: $TEST_BUILT"

run python3 - "$out" <<'END'
import hashlib, json, sys
document = json.load(open(sys.argv[1] + "/catchment-1.2.3.spdx.json"))
assert document["spdxVersion"] == "SPDX-2.3", document
packages = {package["name"]: package for package in document["packages"]}
assert {name: package["versionInfo"] for name, package in packages.items()} == \
    {"catchment": "1.2.3", "libone1": "1.0+b1-2", "libtwo": "3"}, packages
assert packages["libone1"]["externalRefs"][0]["referenceLocator"] == "pkg:deb/debian/libone1@1.0%2Bb1-2?distro=bookworm"
ids = [one["SPDXID"] for one in document["packages"] + document["files"]]
assert len(ids) == len(set(ids)) == 6, ids
for related in document["relationships"]:
    assert {related["spdxElementId"], related["relatedSpdxElement"]} <= {"SPDXRef-DOCUMENT", *ids}, related
for file in document["files"]:
    data = open(sys.argv[1] + "/" + file["fileName"], "rb").read()
    assert {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()} in file["checksums"], file
END
expect_status 0

run python3 - "$out/$wheel" <<'END'
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    libraries = archive.read("catchment/_bundle/LIBRARIES").decode()
    document = json.loads(archive.read("catchment-1.2.3.dist-info/sboms/catchment.spdx.json"))
assert libraries.splitlines() == ["libone1 1.0+b1-2 (source one)", "libtwo 3 (source two)"], libraries
assert document["spdxVersion"] == "SPDX-2.3" and document["files"] == [], document
assert {package["name"]: package["versionInfo"] for package in document["packages"]} == \
    {"catchment": "1.2.3", "libone1": "1.0+b1-2", "libtwo": "3"}, document
END
expect_status 0

run deploy/release.sh --bin=. --out="$TEST_TMPDIR/again"
expect_status 0
expect_true "the same commit makes the same bytes" cmp "$out/catchment-1.2.3-source.tar.gz" \
  "$TEST_TMPDIR/again/catchment-1.2.3-source.tar.gz"

run deploy/release.sh --bin=. --out="$out"
expect_status 1
expect_output "$out is not empty"
TEST_BUILT=0123456789ab run deploy/release.sh --bin=. --out="$TEST_TMPDIR/other"
expect_status 1
expect_output "the programs are of commit 0123456789ab"
echo >new_file
run deploy/release.sh --bin=. --out="$TEST_TMPDIR/dirty"
expect_status 1
expect_output "new_file"
rm new_file

# On other systems: in a container, of the image that the Dockerfile names by its digest.
mkdir "$TEST_TMPDIR/engines"
for program in bash dirname realpath ls git sed mkdir cat; do
  ln -s "$(command -v "$program")" "$TEST_TMPDIR/engines/"
done
echo 'ID=fedora' >"$TEST_TMPDIR/os-release"
export CATCHMENT_OS_RELEASE=$TEST_TMPDIR/os-release
PATH=$TEST_TMPDIR/engines run deploy/release.sh --out="$TEST_TMPDIR/elsewhere"
expect_status 1
expect_output "install podman, docker or apptainer"
printf '#!/bin/bash\necho "docker $*"\n' >"$TEST_TMPDIR/engines/docker"
chmod +x "$TEST_TMPDIR/engines/docker"
PATH=$TEST_TMPDIR/engines run deploy/release.sh --out="$TEST_TMPDIR/elsewhere"
expect_status 0
expect_output "docker run --rm --volume $tree:/source:ro --volume $TEST_TMPDIR/elsewhere:/release docker.io/library/debian:bookworm-slim@sha256:"
expect_output "git checkout --quiet $TEST_BUILT"
