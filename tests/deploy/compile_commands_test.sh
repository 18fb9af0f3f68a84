#!/usr/bin/env bash
# deploy/compile_commands.py against a stand-in for Bazel.
set -euo pipefail
source tests/deploy/check.sh

stubs=$TEST_TMPDIR/bin
mkdir "$stubs"
readonly project=$TEST_TMPDIR/project
mkdir "$project"
stub bazel <<END
case "\$1 \${2:-}" in
  "info workspace") echo "$project" ;;
  "info execution_root") echo /exec/root ;;
  "aquery "*)
    # Without this option the sources of a library are one.
    [[ "\$*" == *--define=unity=off* ]] || exit 8
    echo "\$2" >"$TEST_TMPDIR/query"; cat "$TEST_TMPDIR/actions.json" ;;
esac
[[ ! -e "$TEST_TMPDIR/broken" ]] || { echo "ERROR: no such package 'x'" >&2; exit 7; }
END
# Two of one source, one of an external one, one of generated code.
cat >"$TEST_TMPDIR/actions.json" <<'END'
{"actions": [
  {"arguments": ["/usr/bin/gcc", "-MD", "-MF", "x.d", "-frandom-seed=x.o", "-fno-canonical-system-headers",
                 "-iquote", ".", "-O3", "-include", "out/prelude.h", "-c", "server/shard/shard.cc", "-o", "x.o"]},
  {"arguments": ["/usr/bin/gcc", "-c", "server/shard/shard.cc", "-o", "host.o"]},
  {"arguments": ["/usr/bin/gcc", "-c", "external/system/x.cc", "-o", "y.o"]},
  {"arguments": ["/usr/bin/gcc", "-c", "bazel-out/k8-opt/bin/proto/job.pb.cc", "-o", "z.o"]},
  {"arguments": ["/usr/bin/gcc", "-c", "common/net/rpc.cc", "-o", "r.o"]}]}
END

run env PATH="$stubs:$PATH" deploy/compile_commands.py
expect_status 0
expect_output "2 files in $project/compile_commands.json"
run python3 - "$project/compile_commands.json" "$project" <<'END'
import json, sys
entries = json.load(open(sys.argv[1]))
shard = sys.argv[2] + "/server/shard/shard.cc"
assert [e["file"] for e in entries] == [sys.argv[2] + "/common/net/rpc.cc", shard], entries
assert entries[1]["directory"] == "/exec/root", entries
assert entries[1]["arguments"] == ["/usr/bin/gcc", "-iquote", ".", "-O3", "-c", shard, "-o", "x.o"], entries
END
expect_status 0
run cat "$TEST_TMPDIR/query"
expect_output 'mnemonic("CppCompile", //...)'

run env PATH="$stubs:$PATH" deploy/compile_commands.py //a:b //c/...
expect_status 0
run cat "$TEST_TMPDIR/query"
expect_output 'mnemonic("CppCompile", //a:b + //c/...)'

touch "$TEST_TMPDIR/broken"
run env PATH="$stubs:$PATH" deploy/compile_commands.py
expect_status 1
expect_output "ERROR: no such package 'x'"
