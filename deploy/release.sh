#!/usr/bin/env bash
# Makes all files of a release from one commit: the current one, of a checkout without changes.
#
#   deploy/release.sh --out=DIR [--bin=DIR]
#
# --out=DIR    where the files go; it must be empty or not there yet
# --bin=DIR    take the programs from this Bazel output folder as they are, and build nothing
#
#   catchment-VERSION.tar.gz                 the bundle (deploy/bundle.sh)
#   catchment-VERSION-py3-none-*.whl         the wheel (deploy/wheel.sh)
#   catchment-VERSION-source.tar.gz          the source archive
#   catchment-VERSION.spdx.json              what is in the bundle and the wheel, with versions and licenses (SPDX 2.3)
#   RELEASE_NOTES.md                         the version's section of CHANGELOG.md
#   SHA256SUMS                               of all of them: sha256sum --check SHA256SUMS
#
# The programs are linked with Debian 12's libraries. On another system the script clones the commit and runs
# itself in a container of Debian 12, with the first of podman, docker and apptainer that is installed.
#
# If twine is on the PATH, it checks the wheel. The same commit and the same programs make the same bytes.
#
# Exit codes: 0 made, 1 something went wrong (it says what), 2 usage.
set -euo pipefail

die() {
  echo "release: $*" >&2
  exit 1
}

# Succeeds if this is Debian 12. CATCHMENT_OS_RELEASE: another file in place of /etc/os-release, for tests.
on_debian_12() {
  # shellcheck source=/dev/null
  (. "${CATCHMENT_OS_RELEASE:-/etc/os-release}" && [[ ${ID:-} == debian && ${VERSION_ID:-} == 12 ]])
}

# Makes the release in a container, in a clone of the commit, because Bazel writes into the tree that it
# builds.
in_container() {
  local engine image inside
  image=$(sed -n 's/^ARG BASE=//p' deploy/container/Dockerfile)
  inside="apt-get update -qq && apt-get install -y -qq git >/dev/null
git config --global --add safe.directory '*'
git clone --quiet /source /build && cd /build && git checkout --quiet $commit
deploy/setup.sh && deploy/release.sh --out=/release"
  for engine in podman docker apptainer; do
    command -v "$engine" >/dev/null || continue
    echo "release: this is not Debian 12; building in a container with $engine"
    mkdir -p "$out"
    if [[ $engine == apptainer ]]; then
      apptainer exec --fakeroot --writable-tmpfs \
        --bind "$PWD:/source:ro,$out:/release" "docker://$image" bash -ec "$inside"
    else
      "$engine" run --rm --volume "$PWD:/source:ro" --volume "$out:/release" "$image" bash -ec "$inside"
    fi || die "the build in the container failed; the reason is above"
    exit 0
  done
  die "the programs are built on Debian 12, and this is another system: install podman, docker or apptainer"
}

out=
pass=()
bin=
for argument in "$@"; do
  case $argument in
    --out=?*) out=$(realpath -m "${argument#*=}") ;;
    --bin=?*) bin=$(realpath "${argument#*=}") ;;
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "release: no such flag: $argument; --help lists them" >&2; exit 2 ;;
  esac
done
[[ -n $out ]] || { echo "release: --out=DIR is missing; --help explains it" >&2; exit 2; }
[[ -z $(ls -A "$out" 2>/dev/null) ]] || die "$out is not empty: choose another directory, so that it holds one release"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) ||
  die "$PWD is not a checkout: a release is made from a commit"
changes=$(git status --porcelain)
[[ -z $changes ]] || die "the checkout has changes that are in no commit: commit or remove them: ${changes//$'\n'/, }"
[[ -n $bin ]] || on_debian_12 || in_container

mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -z $bin ]] || pass+=("--bin=$bin")
deploy/bundle.sh "${pass[@]}" --out="$work/bundle.tar.gz"
mkdir "$work/bundle"
tar --extract --file="$work/bundle.tar.gz" --directory="$work/bundle" --strip-components=1
version=$(awk 'NR == 1 { print $2 }' "$work/bundle/VERSION")
built=$(awk '$1 == "commit:" { print $2 }' "$work/bundle/VERSION")
[[ $built == "$commit" ]] || die "the programs are of commit $built, and the checkout is at $commit: build them again"
name=catchment-$version
mv "$work/bundle.tar.gz" "$out/$name.tar.gz"
python3 deploy/make_wheel.py "$out/$name.tar.gz" "$out"
wheel=$(basename "$out"/*.whl)
if command -v twine >/dev/null; then
  twine check --strict "$out/$wheel" || die "twine refuses the wheel; the reason is above"
fi
# git archive writes the commit into the archive, where `git get-tar-commit-id` finds it; RELEASE is for
# people.
printf 'Catchment %s\ncommit %s\n' "$version" "$commit" >"$work/RELEASE"
git archive --format=tar --prefix="$name/" --add-file="$work/RELEASE" HEAD |
  gzip -n >"$out/$name-source.tar.gz"
python3 deploy/release_documents.py "$work/bundle" "$commit" "$(git show --no-patch --format=%cI HEAD)" "$out"
(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
echo "release: $name, commit $commit:"
ls -l "$out"
