#include "cli/live/status_text.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/live/advice.h"
#include "cli/live/progress.h"
#include "common/base/text.h"
#include "common/measures/phrases.h"
#include "common/measures/progress_lines.h"
#include "common/program/screen_text.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// The most rows of a table; of more members or shards, the first and the last half of these are shown.
constexpr size_t kShownRows = 32;
constexpr int kShownEvents = 6;
constexpr int kHostColumns = 16;
constexpr int kMinDeviceColumns = 4;
constexpr int kProseColumns = 100;  // the most of a paragraph
constexpr size_t kTrendColumns = 60;
constexpr int kNameColumns = 15;

int WidthOf(int columns) { return columns > 0 ? std::min(columns, kProseColumns) : kProseColumns; }

std::string Head(const v1::JobStatus& status) {
  return absl::StrCat(status.job(), " (", status.settings().algorithm().preset(), "), ",
                      DescribePhase(status));
}

// ------------------------------------------------------------------------------------------------ the job

// Returns the shares of a quorum's updates by what ended the wait for contributions.
std::string QuorumEnds(const Json& facts) {
  if (facts["merged_mean"].is_null()) return "";
  const double all = facts["closed_by_all"], grace = facts["closed_by_grace"], loss = facts["closed_by_loss"];
  const auto share = [&](double updates) { return Percent(updates / (all + grace + loss)); };
  return absl::StrCat(share(all), " of the updates closed by all, ", share(grace), " by the grace, ",
                      share(loss), " by a loss");
}

// Names the workers whose payloads stay in shared memory, instead of being sent.
std::string SharingWorkers(const Json& workers) {
  std::vector<uint32_t> sharing;
  for (const Json& worker : workers)
    if (worker["shared_memory_servers"] > 0) sharing.push_back(worker["worker"]);
  if (sharing.empty()) return "";
  if (sharing.size() == workers.size()) return "payloads of all workers";
  if (sharing.size() > kShownRows) return absl::StrCat("payloads of ", sharing.size(), " workers");
  return absl::StrCat("payloads of worker ", absl::StrJoin(sharing, ", "));
}

std::string NamedRow(const std::string& name, const std::string& value, int columns) {
  std::string head = absl::StrCat("  ", name);
  head.resize(kNameColumns, ' ');
  return HangingParagraph(head, value, kNameColumns, WidthOf(columns));
}

std::string JobTable(const v1::JobStatus& status, Json facts, int columns) {
  facts["quorum_ends"] = QuorumEnds(facts);
  facts["in_memory"] = SharingWorkers(facts["workers"]);
  // Loaders may also be busy with data that they make.
  if (facts["bytes_read"] != 0) facts["loader_threads"] = status.settings().data().loader_threads();
  facts["checkpoint"] = !status.writes_checkpoints()         ? "none are written"
                        : facts["last_checkpoint"].is_null() ? "none yet"
                                                             : Phrase("{last_checkpoint}", facts);
  facts["security"] =
      status.insecure()
          ? "INSECURE: connections over the network are neither encrypted nor authenticated (--insecure)"
          : "";
  std::string text;
  for (const PhraseRow& row : StatusRows()) {
    const std::string value = Phrase(row, facts);
    if (!value.empty()) text += NamedRow(row.name, value, columns);
  }
  return text;
}

// Returns a column for each of the last values, between the least and the greatest of them.
std::string Sparkline(const std::vector<double>& values, size_t columns) {
  static constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto begin = values.end() - static_cast<std::ptrdiff_t>(std::min(values.size(), columns));
  const auto [least, greatest] = std::minmax_element(begin, values.end());
  const double range = *greatest - *least;
  std::string line;
  for (auto value = begin; value != values.end(); ++value)
    line += kHeights[range > 0 ? static_cast<size_t>(7 * (*value - *least) / range + 0.5) : 3];
  return line;
}

// ------------------------------------------------------------------------------------- members and shards

std::string OrUnknown(const std::string& text) { return text.empty() ? "-" : text; }

// Returns "93/2/4/1 %".
std::string TimeSplit(const Json& worker) {
  std::vector<std::string> percents;
  for (const char* share : {"compute_share", "push_share", "pull_share", "data_share"}) {
    if (worker[share].is_null()) return "-";
    percents.push_back(Count(std::llround(100 * worker[share].get<double>())));
  }
  return absl::StrJoin(percents, "/") + " %";
}

using Rows = std::vector<std::vector<std::string>>;

int LongestLine(const std::string& text) {
  int longest = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    longest = std::max(longest, ShownColumns(line));
  return longest;
}

std::string PrintRows(const Rows& rows) {
  Table table;
  for (const std::vector<std::string>& row : rows) table.Add(row);
  return table.Print();
}

// Leaves out the last columns if they do not fit, and says so.
std::string PrintFitting(Rows rows, int columns) {
  std::string text = PrintRows(rows);
  std::vector<std::string> left_out;
  while (columns > 0 && LongestLine(text) > columns && rows.front().size() > 2) {
    left_out.insert(left_out.begin(), rows.front().back());
    const size_t kept = rows.front().size() - 1;
    for (std::vector<std::string>& row : rows) row.resize(std::min(row.size(), kept));
    text = PrintRows(rows);
  }
  if (left_out.empty()) return text;
  return text +
         HangingParagraph("  ", absl::StrCat("no room for: ", absl::StrJoin(left_out, ", ")), 4, columns);
}

// Returns the head, and a row for each element of the list; of many, of the first and the last ones.
template <typename Row>
Rows RowsOf(const Json& list, std::vector<std::string> head, Row row) {
  Rows rows = {std::move(head)};
  const size_t count = list.size();
  for (size_t i = 0; i < count; ++i) {
    if (count <= kShownRows || i < kShownRows / 2 || i >= count - kShownRows / 2) {
      rows.push_back(row(list[i]));
    } else if (i == kShownRows / 2) {
      rows.push_back({"", "..."});
    }
  }
  return rows;
}

