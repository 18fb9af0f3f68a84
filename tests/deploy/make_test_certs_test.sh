#!/usr/bin/env bash
set -euo pipefail
source tests/deploy/check.sh

readonly certs=$TEST_TMPDIR/certs

# verify OPTION...: the node's certificate, as openssl sees it.
verify() { openssl verify -CAfile "$certs/ca.crt" "$@" "$certs/node.crt" >/dev/null 2>&1; }

run deploy/make_test_certs.sh "$certs" node0 10.1.2.3
expect_status 0
expect_output "for tests only"
expect_output "--tls_ca=$certs/ca.crt --tls_cert=$certs/node.crt --tls_key=$certs/node.key"
expect_true "is valid for localhost" verify -verify_hostname localhost
expect_true "is valid for node0" verify -verify_hostname node0
expect_true "is valid for 127.0.0.1" verify -verify_ip 127.0.0.1
expect_true "is valid for 10.1.2.3" verify -verify_ip 10.1.2.3
expect_true "is good for a server" verify -purpose sslserver
expect_true "is good for a client" verify -purpose sslclient
if verify -verify_hostname node9; then fail "is valid for node9, which was not named"; fi
[[ $(stat -c %a "$certs/node.key" "$certs/ca.key") == $'600\n600' ]] || fail "others may read the keys"
certified=$(openssl x509 -in "$certs/node.crt" -noout -pubkey)
[[ $certified == "$(openssl pkey -in "$certs/node.key" -pubout)" ]] ||
  fail "the key does not belong to the certificate"

# A second run keeps the authority, and makes a certificate for other hosts.
cp "$certs/ca.crt" "$TEST_TMPDIR/ca.crt"
run deploy/make_test_certs.sh "$certs" node9
expect_status 0
expect_true "keeps the authority" cmp "$certs/ca.crt" "$TEST_TMPDIR/ca.crt"
expect_true "is valid for node9" verify -verify_hostname node9

# An authority that is about to run out is replaced.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=old \
  -keyout "$certs/ca.key" -out "$certs/ca.crt" 2>/dev/null
run deploy/make_test_certs.sh "$certs"
expect_status 0
expect_true "is valid under the new authority" verify -verify_hostname localhost

run deploy/make_test_certs.sh
expect_status 2
touch "$TEST_TMPDIR/file"
run deploy/make_test_certs.sh "$TEST_TMPDIR/file"
[[ $status -ne 0 ]] || fail "a file in the directory's place is no error"
