#include "server/control/logged_loop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

// ------------------------------------------------------------------------------------------- descriptions

v1::ShardCommand WithoutKey(v1::ShardCommand command) {
  if (command.has_run()) command.mutable_run()->clear_token_key();
  return command;
}

void Describe(const ControlLoop::Options& options, v1::ControlRun* to) {
  const RunOptions& run = options.run;
  to->set_format(kControlLogFormat);
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

void LoggedLoop::Append(v1::ControlLogLine line) {
  *line.mutable_input()->mutable_times() = {clock_.times().begin(), clock_.times().end()};
  *line.mutable_input()->mutable_own_versions() = {own_versions_.begin(), own_versions_.end()};
  log_(line);
}

std::optional<uint64_t> LoggedLoop::TakeImage() {
  // Without a standby no image is ever taken, and the call changes nothing.
  return has_standby_ ? Call<&ControlLoop::TakeImage>() : std::nullopt;
}

std::vector<v1::StandbyPart> LoggedLoop::DescribeState(bool whole) {
  clock_.set_measures(true);
  std::vector<v1::StandbyPart> parts = Call<&ControlLoop::DescribeState>(whole);
  clock_.set_measures(false);
  return parts;
}

// ------------------------------------------------------------------------------------------------ arguments

void LoggedLoop::Set(v1::ControlStatus* to, const absl::Status& status) {
  to->set_code(static_cast<int>(status.code()));
  to->set_message(std::string(status.message()));
  to->set_not_ready(IsNotReady(status));
}

void LoggedLoop::Set(Fields::Answer* to, int server, const v1::ShardCommand& command,
                     const absl::StatusOr<v1::ShardReport>& answer) {
  to->set_server(server);
  *to->mutable_command() = WithoutKey(command);
  Set(to->mutable_status(), answer.status());
  if (answer.ok()) *to->mutable_report() = *answer;
}

void LoggedLoop::Set(Fields::Written* to, const CompleteCheckpoint& checkpoint, const absl::Status& status) {
  to->set_number(checkpoint.number);
  Set(to->mutable_status(), status);
}

void LoggedLoop::Set(Fields::Written* to, uint64_t incarnation, uint64_t checkpoint,
                     const absl::Status& status) {
  to->set_incarnation(incarnation);
  to->set_number(checkpoint);
  Set(to->mutable_status(), status);
}

void LoggedLoop::Set(Fields::Best* to, uint64_t incarnation, uint64_t evaluation) {
  to->set_incarnation(incarnation);
  to->set_evaluation(evaluation);
}

void LoggedLoop::Set(Fields::Kept* to, const v1::BestState& score, const absl::Status& status) {
  *to->mutable_score() = score;
  Set(to->mutable_status(), status);
}

// ------------------------------------------------------------------------------------------------- outcomes

std::string LoggedLoop::Text(const google::protobuf::Message& message) { return message.ShortDebugString(); }
std::string LoggedLoop::Text(double number) { return absl::StrCat(number); }
std::string LoggedLoop::Text(uint64_t number) { return absl::StrCat(number); }
std::string LoggedLoop::Text(bool value) { return value ? "true" : "false"; }

std::string LoggedLoop::Text(const std::vector<ReadyReply>& replies) {
  std::string text;
  for (const ReadyReply& ready : replies) {
    if (!ready.reply.ok()) {
      absl::StrAppend(&text, "reply: ", ready.reply.status().ToString(), "\n");
      continue;
    }
    v1::Reply reply = *ready.reply;
    if (reply.has_register_()) reply.mutable_register_()->clear_token();
    absl::StrAppend(&text, "reply: ", Text(reply), "\n");
  }
  return text;
}

// Their sizes suffice: what they have determines the outcome of later calls.
std::string LoggedLoop::Text(const std::vector<v1::StandbyPart>& parts) {
  std::string text;
  for (const v1::StandbyPart& part : parts) absl::StrAppend(&text, part.ByteSizeLong(), " ");
  return text;
}

std::string LoggedLoop::Text(const FinalOutputs& outputs) {
  std::string text = absl::StrCat(Text(outputs.status), " weights ", Text(outputs.has_weights), " computed ",
                                  outputs.computed_samples);
  for (const std::string& device : outputs.devices) absl::StrAppend(&text, " device ", device);
  for (const std::string& server : outputs.servers) absl::StrAppend(&text, " server ", server);
  if (outputs.best_evaluation) absl::StrAppend(&text, " best ", *outputs.best_evaluation);
  return absl::StrCat(text, " statistics ", outputs.statistics.size());
}

std::string LoggedLoop::Text(const Effects& effects) {
  std::string text;
  for (const JobEvent& event : effects.events) absl::StrAppend(&text, "event: ", event.text, "\n");
  if (effects.standby) absl::StrAppend(&text, "standby: ", Text(*effects.standby), "\n");
  absl::StrAppend(&text, Text(effects.replies));
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

}  // namespace catchment
