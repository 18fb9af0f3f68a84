#include "server/host/master_host.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/open_files.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/checkpoint/manifest.h"
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
    RETURN_IF_ERROR(loop_->now().master().checkpoints().CheckStateIsWanted(incarnation, checkpoint));
    return loop_->now().master().members().IndexOf(incarnation);
  };
  owner.index_of = [this](uint64_t incarnation) {
    MutexLock lock(&mu_);
    return loop_->now().master().members().IndexOf(incarnation);
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
  const ControlLoop& loop = loop_->now();
  // The image of a change may be due before the step that the thread waits for.
  if (loop.HasWork() || loop.NextStep() < next_step_) changed_.Notify();
}

void MasterHost::OnImage(uint64_t image, bool acknowledged) {
  std::vector<ReadyReply> replies;
  {
    MutexLock lock(&mu_);
    acknowledged ? loop_->Call<&ControlLoop::OnImageCommitted>(image)
                 : loop_->Call<&ControlLoop::OnImagesLost>();
    replies = loop_->Call<&ControlLoop::TakeReplies>();
    changed_.Notify();
  }
  Reply(std::move(replies));
}

void MasterHost::SetAddress(const std::string& address) { Call<&ControlLoop::SetAddress>(address); }

void MasterHost::Answer(const v1::Call& call, Respond respond) {
  if (call.has_load_worker_state()) return state_store_.Answer(call, std::move(respond));
  if (call.has_save_worker_state()) return SaveWorkerState(call, std::move(respond));
  if (absl::Status room = CheckRoom(call); !room.ok()) return respond(std::move(room));
  AnswerFromLoop(call, std::move(respond));
}

void MasterHost::SaveWorkerState(const v1::Call& call, Respond respond) {
  v1::SaveWorkerStateRequest saved;
  saved.set_incarnation(call.save_worker_state().incarnation());
  state_store_.Answer(call, [this, saved = MakeCall(std::move(saved)),
                             respond = std::move(respond)](absl::StatusOr<v1::Reply> reply) {
    reply.ok() ? AnswerFromLoop(saved, respond) : respond(std::move(reply));
  });
}

void MasterHost::AnswerFromLoop(const v1::Call& call, Respond respond) {
  std::vector<ReadyReply> replies = Call<&ControlLoop::Answer>(call, std::move(respond));
  if (replies.empty() || replies.front().reply.ok()) {
    energy_.Add(call.has_heartbeat() ? call.heartbeat().energy() : call.register_server().energy());
  }
  // The reply may wait for what the call has appended.
  if (log_ != nullptr && replies.empty()) log_->Flush();
  Reply(std::move(replies));
}

void MasterHost::Reply(std::vector<ReadyReply> replies) {
  for (ReadyReply& ready : replies) {
    if (ready.reply.ok() && ready.reply->has_get_status()) AddEnergy(ready.reply->mutable_get_status());
    if (ready.reply.ok() && ready.reply->has_get_job()) {
      ready.reply->mutable_get_job()->set_build(BuildVersion());
      ready.reply->mutable_get_job()->set_unix_seconds(
          absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
    }
    ready.respond(std::move(ready.reply));
  }
}

absl::Status MasterHost::CheckRoom(const v1::Call& call) {
  if (!call.has_register_() || call.register_().role() != v1::WORKER ||
      call.register_().run_id() != options_.run_id)
    return absl::OkStatus();
  MutexLock lock(&mu_);
  const int64_t workers = loop_->now().master().members().num_workers() + 1;
  const absl::Status files = CheckOpenFiles(workers, options_.num_servers, /*master=*/true);
  return files.ok() ? files : absl::ResourceExhaustedError(files.message());
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
  return loop_->now().master().state_machine().training();
}

int MasterHost::MembersToTell() {
  MutexLock lock(&mu_);
  return loop_->now().MembersToTell();
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
    next_step_ = loop_->now().NextStep();
    waited = !changed_.WaitFor(&mu_, std::max(0.0, next_step_ - begin), [this] {
      return ending_ || loop_->now().HasWork() || loop_->now().NextStep() < next_step_;
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
