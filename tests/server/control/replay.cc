#include "tests/server/control/replay.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"

namespace catchment {
namespace {

absl::Status StatusOf(const v1::ControlStatus& status) {
  if (status.not_ready()) return NotReady(status.message());
  return {static_cast<absl::StatusCode>(status.code()), status.message()};
}

}  // namespace

double Replay::LineClock::Now() const {
  const double now = times_.front();
  if (times_.size() > 1) times_.pop_front();
  return now;
}

std::string Replay::Next(const v1::ControlLogLine& line) {
  made_.Clear();
  if (line.has_run()) {
    if (std::string error = Begin(line.run()); !error.empty()) return error;
  } else if (loop_ == nullptr) {
    return "is a call before the beginning of a run";
  } else {
    const v1::ControlCall& call = line.call();
    if (call.times().empty()) return "has no time";
    clock_.Set({call.times().begin(), call.times().end()});
    own_versions_ = {call.own_versions().begin(), call.own_versions().end()};
    Make(call);
  }
  return Compare(line);
}

std::string Replay::Begin(const v1::ControlRun& run) {
  clock_.Set({run.time()});
  own_versions_ = {run.own_versions().begin(), run.own_versions().end()};
  checkpoints_.clear();
  ControlLoop::Options options = OptionsOf(run);
  options.own_version = [this] {
    if (own_versions_.empty()) return uint64_t{0};
    const uint64_t first = own_versions_.front();
    own_versions_.pop_front();
    return first;
  };
  absl::StatusOr<std::unique_ptr<LoggedLoop>> loop = LoggedLoop::Create(
      std::move(options), &clock_, [this](const v1::ControlLogLine& line) { made_ = line; });
  if (!loop.ok()) return absl::StrCat("begins a run that cannot begin: ", loop.status().ToString());
  loop_ = *std::move(loop);
  return "";
}

void Replay::Make(const v1::ControlCall& call) {
  using Call = v1::ControlCall;
  switch (call.call_case()) {
    case Call::kSetAddress:
      return loop_->Call<&ControlLoop::SetAddress>(call.set_address());
    case Call::kRegisterServer:
      return loop_->Call<&ControlLoop::RegisterServer>(call.register_server()).IgnoreError();
    case Call::kRegister:
      return loop_->Call<&ControlLoop::Register>(call.register_().request(), call.register_().address())
          .IgnoreError();
    case Call::kHeartbeat:
      return loop_->Call<&ControlLoop::Heartbeat>(call.heartbeat()).IgnoreError();
    case Call::kGetLease:
      return loop_->Call<&ControlLoop::GetLease>(call.get_lease()).IgnoreError();
    case Call::kAwaitLease:
      loop_->Call<&ControlLoop::AwaitLease>(call.await_lease(), [](const absl::StatusOr<v1::Lease>&) {});
      return;
    case Call::kLeave:
      loop_->Call<&ControlLoop::Leave>(call.leave());
      return;
    case Call::kGetEvaluation:
      return loop_->Call<&ControlLoop::GetEvaluation>(call.get_evaluation()).IgnoreError();
    case Call::kReportEvaluation:
      return loop_->Call<&ControlLoop::ReportEvaluation>(call.report_evaluation()).IgnoreError();
    case Call::kWatch:
      return loop_->Call<&ControlLoop::Watch>(call.watch());
    case Call::kStop:
      return loop_->Call<&ControlLoop::Stop>(call.stop().reason(), call.stop().now());
    case Call::kAfterCommit:
      loop_->Call<&ControlLoop::AfterCommit>([](bool) {});
      return;
    case Call::kTakeImage:
      loop_->TakeImage();
      return;
    case Call::kDescribeState:
      loop_->DescribeState(call.describe_state());
      return;
    case Call::kImageCommitted:
      return loop_->Call<&ControlLoop::OnImageCommitted>(call.image_committed());
    case Call::kImagesLost:
      return loop_->Call<&ControlLoop::OnImagesLost>();
    case Call::kTakeReleased:
      loop_->Call<&ControlLoop::TakeReleased>();
      return;
    case Call::kStep:
      return Keep(loop_->Call<&ControlLoop::Step>(call.step()));
    case Call::kPause:
      loop_->Call<&ControlLoop::OnPause>(call.pause());
      return;
    case Call::kEnd:
      return Keep(loop_->Call<&ControlLoop::End>());
    case Call::kAnswer: {
      const absl::Status status = StatusOf(call.answer().status());
      return loop_->Call<&ControlLoop::OnAnswer>(
          call.answer().server(), call.answer().command(),
          status.ok() ? absl::StatusOr<v1::ShardReport>(call.answer().report()) : status);
    }
    case Call::kCheckpointWritten:
      return loop_->Call<&ControlLoop::OnCheckpointWritten>(checkpoints_[call.checkpoint_written().number()],
                                                            StatusOf(call.checkpoint_written().status()));
    case Call::kRecordWritten:
      loop_->Call<&ControlLoop::OnRecordWritten>(StatusOf(call.record_written()));
      return;
    case Call::kOutputsWritten:
      return loop_->Call<&ControlLoop::OnOutputsWritten>(StatusOf(call.outputs_written()));
    case Call::kStateSaved:
      return loop_->Call<&ControlLoop::OnStateSaved>(call.state_saved().incarnation(),
                                                     call.state_saved().number(),
                                                     StatusOf(call.state_saved().status()));
    case Call::kBestWanted:
      return loop_
          ->Call<&ControlLoop::BestWanted>(call.best_wanted().incarnation(), call.best_wanted().evaluation())
          .IgnoreError();
    case Call::kBestKept:
      return loop_->Call<&ControlLoop::OnBestKept>(call.best_kept().score(),
                                                   StatusOf(call.best_kept().status()));
    case Call::kReplaced:
      return loop_->Call<&ControlLoop::OnReplaced>(StatusOf(call.replaced()));
    case Call::CALL_NOT_SET:
      return;
  }
}

void Replay::Keep(const Effects& effects) {
  events_.insert(events_.end(), effects.events.begin(), effects.events.end());
  for (const CompleteCheckpoint& checkpoint : effects.checkpoints)
    checkpoints_[checkpoint.number] = checkpoint;
}

std::string Replay::Compare(const v1::ControlLogLine& line) const {
  const std::string expected = line.ShortDebugString(), made = made_.ShortDebugString();
  if (made == expected) return "";
  constexpr size_t kBefore = 200, kAfter = 400;
  const auto at = std::mismatch(expected.begin(), expected.end(), made.begin(), made.end()).first;
  const size_t differs = at - expected.begin(), from = differs - std::min(differs, kBefore);
  return absl::StrCat("has ..", expected.substr(from, kBefore + kAfter), "\nbut the replay has ..",
                      made.substr(std::min(from, made.size()), kBefore + kAfter));
}

namespace {

std::string ReplayWith(Replay* replay, const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::StrCat("cannot read ", path);
  int number = 0;
  // A master that was killed may have left a line unfinished.
  for (std::string text; std::getline(file, text) && !file.eof();) {
    ++number;
    v1::ControlLogLine line;
    if (!google::protobuf::TextFormat::ParseFromString(text, &line))
      return absl::StrCat("line ", number, " of ", path, " is not a ControlLogLine");
    if (const std::string differs = replay->Next(line); !differs.empty())
      return absl::StrCat("line ", number, " of ", path, " ", differs);
  }
  return number == 0 ? absl::StrCat(path, " is empty") : "";
}

}  // namespace

std::string ReplayFile(const std::string& path) {
  Replay replay;
  return ReplayWith(&replay, path);
}

std::vector<std::string> ReplayedEvents(const std::string& path) {
  Replay replay;
  ReplayWith(&replay, path);
  return replay.events();
}

}  // namespace catchment
