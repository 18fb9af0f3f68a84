#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/live/status_text.h"
#include "common/base/text.h"
#include "common/measures/phrases.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// The most rows of the table; of more workers, the first and the last half of these are shown.
constexpr size_t kShownWorkers = 16;

void AddWorker(const Json& worker, Table* table) {
  table->Add({absl::StrCat(worker.value("worker", 0)), Count(worker.value("pushes_applied", 0)),
              Phrase(kNotApplied, worker, /*zeros=*/false),
              Phrase("{staleness_p50} / {staleness_p90} / {staleness_max}", worker),
              Phrase("{staleness_seconds_p50} / {staleness_seconds_p90} / {staleness_seconds_max}", worker),
              Phrase("{gap_mean} / {gap_max}", worker)});
}

// Returns the shares of the time of all workers; empty if one is missing.
std::string TimeSplit(const nlohmann::json& summary) {
  constexpr std::pair<const char*, const char*> kParts[] = {{"compute_seconds", "computing"},
                                                            {"push_seconds", "waiting to push"},
                                                            {"pull_seconds", "for weights"},
                                                            {"data_seconds", "for data"}};
  double all = 0;
  for (const auto& [key, words] : kParts) {
    if (!summary.contains(key) || !summary[key].is_number()) return "";
    all += summary[key].get<double>();
  }
  std::vector<std::string> shares;
  for (const auto& [key, words] : kParts) {
    shares.push_back(absl::StrFormat("%.1f %% %s", 100 * summary[key].get<double>() / all, words));
  }
  return all > 0 ? absl::StrJoin(shares, ", ") : "";
}

// Returns true if servers were started after the job's beginning, so that they have counted only a part of
// it.
bool IsPart(const nlohmann::json& summary) {
  const auto computed = summary.find("computed_samples");
  return computed != summary.end() && computed->is_number() && *computed < summary.value("samples", 0.0);
}

}  // namespace

namespace {

// Returns "done", "stopped" or "failed".
std::string Outcome(const nlohmann::json& summary) {
  return absl::AsciiStrToLower(summary.value("phase", ""));
}

std::string PrintRows(absl::Span<const PhraseRow> rows, const nlohmann::json& summary, const Json& facts,
                      const Rows& more) {
  Table table(/*has_head=*/false);
  for (const PhraseRow& row : rows) {
    const std::string value = Phrase(row, facts);
    const bool part = row.name == std::string("pushes") && IsPart(summary);
    if (!value.empty()) table.Add({part ? "pushes since the last start" : row.name, value});
  }
  for (const auto& [name, value] : more) {
    if (!value.empty()) table.Add({name, value});
  }
  return table.Print();
}

}  // namespace

std::string SummaryTable(const nlohmann::json& summary, const Rows& more) {
  Json facts = summary;
  facts["time_split"] = TimeSplit(summary);
  facts["outcome"] = Outcome(summary);
  return PrintRows(SummaryRows(), summary, facts, more);
}

std::string ResultTable(const nlohmann::json& summary, const Rows& more) {
  Json facts = summary;
  facts["outcome"] = Outcome(summary);
  const bool is_best = facts["best_test_accuracy"] == facts["test_accuracy"];
  if (is_best) facts.erase("best_test_accuracy");
  return PrintRows(ResultRows(), summary, facts, more);
}

std::string WorkerTable(const nlohmann::json& summary) {
  const auto workers = summary.find("per_worker");
  if (workers == summary.end() || !workers->is_array() || workers->empty()) return "";
  Table table;
  table.Add({"worker", "applied", "not applied", "staleness p50 / p90 / max", "in time", "gap mean / max"});
  const size_t count = workers->size();
  for (size_t i = 0; i < count; ++i) {
    const bool shown = count <= kShownWorkers || i < kShownWorkers / 2 || i >= count - kShownWorkers / 2;
    if (shown) {
      AddWorker((*workers)[i], &table);
    } else if (i == kShownWorkers / 2) {
      table.Add({"...", "", "", "", "", ""});
    }
  }
  return table.Print();
}

}  // namespace catchment
