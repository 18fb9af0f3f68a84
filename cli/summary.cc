#include "cli/summary.h"

#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/text.h"

namespace catchment {
namespace {

using Format = std::function<std::string(double)>;

// Some fields of a summary as one phrase; those that are missing leave no trace.
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
    if (there && summary_[key] != "") parts_.push_back(summary_[key].get<std::string>());
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

// Of all workers together.
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

}  // namespace

absl::StatusOr<nlohmann::json> ParseSummary(const std::string& text, const std::string& file) {
  nlohmann::json summary = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return absl::InvalidArgumentError(absl::StrCat(file, " is not a JSON object"));
  return summary;
}

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
      {"staleness", Phrase(summary)
                        .Add("staleness_mean", Four, "mean ")
                        .Add("staleness_p50", Four, "p50 ")
                        .Add("staleness_p99", Four, "p99 ")
                        .Add("staleness_max", Four, "max ", " updates")
                        .Join()},
      {"pushes", Phrase(summary)
                     .Add("pushes_applied", Whole, "", " applied")
                     .Add("pushes_late", Whole, "", " late")
                     .Add("pushes_non_finite", Whole, "", " with NaN or infinity")
                     .Add("pushes_duplicate", Whole, "", " duplicate")
                     .Join()},
      {"on the wire", Phrase(summary)
                          .Add("bytes_pushed", Bytes, "", " pushed")
                          .Add("bytes_pulled", Bytes, "", " pulled")
                          .Join()},
      {"ended", Phrase(summary).AddText("phase").AddText("reason").Join()},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  Table table(/*has_head=*/false);
  for (const auto& [name, value] : rows) {
    if (!value.empty()) table.Add({name, value});
  }
  return table.Print();
}

}  // namespace catchment
