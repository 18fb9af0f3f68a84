#include "server/control/logged_loop.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

// ------------------------------------------------------------------------------------------- descriptions

v1::ControlStatus ToProto(const absl::Status& status) {
  v1::ControlStatus proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  return proto;
}

v1::ShardCommand WithoutKey(v1::ShardCommand command) {
  if (command.has_run()) command.mutable_run()->clear_token_key();
  return command;
}

std::string Text(const google::protobuf::Message& message) { return message.ShortDebugString(); }
std::string Text(v1::RegisterReply reply) {
  reply.clear_token();
  return reply.ShortDebugString();
}
std::string Text(double number) { return absl::StrCat(number); }
std::string Text(uint64_t number) { return absl::StrCat(number); }
std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(const LeaseWaiters::Answer& answer);

template <typename T>
std::string Text(const absl::StatusOr<T>& result) {
  return result.ok() ? Text(*result) : result.status().ToString();
}
template <typename T>
std::string Text(const std::optional<T>& result) {
  return result ? Text(*result) : "none";
}

std::string Text(const LeaseWaiters::Answer& answer) { return Text(answer.lease); }

std::string Text(const std::vector<ReleasedAnswer>& released) {
  std::string text;
  for (const ReleasedAnswer& answer : released) absl::StrAppend(&text, answer.committed ? "+" : "-");
  return text;
}

// Their sizes suffice: what they have determines the outcome of later calls.
std::string Text(const std::vector<v1::StandbyPart>& parts) {
  std::string text;
  for (const v1::StandbyPart& part : parts) absl::StrAppend(&text, part.ByteSizeLong(), " ");
  return text;
}

std::string Text(const FinalOutputs& outputs) {
  std::string text = absl::StrCat(Text(outputs.status), " weights ", Text(outputs.has_weights), " computed ",
                                  outputs.computed_samples);
  for (const std::string& device : outputs.devices) absl::StrAppend(&text, " device ", device);
  for (const std::string& server : outputs.servers) absl::StrAppend(&text, " server ", server);
  if (outputs.best_evaluation) absl::StrAppend(&text, " best ", *outputs.best_evaluation);
  return absl::StrCat(text, " statistics ", outputs.statistics.size());
}

std::string Text(const Effects& effects) {
  std::string text;
  for (const std::string& event : effects.events) absl::StrAppend(&text, "event: ", event, "\n");
  if (effects.standby) absl::StrAppend(&text, "standby: ", Text(*effects.standby), "\n");
  if (!effects.released.empty()) absl::StrAppend(&text, "released: ", Text(effects.released), "\n");
  for (const LeaseWaiters::Answer& answer : effects.leases)
    absl::StrAppend(&text, "lease: ", Text(answer), "\n");
  for (const ServerCommand& one : effects.commands) {
    absl::StrAppend(&text, "command: ", one.server, " ", one.address, " ", one.answer_seconds, " ",
                    Text(WithoutKey(one.command)), "\n");
  }
  for (const CompleteCheckpoint& checkpoint : effects.checkpoints) {
    absl::StrAppend(&text, "checkpoint: ", checkpoint.number, " ", Text(checkpoint.state));
    for (const v1::SavedShard& shard : checkpoint.shards) absl::StrAppend(&text, " ", Text(shard));
    absl::StrAppend(&text, "\n");
  }
  if (effects.scored) absl::StrAppend(&text, "scored\n");
  if (effects.measures) absl::StrAppend(&text, "measures\n");
  if (effects.record) absl::StrAppend(&text, "record: ", Text(*effects.record), "\n");
  if (effects.outputs) absl::StrAppend(&text, "outputs: ", Text(*effects.outputs), "\n");
  return text;
}

