#!/usr/bin/env bash
# Tests how deploy/slurm/catchment.sbatch finds its bundle in the answers of scontrol, which a stub gives.
set -euo pipefail
source tests/deploy/check.sh

readonly stubs=$TEST_TMPDIR/stubs
readonly bundle=$TEST_TMPDIR/my\ bundle
mkdir -p "$stubs" "$bundle/deploy/slurm" "$bundle/bin"
cp deploy/slurm/* "$bundle/deploy/slurm"
cp deploy/slurm/catchment.sbatch "$TEST_TMPDIR/slurm_script"
ln -s "$bundle" "$TEST_TMPDIR/bundle"
# Ends the script when it has found the programs.
cat >"$bundle/bin/catchment" <<'END'
#!/bin/sh
echo "programs found: $*" >&2
exit 1
END
cp "$bundle/bin/catchment" "$bundle/bin/catchment_server"
chmod +x "$bundle"/bin/*

# Knows the array 700, whose last task has its number, and the plain job 800, both submitted as $SUBMITTED.
stub scontrol <<'END'
record() { printf 'JobId=%s %s JobName=catchment\n   UserId=u(1000)\n   Command=%s\n   WorkDir=/tmp\n\n' "$1" "$2" "$SUBMITTED"; }
case "$*" in
  "show job 800") record 800 "" ;;
  "show job 700_0") record 701 "ArrayJobId=700 ArrayTaskId=0" ;;
  "show job 700_1") record 700 "ArrayJobId=700 ArrayTaskId=1" ;;
  "show job 700") record 700 "ArrayJobId=700 ArrayTaskId=1"; SUBMITTED=/elsewhere record 701 "ArrayJobId=700 ArrayTaskId=0" ;;
  "show job "*) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
  "show hostnames "*) echo node1 ;;
  *) echo "NodeName=node1 NodeAddr=10.0.0.1 " ;;
esac
END

# submit SUBMITTED [VARIABLE=VALUE...] [-- FLAG...]: runs Slurm's copy of the script.
submit() {
  local submitted=$1 variables=()
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do variables+=("$1"); shift; done
  run env PATH="$stubs:$PATH" SUBMITTED="$submitted" SLURM_JOB_ID=800 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=node1 \
    "${variables[@]}" bash "${copy:-$TEST_TMPDIR/slurm_script}" --insecure --out="$TEST_TMPDIR/out-%a" "${@:2}" job.textproto
}

readonly arguments="--out=out --set name=catchment.sbatch  job.textproto"
for folder in "$TEST_TMPDIR/bundle" "$bundle"; do
  submit "$folder/deploy/slurm/catchment.sbatch $arguments"
  expect_output "programs found: "
  expect_output "--write=$TEST_TMPDIR/out-/job.textproto"
  for task in 0 1; do
    submit "$folder/deploy/slurm/catchment.sbatch $arguments" SLURM_JOB_ID=$((701 - task)) SLURM_ARRAY_JOB_ID=700 \
      SLURM_ARRAY_TASK_ID=$task
    expect_output "programs found: "
    expect_output "--write=$TEST_TMPDIR/out-$task/job.textproto"
  done
done

# Under another name, with two spaces in it.
cp deploy/slurm/catchment.sbatch "$bundle/deploy/slurm/my  job"
submit "$bundle/deploy/slurm/my  job $arguments"
expect_output "programs found"

# A script from standard input has no path, and of a job that Slurm has forgotten it says nothing.
submit "(null)"
expect_status 1
expect_output "scontrol show job 800: (null)): give --bin"
submit "" SLURM_JOB_ID=900
expect_status 1
expect_output "Invalid job id specified): give --bin"
submit "(null)" -- --bin="$bundle/bin"
expect_output "programs found"

# Another script starts the original, as those of `catchment slurm` do.
cp "$bundle/bin/catchment" "$bundle/deploy/make_certs.sh"
copy=$bundle/deploy/slurm/catchment.sbatch submit "/home/user/job.sh"
expect_output "programs found"
rm "$bundle/deploy/make_certs.sh"

# Until the job has claimed the directory, nothing there is changed.
readonly claimed=$TEST_TMPDIR/out-
rm -rf "$claimed"
mkdir -p "$claimed"/{certs,certs.7,logs,checkpoints/checkpoint-1}
for file in job.textproto summary.json certs/ca.crt certs.7/ca.crt logs/{validate,certs,server-0}.log; do
  echo "another job's" >"$claimed/$file"
done
before=$(cd "$claimed" && find . -type f -exec sha256sum {} + | sort)
submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" -- --servers=2
expect_status 1
[[ $output == *"the job does not start: programs found: validate"*" --claim="* ]] || fail "the claim failed: $output"
[[ $(cd "$claimed" && find . -type f ! -name command.lock -exec sha256sum {} + | sort) == "$before" ]] ||
  fail "a job without a claim has changed: $(cd "$claimed" && ls -lR)"

# Flags of the daemons are accepted; others lead to them.
for flag in --stage=/tmp --trace=trace --metrics_port=0 --threads=2 --device=cpu \
  --worker-flag=--log_format=json --server-flag=--pin_threads; do
  submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" -- "$flag"
  expect_output "programs found: validate"
done
submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" -- --pin_threads
expect_status 2
expect_output "--server-flag=--pin_threads"
submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" -- --overwrite
expect_output "validate job.textproto --overwrite"
submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" SLURM_RESTART_COUNT=1 -- --overwrite
expect_output "programs found: validate job.textproto --servers"
submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" -- --threads=all
expect_status 2
submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" SLURM_GPUS_ON_NODE=4 -- --gpus-per-worker=3
expect_status 2
expect_output "--gpus-per-worker=3 does not divide the 4 GPUs of a node"

# A message ends with its sentence, and not with the exit code.
submit "$TEST_TMPDIR/bundle/deploy/slurm/catchment.sbatch $arguments" -- --no-such-flag
expect_status 2
[[ $output == *"--help lists them" ]] || fail "expected the message alone, got: $output"

# starts SCRIPT FLAG...: runs Slurm's copy of one of the scripts.
mkdir "$TEST_TMPDIR/spool"
cp deploy/slurm/*.sbatch "$TEST_TMPDIR/spool"
starts() {
  run env PATH="$stubs:$PATH" SUBMITTED="$bundle/deploy/slurm/$1 $arguments" SLURM_JOB_ID=800 SLURM_JOB_NUM_NODES=1 \
    SLURM_JOB_NODELIST=node1 bash "$TEST_TMPDIR/spool/$1" "${@:2}"
}

# refuses TEXT SCRIPT FLAG...
refuses() {
  starts "${@:2}"
  expect_status 2
  expect_output "$1"
}
refuses "no such flag: --workers=3" catchment.sbatch --workers=3 job.textproto
refuses "no such flag: --servers-job=3" servers.sbatch --servers-job=3 --workers=3 job.textproto
refuses "no such flag: --threads=3" servers.sbatch --workers=3 --threads=3 job.textproto
refuses "--workers=N is required" servers.sbatch job.textproto
refuses "--servers-job=JOBID is required" workers.sbatch --out=out
refuses "--out=DIR is required" workers.sbatch --servers-job=12
refuses "takes no job, and got job.textproto" workers.sbatch --servers-job=12 --out=out job.textproto
for flag in --set=epochs=1 --servers=2 --server-flag=--pin_threads --resume --resume=auto --overwrite \
  --no-evaluator; do
  refuses "no such flag: $flag" workers.sbatch --servers-job=12 --out=out "$flag"
done
starts servers.sbatch --workers=3 --servers=2 --insecure --out="$TEST_TMPDIR/out-servers" job.textproto
expect_output "programs found: validate job.textproto --servers=2 --workers=3"

# Workers wait while Slurm does not answer, but not for servers that run elsewhere.
stub sleep <<<"exit 0"
stub squeue <<'END'
echo >>"$TEST_TMPDIR/asked"
[[ $(wc -l <"$TEST_TMPDIR/asked") -gt 2 ]] || { echo "slurm_load_jobs error: Unable to contact slurm controller"; exit 1; }
echo RUNNING
END
export TEST_TMPDIR
starts workers.sbatch --servers-job=12 --out="$TEST_TMPDIR/out-workers"
expect_status 1
expect_output "waiting for the servers of Slurm job 12 (Slurm does not answer) to write $TEST_TMPDIR/out-workers/certs.12/master"
expect_output "(RUNNING) to write"
expect_output "Slurm job 12 runs, and has not begun in $TEST_TMPDIR/out-workers: is that its --out?"
[[ ! -e $TEST_TMPDIR/out-workers ]] || fail "workers have made the directory"
