// A control loop (control_loop.h) whose inputs can be logged, so that it can be run again.
//
// What a loop does follows from its options and from the calls of its methods: their order, their arguments,
// and the time of each, which stands still meanwhile. A log (proto/control_log.proto) has all of these, and
// the replies and effects. Methods that change nothing are not in it. tests/server/control/replay.h calls the
// methods of a log again, and compares the replies and effects. Keys of tokens and tokens are left out.
//
// Units: seconds. Threads: not thread-safe, like the loop.
#ifndef CATCHMENT_SERVER_CONTROL_LOGGED_LOOP_H_
#define CATCHMENT_SERVER_CONTROL_LOGGED_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "proto/control_log.pb.h"
#include "server/control/control_loop.h"

namespace catchment {

// The format of the log: a replay refuses another one. To be increased when old logs become unreadable.
inline constexpr uint32_t kControlLogFormat = 1;

class LoggedLoop {
 public:
  using Log = std::function<void(const v1::ControlLogLine&)>;

  // `clock` outlives the loop. `log` receives each line when the call has been made; null: there is no log.
  // Errors: those of ControlLoop::Create.
  static absl::StatusOr<std::unique_ptr<LoggedLoop>> Create(ControlLoop::Options options, const Clock* clock,
                                                            Log log = nullptr);

  // Calls a method of the loop that may change it: Call<&ControlLoop::Step>(waited). Those for which there is
  // a field (Field) can be called.
  template <auto kCall, typename... Arguments>
  auto Call(Arguments&&... arguments);
  // Returns the loop at the present time, for questions that change nothing.
  const ControlLoop& now() const {
    clock_.Fix();
    return *loop_;
  }

  // As those of ControlLoop.
  std::optional<uint64_t> TakeImage();
  std::vector<v1::StandbyPart> DescribeState(bool whole);

 private:
  // Returns a time that stands still, except while a call measures itself.
  class CallClock final : public Clock {
   public:
    explicit CallClock(const Clock* clock) : clock_(*clock), times_({clock->Now()}) {}
    double Now() const override {
      if (measures_) times_.push_back(clock_.Now());
      return times_.back();
    }
    // Advances to the present.
    void Fix() { times_ = {clock_.Now()}; }
    void set_measures(bool measures) { measures_ = measures; }
    // Returns the time that Fix has read, and then those of a call that measures itself.
    const std::vector<double>& times() const { return times_; }

   private:
    const Clock& clock_;
    bool measures_ = false;
    mutable std::vector<double> times_;
  };

  LoggedLoop(const Clock* clock, Log log) : clock_(clock), log_(std::move(log)) {}

  // The field of v1::ControlInput with the arguments of a method: mutable_field for a string or a message,
  // set_field for a number, and for true if it has no other argument than a function.
  template <auto kCall>
  struct Of {};
  using Fields = v1::ControlInput;
  static constexpr auto Field(Of<&ControlLoop::Answer>) { return &Fields::mutable_call; }
  static constexpr auto Field(Of<&ControlLoop::SetAddress>) { return &Fields::mutable_set_address; }
  static constexpr auto Field(Of<&ControlLoop::TakeImage>) { return &Fields::set_take_image; }
  static constexpr auto Field(Of<&ControlLoop::DescribeState>) { return &Fields::set_describe_state; }
  static constexpr auto Field(Of<&ControlLoop::OnImageCommitted>) { return &Fields::set_image_committed; }
  static constexpr auto Field(Of<&ControlLoop::OnImagesLost>) { return &Fields::set_images_lost; }
  static constexpr auto Field(Of<&ControlLoop::TakeReplies>) { return &Fields::set_take_replies; }
  static constexpr auto Field(Of<&ControlLoop::Step>) { return &Fields::set_step; }
  static constexpr auto Field(Of<&ControlLoop::OnPause>) { return &Fields::set_pause; }
  static constexpr auto Field(Of<&ControlLoop::End>) { return &Fields::set_end; }
  static constexpr auto Field(Of<&ControlLoop::OnAnswer>) { return &Fields::mutable_answer; }
  static constexpr auto Field(Of<&ControlLoop::OnCheckpointWritten>) {
    return &Fields::mutable_checkpoint_written;
  }
  static constexpr auto Field(Of<&ControlLoop::OnRecordWritten>) { return &Fields::mutable_record_written; }
  static constexpr auto Field(Of<&ControlLoop::OnOutputsWritten>) { return &Fields::mutable_outputs_written; }
  static constexpr auto Field(Of<&ControlLoop::OnStateSaved>) { return &Fields::mutable_state_saved; }
  static constexpr auto Field(Of<&ControlLoop::BestWanted>) { return &Fields::mutable_best_wanted; }
  static constexpr auto Field(Of<&ControlLoop::OnBestKept>) { return &Fields::mutable_best_kept; }
  static constexpr auto Field(Of<&ControlLoop::OnReplaced>) { return &Fields::mutable_replaced; }

