#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/advise/recommendations.h"
#include "common/text.h"
#include "simulation/simulated_server.h"

namespace catchment {
namespace {

constexpr int kWidth = 110;
constexpr char kHowToMeasure[] =
    "give --step, such as --step=lognormal:120ms:0.3, or the --out of a run that has trained for a minute";

std::string Efficiency(double efficiency) { return absl::StrFormat("%.2f", efficiency); }
std::string Paragraph(const std::string& head, const std::string& text) {
  return HangingParagraph(head, text, 2, kWidth);
}

std::string EvidenceText(const Evidence& evidence, const Recommendations& recommendations) {
  const Load load = LoadOf(evidence.job, evidence.parameters, evidence.exposed);
  Table table(/*has_head=*/false);
  table.Add({"step", evidence.step ? absl::StrCat(ToString(*evidence.step), ", ", evidence.step_source)
                                   : "not known"});
  for (const auto& [worker, times] : evidence.slow) {
    table.Add(
        {absl::StrCat("worker ", worker), absl::StrCat("steps of ", Short(times, 3), " times this time")});
  }
  table.Add({"network", absl::StrCat(ToString(evidence.network), ", ", evidence.network_source)});
  table.Add({"exchange", absl::StrCat(Bytes(load.sent), " to the servers and ", Bytes(load.received),
                                      " back, ", EverySteps(load.steps))});
  table.Add({"overlap", load.exposed >= 1 ? "none of the exchange with computing"
                                          : absl::StrCat("all of the exchange but ", Percent(load.exposed),
                                                         " with computing")});
  table.Add({"server", absl::StrFormat("%.0f us for a block of %d KiB, and %.1f ns for each byte",
                                       1e6 * kServerSecondsPerBlock, evidence.job.block_kib(),
                                       1e9 * kServerSecondsPerByte)});
  std::string text = absl::StrCat("The advice for ", evidence.subject, " rests on:\n", table.Print());
  if (evidence.measured && recommendations.scaling) {
    absl::StrAppend(
        &text,
        Paragraph("  ", absl::StrCat("Its workers computed ", Percent(evidence.measured->compute_share),
                                     " of their time; the model says ",
                                     Percent(recommendations.scaling->job.efficiency), ".")));
  }
  return text;
}

std::string Most(int workers) {
  if (workers == 0) return "none";
  return workers == ThroughputModel::kMostWorkers ? absl::StrCat("at least ", Count(workers))
                                                  : Count(workers);
}

std::string ScalingText(const Evidence& evidence, const Scaling& scaling) {
  const int workers = evidence.workers();
  const std::string mine = Plural(workers, "worker");
  std::string text = Paragraph(
      "Workers and servers: ",
      absl::StrCat(
          mine, " on ", Plural(evidence.servers, "server"), " with ", evidence.job.algorithm().preset(),
          " train ", Count(std::llround(scaling.samples_per_second)), " samples/s, ",
          Efficiency(scaling.job.efficiency), " of the rate without any waiting; most of the loss is ",
          ToString(scaling.job.limit), ". ",
          scaling.servers
              ? absl::StrCat(Plural(*scaling.servers, "server"), " would keep ", Efficiency(kEfficiency), ".")
              : absl::StrCat("More servers do not bring it to ", Efficiency(kEfficiency), ".")));
  Table table;
  table.Add({"servers", absl::StrCat("workers that keep ", Efficiency(kEfficiency)),
             absl::StrCat("efficiency of ", mine), "what limits more workers"});
  for (const ServerRow& row : scaling.rows) {
    table.Add({absl::StrCat(row.servers), Most(row.most_workers), Efficiency(row.job.efficiency),
               ToString(row.limit)});
  }
  return text + table.Print();
}

std::string UnknownScalingText(const Evidence& evidence, const Recommendations& recommendations) {
  const std::string setting =
      absl::StrCat(Plural(evidence.workers(), "worker"), " on ", Plural(evidence.servers, "server"));
  const std::string shortest =
      recommendations.shortest_step
          ? absl::StrCat(setting, " keep ", Efficiency(kEfficiency), " if a step takes at least ",
                         Duration(*recommendations.shortest_step), ".")
          : absl::StrCat(setting, " do not keep ", Efficiency(kEfficiency), ", however long a step is.");
  return Paragraph("Workers and servers: ",
                   absl::StrCat(shortest, " The time of a step is not known: ", kHowToMeasure, "."));
}

std::string MomentumText(const MomentumAdvice& advice) {
  std::string text;
  if (advice.take) {
    absl::StrAppend(&text, "take ", Short(*advice.take, 2), "; the job has ", Short(advice.job, 3), ". ");
  }
  absl::StrAppend(&text, advice.rule);
  if (advice.added > 0) {
    absl::StrAppend(&text, " Asynchrony adds tau / (1 + tau) = ", Short(advice.added, 2), " at the ",
                    advice.measured ? "measured" : "expected",
                    " mean staleness tau = ", Short(advice.staleness, 3), ".");
  }
  if (advice.rate_factor) {
    absl::StrAppend(&text, " With less momentum steps are smaller: try up to ", Short(*advice.rate_factor, 2),
                    " times the learning rate.");
  }
  return Paragraph("Momentum: ", text);
}

const char* ToString(BatchAdvice::Place place) {
  switch (place) {
    case BatchAdvice::kBelow:
      return "below";
    case BatchAdvice::kAbout:
      return "about at";
    case BatchAdvice::kAbove:
      return "above";
    case BatchAdvice::kUnknown:
      break;
  }
  return "unknown";
}

std::string ChangeText(const BatchAdvice::Change& change) {
  return absl::StrFormat("%.2f times the updates and %.2f times the samples", change.updates, change.samples);
}

std::string BatchText(const Evidence& evidence, const BatchAdvice& advice) {
  const std::string samples = Count(std::llround(advice.samples_per_update));
  if (!advice.noise_scale) {
    return Paragraph("Batch: ", absl::StrCat(samples,
                                             " samples in an update. Whether larger updates pay depends on "
                                             "the gradient noise scale, ",
                                             advice.reason));
  }
  const v1::GradientNoise& noise = *evidence.noise;
  std::string text = absl::StrCat(
      samples, " samples in an update are ", ToString(advice.place), " the gradient noise scale of ",
      Count(std::llround(*advice.noise_scale)), " (tr(S) / |G|^2 = ", Short(noise.trace(), 3), " / ",
      Short(noise.squared_gradient(), 3), ", measured in ", Plural(noise.updates(), "update"), "). ");
  const std::string twice =
      absl::StrCat("Twice as many would take ", ChangeText(advice.twice), " to the same loss");
  const std::string half = absl::StrCat("half as many ", ChangeText(advice.half));
  switch (advice.place) {
    case BatchAdvice::kBelow:
      absl::StrAppend(&text, "Larger batches or more workers pay. ", twice, ".");
      break;
    case BatchAdvice::kAbove:
      absl::StrAppend(&text, "Larger batches and more workers do not pay. ", twice, "; ", half, ".");
      break;
    default:
      absl::StrAppend(&text, "It is a compromise between time and samples. ", twice, "; ", half, ".");
  }
  return Paragraph("Batch: ", text);
}

std::string PresetsText(const Evidence& evidence, const std::vector<PresetAdvice>& presets) {
  std::string text = absl::StrCat("Presets to compare with ", Plural(evidence.workers(), "worker"), ":\n");
  Table table;
  table.Add({"preset", "samples/s", "efficiency", "staleness", "reason"});
  for (const PresetAdvice& preset : presets) {
    table.Add({preset.name, Count(std::llround(preset.samples_per_second)), Efficiency(preset.efficiency),
               Short(preset.staleness, 3), preset.reason});
  }
  absl::StrAppend(&text, table.Print());
  if (presets.size() == 1) {
    return text + Paragraph("  ", absl::StrCat("No other preset is predicted to train ", Short(kFaster, 2),
                                               " times as many samples a second."));
  }
  return text;
}

std::string NextCommand(const Evidence& evidence, const std::vector<PresetAdvice>& presets) {
  const std::string names = absl::StrJoin(
      presets, ",", [](std::string* out, const PresetAdvice& preset) { out->append(preset.name); });
  std::string command =
      absl::StrCat("catchment simulate ", evidence.job_file, " --algorithms=", names,
                   " --workers=", evidence.workers(), " --servers=", evidence.servers,
                   " --step=", ToString(*evidence.step), " --network=", ToString(evidence.network));
  for (const auto& [worker, times] : evidence.slow) {
    if (worker < evidence.job.workers()) {
      absl::StrAppend(&command, " --straggler=", worker, ":", Short(times, 3), "x");
    }
  }
  return absl::StrCat("Next:\n  ", command, " --out=sim\n");
}

nlohmann::ordered_json OrNull(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json ToJson(const Prediction& prediction) {
  return {{"efficiency", prediction.efficiency},
          {"contributions_per_second", prediction.contributions_per_second},
          {"exchange_seconds", prediction.exchange},
          {"others_seconds", prediction.others},
          {"limit", ToString(prediction.limit)}};
}

nlohmann::ordered_json ToJson(const Scaling& scaling) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ServerRow& row : scaling.rows) {
    rows.push_back({{"servers", row.servers},
                    {"most_workers", row.most_workers},
                    {"limit", ToString(row.limit)},
                    {"job", ToJson(row.job)}});
  }
  return {{"job", ToJson(scaling.job)},
          {"samples_per_second", scaling.samples_per_second},
          {"servers", scaling.servers ? nlohmann::ordered_json(*scaling.servers) : nlohmann::ordered_json()},
          {"rows", rows}};
}

nlohmann::ordered_json ToJson(const Evidence& evidence, const BatchAdvice& advice) {
  nlohmann::ordered_json json = {{"place", ToString(advice.place)},
                                 {"noise_scale", OrNull(advice.noise_scale)},
                                 {"noise_updates", nullptr},
                                 {"noise_trace", nullptr},
                                 {"noise_squared_gradient", nullptr},
                                 {"twice", nullptr},
                                 {"half", nullptr}};
  if (evidence.noise) {
    json["noise_updates"] = evidence.noise->updates();
    json["noise_trace"] = evidence.noise->trace();
    json["noise_squared_gradient"] = evidence.noise->squared_gradient();
  }
  if (!advice.noise_scale) return json;
  for (const auto& [name, change] : {std::pair("twice", advice.twice), std::pair("half", advice.half)}) {
    json[name] = {{"updates", change.updates}, {"samples", change.samples}};
  }
  return json;
}

}  // namespace

