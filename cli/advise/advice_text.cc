#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/advise/recommendations.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr int kWidth = 110;

std::string Share(double share) { return absl::StrFormat("%.2f", share); }
std::string Paragraph(const std::string& head, const std::string& text) {
  return HangingParagraph(head, text, 2, kWidth);
}

std::string EvidenceText(const Evidence& evidence, const Trials& trials) {
  Table table(/*has_head=*/false);
  table.Add({"step", absl::StrCat(ToString(*evidence.step), ", ", evidence.step_source)});
  for (const auto& [worker, times] : evidence.slow) {
    table.Add(
        {absl::StrCat("worker ", worker), absl::StrCat("steps of ", Short(times, 3), " times this time")});
  }
  table.Add({"network", absl::StrCat(ToString(evidence.network), ", ", evidence.network_source)});
  table.Add({"trained", trials.model});
  table.Add({"samples", Count(trials.samples)});
  return absl::StrCat("The advice for ", evidence.subject, " rests on simulations:\n", table.Print());
}

std::string SettingsText(const Candidate& candidate) {
  return absl::StrCat(
      candidate.momentum ? absl::StrCat("momentum ", Short(*candidate.momentum, 3), ", ") : "",
      "learning rate ", Short(candidate.learning_rate, 3));
}

// Returns the preset's name, and which settings differ from the preset's own.
std::string NameOf(const Candidate& candidate) {
  switch (candidate.settings) {
    case Candidate::kJob:
      return absl::StrCat(candidate.preset, ", the job's settings");
    case Candidate::kBounded:
      return absl::StrCat(candidate.preset, ", the job's with a bounded rate");
    default:
      return candidate.preset;
  }
}

std::string SureText(const Trials& trials) {
  if (trials.quadratic) {
    return "That is not certain: a quadratic function shows stability and waiting, "
           "not the accuracy of the model.";
  }
  if (trials.sure && trials.recommended == 1) {
    return absl::StrCat("That is certain as far as ", kSeeds,
                        " seeds show: nothing else ends as high with this budget.");
  }
  return trials.sure ? absl::StrCat("That is certain as far as ", kSeeds,
                                    " seeds show: it was the fastest with each.")
                     : absl::StrCat("That is not certain: with some of ", kSeeds,
                                    " seeds it ended lower, or another of the best was faster.");
}

std::string RecommendationText(const Evidence& evidence, const Trials& trials) {
  const std::string workers = Plural(evidence.workers(), "worker");
  if (trials.recommended == 0) {
    return Paragraph("Use: ",
                     absl::StrCat("nothing that was tried trains with ", workers,
                                  ": all runs diverged. Use fewer workers or a smaller learning rate."));
  }
  const Trial& first = trials.trials[0];
  return Paragraph("Use: ",
                   absl::StrCat(NameOf(first.candidate), " with ", SettingsText(first.candidate), ". With ",
                                workers, " it reached ", Percent(trials.target), " after ",
                                Duration(first.SecondsTo(trials.target).value_or(0)), ", and ",
                                Percent(first.accuracy()), " at the end. ", SureText(trials)));
}

std::string WaitingText(const Trials& trials) {
  const Trial* const sync = trials.Find("sync");
  if (sync == nullptr || sync->waiting() <= kMuchWaiting) return "";
  std::vector<std::string> named, others;
  for (const char* name : {"local_sgd", "diloco"}) {
    const Trial* const trial = trials.Find(name);
    if (trial == nullptr) continue;
    const bool trained = trial->accuracy() >= trials.target;
    (trained ? named : others).push_back(absl::StrCat(name, " (", Percent(trial->waiting()), ")"));
  }
  std::string text =
      absl::StrCat("the workers of sync wait for ", Percent(sync->waiting()), " of their time");
  if (!named.empty()) {
    absl::StrAppend(&text, "; ", absl::StrJoin(named, " and "),
                    " exchange only every few steps, and end as high as the best");
  } else if (!others.empty()) {
    absl::StrAppend(&text,
                    "; presets that exchange only every few steps wait less, but end lower with this budget");
  }
  return Paragraph("Waiting: ", absl::StrCat(text, "."));
}

std::string TrialsText(const Trials& trials) {
  Table table;
  table.Add({"", "preset", "momentum", "learning rate", "accuracy",
             absl::StrCat("seconds to ", Percent(trials.target)), "waiting", "staleness"});
  for (size_t i = 0; i < trials.trials.size(); ++i) {
    const Trial& trial = trials.trials[i];
    const std::optional<double> seconds = trial.SecondsTo(trials.target);
    table.Add({i < trials.recommended ? "*" : "", NameOf(trial.candidate),
               trial.candidate.momentum ? Short(*trial.candidate.momentum, 3) : "",
               Short(trial.candidate.learning_rate, 3),
               trial.diverged() ? "diverged" : Percent(trial.accuracy()), seconds ? Short(*seconds, 3) : "",
               Percent(trial.waiting()), Short(trial.runs.front().staleness_mean, 3)});
  }
  return absl::StrCat("Tried (*: recommended):\n", table.Print());
}

