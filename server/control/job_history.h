// The record of a job's runs: recoveries, and how the job has ended. It outlives the master's process in a
// file, from which a master that is started again learns that its predecessor was lost.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_HISTORY_H_
#define CATCHMENT_SERVER_CONTROL_JOB_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/base/growing_pause.h"
#include "proto/checkpoint.pb.h"
#include "proto/master.pb.h"

namespace catchment {

// The loss of a process that holds a part of the job's state, and what is known of the run that it ended.
struct RunLoss {
  std::string process;            // "server 1"
  uint64_t version = 0;           // the highest version of a shard; 0: none is known
  int workers = 0;                // members; 0: not known
  int evaluators = 0;             // that the job had
  uint64_t next_incarnation = 1;  // above those that the run has given
};

// Returns, for people, how a job has ended: "the job is DONE", "the job is STOPPED: a stop was requested".
std::string DescribeEnd(const std::string& phase, const std::string& reason);

// Returns, for people, what happened: "server 1 was lost at version 5,210; went back to checkpoint 5,000, of
// version 5,003; 207 updates are computed again". `checkpoint` 0: the initial weights; `version`: of the
// beginning.
std::string DescribeRecovery(const RunLoss& loss, uint64_t checkpoint, uint64_t version);

// Returns the updates that are computed again, as far as is known.
uint64_t UpdatesComputedAgain(const RunLoss& loss, uint64_t version);

class JobHistory {
 public:
  // `record` is that of the job so far. `loss`: the loss that this run recovers from.
  JobHistory(v1::RunRecord record, std::optional<RunLoss> loss)
      : record_(std::move(record)), recovers_from_(std::move(loss)) {}

  const v1::RunRecord& record() const { return record_; }
  // Returns the loss that this run recovers from, until training has begun again.
  const std::optional<RunLoss>& recovers_from() const { return recovers_from_; }

  // Returns the record, for a change of it.
  v1::RunRecord* Change();
  // Notes how many evaluators the job has.
  void NoteEvaluators(int evaluators);
  // Notes a version that the run before had reached.
  void NoteLostVersion(uint64_t version);
  // Counts a shard or a master that its standby has restored.
  void CountRestoration() { Change()->set_recoveries(record_.recoveries() + 1); }
  // Training has begun again, from this checkpoint and version. Returns a sentence about the recovery; empty:
  // there was none, or it was reported.
  std::string TakeRecovery(uint64_t checkpoint, uint64_t version);
  // Notes how the job has ended. `continues`: a master that is started again continues it.
  void End(v1::JobStatus::Phase phase, const std::string& reason, bool continues);

  // Returns the record if it must be written now.
  std::optional<v1::RunRecord> TakeDue(double now);
  bool IsDue(double now) const { return changed_ && now >= write_at_; }
  // Notes whether it was written. After an error it is due again, later. Returns the seconds until then.
  double OnWritten(const absl::Status& status, double now);
  // Returns true if the file has the record.
  bool is_written() const { return !changed_; }

 private:
  v1::RunRecord record_;
  std::optional<RunLoss> recovers_from_;
  bool changed_ = false;  // since it was written
  double write_at_ = 0;   // the time of the next attempt
  GrowingPause pauses_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_HISTORY_H_