// On a terminal cuts long hosts, and gives the device the columns that are left.
std::string WorkerTable(const Json& workers, int columns) {
  const auto row = [columns](const Json& worker) -> std::vector<std::string> {
    return {absl::StrCat(worker["worker"].get<uint32_t>()),
            OrUnknown(Phrase("{samples_per_second}", worker)),
            OrUnknown(Phrase("{staleness_mean}/{staleness_p50}/{staleness_p99}/{staleness_max}", worker)),
            TimeSplit(worker),
            Seconds(worker["seconds_since_heartbeat"]),
            FitLine(worker["host"], columns > 0 ? kHostColumns : 0),
            absl::StrCat(worker["pid"].get<uint32_t>()),
            worker["device"].get<std::string>()};
  };
  Rows rows = RowsOf(workers,
                     {"worker", "samples/s", "staleness", "time", "heartbeat", "host", "pid", "device"}, row);
  Rows others = rows;
  for (std::vector<std::string>& one : others) one.resize(std::min(one.size(), rows.front().size() - 1));
  const int left = columns - LongestLine(PrintRows(others)) - 2;
  for (size_t i = 1; i < rows.size() && columns > 0; ++i)
    if (rows[i].size() == rows[0].size())
      rows[i].back() = FitLine(rows[i].back(), std::max(kMinDeviceColumns, left));
  return PrintFitting(std::move(rows), columns);
}

std::string Members(const Json& facts, int columns) {
  const Json& workers = facts["workers"];
  const std::string evaluators = Phrase("{evaluators:evaluator}", facts, /*zeros=*/false);
  const std::string text = absl::StrCat(
      "workers: ", workers.size(), Phrase(" of {planned_workers}", facts), ", ",
      evaluators.empty() ? "no evaluator" : evaluators,
      workers.empty() ? ""
                      : "; staleness mean/p50/p99/max in updates, time "
                        "computing/pushing/pulling/waiting for data, time since the last heartbeat");
  return absl::StrCat("\n", HangingParagraph("", text, 2, WidthOf(columns)),
                      workers.empty() ? "" : WorkerTable(workers, columns));
}

std::string Shards(const Json& shards, int columns) {
  const auto row = [](const Json& shard) -> std::vector<std::string> {
    const std::string address = Phrase("{address}", shard);
    return {absl::StrCat(shard["shard"].get<uint32_t>()),
            Phrase("{parameters}", shard),
            Phrase("{version}", shard),
            Phrase("{bytes_pushed}", shard),
            Phrase("{bytes_pulled}", shard),
            Phrase("{pushes_applied}", shard),
            Phrase(kNotApplied, shard, /*zeros=*/false),
            address.empty() ? "not registered" : address};
  };
  return absl::StrCat(
      "\n",
      HangingParagraph("", "servers: payload in and out; pushes applied and not applied", 2,
                       WidthOf(columns)),
      PrintFitting(
          RowsOf(shards,
                 {"server", "parameters", "version", "in", "out", "applied", "not applied", "address"}, row),
          columns));
}

// --------------------------------------------------------------------------------------- events, warnings

std::string Events(const v1::JobStatus& status, int columns) {
  if (status.events_size() == 0) return "";
  std::string text = "\nlast events\n";
  for (int i = std::max(0, status.events_size() - kShownEvents); i < status.events_size(); ++i) {
    text += HangingParagraph("  ", status.events(i), 4, WidthOf(columns));
  }
  return text;
}

}  // namespace

void Trends::Add(const Json& facts) {
  if (facts["phase"] != v1::JobStatus::Phase_Name(v1::JobStatus::TRAINING)) return;
  has_accuracy_ = facts["test_accuracy"].is_number();
  const auto add = [&facts](const char* key, std::vector<double>* values) {
    if (facts[key].is_number()) values->push_back(facts[key]);
  };
  add("samples_per_second", &rates_);
  add("train_loss", &losses_);
  add(has_accuracy_ ? "test_accuracy" : "test_loss", &scores_);
}

std::string Trends::Print(int columns) const {
  std::string text;
  const size_t room = std::min(kTrendColumns, static_cast<size_t>(std::max(8, columns - kNameColumns)));
  const auto add = [&](const char* name, const std::vector<double>& values) {
    if (values.size() > 1) text += NamedRow(name, Sparkline(values, room), columns);
  };
  add("rate", rates_);
  add("loss", losses_);
  add(has_accuracy_ ? "accuracy" : "test loss", scores_);
  return text;
}

std::string WarningsText(const std::vector<Warning>& warnings, int columns) {
  if (warnings.empty()) return "no warnings\n";
  const int width = WidthOf(columns);
  std::string text = "warnings\n";
  for (const Warning& warning : warnings) {
    text += HangingParagraph("  ", absl::StrCat(warning.code, ": ", warning.found), 4, width);
    text += HangingParagraph("    ", warning.why, 4, width);
    text += HangingParagraph("    ", "-> " + warning.advice, 7, width);
  }
  return text;
}

std::string StatusText(const v1::JobStatus& status, const v1::JobStatus* before, int columns,
                       const Trends& trends) {
  const Json facts = StatusJson(status, before);
  return absl::StrCat(HangingParagraph("", Head(status), 2, WidthOf(columns)), trends.Print(columns),
                      JobTable(status, facts, columns), Members(facts, columns),
                      Shards(facts["shards"], columns), Events(status, columns), "\n",
                      WarningsText(Advise(status), columns));
}

}  // namespace catchment
