#!/usr/bin/env bash
set -euo pipefail
source tests/deploy/check.sh

readonly certs=$TEST_TMPDIR/certs

# verify ROLE OPTION...: the role's certificate, as openssl sees it.
verify() { openssl verify -CAfile "$certs/ca.crt" "${@:2}" "$certs/$1.crt" >/dev/null 2>&1; }
# names ROLE: its certificate's subject alternative names.
names() { openssl x509 -in "$certs/$1.crt" -noout -ext subjectAltName; }

run deploy/make_certs.sh "$certs" node0 10.1.2.3
expect_status 0
expect_output "--certs=$certs"
expect_true "is valid for localhost" verify server -verify_hostname localhost
expect_true "is valid for node0" verify server -verify_hostname node0
expect_true "is valid for 127.0.0.1" verify server -verify_ip 127.0.0.1
expect_true "is valid for 10.1.2.3" verify server -verify_ip 10.1.2.3
expect_true "is good for a server" verify server -purpose sslserver
if verify server -verify_hostname node9; then fail "is valid for node9, which was not named"; fi
for role in server worker evaluator operator; do
  expect_true "$role is good for a client" verify "$role" -purpose sslclient
  [[ $(names "$role") == *URI:catchment:role/$role* ]] || fail "$role has other roles: $(names "$role")"
  [[ $(names "$role" | grep -o URI: | wc -l) -eq 1 ]] || fail "$role has several roles: $(names "$role")"
  certified=$(openssl x509 -in "$certs/$role.crt" -noout -pubkey)
  [[ $certified == "$(openssl pkey -in "$certs/$role.key" -pubout)" ]] ||
    fail "the key of $role does not belong to its certificate"
  [[ $role == server ]] || { ! verify "$role" -purpose sslserver || fail "$role can be a server"; }
done
for key in "$certs"/*.key; do [[ $(stat -c %a "$key") == 600 ]] || fail "others may read $key"; done

# All are valid on a machine whose clock is behind.
minutes_ago() { date -d "$1 minutes ago" +%s; }
for role in server worker evaluator operator; do
  expect_true "$role is valid 50 minutes ago" verify "$role" -attime "$(minutes_ago 50)"
done
if verify worker -attime "$(minutes_ago 120)"; then fail "is valid two hours ago"; fi

# A second run keeps the authority, and makes a certificate for other hosts.
cp "$certs/ca.crt" "$TEST_TMPDIR/ca.crt"
run deploy/make_certs.sh "$certs" node9
expect_status 0
expect_true "keeps the authority" cmp "$certs/ca.crt" "$TEST_TMPDIR/ca.crt"
expect_true "is valid for node9" verify server -verify_hostname node9

# An authority that is about to expire is replaced.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 \
  -subj "/CN=Catchment authority old" \
  -keyout "$certs/ca.key" -out "$certs/ca.crt" 2>/dev/null
run deploy/make_certs.sh "$certs"
expect_status 0
expect_true "is valid under the new authority" verify server -verify_hostname localhost

# Files of another origin are kept.
mkdir "$TEST_TMPDIR/web"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=www \
  -keyout "$TEST_TMPDIR/web/server.key" -out "$TEST_TMPDIR/web/server.crt" 2>/dev/null
for file in server.crt ca.key; do
  cp "$TEST_TMPDIR/web/server.key" "$TEST_TMPDIR/web/ca.key"
  sum=$(cat "$TEST_TMPDIR"/web/* | sha256sum)
  run deploy/make_certs.sh "$TEST_TMPDIR/web"
  expect_status 1
  expect_output "was not made by this script"
  [[ $(cat "$TEST_TMPDIR"/web/* | sha256sum) == "$sum" ]] || fail "a file of another origin was changed"
  rm "$TEST_TMPDIR/web/$file"
done

# Without the authority's key no one can make further certificates.
run deploy/make_certs.sh --discard_authority_key --days=2 "$certs" node1
expect_status 0
[[ ! -e $certs/ca.key ]] || fail "the authority's key is there"
expect_true "is valid under its own authority" verify worker
if openssl x509 -checkend 180000 -noout -in "$certs/worker.crt" \
  >/dev/null; then fail "is valid for more than two days"; fi

run deploy/make_certs.sh
expect_status 2
run deploy/make_certs.sh --days=none "$certs"
expect_status 2
touch "$TEST_TMPDIR/file"
run deploy/make_certs.sh "$TEST_TMPDIR/file"
[[ $status -ne 0 ]] || fail "a file in the directory's place is not an error"
