#include "cli/report/findings.h"
#include "cli/report/report.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// The version of the schema.
constexpr int kSchema = 2;

Json OrNull(const std::optional<double>& value) { return value.has_value() ? Json(*value) : Json(); }

// 0: not known, or not the same for all runs.
Json OrNull(int number) { return number == 0 ? Json() : Json(number); }

Json ToJson(const Spread& spread) {
  if (spread.n == 0) return Json();
  return {{"runs", spread.n}, {"mean", spread.mean}, {"low", spread.low}, {"high", spread.high}};
}

Json ToJson(const Ratio& ratio) {
  return {{"value", ratio.value},
          {"low", ratio.has_interval ? Json(ratio.low) : Json()},
          {"high", ratio.has_interval ? Json(ratio.high) : Json()},
          {"beyond_noise", ratio.has_interval ? Json(ratio.beyond_noise()) : Json()}};
}

Json ToJson(const std::optional<Ratio>& ratio) { return ratio.has_value() ? ToJson(*ratio) : Json(); }

Json ToJson(const std::optional<Machine>& machine) {
  if (!machine.has_value()) return Json();
  return {{"processor", machine->processor},
          {"processors", machine->processors},
          {"memory_bytes", machine->memory_bytes},
          {"system", machine->system}};
}

Json ToJson(const AlgorithmFacts& facts) {
  return {{"algorithm", facts.name}, {"synchronous", facts.synchronous}, {"optimizer", facts.optimizer}};
}

Json ToJson(const Comparison& comparison, const Standing& standing) {
  const double cost = SearchCost(comparison, standing.algorithm, standing.workers);
  return {{"algorithm", standing.algorithm},
          {"workers", standing.workers},
          {"runs", standing.runs},
          {"reached", standing.seconds.size()},
          {"seconds_to_target", ToJson(SpreadOf(standing.seconds))},
          {"samples_to_target", ToJson(SpreadOf(standing.samples))},
          {"test_accuracy", ToJson(SpreadOf(standing.accuracies))},
          {"test_loss", ToJson(SpreadOf(standing.losses))},
          {"samples_per_second", ToJson(SpreadOf(standing.throughputs))},
          {"learning_rate", standing.learning_rate},
          {"momentum", OrNull(standing.momentum)},
          {"search_cost", cost > 0 ? Json(cost) : Json()}};
}

Json ToJson(const SearchTrialResult& trial) {
  const RunResult& run = trial.run;
  return {{"algorithm", run.algorithm},
          {"workers", run.workers},
          {"seed", run.seed},
          {"rung", trial.rung},
          {"share", trial.share},
          {"learning_rate", run.learning_rate},
          {"momentum", OrNull(run.momentum)},
          {"directory", run.directory},
          {"done", run.done},
          {"diverged", run.diverged},
          {"reason", run.reason},
          {"test_accuracy", OrNull(run.accuracy)},
          {"test_loss", OrNull(run.loss)},
          {"chosen", trial.chosen}};
}

const char* Name(Duel::Measure measure) {
  if (measure == Duel::kSecondsToTarget) return "seconds_to_target";
  return measure == Duel::kSamplesToTarget ? "samples_to_target" : "errors";
}

Json ToJson(const Duel& duel) {
  Json winner;
  if (duel.synchronous_wins()) winner = "synchronous";
  if (duel.asynchronous_wins()) winner = "asynchronous";
  return {{"measure", Name(duel.measure)},
          {"workers", duel.workers},
          {"synchronous", duel.synchronous},
          {"asynchronous", duel.asynchronous},
          {"synchronous_over_asynchronous", ToJson(duel.ratio)},
          {"winner", winner}};
}

Json AnswerJson(const Comparison& comparison, const Findings& findings) {
  const std::vector<const Standing*> standings = findings.With(findings.workers);
  const bool won = !standings.empty() && standings.front()->reached();
  return {{"sentence", Answer(comparison, findings)},
          {"where_synchronous_wins", WhereSynchronousWins(findings)},
          {"workers", findings.workers},
          {"first", won ? Json(standings.front()->algorithm) : Json()},
          {"second", findings.lead.has_value() ? Json(standings[1]->algorithm) : Json()},
          {"second_over_first", ToJson(findings.lead)},
          {"synchronous_over_first", ToJson(findings.lead_over_synchronous)}};
}

