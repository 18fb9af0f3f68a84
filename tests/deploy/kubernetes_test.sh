#!/usr/bin/env bash
# The manifests of `catchment manifests`: checked against Kubernetes' schemas, and run: every Pod as a local
# process with the names, commands, environment, user, root, volumes, probes and grace period that its
# manifest declares (tests/deploy/run_manifests.py). Once more with a server killed, with the master's
# container killed, and with each of them and a worker deleted, with TLS, with data of a claim, and as a
# JobSet. Then `catchment compare --launcher=kubectl` makes, applies and collects such runs, with a kubectl of
# this test that renders with the real one and has those processes in place of a cluster.
#
#   bazel test //tests/deploy:kubernetes_test
#
# As root on Debian 12. Installs kubernetes-client (where there is no kubectl), python3-yaml and python3-venv
# where they are missing, and kubernetes-validate (PyPI) in a separate directory.
set -euo pipefail

readonly schema_version=1.30  # older ones have no gRPC probes with a service

fail() {
  echo "FAILED: $*" >&2
  [[ -z ${work:-} ]] || tail -n 12 "$work"/*/*.log 2>/dev/null || true
  exit 1
}

install_missing() {
  local packages=()
  command -v kubectl >/dev/null || packages+=(kubernetes-client)
  /usr/bin/python3 -c "import yaml" 2>/dev/null || packages+=(python3-yaml)
  /usr/bin/python3 -c "import ensurepip" 2>/dev/null || packages+=(python3-venv)
  [[ ${#packages[@]} -gt 0 ]] || return 0
  if apt-get --quiet update; then
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install "${packages[@]}" &&
      return
  fi
  fail "could not install ${packages[*]}"
}

clean_up() {
  [[ -z $inside ]] || kill -KILL "$inside" 2>/dev/null || true
  [[ ! -s ${work:-}/cluster/pid ]] || kill -KILL -- "-$(cat "$work/cluster/pid")" 2>/dev/null || true
  wait
  rm -rf "$work"
}

# make JOB FILE FLAG...: writes the manifests of a job.
make() {
  local job=$1 file=$2
  shift 2
  "$work/catchment/bin/catchment" manifests "$job" --image=registry.example/catchment:0.1.0 "$@" >"$file" ||
    fail "no manifests: $*"
}

check_schemas() {
  local name job names=()
  /usr/bin/python3 -m venv "$work/venv" || fail "no virtual environment for Python"
  "$work/venv/bin/pip" --quiet install kubernetes-validate setuptools >"$work/pip.log" 2>&1 ||
    { cat "$work/pip.log"; fail "could not install kubernetes-validate"; }
  make "$work/digits.textproto" "$work/plain.yaml"
  make "$work/digits.textproto" "$work/gpu.yaml" --set device=CUDA --data_claim=mnist --namespace=research
  make "$work/digits.textproto" "$work/one_node.yaml" --one_node --tls_secret=certs --storage_class=standard \
    --evaluators=0
  make "$work/digits.textproto" "$work/placed.yaml" --node_selector=pool=a --toleration=worker:spot=true:NoSchedule \
    --toleration=spot --memory=2Gi --server_memory=1Gi --storage=20Gi --ttl_seconds=3600
  make "$work/external.textproto" "$work/program.yaml" --program=/opt/catchment/program.py
  for job in "$work"/catchment/examples/{,algorithms/}*.textproto; do
    name=of_$(basename "$job" .textproto)
    make "$job" "$work/$name.yaml"
    names+=("$name")
  done
  for name in plain gpu one_node placed program "${names[@]}"; do
    "$work/venv/bin/kubernetes-validate" --strict -k "$schema_version" "$work/$name.yaml" ||
      fail "$name does not fit Kubernetes $schema_version"
  done
  # The check sees what is wrong.
  sed 's/podManagementPolicy/podManagmentPolicy/' "$work/plain.yaml" >"$work/wrong.yaml"
  if "$work/venv/bin/kubernetes-validate" --strict -k "$schema_version" "$work/wrong.yaml" >/dev/null \
    2>&1; then
    fail "the schema check sees no misspelt field"
  fi
}

# make_secrets DIR: what cert-manager would make for the job `catchment`, and a secret `certs` of
# make_certs.sh's files for the job `fast`.
make_secrets() {
  local role
  "$work/catchment/deploy/make_certs.sh" "$1" catchment-server-0.catchment-servers catchment-server-1.catchment-servers \
    >"$work/certs.log" 2>&1 || fail "no certificates: $(cat "$work/certs.log")"
  "$work/catchment/deploy/make_certs.sh" "$1/certs" fast-server-0.fast-servers fast-server-1.fast-servers \
    >"$work/certs.log" 2>&1 || fail "no certificates: $(cat "$work/certs.log")"
  chmod 755 "$1" "$1/certs"
  chmod 644 "$1/certs"/*
  for role in server worker evaluator operator; do
    mkdir "$1/catchment-$role"
    cp "$1/ca.crt" "$1/catchment-$role/ca.crt"
    mv "$1/$role.crt" "$1/catchment-$role/tls.crt"
    mv "$1/$role.key" "$1/catchment-$role/tls.key"
    # Secrets are readable for the user of the Pod.
    chmod 755 "$1/catchment-$role"
    chmod 644 "$1/catchment-$role"/*
  done
}

# in_cluster RUN JOB MANIFEST_FLAGS FLAG...: a run of the job with 2 servers and 3 workers.
in_cluster() {
  local run=$1 job=$2 words
  read -ra words <<<"$3"
  shift 3
  mkdir -p "$work/$run"
  make_secrets "$work/$run/secrets"
  make "$job" "$work/$run/manifests.yaml" --workers=3 --servers=2 "${words[@]}"
  echo "== $run"
  unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc \
    /usr/bin/python3 tests/deploy/run_manifests.py "$work/$run/manifests.yaml" "$work/$run" "$work/catchment" "$@" &
  inside=$!
  wait "$inside" || fail "$run"
  inside=
  grep -q '"phase": "DONE"' "$work/$run"/volumes/claim-*-out/summary.json || fail "$run: the job is not done"
  grep -q '"workers": 3' "$work/$run"/volumes/claim-*-out/summary.json || fail "$run: not with 3 workers"
  [[ $run == program ]] || grep -q '"test_accuracy": [0-9]' "$work/$run"/volumes/claim-*-out/summary.json || fail "$run: there is no score"
}

# Makes $work/bin/kubectl, whose only namespace is $work/cluster.
write_kubectl() {
  mkdir "$work/bin"
  {
    echo "#!/usr/bin/env bash"
    declare -p schema_version work
    echo "readonly kubectl=$(command -v kubectl) run_manifests=$PWD/tests/deploy/run_manifests.py"
    cat <<'END'
set -euo pipefail
umask 022
cluster=$work/cluster
volume=$cluster/volumes/claim-catchment-out
case "$1 $2" in
  "get configmap") [[ ! -e $cluster/run ]] || echo "run=$(cat "$cluster/run")" ;;
  "get job") [[ ! -e $cluster/status ]] || [[ $(cat "$cluster/status") == 0 ]] || echo "failed=True" ;;
  "apply -k")
    mkdir "$cluster"
    "$kubectl" kustomize "$3" >"$cluster/manifests.yaml" 2>"$cluster/warnings"
    [[ ! -s $cluster/warnings ]] || { cat "$cluster/warnings"; exit 1; }
    grep -q "disk: fast" "$cluster/manifests.yaml"
    "$work/venv/bin/kubernetes-validate" --strict -k "$schema_version" "$cluster/manifests.yaml"
    setsid bash -c 'unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc \
      /usr/bin/python3 "$@" >"$3/manifests.log" 2>&1; echo $? >"$3/status"' \
      - "$run_manifests" "$cluster/manifests.yaml" "$cluster" "$work/catchment" &
    echo $! >"$cluster/pid"
    sed -n 's/^  run: //p' "$cluster/manifests.yaml" >"$cluster/run"
    ;;
  "exec catchment-server-0")
    [[ -d $volume ]]
    bash -c "${!#//\/out/$volume}" ;;
  "cp catchment-server-0:/out/"*) cp "$volume/${2##*/}" "$3" ;;
  "logs catchment-server-"*) cat "$cluster/$2.log" ;;
  "logs --selector="*) cat "$cluster"/catchment-worker-*.log ;;
  "get pods") cat "$cluster/manifests.log" ;;
  "delete -k")
    [[ -d $cluster ]] || exit 0
    # The Pods' processes end in order once the job is done.
    timeout 100 tail --pid="$(cat "$cluster/pid")" -f /dev/null
    [[ $(cat "$cluster/status") == 0 ]] || { cat "$cluster/manifests.log"; exit 1; }
    rm -r "$cluster"
    ;;
  *) echo "the test's kubectl does not know: $*"; exit 1 ;;
