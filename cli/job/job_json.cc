#include "cli/job/job_explanation.h"
#include "cli/live/advice.h"
#include "cli/live/status_text.h"

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
                       {"total", bytes.total()}});
  }
  const WorkerBytes worker = facts.worker();
  return {{"servers", std::move(servers)},
          {"worker", {{"model", worker.model}, {"algorithm", worker.algorithm}, {"total", worker.total()}}}};
}

}  // namespace

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
          {"wire", WireToJson(facts)},
          {"memory", MemoryToJson(facts)},
          {"warnings", WarningsJson(AdviseJob(facts.job()))}};
}

}  // namespace catchment