void Describe(const ControlLoop::Options& options, v1::ControlRun* to) {
  const RunOptions& run = options.run;
  *to->mutable_job() = run.job;
  to->set_num_servers(run.num_servers);
  *to->mutable_servers() = {run.servers.begin(), run.servers.end()};
  to->set_resumed_checkpoint(run.resumed_checkpoint);
  to->set_resumed_version(run.resumed_version);
  to->set_run_id(run.run_id);
  to->set_token_key_bytes(run.token_key.size());
  to->set_insecure(run.insecure);
  to->set_first_incarnation(run.first_incarnation);
  *to->mutable_record() = run.record;
  to->set_evaluators(run.evaluators);
  if (run.loss) {
    to->mutable_loss()->set_process(run.loss->process);
    to->mutable_loss()->set_version(run.loss->version);
    to->mutable_loss()->set_workers(run.loss->workers);
    to->mutable_loss()->set_evaluators(run.loss->evaluators);
    to->mutable_loss()->set_next_incarnation(run.loss->next_incarnation);
  }
  if (run.restored) {
    *to->mutable_restored()->mutable_copy() = run.restored->copy;
    to->mutable_restored()->mutable_copy()->clear_token_key();
    *to->mutable_restored()->mutable_evaluations() = run.restored->evaluations;
    to->mutable_restored()->set_epoch(run.restored->epoch);
  }
  for (const TensorSpec& tensor : options.tensors) {
    v1::TensorInfo& added = *to->add_tensors();
    added.set_name(tensor.name);
    *added.mutable_shape() = {tensor.shape.begin(), tensor.shape.end()};
  }
  to->set_can_go_back(options.can_go_back);
  to->set_writes_weights(options.writes_weights);
  to->set_has_standby(options.has_standby);
  if (options.resumed) *to->mutable_resumed() = *options.resumed;
  if (options.kept) *to->mutable_kept() = *options.kept;
  *to->mutable_parameters() = {options.parameters.begin(), options.parameters.end()};
}

}  // namespace

ControlLoop::Options OptionsOf(const v1::ControlRun& from) {
  ControlLoop::Options options;
  RunOptions& run = options.run;
  run.job = from.job();
  run.num_servers = from.num_servers();
  run.servers = {from.servers().begin(), from.servers().end()};
  run.resumed_checkpoint = from.resumed_checkpoint();
  run.resumed_version = from.resumed_version();
  run.run_id = from.run_id();
  run.token_key = std::string(from.token_key_bytes(), 'k');
  run.insecure = from.insecure();
  run.first_incarnation = from.first_incarnation();
  run.record = from.record();
  run.evaluators = from.evaluators();
  if (from.has_loss()) {
    run.loss = RunLoss{.process = from.loss().process(),
                       .version = from.loss().version(),
                       .workers = from.loss().workers(),
                       .evaluators = from.loss().evaluators(),
                       .next_incarnation = from.loss().next_incarnation()};
  }
  if (from.has_restored()) {
    run.restored = RunOptions::Restored{.copy = from.restored().copy(),
                                        .evaluations = from.restored().evaluations(),
                                        .epoch = from.restored().epoch()};
    run.restored->copy.set_token_key(run.token_key);
  }
  for (const v1::TensorInfo& tensor : from.tensors())
    options.tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
  options.can_go_back = from.can_go_back();
  options.writes_weights = from.writes_weights();
  options.has_standby = from.has_standby();
  if (from.has_resumed()) options.resumed = from.resumed();
  if (from.has_kept()) options.kept = from.kept();
  options.parameters = {from.parameters().begin(), from.parameters().end()};
  return options;
}

// ----------------------------------------------------------------------------------------------------- log

double LoggedLoop::CallClock::Now() const {
  if (!measures_) return now_;
  const double now = clock_.Now();
  if (times_ != nullptr) times_->push_back(now);
  return now;
}

absl::StatusOr<std::unique_ptr<LoggedLoop>> LoggedLoop::Create(ControlLoop::Options options,
                                                               const Clock* clock, Log log) {
  std::unique_ptr<LoggedLoop> loop(new LoggedLoop(clock, std::move(log)));
  loop->has_standby_ = options.has_standby;
  v1::ControlLogLine line;
  if (loop->log_ != nullptr) {
    line.mutable_run()->set_time(loop->clock_.Now());
    Describe(options, line.mutable_run());
    options.own_version = [loop = loop.get(), own_version = std::move(options.own_version)] {
      return loop->own_versions_.emplace_back(own_version());
    };
  }
  ASSIGN_OR_RETURN(loop->loop_, ControlLoop::Create(std::move(options), &loop->clock_));
  if (loop->log_ == nullptr) return loop;
  *line.mutable_run()->mutable_own_versions() = {loop->own_versions_.begin(), loop->own_versions_.end()};
  loop->log_(line);
  return loop;
}

template <typename Describe, typename Make>
auto LoggedLoop::Call(const Describe& describe, const Make& make) {
  using Result = decltype(make());
  clock_.Fix();
  if (log_ == nullptr) return make();
  v1::ControlLogLine line;
  v1::ControlCall& call = *line.mutable_call();
  describe(&call);
  own_versions_.clear();
  const auto end = [&] {
    if (call.times().empty()) call.add_times(clock_.Now());
    *call.mutable_own_versions() = {own_versions_.begin(), own_versions_.end()};
    log_(line);
  };
  if constexpr (std::is_void_v<Result>) {
    make();
    end();
  } else {
    Result result = make();
    call.set_outcome(Text(result));
    end();
    return result;
  }
}

