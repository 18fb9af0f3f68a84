#include "cli/job/job_door.h"

#include <google/protobuf/text_format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/process.h"
#include "cli/job/hyperparameters.h"
#include "cli/job/job_explanation.h"
#include "cli/job/job_facts.h"
#include "common/base/machine.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/job/job_text.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;
using Request = nlohmann::json;

void AddFields(const std::string& prefix, const google::protobuf::Message& message, JobFields* fields) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  reflection.ListFields(message, &set);
  for (const google::protobuf::FieldDescriptor* field : set) {
    const std::string path = prefix + field->name();
    if (!field->is_repeated() && field->message_type() != nullptr) {
      AddFields(path + ".", reflection.GetMessage(message, field), fields);
      // A message without fields says something, too: consistency { asynchronous {} }.
      if (reflection.GetMessage(message, field).ByteSizeLong() == 0) (*fields)[path] = "";
      continue;
    }
    google::protobuf::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    printer.SetUseShortRepeatedPrimitives(true);
    std::string& value = (*fields)[path];
    if (!field->is_repeated()) {
      printer.PrintFieldValueToString(message, field, -1, &value);
      continue;
    }
    std::vector<std::string> items(reflection.FieldSize(message, field));
    for (int i = 0; i < static_cast<int>(items.size()); ++i) {
      printer.PrintFieldValueToString(message, field, i, &items[i]);
      if (field->message_type() != nullptr) items[i] = absl::StrCat("{ ", items[i], "}");
    }
    value = absl::StrCat("[", absl::StrJoin(items, ", "), "]");
  }
}

std::vector<std::string> ListOf(const Request& request, const char* key) {
  return request.value(key, std::vector<std::string>());
}

template <typename Value>
Json ToJson(const std::optional<Value>& value) {
  return value.has_value() ? Json(*value) : Json();
}

template <typename Values>
Json RatesToJson(const Values& values) {
  return {{"learning_rate", ToJson(std::optional<float>(values.learning_rate))},
          {"momentum", ToJson(values.momentum)}};
}

// `complete` is `given` with its defaults, and `set` are the overrides that a search keeps.
Json SpaceToJson(const v1::Job& given, const v1::Job& complete, const std::vector<std::string>& set) {
  v1::Job alone;
  // They have been applied to the job before.
  ApplyOverrides(set, &alone).IgnoreError();
  const SearchFacts facts = SearchFactsOf(given, complete, alone);
  return {{"own", RatesToJson(facts.own)},     {"set", RatesToJson(facts.set)},
          {"given", RatesToJson(facts.given)}, {"has_momentum", facts.has_momentum},
          {"usual_step", facts.usual_step},    {"limit", ToJson(facts.limit)}};
}

// Clears fields, such as "algorithm" or "faults.stragglers".
absl::Status ClearFields(const std::vector<std::string>& paths, google::protobuf::Message* message) {
  for (const std::string& path : paths) {
    const std::pair<std::string, std::string> steps = absl::StrSplit(path, absl::MaxSplits('.', 1));
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    const auto* const field = message->GetDescriptor()->FindFieldByName(steps.first);
    const bool is_message = field != nullptr && field->message_type() != nullptr && !field->is_repeated();
    if (field == nullptr || (!steps.second.empty() && !is_message))
      return absl::InvalidArgumentError(absl::StrCat("clear: there is no field ", path));
    if (steps.second.empty()) {
      reflection.ClearField(message, field);
    } else if (reflection.HasField(*message, field)) {
      RETURN_IF_ERROR(ClearFields({steps.second}, reflection.MutableMessage(message, field)));
    }
  }
  return absl::OkStatus();
}

// Returns the complete job with the changes that a request has for it.
absl::StatusOr<v1::Job> Finish(const Request& request, const v1::Job& given) {
  ASSIGN_OR_RETURN(v1::Job job, FillDefaultsAndValidate(given));
  if (const auto found = request.find("hyperparameters"); found != request.end() && found->is_object()) {
    Hyperparameters values{found->at("learning_rate").get<float>(), std::nullopt};
    if (found->contains("momentum") && !found->at("momentum").is_null())
      values.momentum = found->at("momentum").get<float>();
    SetHyperparameters(values, &job);
    ASSIGN_OR_RETURN(job, FillDefaultsAndValidate(job));
  }
  if (!request.value("constant_rate", false)) return job;
  KeepLearningRate(&job);
  return FillDefaultsAndValidate(job);
}

Json About() {
  Json presets = Json::array();
  for (const Preset& preset : Presets()) presets.push_back({{"name", preset.name}, {"when", preset.when}});
  return {{"build", BuildVersion()}, {"processors", AvailableProcessors()}, {"presets", std::move(presets)}};
}

}  // namespace

