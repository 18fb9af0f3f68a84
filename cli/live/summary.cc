#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cli/live/status_text.h"
#include "common/base/text.h"

namespace catchment {
namespace {

// The most rows of the table; of more workers, the first and the last half of these are shown.
constexpr size_t kShownWorkers = 16;

using Format = std::function<std::string(double)>;

// Some fields of a summary, separated by commas. Leaves out those that are missing.
class Phrase {
 public:
  explicit Phrase(const nlohmann::json& summary) : summary_(summary) {}

  Phrase& Add(const std::string& key, const Format& format, const std::string& before = "",
              const std::string& after = "") {
    if (summary_.contains(key) && summary_[key].is_number()) {
      parts_.push_back(absl::StrCat(before, format(summary_[key].get<double>()), after));
    }
    return *this;
  }
  Phrase& AddText(const std::string& key) {
    const bool there = summary_.contains(key) && summary_[key].is_string();
    std::string text = there ? summary_[key].get<std::string>() : "";
    if (!text.empty()) parts_.push_back(std::move(text));
    return *this;
  }
  std::string Join() const { return absl::StrJoin(parts_, ", "); }

 private:
  const nlohmann::json& summary_;
  std::vector<std::string> parts_;
};

std::string Whole(double n) { return Count(std::llround(n)); }
std::string Four(double x) { return Short(x, 4); }
std::string Milliseconds(double microseconds) { return absl::StrCat(Short(microseconds / 1000, 3), " ms"); }
Format Many(const std::string& noun) {
  return [noun](double n) { return Plural(std::llround(n), noun); };
}

std::string Shares(const nlohmann::json& of, const std::string& prefix,
                   absl::Span<const char* const> suffixes, const Format& format) {
  std::vector<std::string> parts;
  for (const char* suffix : suffixes) {
    const auto found = of.find(prefix + suffix);
    if (found == of.end() || !found->is_number()) return "";
    parts.push_back(format(found->get<double>()));
  }
  return absl::StrJoin(parts, " / ");
}

PushCounts CountPushes(const nlohmann::json& worker) {
  const auto count = [&worker](const char* key) { return worker.value(key, int64_t{0}); };
  return {count("pushes_applied"),    count("pushes_waiting"),   count("pushes_late"),
          count("pushes_non_finite"), count("pushes_duplicate"), count("pushes_split")};
}

void AddWorker(const nlohmann::json& worker, Table* table) {
  constexpr const char* kQuantiles[] = {"_p50", "_p90", "_max"};
  constexpr const char* kGap[] = {"_mean", "_max"};
  const auto three = [](double x) { return Short(x, 3); };
  const PushCounts pushes = CountPushes(worker);
  table->Add({absl::StrCat(worker.value("worker", 0)), Count(pushes.applied), DescribeNotApplied(pushes),
              Shares(worker, "staleness", kQuantiles, Four),
              Shares(worker, "staleness_seconds", kQuantiles, Duration), Shares(worker, "gap", kGap, three)});
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

bool HasRecovered(const nlohmann::json& summary) {
  const auto found = summary.find("recoveries");
  return found != summary.end() && found->is_number() && *found != 0;
}

}  // namespace

std::string SummaryTable(const nlohmann::json& summary,
                         const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"algorithm", Phrase(summary).AddText("algorithm").Join()},
      {"processes", Phrase(summary).Add("servers", Many("server")).Add("workers", Many("worker")).Join()},
      {"device", Phrase(summary).AddText("device").Join()},
      {"trained", Phrase(summary)
                      .Add("epochs", Four, "", " epochs")
                      .Add("samples", Many("sample"))
                      .Add("updates", Many("update"))
                      .Join()},
      {"recovered", HasRecovered(summary)
                        ? Phrase(summary)
                              .Add("recoveries", Many("time"))
                              .Add("updates_computed_again", Many("update"), "", " computed again")
                              .Join()
                        : ""},
      {"time", Phrase(summary)
                   .Add("wall_seconds", Seconds)
                   .Add("samples_per_second", Whole, "", " samples/s")
                   .Join()},
      {"workers' time", TimeSplit(summary)},
      {"round trip", Phrase(summary)
                         .Add("round_trip_p50_us", Milliseconds, "p50 ")
                         .Add("round_trip_p99_us", Milliseconds, "p99 ")
                         .Join()},
      {"test accuracy", Phrase(summary).Add("test_accuracy", Percent).Join()},
      {"test loss", Phrase(summary).Add("test_loss", Four).Join()},
      {"best evaluation", Phrase(summary)
                              .Add("best_evaluation", Whole)
                              .Add("best_test_accuracy", Percent, "test accuracy ")
                              .Add("best_test_loss", Four, "test loss ")
                              .Add("best_at_samples", Many("sample"), "after ")
                              .Join()},
      {"staleness", Phrase(summary)
                        .Add("staleness_mean", Four, "mean ")
                        .Add("staleness_p50", Four, "p50 ")
                        .Add("staleness_p99", Four, "p99 ")
                        .Add("staleness_max", Four, "max ", " updates")
                        .Join()},
      {"in time", Phrase(summary)
                      .Add("staleness_seconds_p50", Duration, "p50 ")
                      .Add("staleness_seconds_p90", Duration, "p90 ")
                      .Add("staleness_seconds_max", Duration, "max ")
                      .Join()},
      {"gap", Phrase(summary).Add("gap_mean", Four, "mean ").Add("gap_max", Four, "max ").Join()},
      {"momentum", Phrase(summary)
                       .Add("momentum", Four, "", " set")
                       .Add("implicit_momentum", Four, "", " from asynchrony")
                       .Join()},
      {"noise scale", Phrase(summary).Add("noise_scale", Many("sample")).Join()},
      {IsPart(summary) ? "pushes since the last start" : "pushes",
       Phrase(summary)
           .Add("pushes_applied", Whole, "", " applied")
           .Add("pushes_waiting", Whole, "", " waiting")
           .Add("pushes_late", Whole, "", " late")
           .Add("pushes_non_finite", Whole, "", " not finite")
           .Add("pushes_duplicate", Whole, "", " duplicate")
           .Add("pushes_split", Whole, "", " late in part")
           .Join()},
      {"quorum", Phrase(summary)
                     .Add("merged_mean", Four, "", " contributions in an update")
                     .Add("closed_by_all", Whole, "closed by all ")
                     .Add("closed_by_grace", Whole, "by the grace ")
                     .Add("closed_by_loss", Whole, "by a loss ")
                     .Join()},
      {"on the wire", Phrase(summary)
                          .Add("bytes_pushed", Bytes, "", " pushed")
                          .Add("bytes_pulled", Bytes, "", " pulled")
                          .Join()},
      {"ended", Phrase(summary).AddText("phase").AddText("reason").AddText("ended_early").Join()},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  Table table(/*has_head=*/false);
  for (const auto& [name, value] : rows) {
    if (!value.empty()) table.Add({name, value});
  }
  return table.Print();
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
