#!/usr/bin/env bash
# Fetches the MNIST handwritten digits (four files, 11 MB) to where the workers look for them.
#
#   deploy/fetch_mnist.sh [DIRECTORY]
#
# DIRECTORY: by default $XDG_CACHE_HOME/catchment/mnist, or ~/.cache/catchment/mnist.
# CATCHMENT_MNIST_MIRROR: a URL that is tried before the public mirrors (file:///... too, where curl is).
#
# A file that is there, gzipped or not, with the right content is left alone; each new one is checked, and
# takes its place only when it is whole.
# Exit codes: 0 all four are there, 1 one could not be fetched, 2 wrong usage.
set -euo pipefail

readonly mirrors=(
  ${CATCHMENT_MNIST_MIRROR:+"${CATCHMENT_MNIST_MIRROR%/}"}
  https://ossci-datasets.s3.amazonaws.com/mnist
  https://storage.googleapis.com/cvdf-datasets/mnist
)

# Name, and SHA-256 of the unpacked content.
readonly files=(
  "train-images-idx3-ubyte ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
  "train-labels-idx1-ubyte 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
  "t10k-images-idx3-ubyte 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
  "t10k-labels-idx1-ubyte ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
)

die() {
  echo "fetch_mnist: $*" >&2
  exit 1
}

# sha256_of FILE: prints the sum of the unpacked content; nothing if it cannot be unpacked.
sha256_of() {
  local sum
  if [[ $1 == *.gz || $1 == *.part ]]; then
    sum=$(gzip -dc <"$1" 2>/dev/null | sha256sum) || return 0
  else
    sum=$(sha256sum <"$1")
  fi
  echo "${sum%% *}"
}

# download URL FILE
download() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --connect-timeout 10 --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --timeout=10 --tries=1 --output-document="$2" "$1"
  else
    die "needs curl or wget; neither is installed"
  fi
}

# is_there NAME SHA256: succeeds if the file is there with the right content. Of a packed and an unpacked file
# the unpacked one counts, as for workers.
is_there() {
  local path=$directory/$1
  [[ -e $path ]] || path=$path.gz
  [[ -e $path ]] || return 1
  [[ $(sha256_of "$path") == "$2" ]] && return 0
  echo "fetch_mnist: $path has another content than MNIST's; fetching it again" >&2
  return 1
}

# fetch NAME SHA256
fetch() {
  local mirror part="$directory/.$1.gz.$$.part" got
  for mirror in "${mirrors[@]}"; do
    if download "$mirror/$1.gz" "$part"; then
      got=$(sha256_of "$part")
      if [[ $got == "$2" ]]; then
        chmod 644 "$part"
        mv -f "$part" "$directory/$1.gz"
        rm -f "$directory/$1"  # only a wrong one can be there
        echo "fetch_mnist: $directory/$1.gz"
        return 0
      fi
      echo "fetch_mnist: $mirror/$1.gz: SHA-256 of its content is ${got:-not available}, expected $2" >&2
    fi
    rm -f "$part"
  done
  return 1
}

[[ $# -le 1 && ${1:-} != -* ]] || { echo "usage: $0 [DIRECTORY]" >&2; exit 2; }
if [[ $# -eq 1 ]]; then
  directory=$1
else
  [[ -n ${XDG_CACHE_HOME:-} || -n ${HOME:-} ]] ||
    die "neither XDG_CACHE_HOME nor HOME is set; give a directory"
  directory=${XDG_CACHE_HOME:-$HOME/.cache}/catchment/mnist
fi
mkdir -p "$directory" || die "cannot make $directory"
trap 'rm -f "$directory"/.*."$$".part' EXIT

for entry in "${files[@]}"; do
  read -r name sum <<<"$entry"
  is_there "$name" "$sum" || fetch "$name" "$sum" || die "no mirror gave $name.gz (the reasons are above). \
On a machine without a network, copy the four files to $directory, \
or train on digits that the program draws: data { drawn_digits {} }"
done
echo "fetch_mnist: all four files are in $directory"
