#include <google/protobuf/message.h>

#include <vector>

#include "cli/job/hyperparameters.h"
#include "cli/job/job_explanation.h"
#include "cli/live/advice.h"
#include "cli/live/status_text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/job_text.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

Json PlacementToJson(const ParameterLayout& layout) {
  Json servers = Json::array();
  for (int s = 0; s < layout.num_shards(); ++s) {
    const Range shard = layout.shard(s);
    servers.push_back({{"server", s},
                       {"begin", shard.begin},
                       {"end", shard.end},
                       {"parameters", shard.size()},
                       {"bytes", shard.size() * sizeof(float)},
                       {"against_even_percent", 100 * AgainstEven(layout, s)},
                       {"blocks", layout.num_blocks(s)}});
  }
  return servers;
}

Json TensorsToJson(const ParameterLayout& layout) {
  Json tensors = Json::array();
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    Json parts = Json::array();
    for (const TensorPart& part : PartsOf(layout, static_cast<int>(t))) {
      parts.push_back({{"server", part.server}, {"begin", part.values.begin}, {"end", part.values.end}});
    }
    const TensorSpec& tensor = layout.tensors()[t];
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"parts", std::move(parts)}});
  }
  return tensors;
}

Json BudgetToJson(const JobFacts& facts) {
  if (!facts.knows_budget()) {
    return {{"samples", Json()},
            {"steps", Json()},
            {"steps_per_worker", Json()},
            {"updates", Json()},
            {"epochs", facts.job().epochs()}};
  }
  return {{"samples", facts.total_samples()},
          {"steps", facts.total_steps()},
          {"steps_per_worker", facts.steps_per_worker()},
          {"updates", facts.updates()},
          {"epochs", facts.knows_samples() ? Json(facts.epochs()) : Json()}};
}

Json WireToJson(const JobFacts& facts) {
  const WireBytes wire = facts.wire();
  return {{"push_bytes", wire.sent},
          {"push_messages", CountBlocks(facts.layout())},
          {"push_every_steps", wire.send_every},
          {"pull_bytes", wire.received},
          {"pull_every_steps", wire.receive_every},
          {"bytes_per_step", wire.per_step()}};
}

Json MemoryToJson(const JobFacts& facts) {
  Json servers = Json::array();
  for (int s = 0; s < facts.servers(); ++s) {
    const ServerBytes bytes = facts.server(s);
    servers.push_back({{"server", s},
                       {"weights", bytes.weights},
                       {"optimizer_state", bytes.optimizer_state},
                       {"compensation", bytes.compensation},
                       {"waiting", bytes.waiting},
                       {"snapshot", bytes.snapshot},
                       {"standby", bytes.standby},
                       {"total", bytes.total()}});
  }
  const WorkerBytes worker = facts.worker();
  return {{"servers", std::move(servers)},
          {"worker", {{"model", worker.model}, {"algorithm", worker.algorithm}, {"total", worker.total()}}}};
}

// Forward, and twice that backward; a multiplication and an addition for each weight.
constexpr double kOperationsPerWeight = 6;

// Returns an estimate of the operations of a forward and a backward pass with one sample.
double OperationsPerSample(const JobFacts& facts) {
  double operations = 0;
  for (const LayerShape& layer : facts.layers()) {
    double weights = 0;
    for (const TensorSpec& tensor : layer.tensors) weights += static_cast<double>(tensor.size());
    double uses = 1;
    if (layer.kind == LayerKind::kConv2D)
      uses = static_cast<double>(layer.output.height * layer.output.width);
    if (layer.input.is_sequence()) uses = static_cast<double>(layer.input.channels);
    operations += kOperationsPerWeight * weights * uses;
  }
  return operations;
}

// Returns the mean number of samples in the contributions of an update.
double SamplesPerUpdate(const v1::Job& job) {
  return ContributionsPerUpdate(job.algorithm().consistency(), job.workers()) * job.batch_size() *
         PushPeriod(job.algorithm().contribution());
}

