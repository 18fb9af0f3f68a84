#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/cluster/manifests.h"
#include "cli/job/job_facts.h"
#include "cli/job/read_job.h"
#include "common/base/status_macros.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment manifests JOB --image=IMAGE [flags]

Prints the Kubernetes manifests of a job for `kubectl apply`: the job file with all defaults, a volume for
results, servers (a StatefulSet), workers and evaluators (Jobs), and a NetworkPolicy. Every number and name is
given here, and nothing needs to be edited. Jobs with different names share a namespace. Requires Kubernetes
1.29.

Examples:
  catchment manifests job.textproto --image=registry.example/catchment:0.1.0 --workers=8 > job.yaml
  kubectl apply -f job.yaml
  kubectl exec catchment-server-0 -- catchment status --watch
  kubectl wait --for=condition=complete job/catchment-worker --timeout=-1s
  kubectl cp catchment-server-0:/out results
  kubectl delete -f job.yaml

  # Twice the learning rate beside it, on GPUs, with data of the claim `mnist`:
  catchment manifests job.textproto --name=fast --set optimizer.learning_rate=0.2 --set device=CUDA \
      --data_claim=mnist --image=registry.example/catchment:0.1.0-cuda | kubectl apply -f -
  # A program, in an image of deploy/container/program.Dockerfile, with workers on preemptible nodes:
  catchment manifests --program="python train.py" --image=registry.example/train:1 --workers=8 \
      --node_selector=worker:pool=spot --toleration=worker:spot=true:NoSchedule | kubectl apply -f -
  # On kind or minikube, with the image of the machine:
  catchment manifests job.textproto --one_node --image=catchment:0.1.0 | kubectl apply -f -
)";

constexpr char kNotes[] = R"(
Deleting the manifests deletes the volume NAME-out with the results. Changes beyond these flags are patches of
kustomize with job.yaml as a resource.

Exit code: 0: printed; 1: the job is not valid (all errors are listed); 2: wrong command line.
)";

// A comment with the next commands, for readers of the file.
constexpr char kHead[] = R"(# $NAME on Kubernetes, made by `catchment manifests`.
#   kubectl apply -f FILE
#   kubectl logs $POD --follow
#   kubectl wait --for=condition=$DONE --timeout=-1s
)";

// Say what `kubectl apply` cannot do where the job already runs.
constexpr char kChanges[] =
    R"(catchment manifests: note: where this job already runs, `kubectl apply` restarts its servers with a changed
  job file, from the last checkpoint, but cannot change the Jobs of workers and evaluators (the image, --workers,
  --threads and so on). Before applying such a change, which would leave Pods of two versions:
)";
constexpr char kJobSetChanges[] =
    R"(catchment manifests: note: where this job already runs, `kubectl apply` cannot change the JobSet, and a
  changed job file has no effect until its Pods are restarted. Before applying a change:
)";

struct Options {
  std::string job;  // file
  std::vector<std::string> set;
  int workers = 0;
  KubernetesJob manifests;
};

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment manifests", .usage = kUsage, .notes = kNotes};
  line.argument = {"JOB", "examples/drawn_digits.textproto --image=registry.example/catchment:0.1.0", &o->job,
                   [o] { return !o->manifests.program.empty(); }};
  AddSetFlag(&o->set, &line.flags);
  KubernetesJob& made = o->manifests;
  line.flags.AddInt("workers", "N", 1, &o->workers, "Workers. Default: the job's `workers`, or 1.");
  line.flags.AddInt("servers", "N", 1, &made.servers,
                    "Servers between which the weights are split. Default 1.");
  line.flags.AddInt(
      "evaluators", "N", 0, &made.evaluators,
      "Evaluators, which score the test set during training. The job waits for one of them to score the "
      "final weights. 0: no scores. Default 1.");
  line.flags.AddString(
      "program", "COMMAND", &made.program,
      "Computes the gradients instead of the job's layers; each worker starts it in the image's directory. It is "
      "first run once here to describe its model, unless JOB has model.external.");
  line.flags.AddInt("threads", "N", 1, &made.threads, "Threads and requested cores of a worker. Default 1.");
  line.flags.AddString("name", "NAME", &made.name, "Prefix of the names of all objects. Default catchment.");
  line.flags.AddString("namespace", "NAME", &made.name_space, "Their namespace. Default: kubectl's.");
  line.flags.AddInt("metrics_port", "PORT", 1, &made.metrics_port,
                    "Port on which every Pod serves metrics for Prometheus. Default: none.");
  line.flags.AddString("metrics_from", "NAMESPACE", &made.metrics_from,
                       "Namespace whose Pods may read the metrics. Default: that of the job.");
  line.flags.AddInt("ttl_seconds", "N", 0, &made.ttl_seconds,
                    "Deletes the Jobs of workers and evaluators, or the JobSet, this time after their end. "
                    "Default: never.");
  AddSiteFlags(&made.site, &line.flags);
  line.flags.AddSwitch("jobset", &made.jobset,
                       "Uses a JobSet, whose controller must be installed, instead of a StatefulSet and "
                       "Jobs, so servers end with the job.");
  // For comparisons: docs/doors.md.
  line.flags.AddString("run", "DIR", &made.run, "");
  line.check = [o] { return CheckKubernetesJob(o->manifests); };
  return line;
}