  // Sets a field to the arguments of a method, without keys and functions.
  template <typename Target, typename Value, typename... Functions>
  requires std::is_assignable_v<Target&, const Value&>
  static void Set(Target* to, const Value& value, const Functions&...) { *to = value; }
  static void Set(v1::ControlStatus* to, const absl::Status& status);
  static void Set(Fields::Answer* to, int server, const v1::ShardCommand& command,
                  const absl::StatusOr<v1::ShardReport>& answer);
  static void Set(Fields::Written* to, const CompleteCheckpoint& checkpoint, const absl::Status& status);
  static void Set(Fields::Written* to, uint64_t incarnation, uint64_t checkpoint, const absl::Status& status);
  static void Set(Fields::Best* to, uint64_t incarnation, uint64_t evaluation);
  static void Set(Fields::Kept* to, const v1::BestState& score, const absl::Status& status);
  template <typename Value = bool>
  static auto Number(const Value& value = true) {
    if constexpr (std::is_arithmetic_v<Value>)
      return value;
    else
      return true;
  }

  // Describe the outcome of a method.
  static std::string Text(const google::protobuf::Message& message);
  static std::string Text(double number);
  static std::string Text(uint64_t number);
  static std::string Text(bool value);
  static std::string Text(const std::vector<ReadyReply>& replies);
  static std::string Text(const std::vector<v1::StandbyPart>& parts);
  static std::string Text(const FinalOutputs& outputs);
  static std::string Text(const Effects& effects);
  template <typename T>
  static std::string Text(const absl::StatusOr<T>& result) {
    return result.ok() ? Text(*result) : result.status().ToString();
  }
  template <typename T>
  static std::string Text(const std::optional<T>& result) {
    return result ? Text(*result) : "none";
  }

  void Append(v1::ControlLogLine line);

  mutable CallClock clock_;
  const Log log_;
  std::vector<uint64_t> own_versions_;  // that the loop has asked for during the call
  std::unique_ptr<ControlLoop> loop_;
  bool has_standby_ = false;
};

template <auto kCall, typename... Arguments>
auto LoggedLoop::Call(Arguments&&... arguments) {
  using Result = std::invoke_result_t<decltype(kCall), ControlLoop*, Arguments...>;
  constexpr auto kField = Field(Of<kCall>());
  clock_.Fix();
  if (log_ == nullptr) return std::invoke(kCall, loop_.get(), std::forward<Arguments>(arguments)...);
  v1::ControlLogLine line;
  v1::ControlInput* const input = line.mutable_input();
  if constexpr (std::is_invocable_v<decltype(kField), v1::ControlInput*>) {
    Set((input->*kField)(), arguments...);
  } else {
    (input->*kField)(Number(arguments...));
  }
  own_versions_.clear();
  if constexpr (std::is_void_v<Result>) {
    std::invoke(kCall, loop_.get(), std::forward<Arguments>(arguments)...);
    Append(std::move(line));
  } else {
    Result result = std::invoke(kCall, loop_.get(), std::forward<Arguments>(arguments)...);
    input->set_outcome(Text(result));
    Append(std::move(line));
    return result;
  }
}

// Returns the options of a run in a log, without functions. The key of tokens has as many bytes as in the
// run.
ControlLoop::Options OptionsOf(const v1::ControlRun& run);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_LOGGED_LOOP_H_
