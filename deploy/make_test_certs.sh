#!/usr/bin/env bash
# Makes a certificate authority and a certificate for trying out mutual TLS. FOR TESTS ONLY: the authority's
# key lies beside the certificates, unprotected, and all hosts share one key.
#
#   deploy/make_test_certs.sh DIR [HOST...]
#
# Writes DIR/ca.crt, ca.key, node.crt and node.key. The certificate is valid for localhost, 127.0.0.1 and
# every HOST (a name or an IP address), as a server and as a client, for 30 days. An authority that is there
# is kept, so that certificates made earlier stay valid.
# Use: --tls_ca=DIR/ca.crt --tls_cert=DIR/node.crt --tls_key=DIR/node.key
# Exit codes: 0 made, 1 something went wrong (openssl says what), 2 usage.
set -euo pipefail

readonly days=30

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

make_authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "$days" \
    -subj "/CN=Catchment test authority, not for production" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$directory/ca.key" -out "$directory/ca.crt" 2>"$log"
}

# make_certificate NAMES
make_certificate() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=catchment test node" \
    -keyout "$directory/node.key" -out "$work/node.csr" 2>"$log"
  printf '%s\n' "subjectAltName=$1" "extendedKeyUsage=serverAuth,clientAuth" "basicConstraints=CA:FALSE" \
    >"$work/extensions"
  openssl x509 -req -in "$work/node.csr" -CA "$directory/ca.crt" -CAkey "$directory/ca.key" \
    -set_serial "0x$(openssl rand -hex 16)" -days "$days" -extfile "$work/extensions" \
    -out "$directory/node.crt" 2>"$log"
}

clean_up() {
  local status=$?
  [[ $status -eq 0 || ! -e $log ]] || cat "$log" >&2
  rm -rf "$work"
  exit "$status"
}

[[ $# -ge 1 && $1 != -* ]] || { echo "usage: $0 DIR [HOST...]" >&2; exit 2; }
directory=$1
shift
if ! command -v openssl >/dev/null; then
  echo "make_test_certs: no openssl here; deploy/setup.sh installs it" >&2
  exit 1
fi
mkdir -p "$directory"
work=$(mktemp -d)
log=$work/log
trap clean_up EXIT
umask 077
# One that runs out within two days is of no use any more.
openssl x509 -checkend 172800 -noout -in "$directory/ca.crt" >/dev/null 2>&1 || make_authority
names=$(alternative_names "$@")
make_certificate "$names"
chmod 644 "$directory/ca.crt" "$directory/node.crt"
openssl verify -CAfile "$directory/ca.crt" "$directory/node.crt" >"$log" 2>&1
echo "make_test_certs: for tests only, valid for $days days and for $names:"
echo "  --tls_ca=$directory/ca.crt --tls_cert=$directory/node.crt --tls_key=$directory/node.key"
