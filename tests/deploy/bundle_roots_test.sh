#!/usr/bin/env bash
# The bundle on other systems than the one that it was made on: Debian 11, whose C library is older (2.31),
# Debian 13, whose C library is newer (2.41), and a root that holds nothing but a static BusyBox. On each: a
# server and workers with TLS that find each other by the names of DNS, of /etc/hosts, and of a module of the
# system for the C library (Debian 13's needs a newer one); training on MNIST; `catchment status`; and a
# library of the system that the program opens.
#
#   bazel test //tests/deploy:bundle_roots_test
#
# As root on Debian, with a package mirror and MNIST in $CATCHMENT_DATA. Installs debootstrap and
# busybox-static where they are missing. A system whose suite the mirror does not have (Debian 10 is on
# archives only) is skipped.
set -euo pipefail

readonly packages=(debootstrap busybox-static)
readonly patience=300
readonly address=10.7.0.1
readonly dns_name=server.cluster.example listed_name=listed.example own_name=node0
readonly port=7000

install_missing() {
  if command -v debootstrap && command -v busybox; then return; fi >/dev/null
  if apt-get --quiet update; then
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install "${packages[@]}" && return
  fi
  echo "FAILED: could not install ${packages[*]}"
  exit 1
}

# The mirror that this machine takes its own packages from.
mirror() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep '/debian/*$' | head -n 1
}

has_suite() { wget --quiet --tries=2 --output-document=/dev/null "$(mirror)/dists/$1/InRelease"; }

# Runs in separate namespaces: its processes end with it, and it has its own network and host name.
export PATH=$PATH:/usr/sbin:/sbin
if [[ ${1:-} != --inside ]]; then
  source tests/deploy/rights.sh
  require_rights make_device
  require_rights unshare --mount --net --uts --pid --fork --kill-child --mount-proc true
  [[ -d ${CATCHMENT_DATA:-}/mnist ]] || { echo "SKIPPED: there is no MNIST in \$CATCHMENT_DATA"; exit 0; }
  install_missing
  work=$(mktemp -d /var/tmp/catchment-roots.XXXXXX)
  trap 'rm -rf "$work"' EXIT
  tar -xzf deploy/catchment.tar.gz -C "$work"
  mv "$work"/catchment-* "$work/catchment"
  systems=()
  for suite in bullseye trixie; do
    if ! has_suite "$suite"; then
      echo "SKIPPED: $suite: $(mirror) does not have it"
      continue
    fi
    debootstrap --variant=minbase --include=libnss-myhostname "$suite" "$work/$suite" "$(mirror)" \
      >"$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log"; echo "FAILED: debootstrap $suite"; exit 1; }
    systems+=("$suite")
  done
  install -D "$(command -v busybox)" "$work/busybox/bin/busybox"
  unshare --mount --net --uts --pid --fork --kill-child --mount-proc bash "$0" --inside "$work" "${systems[@]}" busybox
  exit
fi

# ------------------------------------------------------------------------------------------------------------

readonly work=$2
# tls ROLE: sets tls, the flags of a process with this role.
tls() { tls=(--tls_ca=/certs/ca.crt "--tls_cert=/certs/$1.crt" "--tls_key=/certs/$1.key"); }
readonly bin=/opt/catchment/bin
source tests/deploy/check.sh
source tests/deploy/root.sh

