#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/wire/token.h"
#include "server/host/master_host.h"
#include "server/process/run_end.h"
#include "server/process/runs.h"
#include "server/process/served_shard.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 0.1;
// The time for which the process of a master answers those that may not know of the end of the job.
constexpr double kTellSeconds = 10;

// Returns a number above all incarnations of earlier runs, whose workers may still be alive. Two runs that
// start in the same second differ in the lower bits, which are random.
uint64_t FirstIncarnation() {
  constexpr int kBits = 20;
  return (static_cast<uint64_t>(std::time(nullptr)) << kBits) + (RandomId() >> (64 - kBits + 1));
}

MasterHost::Options MasterOptions(const ServerConfig& config) {
  MasterHost::Options options;
  options.job = config.job;
  options.num_servers = static_cast<int>(config.servers.size());
  options.servers = config.servers;
  options.credentials = config.client_credentials;
  options.checkpoint_dir = config.checkpoint_dir;
  options.out_dir = config.flags.out;
  options.control_log = config.flags.control_log;
  options.run_id = RandomId();
  options.token_key = NewTokenKey();
  options.insecure = IsInsecure(config);
  options.first_incarnation = FirstIncarnation();
  const RunStart& start = config.start;
  options.record = start.record;
  options.resumed_checkpoint = start.checkpoint_number();
  options.resumed_version = start.version();
  options.evaluators = config.flags.evaluators;
  options.loss = start.loss;
  if (start.loss)
    options.first_incarnation = std::max(options.first_incarnation, start.loss->next_incarnation);
  if (config.restored) options.Continue(*config.restored->master);
  return options;
}

// Returns the state from which the master continues; nothing at the beginning of a job.
std::optional<v1::MasterState> MasterStateOf(const RunStart& start) {
  if (start.checkpoint) return start.checkpoint->master();
  return start.loss ? std::optional(v1::MasterState()) : std::nullopt;
}

}  // namespace

absl::StatusOr<bool> RunMaster(const ParameterLayout& layout, ServerConfig* config, ServerEdge* edge) {
  const SteadyClock clock;
  RunEnd end;
  const uint64_t epoch = config->restored ? config->restored->epoch : 0;
  ASSIGN_OR_RETURN(std::unique_ptr<ServedShard> shard, ServedShard::Create(config, layout, edge));
  ShardHost* const shard_host = shard->host();
  shard->StartStandby([&end](const absl::Status& status) { end.Fail(status); }, epoch);
  ASSIGN_OR_RETURN(auto host, MasterHost::Create(MasterOptions(*config), &layout, shard_host, &clock,
                                                 MasterStateOf(config->start)));
  config->address_file->WriteRun(host->RunAt("").id());
  edge->master()->Serve(host.get());
  std::optional<MetricsSource> metrics(std::in_place, config->metrics, [&](MetricFamilies* families) {
    AddJob(host->Status(), families);
    shard->AddMetrics(families);
  });
  edge->Begin();
  ServedRun served(edge);
  const v1::Run run = host->RunAt(edge->address());
  RETURN_IF_ERROR(shard->claim()->Claim(run));
  LOG(INFO) << Describe(run);
  host->SetAddress(edge->address());
  config->address_file->WriteAddress(edge->address());
  edge->SetShardServing(0, false);
  edge->SetMasterServing(false);
  absl::Status status;
  std::atomic<bool> signalled = false;
  {
    SignalThread signals([&](int signal) {
      signalled = true;
      v1::StopRequest stop;
      stop.set_reason(absl::StrCat("the master is shutting down: ", DescribeSignal(signal)));
      host->Answer(MakeCall(std::move(stop)), [](const absl::StatusOr<v1::Reply>&) {});
    });
    while (!host->WaitFor(kPollSeconds)) {
      edge->SetShardServing(0, shard_host->training());
      edge->SetMasterServing(host->training());
      if (const absl::Status failure = end.Failure(); !failure.ok()) host->OnReplaced(failure);
    }
    status = host->Wait();
  }
  shard->EndStandby();
  const std::optional<RunLoss> loss = host->loss();
  served.End(/*begins_again=*/loss.has_value());
  RETURN_IF_ERROR(status);
  const v1::RunRecord record = host->record();
  config->end = DescribeEnd(record.phase(), record.reason());
  if (!loss) {
    config->members_to_tell = signalled ? 0 : host->MembersToTell();
    if (config->members_to_tell > 0) config->ended = record;
    return false;
  }
  // After this, nothing writes to the run's files.
  metrics.reset();
  host.reset();
  shard.reset();
  ASSIGN_OR_RETURN(config->start, GoBack(config->checkpoint_dir, config->job, record, *loss));
  config->restored.reset();
  return true;
}

absl::StatusOr<DaemonEnd> TellEnd(const ParameterLayout& layout, ServerConfig* config) {
  const v1::RunRecord& record = *config->ended;
  const std::string end = DescribeEnd(record.phase(), record.reason());
  LOG(INFO) << end << ": telling servers and workers for up to " << kTellSeconds << " s";
  Mutex mu;
  CondVar changed;
  bool stopped = false;
  int told = 0;
  ServerEdge edge;
  EndedMasterService service(record, [&] {
    MutexLock lock(&mu);
    ++told;
    changed.Notify();
  });
  // Workers that call the shard try again until the master has answered.
  RETURN_IF_ERROR(edge.Open({&service, edge.shard()}, end, layout, config));
  {
    SignalThread signals([&](int) {
      MutexLock lock(&mu);
      stopped = true;
      changed.Notify();
    });
    MutexLock lock(&mu);
    const int all = config->members_to_tell;
    changed.WaitFor(&mu, kTellSeconds, [&] { return stopped || (all > 0 && told >= all); });
  }
  if (!record.told()) {
    v1::RunRecord known = record;
    known.set_told(true);
    RETURN_IF_ERROR(WriteRunRecord(config->checkpoint_dir, known));
  }
  if (record.phase() == v1::JobStatus::Phase_Name(v1::JobStatus::FAILED))
    return absl::FailedPreconditionError(end);
  return DaemonEnd{end};
}

}  // namespace catchment
