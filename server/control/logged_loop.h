// A control loop (control_loop.h) whose calls can be logged, so that they can be made again.
//
// What a loop does follows from its options and its calls: their order, their arguments, and the time of
// each, which stands still during a call. A log (proto/control_log.proto) has all of these, the answer to
// each call and its effects. Calls that change nothing are not in it. tests/server/control/replay.h makes
// the calls of a log again, and compares the answers and effects. Keys of tokens and tokens are left out.
//
// Units: seconds. Threads: not thread-safe, like the loop.
#ifndef CATCHMENT_SERVER_CONTROL_LOGGED_LOOP_H_
#define CATCHMENT_SERVER_CONTROL_LOGGED_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "proto/control_log.pb.h"
#include "server/control/control_loop.h"

namespace catchment {

class LoggedLoop {
 public:
  using Log = std::function<void(const v1::ControlLogLine&)>;

  // `clock` outlives the loop. `log` receives each line when the call has been made; null: there is no log.
  // Errors: those of ControlLoop::Create.
  static absl::StatusOr<std::unique_ptr<LoggedLoop>> Create(ControlLoop::Options options, const Clock* clock,
                                                            Log log = nullptr);

  // As those of ControlLoop and Master.
  const RunOptions& run() const { return loop_->run(); }
  const v1::RunRecord& record() const { return loop_->record(); }
  void SetAddress(const std::string& address);
  absl::StatusOr<v1::GetJobReply> GetJob() const { return loop_->GetJob(); }
  absl::StatusOr<v1::RegisterServerReply> RegisterServer(const v1::RegisterServerRequest& request);
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request, const std::string& address);
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(const v1::HeartbeatRequest& request);
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request);
  std::optional<LeaseWaiters::Answer> AwaitLease(const v1::GetLeaseRequest& request,
                                                 LeaseWaiters::Respond respond);
  v1::LeaveReply Leave(const v1::LeaveRequest& request);
  absl::StatusOr<v1::GetEvaluationReply> GetEvaluation(const v1::GetEvaluationRequest& request);
  absl::StatusOr<v1::ReportEvaluationReply> ReportEvaluation(const v1::EvaluationReport& report);
  void Watch(double seconds);
  v1::JobStatus Status();
  void Stop(const std::string& reason, bool now);
  std::optional<bool> AfterCommit(std::function<void(bool committed)> respond);

  std::optional<uint64_t> TakeImage();
  std::vector<v1::StandbyPart> DescribeState(bool whole);
  void OnImageCommitted(uint64_t image);
  void OnImagesLost();
  std::vector<ReleasedAnswer> TakeReleased();

  Effects Step(bool waited);
  bool HasWork() const;
  double NextStep() const { return loop_->NextStep(); }
  bool OnPause(double seconds);
  Effects End();

  void OnAnswer(int server, const v1::ShardCommand& command, const absl::StatusOr<v1::ShardReport>& answer);
  void OnCheckpointWritten(CompleteCheckpoint checkpoint, const absl::Status& status);
  double OnRecordWritten(const absl::Status& status);
  void OnOutputsWritten(const absl::Status& status);
  void OnStateSaved(uint64_t incarnation, uint64_t checkpoint, const absl::Status& status);
  absl::StatusOr<v1::BestState> BestWanted(uint64_t incarnation, uint64_t evaluation);
  std::vector<v1::Statistic> BestStatistics(uint64_t evaluation) const {
    return loop_->BestStatistics(evaluation);
  }
  void OnBestKept(const v1::BestState& score, const absl::Status& status);
  absl::Status CheckStateIsWanted(uint64_t incarnation, uint64_t checkpoint) const;

  bool over() const { return loop_->over(); }
  const absl::Status& result() const { return loop_->result(); }
  const std::optional<RunLoss>& loss() const { return loop_->loss(); }
  void OnReplaced(const absl::Status& status);
  // Returns the master, for questions that change nothing.
  const Master& master() const { return *loop_->master(); }

 private:
  // Returns a time that stands still, except while a call measures itself.
  class CallClock final : public Clock {
   public:
    explicit CallClock(const Clock* clock) : clock_(*clock), now_(clock->Now()) {}
    double Now() const override;
    // Advances to the present.
    void Fix() { now_ = clock_.Now(); }
    // Until Fix, returns the present, and adds it to `times` unless that is null.
    void Measure(std::vector<double>* times) {
      measures_ = true;
      times_ = times;
    }
    void EndMeasuring() { measures_ = false; }

   private:
    const Clock& clock_;
    double now_ = 0;
    bool measures_ = false;
    std::vector<double>* times_ = nullptr;
  };

  LoggedLoop(const Clock* clock, Log log) : clock_(clock), log_(std::move(log)) {}

  // Makes a call, and logs it. `describe` fills in its arguments.
  template <typename Describe, typename Make>
  auto Call(const Describe& describe, const Make& make);

  mutable CallClock clock_;
  const Log log_;
  std::vector<uint64_t> own_versions_;  // that the loop has asked for during the call
  std::unique_ptr<ControlLoop> loop_;
  bool has_standby_ = false;
};

// Returns the options of a run in a log, without functions. The key of tokens has as many bytes as in the
// run.
ControlLoop::Options OptionsOf(const v1::ControlRun& run);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_LOGGED_LOOP_H_