JobFields FieldsOf(const v1::Job& job) {
  JobFields fields;
  AddFields("", job, &fields);
  return fields;
}

absl::Status ChangeJob(const Request& request, v1::Job* job) {
  RETURN_IF_ERROR(ClearFields(ListOf(request, "clear"), job));
  RETURN_IF_ERROR(ApplyOverrides(ListOf(request, "set"), job));
  for (const auto& [worker, factor] :
       request.value("stragglers", std::vector<std::pair<uint32_t, float>>())) {
    v1::Straggler* const straggler = job->mutable_faults()->add_stragglers();
    straggler->set_worker(worker);
    straggler->set_slowdown_factor(factor);
  }
  return absl::OkStatus();
}

Json DoorError(const absl::Status& status) {
  return {{"version", 1},
          {"valid", false},
          {"error", status.message()},
          {"code", absl::StatusCodeToString(status.code())}};
}

std::string DoorLine(const Json& answer) {
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<v1::Job> JobDoor::OwnJob() {
  if (!own_.has_value()) {
    SignalWaiter signals;
    own_ = path_.empty() && program_.empty()
               ? absl::InvalidArgumentError("a request has text, file or run, or the command line a JOB")
               : ReadJob(path_, program_, &signals, &description_);
  }
  return *own_;
}

absl::StatusOr<v1::Job> JobDoor::Begin(const Request& request) {
  v1::Job job;
  if (request.contains("text")) {
    RETURN_IF_ERROR(ParseText(request["text"].get<std::string>(), "the job", "", &job));
  } else if (request.contains("file")) {
    ASSIGN_OR_RETURN(job, LoadJob(request["file"].get<std::string>()));
  } else if (request.contains("run")) {
    const std::string file = request["run"].get<std::string>() + "/job.textproto";
    ASSIGN_OR_RETURN(job, LoadJob(file, {}, FileNamedBy::kDirectory));
  } else {
    ASSIGN_OR_RETURN(job, OwnJob());
    const std::string weights = request.value("initial_weights", "");
    if (description_.has_value() && !weights.empty()) job.mutable_model()->set_initial_weights(weights);
  }
  RETURN_IF_ERROR(ChangeJob(request, &job));
  return job;
}

absl::StatusOr<Json> JobDoor::AnswerJob(const Request& request) {
  ASSIGN_OR_RETURN(const v1::Job given, Begin(request));
  const bool completes = request.value("complete", true);
  v1::Job job = given;
  if (completes) {
    ASSIGN_OR_RETURN(job, Finish(request, given));
  }
  Json answer = {{"described", description_.has_value()}, {"text", JobText(job)}};
  answer["settings"] = SettingsToJson(job);
  if (request.value("facts", completes)) {
    ASSIGN_OR_RETURN(const JobFacts facts, JobFacts::Create(job, request.value("servers", servers_)));
    answer["facts"] = FactsToJson(facts);
  }
  if (request.value("fields", false)) answer["fields"] = FieldsOf(job);
  if (completes && request.contains("space")) {
    answer["space"] = SpaceToJson(given, job, ListOf(request, "space"));
  }
  return answer;
}

absl::StatusOr<Json> JobDoor::AnswerTo(const Request& request) {
  if (request.contains("about")) return About();
  if (request.contains("flag"))
    return Json{{"advice", AdviceOfFlag(request["flag"].get<std::string>(), request.value("value", ""))}};
  if (request.contains("preset")) {
    const auto name = request["preset"].get<std::string>();
    if (FindPreset(name) == nullptr) return absl::InvalidArgumentError(UnknownPreset(name));
    return Json::object();
  }
  if (request.contains("copy_weights")) {
    if (!description_.has_value()) return absl::FailedPreconditionError("no program has described a job");
    RETURN_IF_ERROR(description_->CopyWeights(request["copy_weights"].get<std::string>()));
    return Json::object();
  }
  return AnswerJob(request);
}

Json JobDoor::Answer(const std::string& request) {
  const Request parsed = Request::parse(request, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return DoorError(absl::InvalidArgumentError("a request is a JSON object"));
  try {
    const absl::StatusOr<Json> answer = AnswerTo(parsed);
    if (!answer.ok()) return DoorError(answer.status());
    Json all = {{"version", 1}, {"valid", true}};
    all.update(*answer);
    return all;
  } catch (const Request::exception& error) {
    return DoorError(absl::InvalidArgumentError(absl::StrCat("the request: ", error.what())));
  }
}

}  // namespace catchment
