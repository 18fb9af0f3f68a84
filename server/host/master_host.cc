#include "server/host/master_host.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/open_files.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/run_record.h"
#include "common/energy/meter.h"
#include "server/outputs/appended_file.h"

namespace catchment {
namespace {

// Returns the score of the best weights that an earlier run of the job has written, if any.
std::optional<v1::BestState> ReadKeptScore(const Outputs& outputs, const ParameterLayout& layout) {
  absl::StatusOr<v1::BestState> kept = outputs.ReadBest(layout);
  if (kept.ok()) return *std::move(kept);
  if (!absl::IsNotFound(kept.status()))
    LOG(WARNING) << kept.status().message() << "; the best weights of earlier runs are ignored";
  return std::nullopt;
}

// Returns a function that appends lines to the file; null if `path` is empty.
absl::StatusOr<LoggedLoop::Log> OpenControlLog(const std::string& path) {
  if (path.empty()) return nullptr;
  ASSIGN_OR_RETURN(std::shared_ptr<AppendedFile> file, AppendedFile::OpenLines(path));
  return [file](const v1::ControlLogLine& line) {
    const absl::Status status = file->Append(absl::StrCat(line.ShortDebugString(), "\n"));
    LOG_IF_EVERY_N(ERROR, !status.ok(), 1000) << "control log: " << status.message();
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<MasterHost>> MasterHost::Create(Options options, const ParameterLayout* layout,
                                                               ShardHost* local, const Clock* clock,
                                                               std::optional<v1::MasterState> resumed) {
  ASSIGN_OR_RETURN(std::unique_ptr<Outputs> outputs, Outputs::Open(options.out_dir));
  ControlLoop::Options control;
  control.run = options;
  control.tensors = layout->tensors();
  control.can_go_back = !options.checkpoint_dir.empty();
  control.writes_weights = outputs->enabled();
  control.has_standby = HasStandbys(options.job, options.num_servers) && local->log() != nullptr;
  if (resumed && options.job.evaluation().keep_best()) control.kept = ReadKeptScore(*outputs, *layout);
  control.resumed = std::move(resumed);
  control.own_version = [local] { return local->shard()->version(); };
  for (int s = 0; s < options.num_servers; ++s) control.parameters.push_back(layout->shard(s).size());
  ASSIGN_OR_RETURN(LoggedLoop::Log log, OpenControlLog(options.control_log));
  ASSIGN_OR_RETURN(std::unique_ptr<LoggedLoop> loop,
                   LoggedLoop::Create(std::move(control), clock, std::move(log)));
  if (!options.checkpoint_dir.empty()) {
    RETURN_IF_ERROR(WriteRunRecord(options.checkpoint_dir, loop->now().record()));
  }
  return std::unique_ptr<MasterHost>(
      new MasterHost(std::move(options), layout, local, clock, std::move(outputs), std::move(loop)));
}

MasterHost::MasterHost(Options options, const ParameterLayout* layout, ShardHost* local, const Clock* clock,
                       std::unique_ptr<Outputs> outputs, std::unique_ptr<LoggedLoop> loop)
    : options_(std::move(options)),
      layout_(*layout),
      local_(*local),
      clock_(*clock),
      log_(HasStandbys(options_.job, options_.num_servers) ? local_.log() : nullptr),
      loop_(std::move(loop)),
      outputs_(std::move(outputs)),
      best_keeper_(layout_.size(), BestKeeperOwner()),
      state_store_({.directory = options_.checkpoint_dir,
                    .num_values = layout_.size(),
                    .resumed = options_.resumed_checkpoint},
                   StateStoreOwner(), &clock_),
      progress_log_(clock_.Now()),
      commander_(std::make_unique<ShardCommander>()) {
  if (options_.job.evaluation().keep_best() && !outputs_->enabled()) {
    LOG(WARNING) << "evaluation.keep_best has no effect without --out: no weights are written";
  }
  if (log_ != nullptr) {
    log_->SetState([this](bool whole) {
      MutexLock lock(&mu_);
      return loop_->DescribeState(whole);
    });
  }
  thread_ = std::thread([this] { Run(); });
}

MasterHost::~MasterHost() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
  commander_.reset();
  if (log_ == nullptr) return;
  log_->End();
  log_->SetState(nullptr);
}

BestKeeper::Owner MasterHost::BestKeeperOwner() {
  BestKeeper::Owner owner;
  owner.admit = [this](uint64_t incarnation, uint64_t evaluation) -> absl::StatusOr<v1::BestState> {
    if (!outputs_->enabled())
      return absl::FailedPreconditionError("the master has no --out directory to write the weights to");
    return Call<&ControlLoop::BestWanted>(incarnation, evaluation);
  };
  owner.write = [this](const v1::BestState& score, absl::Span<const float> weights) {
    ModelFacts facts = {.score = score, .statistics = {}};
    {
      MutexLock lock(&mu_);
      facts.statistics = loop_->now().BestStatistics(score.evaluation());
    }
    return outputs_->WriteBest(options_.job, layout_, weights, facts);
  };
  owner.ended = [this](const v1::BestState& score, const absl::Status& status) {
    if (status.ok())
      LOG(INFO) << "wrote the weights of evaluation " << score.evaluation() << ", the best so far";
    Call<&ControlLoop::OnBestKept>(score, status);
  };
  return owner;
}

WorkerStateStore::Owner MasterHost::StateStoreOwner() {
  WorkerStateStore::Owner owner;
  owner.admit = [this](uint64_t incarnation, uint64_t checkpoint) -> absl::StatusOr<uint32_t> {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(loop_->now().master().CheckStateIsWanted(incarnation, checkpoint));
    return loop_->now().master().IndexOf(incarnation);
  };
  owner.index_of = [this](uint64_t incarnation) {
    MutexLock lock(&mu_);
    return loop_->now().master().IndexOf(incarnation);
  };
  owner.saved = [this](uint64_t incarnation, uint64_t checkpoint, const absl::Status& status) {
    Call<&ControlLoop::OnStateSaved>(incarnation, checkpoint, status);
  };
  return owner;
}

// ------------------------------------------------------------------------------------------------ calls

void MasterHost::AfterCall() {
  if (const std::optional<uint64_t> image = loop_->TakeImage()) {
    // The link describes the state when it sends the change, so that one change may serve for several images.
    const uint64_t change = log_->AppendState();
    const StandbyLog::Wait wait =
        log_->Await(change, [this, image = *image](bool acknowledged) { OnImage(image, acknowledged); });
    if (wait == StandbyLog::Wait::kAcknowledged) loop_->Call<&ControlLoop::OnImageCommitted>(*image);
    if (wait == StandbyLog::Wait::kNever) loop_->Call<&ControlLoop::OnImagesLost>();
  }
  if (loop_->now().HasWork()) changed_.Notify();
}

void MasterHost::OnImage(uint64_t image, bool acknowledged) {
  std::vector<ReleasedAnswer> released;
  {
    MutexLock lock(&mu_);
    acknowledged ? loop_->Call<&ControlLoop::OnImageCommitted>(image)
                 : loop_->Call<&ControlLoop::OnImagesLost>();
    released = loop_->Call<&ControlLoop::TakeReleased>();
    changed_.Notify();
  }
  for (const ReleasedAnswer& answer : released) answer.respond(answer.committed);
}

void MasterHost::AfterCommit(Then then) {
  std::optional<bool> committed;
  {
    MutexLock lock(&mu_);
    committed = loop_->Call<&ControlLoop::AfterCommit>(then);
    // The host's thread waits until the next image is due.
    if (!committed) changed_.Notify();
  }
  if (committed) return then(*committed);
  log_->Flush();
}

void MasterHost::SetAddress(const std::string& address) { Call<&ControlLoop::SetAddress>(address); }

absl::StatusOr<v1::GetJobReply> MasterHost::GetJob() {
  absl::StatusOr<v1::GetJobReply> reply = [this] {
    MutexLock lock(&mu_);
    return loop_->now().GetJob();
  }();
  if (reply.ok()) reply->set_unix_seconds(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  return reply;
}

absl::StatusOr<v1::RegisterServerReply> MasterHost::RegisterServer(const v1::RegisterServerRequest& request) {
  absl::StatusOr<v1::RegisterServerReply> reply = Call<&ControlLoop::RegisterServer>(request);
  if (reply.ok()) energy_.Add(request.energy());
  return reply;
}

absl::StatusOr<v1::RegisterReply> MasterHost::Register(const v1::RegisterRequest& request,
                                                       const std::string& address) {
  if (request.role() == v1::WORKER && request.run_id() == options_.run_id) {
    MutexLock lock(&mu_);
    const int64_t workers = loop_->now().master().num_workers() + 1;
    const absl::Status files = CheckOpenFiles(workers, options_.num_servers, /*master=*/true);
    if (!files.ok()) return absl::ResourceExhaustedError(files.message());
  }
  absl::StatusOr<v1::RegisterReply> reply = Call<&ControlLoop::Register>(request, address);
  MutexLock lock(&mu_);
  if (reply.ok()) ++registered_;
  return reply;
}

absl::StatusOr<v1::HeartbeatReply> MasterHost::Heartbeat(const v1::HeartbeatRequest& request) {
  absl::StatusOr<v1::HeartbeatReply> reply = Call<&ControlLoop::Heartbeat>(request);
  if (reply.ok()) energy_.Add(request.energy());
  return reply;
}

absl::StatusOr<v1::Lease> MasterHost::GetLease(const v1::GetLeaseRequest& request) {
  return Call<&ControlLoop::GetLease>(request);
}

void MasterHost::AwaitLease(const v1::GetLeaseRequest& request, LeaseWaiters::Respond respond) {
  std::optional<LeaseWaiters::Answer> answer = Call<&ControlLoop::AwaitLease>(request, std::move(respond));
  if (answer) answer->respond(std::move(answer->lease));
}

v1::LeaveReply MasterHost::Leave(const v1::LeaveRequest& request) {
  return Call<&ControlLoop::Leave>(request);
}

absl::StatusOr<v1::GetEvaluationReply> MasterHost::GetEvaluation(const v1::GetEvaluationRequest& request) {
  return Call<&ControlLoop::GetEvaluation>(request);
}

absl::StatusOr<v1::ReportEvaluationReply> MasterHost::ReportEvaluation(const v1::EvaluationReport& report) {
  return Call<&ControlLoop::ReportEvaluation>(report);
}

absl::Status MasterHost::CheckMeant(const v1::StopRequest& request) const {
  if (request.run_id() == 0 || request.run_id() == options_.run_id) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the stop is meant for run ", FormatId(request.run_id()), ", but this is the master of run ",
      FormatId(options_.run_id), ", job \"", options_.job.name(), "\""));
}

v1::JobStatus MasterHost::GetStatus(const v1::GetStatusRequest& request) {
  {
    MutexLock lock(&mu_);
    loop_->Call<&ControlLoop::Watch>(request.again_in_seconds());
  }
  return Status();
}

v1::JobStatus MasterHost::Status() {
  v1::JobStatus status;
  {
    MutexLock lock(&mu_);
    status = loop_->now().Status();
  }
  AddEnergy(&status);
  return status;
}

void MasterHost::AddEnergy(v1::JobStatus* status) {
  energy_.Add(HostEnergy().Read());
  energy_.Fill(status);
}

void MasterHost::Stop(const std::string& reason, bool now) { Call<&ControlLoop::Stop>(reason, now); }

// ------------------------------------------------------------------------------------------------ the end

absl::Status MasterHost::Wait() {
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return over_; });
  return loop_->now().result();
}

