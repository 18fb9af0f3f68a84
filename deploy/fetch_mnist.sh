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

# Name, and MD5 of the unpacked content.
readonly files=(
  "train-images-idx3-ubyte 6bbc9ace898e44ae57da46a324031adb"
  "train-labels-idx1-ubyte a25bea736e30d166cdddb491f175f624"
  "t10k-images-idx3-ubyte 2646ac647ad5339dbf082846283269ea"
  "t10k-labels-idx1-ubyte 27ae3e4e09519cfbb04c329615203637"
)

die() {
  echo "fetch_mnist: $*" >&2
  exit 1
}

# md5_of FILE: of the unpacked content; nothing where it cannot be unpacked.
md5_of() {
  local sum
  if [[ $1 == *.gz || $1 == *.part ]]; then
    sum=$(gzip -dc <"$1" 2>/dev/null | md5sum) || return 0
  else
    sum=$(md5sum <"$1")
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

# is_there NAME MD5: with the right content. Workers take the unpacked file where there are both.
is_there() {
  local path=$directory/$1
  [[ -e $path ]] || path=$path.gz
  [[ -e $path ]] || return 1
  [[ $(md5_of "$path") == "$2" ]] && return 0
  echo "fetch_mnist: $path has another content than MNIST's; fetching it again" >&2
  return 1
}

# fetch NAME MD5
fetch() {
  local mirror part="$directory/.$1.gz.$$.part" got
  for mirror in "${mirrors[@]}"; do
    if download "$mirror/$1.gz" "$part"; then
      got=$(md5_of "$part")
      if [[ $got == "$2" ]]; then
        chmod 644 "$part"
        mv -f "$part" "$directory/$1.gz"
        rm -f "$directory/$1"  # only a wrong one can be there
        echo "fetch_mnist: $directory/$1.gz"
        return 0
      fi
      echo "fetch_mnist: $mirror/$1.gz: MD5 of its content is ${got:-not available}, expected $2" >&2
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
  read -r name md5 <<<"$entry"
  is_there "$name" "$md5" || fetch "$name" "$md5" || die "no mirror gave $name.gz (the reasons are above). \
On a machine without a network, copy the four files to $directory, \
or train on digits that the program draws: data { drawn_digits {} }"
done
echo "fetch_mnist: all four files are in $directory"
