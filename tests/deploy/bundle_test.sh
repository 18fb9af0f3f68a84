#!/usr/bin/env bash
# deploy/bundle.sh, and its bundle in a root that holds nothing but glibc, with an empty environment.
# Where another root cannot be had, that part says so and is skipped.
set -euo pipefail
source tests/deploy/check.sh

readonly bundle=$TEST_TMPDIR/bundle.tar.gz
readonly root=$TEST_TMPDIR/root

# In $root, as its own process tree, which ends with the command. Only /proc and /dev/null are there beside
# it.
# in_root COMMAND...
in_root() {
  local rights=()
  [[ $(id -u) -eq 0 ]] || rights=(--map-root-user)
  # shellcheck disable=SC2016
  unshare "${rights[@]}" --mount --pid --fork --kill-child bash -c '
    mount -t proc proc "$0/proc" && mount --bind /dev/null "$0/dev/null" && exec env -i /usr/sbin/chroot "$0" "$@"' \
    "$root" "$@"
}

make_root() {
  local file
  mkdir -p "$root"/{proc,dev,opt,lib64,work}
  touch "$root/dev/null"
  dpkg --listfiles libc6 | grep -E '/lib/x86_64-linux-gnu/[^/]*\.so[.0-9]*$' >"$TEST_TMPDIR/glibc"
  while read -r file; do
    install -D -m 755 "$file" "$root$file"
  done <"$TEST_TMPDIR/glibc"
  ln -s /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$root/lib64/"
}

run deploy/bundle.sh --help
expect_status 0
expect_output "--out=FILE"
run deploy/bundle.sh --frobnicate
expect_status 2
expect_output "no such flag: --frobnicate"

run deploy/bundle.sh --bin=. --out="$bundle"
expect_status 0
expect_output "$bundle: "
mkdir -p "$root/opt"
tar -xzf "$bundle" -C "$root/opt"
mv "$root"/opt/catchment-* "$root/opt/moved"
for file in bin/catchment bin/catchment_server bin/catchment_worker lib/libgrpc++.so.1.51 LICENSE VERSION \
            licenses/libgrpc29 examples/drawn_digits.textproto deploy/fetch_mnist.sh; do
  expect_true "$file is in the bundle" test -s "$root/opt/moved/$file"
done
expect_true "glibc is not in the bundle" test ! -e "$root/opt/moved/lib/libc.so.6"
if grep -q "CUDA: plugin built" "$root/opt/moved/VERSION"; then
  expect_true "the CUDA plugin is in the bundle" test -s "$root/opt/moved/bin/libcatchment_cuda.so"
fi
run env LC_ALL=C tar -tvzf "$bundle"
expect_output "-rwxr-xr-x 0/0"
expect_no_output " $(id -un)/"

make_root
if ! unshare --help >/dev/null || ! in_root /opt/moved/bin/catchment --version >"$TEST_TMPDIR/why" 2>&1 &&
   grep -qiE 'unshare|mount:|chroot:' "$TEST_TMPDIR/why"; then
  echo "SKIPPED: the bundle in a root of its own: $(cat "$TEST_TMPDIR/why")"
  exit 0
fi
for program in catchment catchment_server catchment_worker; do
  run in_root "/opt/moved/bin/$program" --version
  expect_status 0
  expect_output "$program 0.1.0"
  expect_output "commit: "
  expect_output "oneDNN: 2."
  expect_output "CUDA: "
done
run in_root /opt/moved/bin/catchment train /opt/moved/examples/drawn_digits.textproto --servers=2 --workers=2 \
  --out=/work/out
expect_status 0
run cat "$root/work/out/summary.json"
expect_output '"phase": "DONE"'
expect_output '"servers": 2'
expect_true "the weights are there" test -s "$root/work/out/model.safetensors"

# A program that lacks a library is not bundled.
broken=$TEST_TMPDIR/broken
mkdir -p "$broken"/{cli,server,worker,kernels/cuda}
for file in cli/catchment server/catchment_server worker/catchment_worker kernels/cuda/libcatchment_cuda.so; do
  cp -L "$file" "$broken/$file"
done
chmod u+w "$broken/worker/catchment_worker"
patchelf --add-needed libnowhere.so.1 "$broken/worker/catchment_worker"
run deploy/bundle.sh --bin="$broken" --out="$TEST_TMPDIR/broken.tar.gz"
expect_status 1
expect_output "needs libnowhere.so.1"
expect_true "nothing is left of it" test ! -e "$TEST_TMPDIR/broken.tar.gz"