// Sets the bytes that Pods need.
void SetBytes(const JobFacts& facts, KubernetesJob* made) {
  made->worker_bytes = facts.worker().total();
  // Also the initial, the final and the best model, and a checkpoint that is being written.
  const int64_t checkpoints = facts.job().checkpoint().keep() + 1;
  made->stored_bytes = 3 * facts.layout().size() * static_cast<int64_t>(sizeof(float));
  for (int i = 0; i < facts.servers(); ++i) {
    const ServerBytes server = facts.server(i);
    made->server_bytes = std::max(made->server_bytes, server.total());
    made->stored_bytes += checkpoints * server.snapshot;
  }
}

// Sets the job, and what follows from it. Splits the weights between the servers, which may be too many.
absl::Status ReadKubernetesJob(const Options& options, KubernetesJob* made) {
  std::optional<ProgramDescription> description;
  ASSIGN_OR_RETURN(v1::Job job, ReadJob(options.job, made->program, /*signals=*/nullptr, &description));
  ASSIGN_OR_RETURN(job, CompleteJob(std::move(job), options.set, options.workers));
  if (job.model().has_external() && made->program.empty()) {
    return absl::InvalidArgumentError(
        "model.external: the workers need a program: add --program=COMMAND, such as --program=\"python train.py\"");
  }
  ASSIGN_OR_RETURN(const JobFacts facts, JobFacts::Create(job, made->servers));
  SetBytes(facts, made);
  if (job.model().has_external()) {
    job.mutable_model()->set_initial_weights(kInitialWeights);
    if (job.data().external().test_samples() == 0) made->evaluators = 0;
  }
  made->job = std::move(job);
  return absl::OkStatus();
}

std::string DescribeChanges(const KubernetesJob& made) {
  return absl::StrCat(made.jobset ? kJobSetChanges : kChanges, "  kubectl delete ",
                      made.jobset ? "jobset" : "statefulset,job",
                      made.name_space.empty() ? "" : " --namespace=" + made.name_space,
                      " --selector=app.kubernetes.io/instance=", made.name, "\n");
}

absl::StatusOr<int> PrintManifests(Options* options, const Streams& streams) {
  KubernetesJob& made = options->manifests;
  const absl::Status status = ReadKubernetesJob(*options, &made);
  if (absl::IsInternal(status)) return status;
  if (!status.ok()) return PrintInvalid(options->job, status, streams.err);
  if (!made.run.empty()) {
    *streams.out << Manifests(made);
    return 0;
  }
  *streams.out << absl::StrReplaceAll(
                      kHead, {{"$NAME", made.name},
                              {"$POD", absl::StrCat(made.jobset ? "job/" : "", made.name, "-server-0")},
                              {"$DONE", made.jobset ? "completed jobset/" + made.name
                                                    : "complete job/" + made.name + "-worker"}})
               << Manifests(made);
  *streams.err << DescribeChanges(made);
  return 0;
}

}  // namespace

int RunManifests(const std::vector<std::string>& args, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err,
                        [&] { return PrintManifests(&options, streams); });
}

}  // namespace catchment
