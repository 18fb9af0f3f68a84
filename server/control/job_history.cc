#include "server/control/job_history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace catchment {
namespace {

std::string Place(uint64_t checkpoint) {
  return checkpoint == 0 ? "the initial weights" : absl::StrCat("checkpoint ", Count(checkpoint));
}

}  // namespace

std::string DescribeEnd(const std::string& phase, const std::string& reason) {
  return absl::StrCat("the job is ", phase, reason.empty() ? "" : ": ", reason);
}

uint64_t UpdatesComputedAgain(const RunLoss& loss, uint64_t version) {
  return loss.version > version ? loss.version - version : 0;
}

std::string DescribeRecovery(const RunLoss& loss, uint64_t checkpoint, uint64_t version) {
  const std::string at = loss.version == 0 ? "" : absl::StrCat(" at version ", Count(loss.version));
  const uint64_t again = UpdatesComputedAgain(loss, version);
  const std::string of = checkpoint == 0 ? "" : absl::StrCat(", of version ", Count(version));
  return absl::StrCat(loss.process, " was lost", at, "; went back to ", Place(checkpoint), of, "; ",
                      Plural(again, "update"), again == 1 ? " is" : " are", " computed again");
}

v1::RunRecord* JobHistory::Change() {
  changed_ = true;
  return &record_;
}

void JobHistory::NoteEvaluators(int evaluators) {
  if (record_.evaluators() != static_cast<uint32_t>(evaluators)) Change()->set_evaluators(evaluators);
}

void JobHistory::NoteLostVersion(uint64_t version) {
  if (recovers_from_) recovers_from_->version = std::max(recovers_from_->version, version);
}

std::string JobHistory::TakeRecovery(uint64_t checkpoint, uint64_t version) {
  if (!recovers_from_) return "";
  const RunLoss loss = *std::exchange(recovers_from_, std::nullopt);
  Change()->set_updates_computed_again(record_.updates_computed_again() +
                                       UpdatesComputedAgain(loss, version));
  return DescribeRecovery(loss, checkpoint, version);
}

void JobHistory::End(v1::JobStatus::Phase phase, const std::string& reason, bool continues) {
  v1::RunRecord* const record = Change();
  record->set_ended(!continues);
  record->set_phase(v1::JobStatus::Phase_Name(phase));
  record->set_reason(reason);
  // A master that is restarted from now on must not continue the job.
  write_at_ = 0;
}

std::optional<v1::RunRecord> JobHistory::TakeDue(double now) {
  if (!IsDue(now)) return std::nullopt;
  changed_ = false;
  return record_;
}

double JobHistory::OnWritten(const absl::Status& status, double now) {
  if (status.ok()) {
    pauses_.Reset();
    return 0;
  }
  changed_ = true;
  const double pause = pauses_.Next();
  write_at_ = now + pause;
  return pause;
}

}  // namespace catchment