std::string ScalingText(const Evidence& evidence, const Scaling& scaling) {
  std::vector<std::string> rows;
  for (const ServerRow& row : scaling.rows) {
    rows.push_back(absl::StrCat(Share(row.computing), " with ", Plural(row.servers, "server")));
  }
  return Paragraph(
      "Servers: ",
      absl::StrCat("with ", evidence.job.algorithm().preset(), " the share of time that workers compute is ",
                   absl::StrJoin(rows, ", "), ". ",
                   scaling.servers
                       ? absl::StrCat(Plural(*scaling.servers, "server"), " would keep it at ",
                                      Share(kEfficiency), ".")
                       : absl::StrCat("More servers do not raise it to ", Share(kEfficiency), ".")));
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
                                             " samples in an update. Whether larger updates pay "
                                             "depends on the gradient noise scale, ",
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

std::string NextCommand(const Evidence& evidence, const Trials& trials) {
  const Candidate& first = trials.trials[0].candidate;
  std::string command = absl::StrCat("catchment train ", evidence.job_file, " --workers=", evidence.workers(),
                                     " --servers=", evidence.servers);
  if (first.settings == Candidate::kPreset) {
    absl::StrAppend(&command, " --set algorithm={preset:'", first.preset, "'}");
    if (evidence.own_optimizer) absl::StrAppend(&command, " --set optimizer={}");
  } else if (first.settings == Candidate::kBounded) {
    absl::StrAppend(&command, " --set optimizer.learning_rate=", Short(first.learning_rate));
  }
  return absl::StrCat("Next:\n  ", command, " --out=out\n");
}

nlohmann::ordered_json OrNull(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
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

nlohmann::ordered_json ToJson(const Trials& trials, size_t index) {
  const Trial& trial = trials.trials[index];
  nlohmann::ordered_json accuracies = nlohmann::ordered_json::array();
  for (const RunResult& run : trial.runs) {
    accuracies.push_back(run.diverged ? nlohmann::ordered_json() : OrNull(run.accuracy));
  }
  return {
      {"preset", trial.candidate.preset},
      {"settings", ToString(trial.candidate.settings)},
      {"learning_rate", trial.candidate.learning_rate},
      {"momentum", OrNull(trial.candidate.momentum)},
      {"recommended", index < trials.recommended},
      {"diverged", trial.diverged()},
      {"accuracy", trial.diverged() ? nlohmann::ordered_json() : nlohmann::ordered_json(trial.accuracy())},
      {"accuracies", accuracies},
      {"seconds_to_target", OrNull(trial.SecondsTo(trials.target))},
      {"samples_per_second", trial.runs.front().samples_per_second},
      {"waiting", trial.waiting()},
      {"staleness", trial.runs.front().staleness_mean}};
}

nlohmann::ordered_json ToJson(const Trials& trials) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = 0; i < trials.trials.size(); ++i) rows.push_back(ToJson(trials, i));
  nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
  for (const LeftOutPreset& one : trials.left_out) {
    left_out.push_back({{"preset", one.preset}, {"reason", one.reason}});
  }
  return {{"quadratic", trials.quadratic}, {"model", trials.model}, {"samples", trials.samples},
          {"target", trials.target},       {"rows", rows},          {"left_out", left_out}};
}

}  // namespace

std::string AdviceText(const Evidence& evidence, const Recommendations& recommendations) {
  const Trials& trials = recommendations.trials;
  std::string text = absl::StrCat(RecommendationText(evidence, trials), WaitingText(trials), "\n",
                                  TrialsText(trials), "\n", EvidenceText(evidence, trials), "\n");
  if (evidence.measured) {
    absl::StrAppend(
        &text, Paragraph("  ", absl::StrCat("The workers of the run computed ",
                                            Percent(evidence.measured->compute_share), " of their time.")));
  }
  absl::StrAppend(&text, ScalingText(evidence, recommendations.scaling),
                  BatchText(evidence, recommendations.batch));
  if (!evidence.job_file.empty() && trials.recommended > 0) {
    absl::StrAppend(&text, "\n", NextCommand(evidence, trials));
  }
  return text;
}

nlohmann::ordered_json AdviceJson(const Evidence& evidence, const Recommendations& recommendations) {
  const Trials& trials = recommendations.trials;
  nlohmann::ordered_json slow = nlohmann::ordered_json::array();
  for (const auto& [worker, times] : evidence.slow) slow.push_back({{"worker", worker}, {"times", times}});
  nlohmann::ordered_json json = {
      {"subject", evidence.subject},
      {"preset", evidence.job.algorithm().preset()},
      {"workers", evidence.workers()},
      {"servers", evidence.servers},
      {"evidence",
       {{"step", ToString(*evidence.step)},
        {"step_source", evidence.step_source},
        {"slow_workers", slow},
        {"network", ToString(evidence.network)},
        {"network_source", evidence.network_source},
        {"compute_share",
         OrNull(evidence.measured ? std::optional(evidence.measured->compute_share) : std::nullopt)}}}};
  json["sure"] = trials.sure;
  json["recommended"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < trials.recommended; ++i) json["recommended"].push_back(ToJson(trials, i));
  const Trial* const sync = trials.Find("sync");
  json["sync_waiting"] = OrNull(sync == nullptr ? std::nullopt : std::optional(sync->waiting()));
  json["trials"] = ToJson(trials);
  json["scaling"] = {
      {"servers", recommendations.scaling.servers ? nlohmann::ordered_json(*recommendations.scaling.servers)
                                                  : nlohmann::ordered_json()},
      {"rows", nlohmann::ordered_json::array()}};
  for (const ServerRow& row : recommendations.scaling.rows) {
    json["scaling"]["rows"].push_back({{"servers", row.servers}, {"computing", row.computing}});
  }
  json["samples_per_update"] = recommendations.batch.samples_per_update;
  json["batch"] = ToJson(evidence, recommendations.batch);
  return json;
}

}  // namespace catchment
