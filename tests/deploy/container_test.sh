#!/usr/bin/env bash
# deploy/container/Dockerfile: built by buildah over a root made by debootstrap, without any registry; then
# what it says of itself, a short job in it, and its health check. Then program.Dockerfile, with a program.
#
#   bazel test //tests/deploy:container_test
#
# As root on Debian 12, with a package mirror. Installs buildah and debootstrap where they are missing. Images
# and roots are in a temporary directory, everything runs in separate namespaces.
set -euo pipefail

readonly packages=(buildah debootstrap)
readonly patience=1200

fail() {
  echo "FAILED: $*"
  exit 1
}

install_missing() {
  if command -v buildah && command -v debootstrap; then return; fi >/dev/null
  if apt-get --quiet update; then
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install "${packages[@]}" &&
      return
  fi
  fail "could not install ${packages[*]}"
}

clean_up() {
  [[ -z $inside ]] || kill -KILL "$inside" 2>/dev/null || true
  wait
  rm -rf "$work"
}

# The mirror that this machine takes its own packages from.
mirror() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Codename: bookworm' 2>/dev/null | head -n 1
}

export PATH=$PATH:/usr/sbin:/sbin
if [[ ${1:-} != --inside ]]; then
  source tests/deploy/rights.sh
  require_rights make_device
  require_rights unshare --mount --net --pid --ipc --fork --kill-child --mount-proc true
  install_missing
  work=$(mktemp -d /var/tmp/catchment-container.XXXXXX)
  inside=
  trap clean_up EXIT
  tar -xzf deploy/catchment.tar.gz -C "$work"
  mv "$work"/catchment-* "$work/catchment"
  debootstrap --variant=minbase --include=bash,python3,python3-pip bookworm "$work/debian" "$(mirror)" >"$work/debootstrap.log" \
    2>&1 ||
    { tail "$work/debootstrap.log"; fail "debootstrap"; }
  python3 deploy/make_wheel.py deploy/catchment.tar.gz "$work/program"
  cat >"$work/program/train.py" <<'END'
import array
import catchment
worker = catchment.join({"w": memoryview(array.array("f", [0.5] * 64))}, 640)
for _ in worker.minibatches():
    for i in range(64):
        worker.gradients["w"][i] = worker.parameters["w"][i] - 1
    worker.step(0.5)
END
  unshare --mount --net --pid --ipc --fork --kill-child --mount-proc bash "$0" --inside "$work" &
  inside=$!
  wait "$inside"
  inside=
  exit 0
fi

# ------------------------------------------------------------------------------------------------------------

readonly work=$2
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs HOME=$work/home TMPDIR=$work/tmp
export REGISTRY_AUTH_FILE=$work/none.json
mkdir -p "$HOME" "$TMPDIR"
echo '{}' >"$REGISTRY_AUTH_FILE"
ip link set lo up
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"

b() {
  local command=$1
  shift
  buildah --root "$work/storage" --runroot "$work/run" "$command" "$@"
}
in_container() { b run "$container" -- "$@"; }

base=$(b from scratch)
b add --quiet "$base" "$work/debian" / >/dev/null
b commit --quiet --signature-policy "$work/policy.json" "$base" localhost/debian:slim >/dev/null
b rm "$base" >/dev/null
rm -rf "$work/debian"
b build --quiet --pull-never --format docker --signature-policy "$work/policy.json" \
  --build-arg BASE=localhost/debian:slim --tag localhost/catchment \
  -f "$work/catchment/deploy/container/Dockerfile" "$work/catchment" >"$work/build.log" 2>&1 ||
  { cat "$work/build.log"; fail "the image is not built"; }

config=$(b inspect --type image localhost/catchment | tr -d ' \n')
[[ $config == *'"Healthcheck":{"Test":["CMD","/opt/catchment/deploy/container/healthcheck.sh"]'* ]] ||
  fail "the image has no health check: $config"
[[ $config == *'"User":"10001:10001"'* ]] || fail "the image does not run as 10001"

container=$(b from --pull-never localhost/catchment)
[[ $(in_container id -u) == 10001 ]] || fail "runs as $(in_container id -u)"
in_container catchment --version | grep -q "^commit: " || fail "no --version"
if in_container touch /opt/catchment/x 2>/dev/null; then fail "the programs can be written to"; fi

in_container catchment train /opt/catchment/examples/drawn_digits.textproto --workers=2 --out=out \
  >"$work/train.log" 2>&1 || { cat "$work/train.log"; fail "training"; }
summary=$(in_container cat out/summary.json)
[[ $summary == *'"phase": "DONE"'* && $summary == *'"workers": 2'* ]] || fail "the summary: $summary"
in_container test -s out/model.safetensors || fail "no weights"
in_container catchment report out --out=report >"$work/report.log" 2>&1 ||
  { cat "$work/report.log"; fail "a command in Python"; }

# Healthy without a server, and with one that answers; not with one that does not.
healthcheck=/opt/catchment/deploy/container/healthcheck.sh
in_container "$healthcheck" || fail "without a server it is not healthy"
in_container catchment_server --job=/opt/catchment/examples/drawn_digits.textproto \
  --servers=127.0.0.1:7000 >"$work/server.log" 2>&1 &
deadline=$((SECONDS + patience))
until grep -q "listening on" "$work/server.log"; do
  [[ $SECONDS -lt $deadline ]] || { cat "$work/server.log"; fail "no server after $patience s"; }
  sleep 0.2
done
[[ $(in_container "$healthcheck") == SERVING ]] || fail "not healthy: $(cat "$work/server.log")"
server=$(pgrep -x catchment_serve)
kill -STOP "$server"
if in_container "$healthcheck" >/dev/null 2>&1; then fail "healthy with a server that does not answer"; fi
kill -CONT "$server"
kill -TERM "$server"
wait
b build --quiet --pull-never --format docker --signature-policy "$work/policy.json" \
  --build-arg BASE=localhost/debian:slim --tag localhost/program \
  -f "$work/catchment/deploy/container/program.Dockerfile" "$work/program" >"$work/build.log" 2>&1 ||
  { cat "$work/build.log"; fail "the image of a program is not built"; }
container=$(b from --pull-never localhost/program)
[[ $(in_container id -u) == 10001 ]] || fail "a program runs as $(in_container id -u)"
in_container test -x /opt/catchment/deploy/kubernetes/worker.sh || fail "the image of a program has no worker.sh"
in_container catchment train --program="python3 train.py" --out=/tmp/out >"$work/train.log" 2>&1 ||
  { cat "$work/train.log"; fail "training with a program"; }
grep -q "FAILED" "$work/server.log" && fail "the server: $(cat "$work/server.log")"
echo PASSED