Json SeriesOf(const RunResult& run) {
  Json series = Json::array();
  for (const TestScore& score : run.scores) {
    series.push_back({{"seconds", score.seconds},
                      {"samples", score.samples},
                      {"test_accuracy", score.accuracy},
                      {"test_loss", score.loss}});
  }
  return series;
}

Json StalenessOf(const RunResult& run) {
  Json counts = Json::array();
  for (const auto& [value, count] : run.staleness) counts.push_back({value, count});
  return {{"mean", run.staleness_mean},
          {"p50", run.staleness_p50},
          {"p99", run.staleness_p99},
          {"max", run.staleness_max},
          {"counts", counts}};
}

Json MomentumJson(const Comparison& comparison, const RunResult& run) {
  for (const AlgorithmFacts& facts : comparison.algorithms) {
    if (facts.name != run.algorithm) continue;
    const Momentum momentum = MomentumOf(facts, run.momentum, run.staleness_mean);
    return {{"given", OrNull(momentum.given)}, {"implicit", OrNull(momentum.implicit)}};
  }
  return Json();
}

Json RunJson(const Comparison& comparison, const Findings& findings, const RunResult& run) {
  const std::optional<Crossing> crossing =
      findings.target > 0 ? FirstReached(run.scores, findings.target) : std::nullopt;
  return {{"algorithm", run.algorithm},
          {"workers", run.workers},
          {"seed", run.seed},
          {"directory", run.directory},
          {"done", run.done},
          {"diverged", run.diverged},
          {"reason", run.reason},
          {"device", run.device},
          {"wall_seconds", run.seconds},
          {"samples", run.samples},
          {"updates", run.updates},
          {"samples_per_second", run.samples_per_second},
          {"test_accuracy", OrNull(run.accuracy)},
          {"test_loss", OrNull(run.loss)},
          {"seconds_to_target", crossing.has_value() ? Json(crossing->seconds) : Json()},
          {"samples_to_target", crossing.has_value() ? Json(crossing->samples) : Json()},
          {"staleness", StalenessOf(run)},
          {"worker_seconds",
           {{"compute", run.compute_seconds},
            {"push", run.push_seconds},
            {"pull", run.pull_seconds},
            {"data", run.data_seconds}}},
          {"goodput", OrNull(run.goodput)},
          {"uptime", OrNull(run.uptime)},
          {"bytes_pushed", run.bytes_pushed},
          {"bytes_pulled", run.bytes_pulled},
          {"momentum", MomentumJson(comparison, run)},
          {"series", SeriesOf(run)}};
}

}  // namespace

Json ReportJson(const Comparison& comparison, const Findings& findings) {
  Json report;
  report["schema"] = kSchema;
  report["command"] = comparison.command;
  report["version"] = comparison.version;
  report["job_name"] = comparison.job_name;
  report["budget"] = comparison.budget.empty() ? Json() : Json(comparison.budget);
  report["stragglers"] = comparison.stragglers;
  report["servers"] = OrNull(comparison.servers);
  report["threads"] = OrNull(comparison.threads);
  report["seeds"] = comparison.seeds;
  report["workers"] = comparison.workers;
  report["machine"] = ToJson(comparison.machine);
  report["simulated"] = comparison.simulated.empty() ? Json() : Json(comparison.simulated);
  for (const AlgorithmFacts& facts : comparison.algorithms) report["algorithms"].push_back(ToJson(facts));
  report["target"] = {{"test_accuracy", findings.target > 0 ? Json(findings.target) : Json()},
                      {"given", findings.target_given}};
  report["answer"] = AnswerJson(comparison, findings);
  report["duels"] = Json::array();
  for (const Duel& duel : findings.duels) report["duels"].push_back(ToJson(duel));
  report["standings"] = Json::array();
  for (const Standing& standing : findings.standings)
    report["standings"].push_back(ToJson(comparison, standing));
  report["runs"] = Json::array();
  for (const RunResult& run : comparison.runs) report["runs"].push_back(RunJson(comparison, findings, run));
  report["left_out"] = Json::array();
  for (const LeftOutPair& pair : comparison.left_out) {
    report["left_out"].push_back(
        {{"algorithm", pair.algorithm}, {"workers", pair.workers}, {"reason", pair.reason}});
  }
  report["search"] = Json::array();
  for (const SearchTrialResult& trial : comparison.searched) report["search"].push_back(ToJson(trial));
  report["job"] = comparison.job;
  return report;
}

}  // namespace catchment
