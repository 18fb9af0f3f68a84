// The part of the host that keeps a copy of the master's state at its standby, and continues from one.
//
// An answer to a call, and a command to servers, leave when the standby has the state that they show. Images of the state
// take at most a tenth of the time, however many members there are: changes wait for the next one together.
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/master/master_host.h"

namespace catchment {
namespace {

// More than the epochs that a master can have offered after it was copied for the last time.
constexpr uint64_t kEpochsAhead = 1 << 16;
// The shortest time between the ends of two images, in times that one takes.
constexpr double kImagePause = 10;
// For commands that wait for the next image, which has no number yet.
constexpr uint64_t kNextImage = UINT64_MAX;

}  // namespace

// ----------------------------------------------------------------------------------------------- restoration

void MasterHost::Options::Continue(Restored from) {
  run_id = from.copy.run_id();
  token_key = from.copy.token_key();
  resumed_checkpoint = from.copy.resumed_checkpoint();
  resumed_version = from.copy.resumed_version();
  record = from.copy.record();
  loss.reset();
  restored = std::move(from);
}

void MasterHost::TakeOver(const Options::Restored& from) {
  for (int s = 0; s < std::min(options_.num_servers, from.copy.servers_size()); ++s) {
    const v1::ServerImage& image = from.copy.servers(s);
    Peer& peer = peers_[s];
    peer.epoch = image.epoch();
    peer.offered_epoch = image.offered_epoch() + kEpochsAhead;
    if (s == 0) continue;
    peer.address = image.address();
    peer.instance = image.instance();
    peer.last_heard = clock_.Now();
    peer.stub = v1::ShardService::NewStub(ConnectForControl(peer.address, options_.credentials));
  }
  peers_[0].epoch = from.epoch;
  devices_ = {from.copy.devices().begin(), from.copy.devices().end()};
  if (from.copy.has_kept()) {
    kept_ = from.copy.kept();
    master_->SetKept(*kept_);
  }
  newest_report_ = from.evaluations.newest();
  best_report_ = from.evaluations.best();
  record_.set_recoveries(record_.recoveries() + 1);
  record_changed_ = true;
  master_->AddEvent(absl::StrCat("the master was lost, and has been restored at version ",
                                 local_.shard()->version(), " from its standby, server ", StandbyOf(0),
                                 "; no update is computed again"));
  NoteChange();
}

// ----------------------------------------------------------------------------------------------- replication

bool MasterHost::Commits() const { return log_ != nullptr && master_->has_begun() && !master_->Over(); }

void MasterHost::NoteChange() {
  if (!Commits()) return;
  decided_ = master_->decisions();
  changed_since_image_ = true;
  AppendImage();
  // The host's thread waits until the next image is due.
  if (changed_since_image_) changed_.Notify();
}

bool MasterHost::ImageIsDue() const {
  return changed_since_image_ && (!Commits() || clock_.Now() >= next_image_);
}

void MasterHost::AppendImage() {
  if (!ImageIsDue()) return;
  changed_since_image_ = false;
  commit_ = Commits() ? log_->AppendState() : 0;
  for (HeldCommands& held : held_) {
    if (held.change != kNextImage) continue;
    held.change = commit_;
    if (commit_ != 0) NotifyWhenCommitted(commit_);
  }
}

void MasterHost::NotifyWhenCommitted(uint64_t change) {
  log_->Await(change, [this](bool) {
    MutexLock lock(&mu_);
    changed_.Notify();
  });
}

void MasterHost::NoteDecisions() {
  if (Commits() && decided_ != master_->decisions()) NoteChange();
}

std::vector<v1::StandbyPart> MasterHost::DescribeState(bool whole) {
  MutexLock lock(&mu_);
  std::vector<v1::StandbyPart> parts;
  if (!master_->has_begun()) return parts;
  const double begin = clock_.Now();
  if (std::exchange(evaluations_changed_, false) || whole) {
    v1::EvaluationReports reports;
    *reports.mutable_newest() = newest_report_;
    *reports.mutable_best() = best_report_;
    parts.emplace_back().set_evaluations(reports.SerializeAsString());
  }
  parts.emplace_back().set_master(Copy().SerializeAsString());
  next_image_ = begin + kImagePause * (clock_.Now() - begin);
  return parts;
}

v1::MasterCopy MasterHost::Copy() const {
  v1::MasterCopy copy;
  *copy.mutable_master() = master_->Save();
  copy.set_run_id(options_.run_id);
  copy.set_token_key(options_.token_key);
  *copy.mutable_record() = record_;
  copy.set_resumed_checkpoint(options_.resumed_checkpoint);
  copy.set_resumed_version(options_.resumed_version);
  for (const Peer& peer : peers_) {
    v1::ServerImage* const image = copy.add_servers();
    image->set_address(peer.address);
    image->set_instance(peer.instance);
    image->set_epoch(peer.epoch);
    image->set_offered_epoch(peer.offered_epoch);
  }
  *copy.mutable_devices() = {devices_.begin(), devices_.end()};
  if (kept_) *copy.mutable_kept() = *kept_;
  return copy;
}

void MasterHost::AfterCommit(Then then) {
  uint64_t change = 0;
  bool lost = false;
  {
    MutexLock lock(&mu_);
    const bool waits = Commits() && changed_since_image_;
    lost = waits && (over_ || ending_);
    if (waits && !lost) {
      deferred_.push_back(std::move(then));
      return;
    }
    if (Commits()) change = commit_;
  }
  if (lost) return then(false);
  CallWhenCommitted(change, then);
}

void MasterHost::CallDeferred() {
  std::vector<Then> deferred;
  uint64_t change = 0;
  bool lost = false;
  {
    MutexLock lock(&mu_);
    const bool waits = Commits() && changed_since_image_;
    lost = waits && (over_ || ending_);
    if (waits && !lost) return;
    deferred.swap(deferred_);
    if (Commits()) change = commit_;
  }
  for (const Then& then : deferred) {
    if (lost) {
      then(false);
    } else {
      CallWhenCommitted(change, then);
    }
  }
}

void MasterHost::CallWhenCommitted(uint64_t change, const Then& then) {
  if (change == 0 || log_->IsAcknowledged(change)) return then(true);
  log_->Flush();
  const StandbyLog::Wait wait = log_->Await(change, then);
  if (wait != StandbyLog::Wait::kLater) then(wait == StandbyLog::Wait::kAcknowledged);
}

// --------------------------------------------------------------------------------------------------- servers

std::optional<v1::ShardCommand::Standby> MasterHost::StandbyOfMaster() const {
  if (!HasStandbys() || !AllServersHere()) return std::nullopt;
  v1::ShardCommand command;
  SetStandby(0, &command);
  return command.standby();
}

void MasterHost::Hold(std::vector<Command> commands) {
  if (commands.empty()) return;
  const uint64_t change = !Commits() ? 0 : changed_since_image_ ? kNextImage : commit_;
  held_.push_back({change, std::move(commands)});
  if (change != 0 && change != kNextImage) NotifyWhenCommitted(change);
}

bool MasterHost::HasCommitted() const {
  return !held_.empty() && (!Commits() || log_->IsAcknowledged(held_.front().change));
}

std::vector<MasterHost::Command> MasterHost::TakeCommitted() {
  std::vector<Command> commands;
  for (; HasCommitted(); held_.pop_front()) {
    std::vector<Command>& next = held_.front().commands;
    std::move(next.begin(), next.end(), std::back_inserter(commands));
  }
  return commands;
}

void MasterHost::OnReplaced(const absl::Status& status) {
  MutexLock lock(&mu_);
  result_ = status;
  over_ = true;
  changed_.Notify();
}

}  // namespace catchment
