#!/usr/bin/env bash
# deploy/setup.sh against stand-ins for dpkg, apt and sudo.
set -euo pipefail
source tests/deploy/check.sh

readonly setup=$PWD/deploy/setup.sh
stubs=$TEST_TMPDIR/bin
mkdir "$stubs"
# Nothing else of the machine may be found: no real sudo, no real apt.
for tool in bash env awk sed tr cat touch ln; do ln -s "$(command -v "$tool")" "$stubs/$tool"; done

# The packages in $TEST_TMPDIR/lacking are not installed, all others are. Like the real one it fails where it
# has not heard of all of them.
stub dpkg-query <<END
shift 2
status=0
for package in "\$@"; do
  while read -r lacking; do [[ \$lacking == "\$package" ]] && { status=1; continue 2; }; done <"$TEST_TMPDIR/lacking"
  echo "\$package installed"
done
exit \$status
END
# Writes what it was asked for; an installation works unless "broken" is there.
stub apt-get <<END
echo "apt-get \$*"
[[ " \$* " == *" update "* && -e "$TEST_TMPDIR/offline" ]] && { echo "E: could not resolve"; exit 100; }
[[ " \$* " == *" install "* && ! -e "$TEST_TMPDIR/broken" ]] && : >"$TEST_TMPDIR/lacking"
[[ " \$* " == *" install "*" curl "* ]] && ln -s "$TEST_TMPDIR/curl" "$stubs/curl"
exit 0
END
# shellcheck disable=SC2016  # The stub expands it.
stub id <<<'echo ${FAKE_UID:-0}'
stub curl <<<'exit 0'
echo 'VERSION_CODENAME=bookworm' >"$TEST_TMPDIR/os-release"

# lacking PACKAGE...
lacking() { printf '%s\n' "$@" >"$TEST_TMPDIR/lacking"; }
setup() {
  run env -i PATH="$stubs" CATCHMENT_OS_RELEASE="$TEST_TMPDIR/os-release" FAKE_UID="${uid:-0}" \
    bash "$setup" "$@"
}

: >"$TEST_TMPDIR/lacking"
setup
expect_status 0
expect_output "all packages are there"
expect_no_output "apt-get"

lacking libdnnl-dev openssl
setup
expect_status 0
expect_output "installing 2 packages: libdnnl-dev openssl"
expect_output "install libdnnl-dev openssl"
expect_output "setup: done"

# A fresh machine: neither the packages nor curl or wget.
mv "$stubs/curl" "$TEST_TMPDIR/curl"
lacking g++
setup
expect_status 0
expect_output "installing 2 packages: g++ curl"

lacking g++
touch "$TEST_TMPDIR/offline"
setup
expect_status 1
expect_output "is this machine online"
expect_no_output "install g++"
rm "$TEST_TMPDIR/offline"

lacking g++
touch "$TEST_TMPDIR/broken"
setup
expect_status 1
expect_output "still missing after the installation: g++"
rm "$TEST_TMPDIR/broken"

# Neither root nor sudo; then with sudo.
lacking g++
uid=1000 setup
expect_status 1
expect_output "needs root, and there is no sudo"
expect_output "apt-get install g++"
stub sudo <<<'echo "sudo $*"; exec "$@"'
uid=1000 setup
expect_status 0
expect_output "sudo apt-get"

printf 'PRETTY_NAME="Some Linux 9"\nVERSION_CODENAME=other\n' >"$TEST_TMPDIR/os-release"
lacking g++
setup
expect_status 1
expect_output "this is Some Linux 9, and the packages are those of Debian 12"

# Elsewhere, with everything there, nothing is in the way.
: >"$TEST_TMPDIR/lacking"
setup
expect_status 0

# deploy/fetch_mnist.sh needs curl or wget.
echo 'VERSION_CODENAME=bookworm' >"$TEST_TMPDIR/os-release"
mv "$stubs/curl" "$stubs/wget"
setup
expect_output "all packages are there"
rm "$stubs/wget"
setup
expect_output "installing 1 packages: curl"

setup --frobnicate
expect_status 2

# Packages beside those that every build needs.
mv "$TEST_TMPDIR/curl" "$stubs/curl"
lacking clang-14
setup
expect_output "all packages are there"
setup clang-14
expect_status 0
expect_output "installing 1 packages: clang-14"
