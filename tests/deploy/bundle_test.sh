#!/usr/bin/env bash
# deploy/bundle.sh, and its bundle: moved to a folder with spaces in its name, in a root that holds nothing
# else (no C library), with an empty environment. If another root cannot be created, that part reports this
# and is skipped. tests/deploy/bundle_roots_test.sh takes it to other systems.
set -euo pipefail
source tests/deploy/check.sh
source tests/deploy/root.sh

readonly bundle=$TEST_TMPDIR/bundle.tar.gz
readonly root=$TEST_TMPDIR/root
readonly place="/opt/moved here"  # of the bundle, in the root
readonly moved=$root$place
readonly job=$place/examples/drawn_digits.textproto

run deploy/bundle.sh --help
expect_status 0
expect_output "--out=FILE"
run deploy/bundle.sh --frobnicate
expect_status 2
expect_output "no such flag: --frobnicate"

# A program that lacks a library is not bundled.
broken=$TEST_TMPDIR/broken
mkdir -p "$broken"/{cli,server,worker,kernels/cuda}
for file in cli/catchment server/catchment_server worker/catchment_worker \
  kernels/cuda/libcatchment_cuda.so; do
  cp -L "$file" "$broken/$file"
done
chmod u+w "$broken/server/catchment_server"
patchelf --add-needed libnowhere.so.1 "$broken/server/catchment_server"
run deploy/bundle.sh --bin="$broken" --out="$TEST_TMPDIR/broken.tar.gz"
expect_status 1
expect_output "needs libnowhere.so.1"
expect_true "nothing is left of it" test ! -e "$TEST_TMPDIR/broken.tar.gz"

run deploy/bundle.sh --bin=. --out="$bundle"
expect_status 0
expect_output "$bundle: "
run env LC_ALL=C tar -tvzf "$bundle"
expect_output "-rwxr-xr-x 0/0"
expect_no_output " $(id -un)/"

mkdir -p "$root"/{dev,opt,path,proc,work}
touch "$root/dev/null"
tar -xzf "$bundle" -C "$root/opt"
mv "$root"/opt/catchment-* "$moved"
ln -s "..$place/bin/catchment" "$root/path/catchment"
for file in bin/catchment bin/catchment_server bin/catchment_worker lib/libgrpc++.so.1.51 lib/libc.so.6 \
            lib/ld-linux-x86-64.so.2 LICENSE README.md CHANGELOG.md VERSION LIBRARIES licenses/libgrpc29 \
            licenses/libc6 \
            examples/drawn_digits.textproto python/catchment/torch.py deploy/fetch_mnist.sh docs/python.md \
            docs/figures/watch.png \
            share/bash-completion/completions/catchment_worker share/zsh/site-functions/_catchment \
            share/man/man1/catchment.1; do
  expect_true "$file is in the bundle" test -s "$moved/$file"
done
if grep -q "CUDA: plugin included" "$moved/VERSION"; then
  expect_true "the CUDA plugin is in the bundle" test -s "$moved/bin/libcatchment_cuda.so"
fi

# The process is the program's own: what ps, pgrep and core dumps name, and what finds the files beside it.
"$moved/bin/catchment_server" --job="$moved/examples/drawn_digits.textproto" --servers=127.0.0.1:0 \
  >"$TEST_TMPDIR/server.log" 2>&1 &
server=$!
until grep -q "listening on" "$TEST_TMPDIR/server.log" || ! kill -0 "$server"; do sleep 0.1; done
run readlink "/proc/$server/exe"
expect_output "$moved/bin/catchment_server"
run cat "/proc/$server/comm"
expect_output "catchment_serve"
run tr '\0' '\n' <"/proc/$server/cmdline"
expect_true "the command line is its own: $output" test "${output%%$'\n'*}" = "$moved/bin/catchment_server"
run grep -E '/(libc|libm|libstdc\+\+|ld-linux-x86-64)\.so' "/proc/$server/maps"
expect_output "$moved/lib/libc.so.6"
expect_true "a library is not the bundle's: $output" test "$(grep -cv "$moved/lib/" <<<"$output")" -eq 0
kill -KILL "$server"
status=0
wait "$server" || status=$?
expect_status 137

# Its own words where it is not complete, and where the processor is too old.
mv "$moved/lib/ld-linux-x86-64.so.2" "$TEST_TMPDIR/"
run "$moved/bin/catchment" --version
expect_status 1
expect_output "catchment: cannot load $moved/bin/../lib/ld-linux-x86-64.so.2; unpack the whole bundle"
mv "$TEST_TMPDIR/ld-linux-x86-64.so.2" "$moved/lib/"
if command -v qemu-x86_64 >/dev/null; then
  run qemu-x86_64 -cpu Nehalem "$moved/bin/catchment_worker" --version
  expect_status 1
  expect_output "catchment_worker: this processor lacks AVX"
else
  echo "SKIPPED: the bundle on an old processor: there is no qemu-x86_64 (package qemu-user)"
fi

if ! can_enter_root "$place/bin/catchment" --version; then
  echo "SKIPPED: the bundle in a separate root: $output"
  exit 0
fi
for program in catchment catchment_server catchment_worker; do
  run in_root "$place/bin/$program" --version
  expect_status 0
  expect_output "$program 0.1.0"
  expect_output "commit: "
  expect_output "oneDNN: "
  # A server has no use for a GPU.
  [[ $program == catchment_server ]] || expect_output "CUDA: "
done
# By a relative path, by a link, and by a link that is found in PATH.
for program in ".$place/bin/catchment" /path/catchment catchment; do
  run in_root "$program" --version
  expect_status 0
  expect_output "catchment 0.1.0"
done
run in_root catchment validate /nowhere.textproto
expect_status 1
expect_output "/nowhere.textproto"
run in_root catchment train "$job" --set "data.drawn_digits={train_samples: 256, test_samples: 64}" \
  --servers=2 \
  --workers=2 --out=/work/out
expect_status 0
run cat "$root/work/out/summary.json"
expect_output '"phase": "DONE"'
expect_output '"servers": 2'
expect_true "the weights are there" test -s "$root/work/out/model.safetensors"