// --------------------------------------------------------------------------------------------------- calls

void LoggedLoop::SetAddress(const std::string& address) {
  Call([&](v1::ControlCall* call) { call->set_set_address(address); }, [&] { loop_->SetAddress(address); });
}

absl::StatusOr<v1::RegisterServerReply> LoggedLoop::RegisterServer(const v1::RegisterServerRequest& request) {
  return Call([&](v1::ControlCall* call) { *call->mutable_register_server() = request; },
              [&] { return loop_->RegisterServer(request); });
}

absl::StatusOr<v1::RegisterReply> LoggedLoop::Register(const v1::RegisterRequest& request,
                                                       const std::string& address) {
  return Call(
      [&](v1::ControlCall* call) {
        *call->mutable_register_()->mutable_request() = request;
        call->mutable_register_()->set_address(address);
      },
      [&] { return loop_->Register(request, address); });
}

absl::StatusOr<v1::HeartbeatReply> LoggedLoop::Heartbeat(const v1::HeartbeatRequest& request) {
  return Call([&](v1::ControlCall* call) { *call->mutable_heartbeat() = request; },
              [&] { return loop_->Heartbeat(request); });
}

absl::StatusOr<v1::Lease> LoggedLoop::GetLease(const v1::GetLeaseRequest& request) {
  return Call([&](v1::ControlCall* call) { *call->mutable_get_lease() = request; },
              [&] { return loop_->GetLease(request); });
}

std::optional<LeaseWaiters::Answer> LoggedLoop::AwaitLease(const v1::GetLeaseRequest& request,
                                                           LeaseWaiters::Respond respond) {
  return Call([&](v1::ControlCall* call) { *call->mutable_await_lease() = request; },
              [&] { return loop_->AwaitLease(request, std::move(respond)); });
}

v1::LeaveReply LoggedLoop::Leave(const v1::LeaveRequest& request) {
  return Call([&](v1::ControlCall* call) { *call->mutable_leave() = request; },
              [&] { return loop_->Leave(request); });
}

absl::StatusOr<v1::GetEvaluationReply> LoggedLoop::GetEvaluation(const v1::GetEvaluationRequest& request) {
  return Call([&](v1::ControlCall* call) { *call->mutable_get_evaluation() = request; },
              [&] { return loop_->GetEvaluation(request); });
}

absl::StatusOr<v1::ReportEvaluationReply> LoggedLoop::ReportEvaluation(const v1::EvaluationReport& report) {
  return Call([&](v1::ControlCall* call) { *call->mutable_report_evaluation() = report; },
              [&] { return loop_->ReportEvaluation(report); });
}

void LoggedLoop::Watch(double seconds) {
  Call([&](v1::ControlCall* call) { call->set_watch(seconds); }, [&] { loop_->master()->Watch(seconds); });
}

v1::JobStatus LoggedLoop::Status() {
  clock_.Fix();
  return loop_->Status();
}

void LoggedLoop::Stop(const std::string& reason, bool now) {
  Call(
      [&](v1::ControlCall* call) {
        call->mutable_stop()->set_reason(reason);
        call->mutable_stop()->set_now(now);
      },
      [&] { loop_->Stop(reason, now); });
}

std::optional<bool> LoggedLoop::AfterCommit(std::function<void(bool)> respond) {
  return Call([](v1::ControlCall* call) { call->set_after_commit(true); },
              [&] { return loop_->AfterCommit(std::move(respond)); });
}

// --------------------------------------------------------------------------------------------- the standby

std::optional<uint64_t> LoggedLoop::TakeImage() {
  clock_.Fix();
  // Without a standby no image is ever taken, and the call changes nothing.
  if (!has_standby_) return loop_->TakeImage();
  return Call([](v1::ControlCall* call) { call->set_take_image(true); }, [&] { return loop_->TakeImage(); });
}

std::vector<v1::StandbyPart> LoggedLoop::DescribeState(bool whole) {
  std::vector<double> times;
  v1::ControlCall* described = nullptr;
  return Call(
      [&](v1::ControlCall* call) {
        described = call;
        call->set_describe_state(whole);
      },
      [&] {
        times.push_back(clock_.Now());  // at which the call began
        clock_.Measure(described == nullptr ? nullptr : &times);
        std::vector<v1::StandbyPart> parts = loop_->DescribeState(whole);
        clock_.EndMeasuring();
        if (described != nullptr) *described->mutable_times() = {times.begin(), times.end()};
        return parts;
      });
}

