#!/usr/bin/env bash
# Makes a certificate authority, and a certificate for each role of a job's processes (mutual TLS).
#
#   deploy/make_certs.sh [--days=N] [--discard_authority_key] DIR [HOST...]
#
# Writes DIR/ca.crt and DIR/ca.key, and for each of the roles server, worker, evaluator and operator
# DIR/ROLE.crt and DIR/ROLE.key. The server's certificate is valid for localhost, 127.0.0.1 and every HOST (a
# name or an IP address), as a server and as a client; the others only as clients. All are valid for N days
# (30), and from an hour ago, because the clocks of machines differ.
#
# An authority that is there is kept, so that certificates made earlier stay valid; anyone who can read
# DIR/ca.key can make further ones, so keep it away from the cluster. With --discard_authority_key it is never
# written to DIR, which is right for the certificates of a single job. Files are replaced by renaming: daemons
# that run use the new ones for new connections.
# Use: --certs=DIR, or CATCHMENT_CERTS=DIR in the environment, for every daemon and command
# Exit codes: 0 made, 1 something went wrong (openssl says what), or DIR has files of another origin, 2 usage.
set -euo pipefail

readonly roles=(server worker evaluator operator)
readonly new_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

# alternative_names HOST...: "DNS:localhost,IP:127.0.0.1,..."
alternative_names() {
  local host names="DNS:localhost,IP:127.0.0.1"
  for host in "$@"; do
    if [[ $host =~ ^[0-9]+(\.[0-9]+){3}$ || $host == *:* ]]; then
      names+=",IP:$host"
    else
      names+=",DNS:$host"
    fi
  done
  echo "$names"
}

# sign NAME OPTION...: makes the certificate NAME of the request $work/csr, with $work/extensions.
# `openssl ca` is the only command of OpenSSL 3.0 that sets the first day of a certificate.
sign() {
  local name=$1 now
  shift
  now=$(date +%s)
  : >"$work/index"
  printf '%s\n' "[ca]" "default_ca=authority" "[authority]" "database=$work/index" "new_certs_dir=$work" \
    "default_md=sha256" "rand_serial=yes" "policy=names" "[names]" "commonName=supplied" >"$work/ca.conf"
  openssl ca -batch -notext -config "$work/ca.conf" "$@" -in "$work/csr" -extfile "$work/extensions" \
    -startdate "$(date -u -d "@$((now - 3600))" +%Y%m%d%H%M%SZ)" \
    -enddate "$(date -u -d "@$((now + days * 86400))" +%Y%m%d%H%M%SZ)" -out "$work/$name.crt" 2>"$log"
}

# is_ours NAME: succeeds if this script made the certificate NAME in DIR, with its key, or there is none.
is_ours() {
  local subject
  [[ -e $directory/$1.crt || -e $directory/$1.key ]] || return 0
  subject=$(openssl x509 -noout -subject -nameopt RFC2253 -in "$directory/$1.crt" 2>/dev/null) || return 1
  [[ ${subject#subject=} == "CN=catchment $1" || ($1 == ca && ${subject#subject=} == "CN=Catchment authority "*) ]]
}

# Sets authority, the folder with ca.crt and ca.key.
find_authority() {
  # One that expires within two days is replaced.
  if [[ $discard == no && -r $directory/ca.key ]] &&
    openssl x509 -checkend 172800 -noout -in "$directory/ca.crt" >/dev/null 2>&1; then
    authority=$directory
    return
  fi
  authority=$work
  openssl req -new "${new_key[@]}" -subj "/CN=Catchment authority $(openssl rand -hex 4)" \
    -keyout "$work/ca.key" \
    -out "$work/csr" 2>"$log"
  printf '%s\n' "basicConstraints=critical,CA:TRUE" "keyUsage=critical,keyCertSign,cRLSign" \
    "subjectKeyIdentifier=hash" >"$work/extensions"
  sign ca -selfsign -keyfile "$work/ca.key"
}

# make_certificate ROLE NAMES USAGE
make_certificate() {
  openssl req -new "${new_key[@]}" -subj "/CN=catchment $1" -keyout "$work/$1.key" -out "$work/csr" 2>"$log"
  printf '%s\n' "subjectAltName=URI:catchment:role/$1${2:+,$2}" "extendedKeyUsage=$3" \
    "basicConstraints=CA:FALSE" \
    "keyUsage=critical,digitalSignature" >"$work/extensions"
  sign "$1" -cert "$authority/ca.crt" -keyfile "$authority/ca.key"
  openssl verify -CAfile "$authority/ca.crt" "$work/$1.crt" >"$log" 2>&1
}

# Moves what was made to DIR, keys before certificates.
install_files() {
  local file files=() role
  if [[ $authority == "$work" ]]; then
    if [[ $discard == no ]]; then files+=(ca.key); else rm -f "$directory/ca.key"; fi
    files+=(ca.crt)
  fi
  for role in "${roles[@]}"; do files+=("$role.key" "$role.crt"); done
  chmod 644 "$work"/*.crt
  for file in "${files[@]}"; do
    mv "$work/$file" "$directory/.$file.new"
    mv "$directory/.$file.new" "$directory/$file"
  done
}

clean_up() {
  local status=$?
  [[ $status -eq 0 || ! -e $log ]] || cat "$log" >&2
  rm -rf "$work"
  exit "$status"
}

usage() {
  echo "usage: $0 [--days=N] [--discard_authority_key] DIR [HOST...]" >&2
  exit 2
}

days=30
discard=no
while [[ ${1:-} == -* ]]; do
  case $1 in
    --days=*) days=${1#*=}; [[ $days =~ ^[1-9][0-9]*$ ]] || usage ;;
    --discard_authority_key) discard=yes ;;
    *) usage ;;
  esac
  shift
done
[[ $# -ge 1 ]] || usage
directory=$1
shift
if ! command -v openssl >/dev/null; then
  echo "make_certs: there is no openssl on this machine; deploy/setup.sh installs it" >&2
  exit 1
fi
for name in ca "${roles[@]}"; do
  if ! is_ours "$name"; then
    echo "make_certs: $directory/$name.crt or .key was not made by this script: choose another DIR, or move it" >&2
    exit 1
  fi
done
umask 077
mkdir -p "$directory"
work=$(mktemp -d)
log=$work/log
trap clean_up EXIT
find_authority
names=$(alternative_names "$@")
for role in "${roles[@]}"; do
  if [[ $role == server ]]; then
    make_certificate "$role" "$names" serverAuth,clientAuth
  else
    make_certificate "$role" "" clientAuth
  fi
done
install_files
echo "make_certs: valid for $days days, the server's for $names:"
echo "  use --certs=$directory for every daemon and command"