bool MasterHost::WaitFor(double seconds) {
  MutexLock lock(&mu_);
  return changed_.WaitFor(&mu_, seconds, [this] { return over_; });
}

void MasterHost::OnReplaced(const absl::Status& status) { Call<&ControlLoop::OnReplaced>(status); }

std::optional<RunLoss> MasterHost::loss() {
  MutexLock lock(&mu_);
  return loop_->now().loss();
}

v1::RunRecord MasterHost::record() {
  MutexLock lock(&mu_);
  return loop_->now().record();
}

bool MasterHost::training() {
  MutexLock lock(&mu_);
  return loop_->now().master().training();
}

int MasterHost::MembersToTell() {
  MutexLock lock(&mu_);
  const Master& master = loop_->now().master();
  if (master.phase() != v1::JobStatus::DONE || master.has_begun()) return 0;
  const int of_job = static_cast<int>(options_.job.workers()) +
                     std::max(options_.evaluators, static_cast<int>(options_.record.evaluators()));
  return std::max(0, of_job - registered_);
}

// ------------------------------------------------------------------------------------------------ the thread

void MasterHost::Run() {
  bool waited = true;
  while (true) {
    Effects effects;
    {
      MutexLock lock(&mu_);
      if (ending_ || loop_->now().over()) break;
      effects = loop_->Call<&ControlLoop::Step>(waited);
      AfterCall();
    }
    CarryOut(std::move(effects));
    MutexLock lock(&mu_);
    const double begin = clock_.Now();
    const double next = loop_->now().NextStep();
    waited = !changed_.WaitFor(&mu_, std::max(0.0, next - begin), [&] {
      // A change may make the next step due earlier.
      return ending_ || loop_->now().HasWork() || loop_->now().NextStep() < next;
    });
    const double pause = clock_.Now() - begin;
    LOG_IF(WARNING, loop_->Call<&ControlLoop::OnPause>(pause))
        << "this process did not run for " << pause
        << " s; the heartbeat timeouts of all members are extended by as much";
  }
  Effects last;
  {
    MutexLock lock(&mu_);
    last = loop_->Call<&ControlLoop::End>();
  }
  CarryOut(std::move(last));
  state_store_.End();
  MutexLock lock(&mu_);
  over_ = true;
  changed_.Notify();
}

}  // namespace catchment