void LoggedLoop::OnImageCommitted(uint64_t image) {
  Call([&](v1::ControlCall* call) { call->set_image_committed(image); },
       [&] { loop_->OnImageCommitted(image); });
}

void LoggedLoop::OnImagesLost() {
  Call([](v1::ControlCall* call) { call->set_images_lost(true); }, [&] { loop_->OnImagesLost(); });
}

std::vector<ReleasedAnswer> LoggedLoop::TakeReleased() {
  return Call([](v1::ControlCall* call) { call->set_take_released(true); },
              [&] { return loop_->TakeReleased(); });
}

// --------------------------------------------------------------------------------------------------- steps

Effects LoggedLoop::Step(bool waited) {
  return Call([&](v1::ControlCall* call) { call->set_step(waited); }, [&] { return loop_->Step(waited); });
}

bool LoggedLoop::HasWork() const {
  clock_.Fix();
  return loop_->HasWork();
}

bool LoggedLoop::OnPause(double seconds) {
  return Call([&](v1::ControlCall* call) { call->set_pause(seconds); },
              [&] { return loop_->OnPause(seconds); });
}

Effects LoggedLoop::End() {
  return Call([](v1::ControlCall* call) { call->set_end(true); }, [&] { return loop_->End(); });
}

// -------------------------------------------------------------------------------------- results of effects

void LoggedLoop::OnAnswer(int server, const v1::ShardCommand& command,
                          const absl::StatusOr<v1::ShardReport>& answer) {
  Call(
      [&](v1::ControlCall* call) {
        v1::ControlCall::Answer& one = *call->mutable_answer();
        one.set_server(server);
        *one.mutable_command() = WithoutKey(command);
        *one.mutable_status() = ToProto(answer.status());
        if (answer.ok()) *one.mutable_report() = *answer;
      },
      [&] { loop_->OnAnswer(server, command, answer); });
}

void LoggedLoop::OnCheckpointWritten(CompleteCheckpoint checkpoint, const absl::Status& status) {
  Call(
      [&](v1::ControlCall* call) {
        call->mutable_checkpoint_written()->set_number(checkpoint.number);
        *call->mutable_checkpoint_written()->mutable_status() = ToProto(status);
      },
      [&] { loop_->OnCheckpointWritten(std::move(checkpoint), status); });
}

double LoggedLoop::OnRecordWritten(const absl::Status& status) {
  return Call([&](v1::ControlCall* call) { *call->mutable_record_written() = ToProto(status); },
              [&] { return loop_->OnRecordWritten(status); });
}

void LoggedLoop::OnOutputsWritten(const absl::Status& status) {
  Call([&](v1::ControlCall* call) { *call->mutable_outputs_written() = ToProto(status); },
       [&] { loop_->OnOutputsWritten(status); });
}

void LoggedLoop::OnStateSaved(uint64_t incarnation, uint64_t checkpoint, const absl::Status& status) {
  Call(
      [&](v1::ControlCall* call) {
        call->mutable_state_saved()->set_incarnation(incarnation);
        call->mutable_state_saved()->set_number(checkpoint);
        *call->mutable_state_saved()->mutable_status() = ToProto(status);
      },
      [&] { loop_->OnStateSaved(incarnation, checkpoint, status); });
}

absl::StatusOr<v1::BestState> LoggedLoop::BestWanted(uint64_t incarnation, uint64_t evaluation) {
  return Call(
      [&](v1::ControlCall* call) {
        call->mutable_best_wanted()->set_incarnation(incarnation);
        call->mutable_best_wanted()->set_evaluation(evaluation);
      },
      [&] { return loop_->master()->BestWanted(incarnation, evaluation); });
}

void LoggedLoop::OnBestKept(const v1::BestState& score, const absl::Status& status) {
  Call(
      [&](v1::ControlCall* call) {
        *call->mutable_best_kept()->mutable_score() = score;
        *call->mutable_best_kept()->mutable_status() = ToProto(status);
      },
      [&] { loop_->OnBestKept(score, status); });
}

absl::Status LoggedLoop::CheckStateIsWanted(uint64_t incarnation, uint64_t checkpoint) const {
  clock_.Fix();
  return loop_->master()->CheckStateIsWanted(incarnation, checkpoint);
}

void LoggedLoop::OnReplaced(const absl::Status& status) {
  Call([&](v1::ControlCall* call) { *call->mutable_replaced() = ToProto(status); },
       [&] { loop_->OnReplaced(status); });
}

}  // namespace catchment