# furnish: puts the bundle, the data, certificates and the configuration of names into $root.
furnish() {
  mkdir -p "$root"/{certs,data/mnist,dev,etc,opt,proc,work}
  [[ -e $root/dev/null ]] || touch "$root/dev/null"
  cp -a "$work/catchment" "$root/opt/"
  cp -L "$CATCHMENT_DATA"/mnist/* "$root/data/mnist/"
  cp "$work"/certs/* "$root/certs/"
  printf '127.0.0.1 localhost\n%s %s\n' "$address" "$listed_name" >"$root/etc/hosts"
  echo "hosts: files myhostname dns" >"$root/etc/nsswitch.conf"
  echo "nameserver $address" >"$root/etc/resolv.conf"
}

# start LOG COMMAND...: in $root in the background. Sets $started.
start() {
  local log=$1
  shift
  in_root CATCHMENT_DATA=/data LANG=de_DE.UTF-8 TZ=Europe/Berlin "$@" >"$work/$log" 2>&1 &
  started=$!
}

# await LOG TEXT: until it is there.
await() {
  local deadline=$((SECONDS + patience))
  until grep -q "$2" "$work/$1"; do
    [[ $SECONDS -lt $deadline ]] || { fail "$name: no '$2' in $1 after $patience s: $(cat "$work/$1")"; return; }
    sleep 0.2
  done
}

# A job of one worker and an evaluator on MNIST, over TLS.
try_training() {
  local server worker evaluator status_name tls
  run in_root "$bin/catchment" validate /opt/catchment/examples/mnist_mlp.textproto --set epochs=1 --workers=1 \
    --write=/work/job.textproto
  expect_status 0
  tls server
  start server.log "$bin/catchment_server" --job=/work/job.textproto --servers="$dns_name:$port" --out=/work/out \
    "${tls[@]}"
  server=$started
  await server.log "listening on"
  tls operator
  # By gRPC's own resolver and by the C library's. Only the latter knows the names of the system's modules.
  for resolver in ares native; do
    for status_name in "$dns_name" "$listed_name"; do
      run in_root GRPC_DNS_RESOLVER=$resolver "$bin/catchment" status "$status_name:$port" "${tls[@]}"
      expect_status 0
      expect_output "mnist_mlp"
    done
  done
  if [[ $name == bullseye ]]; then
    run in_root GRPC_DNS_RESOLVER=native "$bin/catchment" status "$own_name:$port" "${tls[@]}"
    expect_status 0
  fi
  tls worker
  start worker.log "$bin/catchment_worker" --master="$dns_name:$port" "${tls[@]}"
  worker=$started
  tls evaluator
  start evaluator.log "$bin/catchment_worker" --master="$listed_name:$port" --role=evaluator "${tls[@]}"
  evaluator=$started
  for process in "$server:server" "$worker:worker" "$evaluator:evaluator"; do
    wait "${process%:*}" || fail "$name: the ${process#*:} ended with $?: $(cat "$work/${process#*:}.log")"
  done
  expect_accuracy 0.9
}

# expect_accuracy LEAST: of the finished job.
expect_accuracy() {
  run python3 -c '
import json, sys
summary = json.load(open(sys.argv[1]))
print(summary["phase"], summary["test_accuracy"])
sys.exit(summary["phase"] != "DONE" or summary["test_accuracy"] < float(sys.argv[2]))' \
    "$root/work/out/summary.json" "$1"
  expect_status 0
  echo "$name: $output"
}

# try_plugin [VARIABLE=VALUE]...: training with a library of the system, libapt-pkg, in place of the CUDA
# plugin.
try_plugin() {
  local library
  library=$(cd "$root" && ls usr/lib/x86_64-linux-gnu/libapt-pkg.so.?.0)
  run in_root "$@" CATCHMENT_CUDA_PLUGIN="/$library" "$bin/catchment" train \
    /opt/catchment/examples/drawn_digits.textproto --set device=cuda --out=/work/cuda --overwrite
  expect_status 1
}

# A library of an older system, and others that it needs and only the system has, are found by the system's
# list of libraries (ldconfig) and in LD_LIBRARY_PATH, and work beside the bundle's C library, as a GPU's
# driver must.
try_system_library() {
  local needed
  try_plugin
  expect_output "is not a Catchment CUDA plugin"
  needed=$(cd "$root" && realpath --relative-to=. usr/lib/x86_64-linux-gnu/libxxhash.so.0)
  mkdir -p "$root/driver"
  mv "$root/$needed" "$root/driver/libxxhash.so.0"
  try_plugin
  expect_output "libxxhash.so.0"
  try_plugin LD_LIBRARY_PATH=/driver
  expect_output "is not a Catchment CUDA plugin"
}

ip link set lo up
ip address add "$address/24" dev lo
hostname "$own_name"
run deploy/make_certs.sh "$work/certs" "$dns_name" "$listed_name" "$own_name"
expect_status 0
tests/deploy/answer_dns.py "$address" "$dns_name" "$address" &
for name in "${@:3}"; do
  root=$work/$name
  furnish
  try_training
  case $name in
    bullseye) try_system_library ;;
    # A library that needs a newer C library than the bundle's is refused, and the program continues.
    trixie) try_plugin; expect_output "version \`GLIBC_" ;;
  esac
done
