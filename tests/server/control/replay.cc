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
    return "comes before the beginning of a run";
  } else {
    const v1::ControlInput& input = line.input();
    if (input.times().empty()) return "has no time";
    clock_.Set({input.times().begin(), input.times().end()});
    own_versions_ = {input.own_versions().begin(), input.own_versions().end()};
    Make(input);
  }
  return Compare(line);
}

std::string Replay::Begin(const v1::ControlRun& run) {
  if (run.format() != kControlLogFormat) {
    return absl::StrCat("begins a run in format ", run.format(), ", but this replay reads format ",
                        kControlLogFormat, ": use the replay of the version that has written the log");
  }
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

void Replay::Make(const v1::ControlInput& input) {
  using Input = v1::ControlInput;
  switch (input.kind_case()) {
    case Input::kCall:
      loop_->Call<&ControlLoop::Answer>(input.call(), [](const absl::StatusOr<v1::Reply>&) {});
      return;
    case Input::kSetAddress:
      return loop_->Call<&ControlLoop::SetAddress>(input.set_address());
    case Input::kTakeImage:
      loop_->TakeImage();
      return;
    case Input::kDescribeState:
      loop_->DescribeState(input.describe_state());
      return;
    case Input::kImageCommitted:
      return loop_->Call<&ControlLoop::OnImageCommitted>(input.image_committed());
    case Input::kImagesLost:
      return loop_->Call<&ControlLoop::OnImagesLost>();
    case Input::kTakeReplies:
      loop_->Call<&ControlLoop::TakeReplies>();
      return;
    case Input::kStep:
      return Keep(loop_->Call<&ControlLoop::Step>(input.step()));
    case Input::kPause:
      loop_->Call<&ControlLoop::OnPause>(input.pause());
      return;
    case Input::kEnd:
      return Keep(loop_->Call<&ControlLoop::End>());
    case Input::kAnswer: {
      const absl::Status status = StatusOf(input.answer().status());
      return loop_->Call<&ControlLoop::OnAnswer>(
          input.answer().server(), input.answer().command(),
          status.ok() ? absl::StatusOr<v1::ShardReport>(input.answer().report()) : status);
    }
    case Input::kCheckpointWritten:
      return loop_->Call<&ControlLoop::OnCheckpointWritten>(checkpoints_[input.checkpoint_written().number()],
                                                            StatusOf(input.checkpoint_written().status()));
    case Input::kRecordWritten:
      loop_->Call<&ControlLoop::OnRecordWritten>(StatusOf(input.record_written()));
      return;
    case Input::kOutputsWritten:
      return loop_->Call<&ControlLoop::OnOutputsWritten>(StatusOf(input.outputs_written()));
    case Input::kStateSaved:
      return loop_->Call<&ControlLoop::OnStateSaved>(input.state_saved().incarnation(),
                                                     input.state_saved().number(),
                                                     StatusOf(input.state_saved().status()));
    case Input::kBestWanted:
      return loop_
          ->Call<&ControlLoop::BestWanted>(input.best_wanted().incarnation(),
                                           input.best_wanted().evaluation())
          .IgnoreError();
    case Input::kBestKept:
      return loop_->Call<&ControlLoop::OnBestKept>(input.best_kept().score(),
                                                   StatusOf(input.best_kept().status()));
    case Input::kReplaced:
      return loop_->Call<&ControlLoop::OnReplaced>(StatusOf(input.replaced()));
    case Input::KIND_NOT_SET:
      return;
  }
}

void Replay::Keep(const Effects& effects) {
  for (const JobEvent& event : effects.events) events_.push_back(event.text);
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
      return absl::StrCat("line ", number, " of ", path, " is not a ControlLogLine of this version");
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
