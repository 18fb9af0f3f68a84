#include "server/master/master_host.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_record.h"
#include "common/job/job_text.h"
#include "common/log_format.h"
#include "common/snapshot_reader.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

constexpr double kRoundSeconds = 0.1;
constexpr double kShortRoundSeconds = 0.01;  // while the end of the job waits for reports
// If a wait between two rounds takes longer than this, the process did not run in the meantime.
constexpr double kPauseSeconds = 1;
// The time for which servers that do not answer are sent the command to stop.
constexpr double kStopSeconds = 10;
// The time for which a job that has ended waits until its record can be written.
constexpr double kRecordSeconds = 30;

std::string Describe(const v1::JobStatus& status) {
  return status.reason().empty() ? "the job failed" : status.reason();
}

std::vector<v1::Statistic> StatisticsOf(const v1::EvaluationReport& report) {
  return {report.statistics().begin(), report.statistics().end()};
}

// Returns the score of the best weights that an earlier run of the job has written, if any.
std::optional<v1::BestState> ReadKeptScore(const Outputs& outputs, const ParameterLayout& layout) {
  absl::StatusOr<v1::BestState> kept = outputs.ReadBest(layout);
  if (kept.ok()) return *std::move(kept);
  if (!absl::IsNotFound(kept.status()))
    LOG(WARNING) << kept.status().message() << "; the best weights of earlier runs are ignored";
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MasterHost>> MasterHost::Create(Options options, const ParameterLayout* layout,
                                                               ShardHost* local, const Clock* clock,
                                                               std::optional<v1::MasterState> resumed) {
  absl::StatusOr<std::unique_ptr<Outputs>> outputs = Outputs::Open(options.out_dir);
  if (!outputs.ok()) return outputs.status();
  const std::optional<v1::BestState> kept =
      resumed && options.job.evaluation().keep_best() ? ReadKeptScore(**outputs, *layout) : std::nullopt;
  v1::MasterState from = std::move(resumed).value_or(v1::MasterState());
  from.set_next_incarnation(std::max(from.next_incarnation(), options.first_incarnation));
  absl::StatusOr<std::unique_ptr<Master>> master =
      options.restored
          ? absl::StatusOr<std::unique_ptr<Master>>(
                Master::Restore(options.job, layout->tensors(), options.num_servers, clock,
                                options.restored->copy.master(), options.first_incarnation))
          : Master::Create(options.job, layout->tensors(), options.num_servers, clock, std::move(from));
  if (!master.ok()) return master.status();
  if (kept) (*master)->SetKept(*kept);
  if (!options.restored) options.record.clear_servers();
  options.record.set_job_fingerprint(JobFingerprint(options.job));
  options.record.set_run_id(options.run_id);
  options.record.set_ended(false);
  options.record.clear_phase();
  options.record.clear_reason();
  options.record.clear_told();
  if (!options.checkpoint_dir.empty()) {
    if (absl::Status status = WriteRunRecord(options.checkpoint_dir, options.record); !status.ok())
      return status;
  }
  if (!options.restored) {
    (*master)->ExpectEvaluators(options.loss ? options.loss->evaluators : options.evaluators);
  }
  if (options.loss) {
    const int workers =
        options.loss->workers > 0 ? options.loss->workers : static_cast<int>(options.job.workers());
    (*master)->ExpectWorkers(workers, options.job.faults().connect_timeout_seconds());
  }
  return std::unique_ptr<MasterHost>(new MasterHost(std::move(options), layout, local, clock,
                                                    *std::move(master), *std::move(outputs), kept));
}

MasterHost::MasterHost(Options options, const ParameterLayout* layout, ShardHost* local, const Clock* clock,
                       std::unique_ptr<Master> master, std::unique_ptr<Outputs> outputs,
                       std::optional<v1::BestState> kept)
    : options_(std::move(options)),
      layout_(*layout),
      local_(*local),
      clock_(*clock),
      master_(std::move(master)),
      peers_(options_.num_servers),
      schedule_(options_.num_servers),
      log_(HasStandbys() ? local_.log() : nullptr),
      begun_(clock_.Now()),
      recovers_from_(options_.loss),
      record_(options_.record),
      kept_(std::move(kept)),
      outputs_(std::move(outputs)),
      best_keeper_(layout_.size(), BestKeeperOwner()),
      state_store_({.directory = options_.checkpoint_dir,
                    .num_values = layout_.size(),
                    .resumed = options_.resumed_checkpoint},
                   StateStoreOwner(), &clock_),
      progress_log_(begun_) {
  if (options_.job.evaluation().keep_best() && !outputs_->enabled()) {
    LOG(WARNING) << "evaluation.keep_best has no effect without --out: no weights are written";
  }
  commander_ = std::make_unique<ShardCommander>();
  if (log_ != nullptr) log_->SetState([this](bool whole) { return DescribeState(whole); });
  if (options_.restored) {
    MutexLock lock(&mu_);
    TakeOver(*options_.restored);
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

void MasterHost::SetAddress(const std::string& address) {
  MutexLock lock(&mu_);
  peers_[0].address = address;
}

v1::Run MasterHost::RunAt(const std::string& address) const {
  v1::Run run;
  run.set_id(options_.run_id);
  run.set_job(options_.job.name());
  run.set_master(address);
  run.set_token_key(options_.token_key);
  return run;
}

BestKeeper::Owner MasterHost::BestKeeperOwner() {
  BestKeeper::Owner owner;
  owner.admit = [this](uint64_t incarnation, uint64_t evaluation) -> absl::StatusOr<v1::BestState> {
    MutexLock lock(&mu_);
    if (!outputs_->enabled())
      return absl::FailedPreconditionError("the master has no --out directory to write the weights to");
    return master_->BestWanted(incarnation, evaluation);
  };
  owner.write = [this](const v1::BestState& score, absl::Span<const float> weights) {
    ModelFacts facts = {.score = score, .statistics = {}};
    {
      MutexLock lock(&mu_);
      if (best_report_.evaluation() == score.evaluation()) facts.statistics = StatisticsOf(best_report_);
    }
    return outputs_->WriteBest(options_.job, layout_, weights, facts);
  };
  owner.ended = [this](const v1::BestState& score, const absl::Status& status) {
    MutexLock lock(&mu_);
    if (status.ok()) kept_ = score;
    if (status.ok())
      LOG(INFO) << "wrote the weights of evaluation " << score.evaluation() << ", the best so far";
    master_->OnBestKept(score.evaluation(), status);
    NoteChange();
  };
  return owner;
}

WorkerStateStore::Owner MasterHost::StateStoreOwner() {
  WorkerStateStore::Owner owner;
  owner.admit = [this](uint64_t incarnation, uint64_t checkpoint) {
    MutexLock lock(&mu_);
    return master_->CheckStateIsWanted(incarnation, checkpoint);
  };
  owner.saved = [this](uint64_t incarnation, uint64_t checkpoint, const absl::Status& status) {
    MutexLock lock(&mu_);
    master_->OnStateSaved(incarnation, checkpoint, status);
    NoteChange();
    WakeIfNeeded();
  };
  return owner;
}

// ------------------------------------------------------------------------------------------------ the thread

void MasterHost::Run() {
  bool tick = true;
  bool ended = false;
  while (!ended) {
    Round(tick);
    MutexLock lock(&mu_);
    const double begin = clock_.Now();
    double wait = master_->awaits_reports() ? kShortRoundSeconds : kRoundSeconds;
    if (changed_since_image_) wait = std::clamp(next_image_ - begin, 0.0, wait);
    const bool waits = changed_since_image_;
    if (!over_)
      tick = !changed_.WaitFor(&mu_, wait, [&] { return HasWork() || changed_since_image_ != waits; });
    if (const double pause = clock_.Now() - begin; pause > kPauseSeconds) {
      LOG(WARNING) << "this process did not run for " << pause
                   << " s; the heartbeat timeouts of all members are extended by as much";
      master_->ExtendDeadlines(pause);
    }
    ended = ending_ || over_;
  }
  AnswerWaiters();
  CallDeferred();
  state_store_.End();
}

bool MasterHost::AllServersHere() const {
  return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.address.empty(); });
}

void MasterHost::Round(bool tick) {
  v1::ShardCommand command;
  std::vector<Command> due;
  std::vector<LeaseWaiters::Answer> leases;
  std::optional<v1::ShardCommand::Standby> standby;
  bool proceed;
  {
    MutexLock lock(&mu_);
    if (tick) schedule_.Tick();
    CheckForMissingServers();
    answered_ = false;
    master_->Tick();
    ReportRecovery();
    LogEvents();
    leases = waiters_.Review(master_->lease_conditions(), clock_.Now(), AskAgain());
    command = NextCommand();
    proceed = AllServersHere() || command.stop() || master_->ended();
    standby = StandbyOfMaster();
    NoteDecisions();
    AppendImage();
    if (proceed) Hold(TakeDueCommands(command));
    due = TakeCommitted();
  }
  if (standby) local_.NameStandby(*standby, options_.run_id);
  if (log_ != nullptr) log_->Flush();
  CallDeferred();
  Deliver(std::move(leases));
  if (!proceed) return;
  Send(std::move(due));
  FinishRound(command.stop());
}

void MasterHost::FinishRound(bool stop) {
  std::vector<CompleteCheckpoint> checkpoints;
  v1::JobStatus::Phase phase;
  {
    MutexLock lock(&mu_);
    checkpoints = master_->TakeCompleteCheckpoints();
    phase = master_->phase();
  }
  WriteManifests(std::move(checkpoints));
  WriteMetrics();
  WriteRecord();
  if (phase == v1::JobStatus::DONE || phase == v1::JobStatus::STOPPED || phase == v1::JobStatus::FAILED) {
    if (!outputs_written_) WriteFinalOutputs();
  }
  if (stop) MaybeEnd();
}

void MasterHost::MaybeEnd() {
  {
    MutexLock lock(&mu_);
    if (!StopIsKnown()) return;
    record_changed_ |= !record_.told();
    record_.set_told(true);
  }
  WriteRecord();
  MutexLock lock(&mu_);
  if (!RecordIsWritten()) return;
  over_ = true;
  if (master_->phase() == v1::JobStatus::FAILED) result_ = absl::InternalError(Describe(master_->Status()));
  changed_.Notify();
}

bool MasterHost::StopIsKnown() {
  const double now = clock_.Now();
  if (!stop_since_) stop_since_ = now;
  if (now - *stop_since_ >= kStopSeconds) return true;
  const double limit = options_.job.faults().connect_timeout_seconds();
  for (size_t s = 0; s < peers_.size(); ++s) {
    const Peer& peer = peers_[s];
    const bool reachable = s == 0 || (peer.stub != nullptr && !peer.gone && now - peer.last_heard <= limit);
    if (reachable && stopped_.count(static_cast<int>(s)) == 0) return false;
  }
  return true;
}

void MasterHost::WriteManifests(std::vector<CompleteCheckpoint> checkpoints) {
  if (checkpoints.empty() && unrecorded_ && clock_.Now() >= record_at_) {
    checkpoints.push_back(*std::exchange(unrecorded_, std::nullopt));
  }
  for (CompleteCheckpoint& checkpoint : checkpoints) {
    const absl::Status status = RecordCheckpoint(checkpoint);
    LOG_IF(ERROR, !status.ok()) << "checkpoint " << checkpoint.number << ": " << status.message();
    {
      MutexLock lock(&mu_);
      master_->OnCheckpointRecorded(checkpoint.number, status);
      NoteDecisions();
    }
    unrecorded_.reset();
    if (status.ok()) {
      record_pauses_.Reset();
    } else {
      record_at_ = clock_.Now() + record_pauses_.Next();
      unrecorded_ = std::move(checkpoint);
    }
  }
}

absl::Status MasterHost::RecordCheckpoint(const CompleteCheckpoint& checkpoint) const {
  const std::string& directory = options_.checkpoint_dir;
  if (directory.empty()) return absl::OkStatus();
  const v1::Manifest manifest = MakeManifest(checkpoint);
  if (const auto shards = OpenShards(directory, manifest); !shards.ok()) {
    const char* const hint = absl::IsNotFound(shards.status())
                                 ? "; is --checkpoint_dir the same directory, shared, for all servers?"
                                 : "";
    return absl::Status(
        shards.status().code(),
        absl::StrCat("the master cannot read what the servers saved: ", shards.status().message(), hint));
  }
  if (absl::Status status = WriteManifest(directory, manifest); !status.ok()) return status;
  const absl::Status pruned = Prune(directory, static_cast<int>(options_.job.checkpoint().keep()));
  LOG_IF(ERROR, !pruned.ok()) << "cannot delete old checkpoints: " << pruned.message();
  return absl::OkStatus();
}

v1::Manifest MasterHost::MakeManifest(const CompleteCheckpoint& checkpoint) const {
  v1::Manifest manifest;
  manifest.set_number(checkpoint.number);
  manifest.set_run_id(options_.run_id);
  *manifest.mutable_job() = options_.job;
  manifest.set_fingerprint(layout_.fingerprint());
  for (const TensorSpec& tensor : layout_.tensors()) {
    v1::TensorInfo* info = manifest.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  *manifest.mutable_shards() = {checkpoint.shards.begin(), checkpoint.shards.end()};
  *manifest.mutable_master() = checkpoint.state;
  return manifest;
}

void MasterHost::WriteMetrics() {
  const double now = clock_.Now();
  bool scored;
  {
    MutexLock lock(&mu_);
    scored = std::exchange(scored_, false);
    const uint64_t samples = master_->done_samples();
    if (!scored && !progress_log_.IsDue(samples, now) && !outputs_->MetricsAreDue(samples, now)) return;
  }
  const v1::JobStatus job = Status();
  for (const ProgressLog::Entry& entry : progress_log_.Entries(job, scored, now))
    LogEvent(entry.event, JobMetrics(job), entry.line);
  const absl::Status status = outputs_->MaybeWriteMetrics(job, now);
  LOG_IF_EVERY_N(ERROR, !status.ok(), 100) << status.message();
}

absl::Status MasterHost::ReadFinalWeights(const std::vector<std::string>& servers,
                                          const v1::JobStatus& job_status, absl::Span<float> weights) const {
  SnapshotReader reader(servers, options_.credentials, options_.run_id, &layout_,
                        SnapshotReader::kStallSeconds,
                        RegistrationToken(options_.token_key, kServersIncarnation));
  absl::Status status = reader.Read(weights);
  // A job that has not failed has recorded a checkpoint with the final weights.
  if (status.ok() || options_.checkpoint_dir.empty() || job_status.phase() == v1::JobStatus::FAILED)
    return status;
  const absl::StatusOr<FoundCheckpoint> found = FindLatest(options_.checkpoint_dir);
  if (!found.ok() || found->manifest.number() != job_status.last_checkpoint()) return status;
  LOG(WARNING) << status.message() << "; taking the final weights from checkpoint "
               << found->manifest.number();
  return ReadParameters(options_.checkpoint_dir, found->manifest, {0, layout_.size()}, "weights",
                        weights.data());
}

void MasterHost::WriteFinalOutputs() {
  outputs_written_ = true;
  Outputs::SummaryFacts facts;
  facts.servers = options_.num_servers;
  std::vector<std::string> servers;
  const v1::JobStatus job_status = Status();
  ModelFacts model_facts;
  bool has_weights;
  {
    MutexLock lock(&mu_);
    facts.devices.assign(devices_.begin(), devices_.end());
    for (const Peer& peer : peers_) servers.push_back(peer.address);
    has_weights = AllServersHere() && master_->weights_are_final();
    facts.computed_samples = master_->computed_samples();
    if (kept_) facts.best_weights = kept_->evaluation();
    if (job_status.tested_at_samples() == job_status.samples()) {
      model_facts.statistics = StatisticsOf(newest_report_);
    }
  }
  absl::Status status;
  if (outputs_->enabled() && has_weights) {
    std::vector<float> weights(layout_.size());
    status = ReadFinalWeights(servers, job_status, absl::MakeSpan(weights));
    if (status.ok()) status = outputs_->WriteModel(options_.job, layout_, weights, model_facts);
    if (!status.ok()) LOG(ERROR) << "cannot write the weights: " << status.message();
  }
  absl::Status summary = outputs_->WriteSummary(options_.job, job_status, facts);
  if (!summary.ok()) LOG(ERROR) << "cannot write the summary: " << summary.message();
  {
    MutexLock lock(&mu_);
    result_ = status.ok() ? summary : status;
    record_.set_ended(!continues_later_);
    record_.set_phase(v1::JobStatus::Phase_Name(job_status.phase()));
    record_.set_reason(job_status.reason());
    record_changed_ = true;
  }
  // A master that is restarted from now on must not continue the job.
  write_record_at_ = 0;
  WriteRecord();
  MutexLock lock(&mu_);
  master_->OnOutputsWritten();
}

// ---------------------------------------------------------------------------------------------- recovery

std::optional<RunLoss> MasterHost::loss() {
  MutexLock lock(&mu_);
  return loss_;
}

v1::RunRecord MasterHost::record() {
  MutexLock lock(&mu_);
  return record_;
}

void MasterHost::CheckForMissingServers() {
  const double limit = options_.job.faults().connect_timeout_seconds();
  if (!options_.loss || master_->ended() || clock_.Now() - begun_ <= limit) return;
  for (size_t s = 0; s < peers_.size(); ++s) {
    if (!peers_[s].address.empty()) continue;
    continues_later_ = true;
    const std::string where = options_.servers.empty() ? "" : absl::StrCat(" at ", options_.servers[s]);
    const std::string& why = peers_[s].failure;
    return master_->Fail(
        absl::StrCat(options_.loss->process, " was lost, and server ", s, where, " has not come back for ",
                     limit, " s", why.empty() ? "" : absl::StrCat(" (it ended: ", why, ")"),
                     "; start all servers again with --resume ", "to continue from the last checkpoint"));
  }
}

void MasterHost::NoteLostVersion(uint64_t version) {
  if (recovers_from_) recovers_from_->version = std::max(recovers_from_->version, version);
}

void MasterHost::ReportRecovery() {
  if (!recovers_from_ || master_->phase() == v1::JobStatus::WAITING) return;
  const RunLoss loss = *std::exchange(recovers_from_, std::nullopt);
  master_->AddEvent(DescribeRecovery(loss, options_.resumed_checkpoint, options_.resumed_version));
  record_.set_updates_computed_again(record_.updates_computed_again() +
                                     UpdatesComputedAgain(loss, options_.resumed_version));
  record_changed_ = true;
}

void MasterHost::LogEvents() {
  for (const std::string& event : master_->TakeEvents()) {
    LogEvent(
        "event",
        {{"recoveries", record_.recoveries()}, {"updates_computed_again", record_.updates_computed_again()}},
        event);
  }
}

void MasterHost::WriteRecord() {
  v1::RunRecord record;
  {
    MutexLock lock(&mu_);
    if (!record_changed_ || clock_.Now() < write_record_at_) return;
    record_changed_ = false;
    record = record_;
  }
  if (!CanGoBack()) return;
  const absl::Status status = WriteRunRecord(options_.checkpoint_dir, record);
  if (status.ok()) return write_pauses_.Reset();
  const double pause = write_pauses_.Next();
  write_record_at_ = clock_.Now() + pause;
  LOG(ERROR) << "cannot write the record of the job: " << status.message() << "; trying again in " << pause
             << " s";
  MutexLock lock(&mu_);
  record_changed_ = true;
}

bool MasterHost::RecordIsWritten() const {
  return !record_changed_ || !CanGoBack() || clock_.Now() - *stop_since_ >= kRecordSeconds;
}

}  // namespace catchment