// Returns the value of a field, or of an item of a list if `index` is not -1.
Json ValueToJson(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
                 int index) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& all = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      return SettingsToJson(one ? all.GetMessage(message, &field)
                                : all.GetRepeatedMessage(message, &field, index));
    case Field::CPPTYPE_STRING:
      return one ? all.GetString(message, &field) : all.GetRepeatedString(message, &field, index);
    case Field::CPPTYPE_ENUM:
      return (one ? all.GetEnum(message, &field) : all.GetRepeatedEnum(message, &field, index))->name();
    case Field::CPPTYPE_BOOL:
      return one ? all.GetBool(message, &field) : all.GetRepeatedBool(message, &field, index);
    case Field::CPPTYPE_FLOAT:
      return one ? all.GetFloat(message, &field) : all.GetRepeatedFloat(message, &field, index);
    case Field::CPPTYPE_DOUBLE:
      return one ? all.GetDouble(message, &field) : all.GetRepeatedDouble(message, &field, index);
    case Field::CPPTYPE_INT32:
      return one ? all.GetInt32(message, &field) : all.GetRepeatedInt32(message, &field, index);
    case Field::CPPTYPE_UINT32:
      return one ? all.GetUInt32(message, &field) : all.GetRepeatedUInt32(message, &field, index);
    case Field::CPPTYPE_INT64:
      return one ? all.GetInt64(message, &field) : all.GetRepeatedInt64(message, &field, index);
    case Field::CPPTYPE_UINT64:
      return one ? all.GetUInt64(message, &field) : all.GetRepeatedUInt64(message, &field, index);
  }
  return Json();
}

// Returns null for a value that is not known.
template <typename Value>
Json Known(bool is_known, const Value& value) {
  return is_known ? Json(value()) : Json();
}

}  // namespace

Json SettingsToJson(const google::protobuf::Message& message) {
  std::vector<const google::protobuf::FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  Json settings = Json::object();
  for (const google::protobuf::FieldDescriptor* field : set) {
    Json& value = settings[field->name()];
    if (!field->is_repeated()) {
      value = ValueToJson(message, *field, -1);
      continue;
    }
    value = Json::array();
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int i = 0; i < size; ++i) value.push_back(ValueToJson(message, *field, i));
  }
  return settings;
}

Json FactsToJson(const JobFacts& facts) {
  const v1::Job& job = facts.job();
  const v1::Contribution& contribution = job.algorithm().contribution();
  const v1::Compensation& compensation = job.algorithm().compensation();
  const v1::Optimizer& optimizer =
      contribution.has_pseudo_gradient() ? contribution.pseudo_gradient().local_optimizer() : job.optimizer();
  const Hyperparameters own = HyperparametersOf(job);
  const std::optional<double> rate = RateAtExpectedStaleness(job);
  const bool knows_budget = facts.knows_budget();
  return {{"name", job.name()},
          {"parameters", facts.layout().size()},
          {"knows_samples", facts.knows_samples()},
          {"knows_budget", knows_budget},
          {"train_samples", facts.train_samples()},
          {"samples_per_epoch", facts.samples_per_epoch()},
          {"test_samples", facts.test_samples()},
          {"total_samples", Known(knows_budget, [&] { return facts.total_samples(); })},
          {"total_steps", Known(knows_budget, [&] { return facts.total_steps(); })},
          {"epochs", Known(facts.knows_samples(), [&] { return facts.epochs(); })},
          {"period", facts.period()},
          {"samples_per_update", SamplesPerUpdate(job)},
          {"synchronous", facts.synchronous()},
          {"elastic", facts.elastic()},
          {"optimizer", v1::Optimizer::Kind_Name(optimizer.kind())},
          {"implicit", contribution.has_gradient()},
          {"open_loop_minimum", Known(compensation.has_open_loop_momentum(),
                                      [&] { return compensation.open_loop_momentum().min_momentum(); })},
          {"closed_loop", compensation.has_closed_loop_momentum()},
          {"learning_rate", own.learning_rate},
          {"momentum", Known(own.momentum.has_value(), [&] { return *own.momentum; })},
          {"rate_at_expected_staleness", Known(rate.has_value(), [&] { return *rate; })},
          {"operations_per_sample", OperationsPerSample(facts)}};
}

Json JobToJson(const JobFacts& facts) {
  const ParameterLayout& layout = facts.layout();
  return {{"job", facts.job().name()},
          {"valid", true},
          {"servers", facts.servers()},
          {"workers", facts.workers()},
          {"parameters", layout.size()},
          {"bytes", layout.size() * sizeof(float)},
          {"budget", BudgetToJson(facts)},
          {"block",
           {{"kib", facts.job().block_kib()},
            {"parameters", layout.block_size()},
            {"count", CountBlocks(layout)}}},
          {"placement", PlacementToJson(layout)},
          {"tensors", TensorsToJson(layout)},
          {"groups", GroupsToJson(facts)},
          {"wire", WireToJson(facts)},
          {"memory", MemoryToJson(facts)},
          {"warnings", WarningsJson(AdviseJob(facts.job()))},
          {"version", 1},
          {"text", JobText(facts.job())},
          {"settings", SettingsToJson(facts.job())},
          {"facts", FactsToJson(facts)}};
}

}  // namespace catchment
