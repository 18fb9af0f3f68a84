#!/usr/bin/env bash
# Installs the Debian packages that building and testing Catchment needs, and that are not there yet.
#
#   deploy/setup.sh                 what README.md's commands need
#   deploy/setup.sh PACKAGE...      these Debian packages, too
#
# For Debian 12 (bookworm). Needs root or sudo only if something is missing; otherwise it ends at once and
# changes nothing.
# Exit codes: 0 all is there, 1 something is missing and could not be installed (the reason is said), 2 usage.
set -euo pipefail

# CONTRIBUTING.md, "What it is built on", says what each is for.
packages=(
  bazel-bootstrap g++ pkg-config python3 python3-venv
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libabsl-dev libgoogle-glog-dev nlohmann-json3-dev prometheus-cpp-dev
  libdnnl-dev libhdf5-dev libjpeg62-turbo-dev zlib1g-dev libssl-dev
  libgtest-dev libgmock-dev
  python3-grpcio python3-protobuf python3-numpy
  openssl ca-certificates iproute2 patchelf
  clang-format-14 shellcheck
)

say() { echo "setup: $*"; }

die() {
  echo "setup: $*" >&2
  exit 1
}

# The packages that are not installed, a line each.
missing_packages() {
  # Prints a line for each package that dpkg knows, and fails if it does not know some of them.
  { dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true; } |
    awk -v wanted="${packages[*]}" '
      $2 == "installed" { there[$1] = 1 }
      END { n = split(wanted, names, " "); for (i = 1; i <= n; ++i) if (!there[names[i]]) print names[i] }'
  # deploy/fetch_mnist.sh takes either.
  command -v curl >/dev/null || command -v wget >/dev/null || echo curl
}

# The command, empty for root, that runs another one as root.
find_root() {
  if [[ $(id -u) -eq 0 ]]; then
    as_root=()
  elif command -v sudo >/dev/null; then
    as_root=(sudo)
  else
    die "installing packages needs root, and there is no sudo. As root: apt-get install ${missing[*]}"
  fi
}

check_system() {
  local release=${CATCHMENT_OS_RELEASE:-/etc/os-release} codename name
  codename=$(sed -n 's/^VERSION_CODENAME=//p' "$release" 2>/dev/null || true)
  name=$(sed -n 's/^PRETTY_NAME=//p' "$release" 2>/dev/null | tr -d '"' || true)
  [[ $codename == bookworm ]] || die "this is ${name:-an unknown system}, and the packages are those of \
Debian 12 (bookworm). Missing here: ${missing[*]}. Install what gives the same, or use a Debian 12 \
machine or container"
}

install_missing() {
  say "installing ${#missing[@]} packages: ${missing[*]}"
  # Without the option a mirror that cannot be reached is only a warning.
  "${as_root[@]}" apt-get -o APT::Update::Error-Mode=any --quiet update ||
    die "the package lists could not be fetched (the reason is above): is this machine online, and are \
/etc/apt/sources.list* right? Missing: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get --quiet --yes --no-install-recommends install "${missing[@]}" ||
    die "apt-get could not install all of: ${missing[*]} (the reason is above)"
}

for word; do
  [[ $word != -* ]] || { echo "usage: $0 [PACKAGE...]" >&2; exit 2; }
done
packages+=("$@")
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  die "no dpkg-query or no apt-get here: it installs Debian packages, and needs Debian 12 (bookworm)"
fi
mapfile -t missing < <(missing_packages)
if [[ ${#missing[@]} -eq 0 ]]; then
  say "all packages are there"
  exit 0
fi
check_system
find_root
install_missing
mapfile -t missing < <(missing_packages)
[[ ${#missing[@]} -eq 0 ]] || die "still missing after the installation: ${missing[*]}"
say "done"