esac
END
  } >"$work/bin/kubectl"
  chmod 755 "$work/bin/kubectl"
}

# compare: on the test's Kubernetes; killed after it has applied a run, it finds that again.
compare() {
  local command deadline=$((SECONDS + 120)) log=$work/compare.log pid run
  # The time of a step does not depend on the machine, so that a run trains for longer than the probes take.
  cat >"$work/steps.textproto" <<'END'
name: "steps"
model { synthetic { parameters: 20000 step_ms: 20 } }
data { synthetic { samples: 4000 } }
batch_size: 2
epochs: 1
END
  mkdir "$work/overlay"
  cat >"$work/overlay/kustomization.yaml" <<'END'
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
  - target:
      kind: Job
    patch: |
      - op: add
        path: /spec/template/spec/nodeSelector
        value:
          disk: fast
END
  # shellcheck disable=SC2054  # the algorithms are one argument
  command=(env PATH="$work/bin:$PATH" "$work/catchment/bin/catchment" compare "$work/steps.textproto" --launcher=kubectl
    --image=registry.example/catchment:0.1.0 --overlay="$work/overlay" --algorithms=downpour,easgd \
      --workers=2 --servers=2
    --seeds=1 --stall_seconds=100 --out="$work/out-compare")
  echo "== compare"
  "${command[@]}" >"$log" 2>&1 &
  pid=$!
  until grep -q "applied;" "$log"; do
    if [[ $SECONDS -ge $deadline ]] || ! kill -0 "$pid"; then fail "compare applies no run: $(cat "$log")"; fi
    sleep 0.2
  done
  kill -KILL "$pid"
  wait "$pid" || true
  timeout 400 "${command[@]}" >"$log" 2>&1 || fail "compare: $(cat "$log")"
  [[ $(grep -c "is already in the cluster" "$log") -eq 1 ]] ||
    fail "compare does not find the run that it has applied"
  [[ $(grep -c "applied;" "$log") -eq 1 ]] || fail "compare does not apply the other run alone: $(cat "$log")"
  for run in downpour easgd; do
    run=$work/out-compare/runs/$run-2-workers-seed-1
    grep -q '"phase": "DONE"' "$run/summary.json" || fail "$run is not done"
    grep -q '"workers": 2' "$run/summary.json" || fail "$run: not with 2 workers"
    [[ -s $run/model.safetensors && -s $run/metrics.jsonl && -s $run/logs/server-1.log && -s $run/logs/workers.log ]] ||
      fail "$run is not complete"
  done
  [[ $(grep -c '"done": true' "$work/out-compare/report.json") -eq 2 ]] || fail "the report lacks a run"
  [[ ! -e $work/cluster ]] || fail "a run is left in the cluster"
}

