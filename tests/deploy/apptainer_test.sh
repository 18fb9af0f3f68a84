#!/usr/bin/env bash
# deploy/apptainer/catchment.def: built by Apptainer with a base made by debootstrap in place of a registry's;
# then the image's own test, and training with its programs.
#
#   bazel test //tests/deploy:apptainer_test
#
# As root on Debian, with a package mirror. Apptainer runs in a root of Debian unstable, the only suite that
# has it. Installs debootstrap where it is missing. Everything is in a temporary directory and in separate
# namespaces.
set -euo pipefail

fail() {
  echo "FAILED: $*"
  exit 1
}

# The mirror that this machine takes its own packages from.
mirror() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep '/debian/*$' | head -n 1
}

# make_root SUITE FOLDER PACKAGES
make_root() {
  debootstrap --variant=minbase --include="$3" "$1" "$2" "$(mirror)" >"$work/debootstrap.log" 2>&1 ||
    { tail "$work/debootstrap.log"; fail "debootstrap $1"; }
}

export PATH=$PATH:/usr/sbin:/sbin
if [[ ${1:-} != --inside ]]; then
  source tests/deploy/rights.sh
  require_rights make_device
  require_rights unshare --mount --pid --fork --kill-child true
  command -v debootstrap >/dev/null ||
    { apt-get --quiet update && apt-get --quiet --yes --no-install-recommends install debootstrap; } ||
    fail "could not install debootstrap"
  work=$(mktemp -d /var/tmp/catchment-apptainer.XXXXXX)
  trap 'rm -rf "$work"' EXIT
  make_root sid "$work/sid" apptainer,squashfs-tools
  make_root bookworm "$work/sid/work/base" bash,python3
  tar -xzf deploy/catchment.tar.gz -C "$work/sid/work"
  mv "$work"/sid/work/catchment-* "$work/sid/work/catchment"
  unshare --mount --pid --fork --kill-child bash "$0" --inside "$work/sid"
  exit
fi

# ------------------------------------------------------------------------------------------------------------

# enter ROOT: it becomes the root of this process's mounts. Apptainer does not run below a chroot.
enter() {
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount --rbind /dev "$1/dev"
  mkdir -p "$1/before"
  cd "$1"
  pivot_root . before
  umount --lazy /before
  cd /work
}

enter "$2"
export HOME=/root
# debootstrap makes none, and Apptainer gives its containers those of the system.
touch /etc/{hosts,resolv.conf} base/etc/{hosts,resolv.conf}
# By default root in a container has all capabilities, and this process may not have them.
sed -i 's/^root default capabilities = .*/root default capabilities = no/' /etc/apptainer/apptainer.conf
apptainer --version
sed -i 's,^Bootstrap: docker$,Bootstrap: localimage,; s,^From: .*$,From: /work/base,' \
  catchment/deploy/apptainer/catchment.def
# The definition's own test would ask for all of them too; it runs below.
(cd catchment && apptainer build --notest --sandbox ../image deploy/apptainer/catchment.def) ||
  fail "the image is not built"
# Nothing of the bundle is missing in it.
diff -r catchment image/opt/catchment || fail "the image has not all of the bundle"
apptainer test image || fail "its own test"
apptainer run --bind /work image train /opt/catchment/examples/drawn_digits.textproto \
  --set "data.drawn_digits={train_samples: 256, test_samples: 64}" --out=/work/out || fail "training"
grep -q '"phase": "DONE"' out/summary.json || fail "the summary: $(cat out/summary.json)"
version=$(apptainer exec image catchment_worker --version)
[[ $version == "catchment_worker "* ]] || fail "the worker: $version"
apptainer exec image catchment compare --help >/dev/null || fail "a command in Python"
echo PASSED