std::string AdviceText(const Evidence& evidence, const Recommendations& recommendations) {
  std::string text = absl::StrCat(EvidenceText(evidence, recommendations), "\n");
  absl::StrAppend(&text, recommendations.scaling ? ScalingText(evidence, *recommendations.scaling)
                                                 : UnknownScalingText(evidence, recommendations));
  absl::StrAppend(&text, "\n", MomentumText(recommendations.momentum), "\n");
  absl::StrAppend(&text, BatchText(evidence, recommendations.batch));
  if (recommendations.presets.empty()) return text;
  absl::StrAppend(&text, "\n", PresetsText(evidence, recommendations.presets));
  if (!evidence.job_file.empty()) {
    absl::StrAppend(&text, "\n", NextCommand(evidence, recommendations.presets));
  }
  return text;
}

nlohmann::ordered_json AdviceJson(const Evidence& evidence, const Recommendations& recommendations) {
  const Load load = LoadOf(evidence.job, evidence.parameters, evidence.exposed);
  nlohmann::ordered_json slow = nlohmann::ordered_json::array();
  for (const auto& [worker, times] : evidence.slow) slow.push_back({{"worker", worker}, {"times", times}});
  nlohmann::ordered_json json = {
      {"subject", evidence.subject},
      {"preset", evidence.job.algorithm().preset()},
      {"workers", evidence.workers()},
      {"servers", evidence.servers},
      {"evidence",
       {{"step", evidence.step ? nlohmann::ordered_json(ToString(*evidence.step)) : nlohmann::ordered_json()},
        {"step_source", evidence.step_source},
        {"slow_workers", slow},
        {"network", ToString(evidence.network)},
        {"network_source", evidence.network_source},
        {"bytes_sent", load.sent},
        {"bytes_received", load.received},
        {"steps", load.steps},
        {"blocks", load.blocks},
        {"exposed", load.exposed},
        {"compute_share",
         OrNull(evidence.measured ? std::optional(evidence.measured->compute_share) : std::nullopt)}}}};
  json["scaling"] = recommendations.scaling ? ToJson(*recommendations.scaling) : nlohmann::ordered_json();
  json["shortest_step_seconds"] = OrNull(recommendations.shortest_step);
  json["samples_per_update"] = recommendations.batch.samples_per_update;
  json["batch"] = ToJson(evidence, recommendations.batch);
  const MomentumAdvice& momentum = recommendations.momentum;
  json["momentum"] = {{"take", OrNull(momentum.take)}, {"job", momentum.job},
                      {"added", momentum.added},       {"staleness", momentum.staleness},
                      {"measured", momentum.measured}, {"rate_factor", OrNull(momentum.rate_factor)},
                      {"rule", momentum.rule}};
  json["presets"] = nlohmann::ordered_json::array();
  for (const PresetAdvice& preset : recommendations.presets) {
    json["presets"].push_back({{"preset", preset.name},
                               {"samples_per_second", preset.samples_per_second},
                               {"efficiency", preset.efficiency},
                               {"staleness", preset.staleness},
                               {"reason", preset.reason}});
  }
  return json;
}

}  // namespace catchment