source tests/deploy/rights.sh
require_rights unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc \
  mount --bind /etc/hosts /etc/hosts
export PATH=$PATH:/usr/sbin:/sbin
install_missing
work=$(mktemp -d /var/tmp/catchment-kubernetes.XXXXXX)
inside=
trap clean_up EXIT
chmod 755 "$work"
tar -xzf deploy/catchment.tar.gz -C "$work"
mv "$work"/catchment-* "$work/catchment"
cat >"$work/digits.textproto" <<'END'
name: "digits"
model {
  layers { conv2d { filters: 16 kernel_size: 5 } }
  layers { relu {} }
  layers { max_pool { size: 2 } }
  layers { flatten {} }
  layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 20000 test_samples: 2000 } }
algorithm { preset: "downpour" }
optimizer { learning_rate: 0.002 }
batch_size: 32
epochs: 30
checkpoint { every_updates: 20 }
END
# As in an image of deploy/container/program.Dockerfile: a program without a test set.
cat >"$work/catchment/program.py" <<'END'
#!/usr/bin/python3
import array
import catchment
worker = catchment.join({"w": memoryview(array.array("f", [0.5] * 64))}, 640)
for _ in worker.minibatches():
    for i in range(64):
        worker.gradients["w"][i] = worker.parameters["w"][i] - 1
    worker.step(0.5)
END
chmod 755 "$work/catchment/program.py"
PYTHONPATH=$work/catchment/python "$work/catchment/bin/catchment" validate --write="$work/external.textproto" \
  --program="$work/catchment/program.py" --set epochs=20 >"$work/validate.log" || fail "no description"
check_schemas
# recovered RUN NUMBER: whether the job has gone back to a checkpoint so many times.
recovered() {
  grep -q "\"recoveries\": $2," "$work/$1/volumes/claim-catchment-out/summary.json" ||
    fail "$1: not $2 recoveries"
}
digits=$work/digits.textproto
in_cluster run "$digits" "--set epochs=10 --metrics_port=9100" --exec=catchment-server-0
recovered run 0
in_cluster killed "$digits" "" --kill=catchment-server-1
recovered killed 1
in_cluster killed_container "$digits" "" --kill_container=catchment-server-0
recovered killed_container 1
in_cluster deleted_master "$digits" "" --delete=catchment-server-0
in_cluster deleted "$digits" "" --delete=catchment-server-1
in_cluster evicted "$digits" "" --delete=catchment-worker-1
in_cluster jobset "$digits" "--set epochs=10 --jobset" --exec=catchment-server-0-0
in_cluster jobset_killed "$digits" --jobset --kill_container=catchment-server-0-1
recovered jobset_killed 1
in_cluster program "$work/external.textproto" --program=/opt/catchment/program.py
in_cluster tls "$digits" "--set epochs=10 --cert_manager" --exec=catchment-worker-0
mkdir -p "$work/data/volumes/claim-rows"
for ((i = 0; i < 300; ++i)); do echo "$((i % 3)).5,$((i % 7)),$((i % 3))"; done |
  tee "$work/data/volumes/claim-rows/train.csv" >"$work/data/volumes/claim-rows/test.csv"
in_cluster data "$work/catchment/examples/table_csv.textproto" \
  "--set epochs=3000 --set evaluation.every_epochs=1000 --name=fast --tls_secret=certs --data_claim=rows"
write_kubectl
compare
echo PASSED
