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

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// The most rows of a table; of more members or shards, the first and the last half of these are shown.
constexpr size_t kShownRows = 32;
constexpr int kShownEvents = 6;
constexpr int kHostColumns = 16;
constexpr int kMinDeviceColumns = 4;

std::string Head(const v1::JobStatus& status) {
  return absl::StrCat(status.job(), " (", status.settings().algorithm().preset(), "), ",
                      DescribePhase(status), "\n");
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

std::string JobTable(const v1::JobStatus& status, Json facts) {
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
    if (value.empty()) continue;
    std::string head = absl::StrCat("  ", row.name);
    head.resize(15, ' ');
    text += HangingParagraph(head, value, 15, kStatusColumns);
  }
  return text;
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

std::vector<std::string> WorkerRow(const Json& worker, int device_columns) {
  return {absl::StrCat(worker["worker"].get<uint32_t>()),
          FitLine(worker["host"], kHostColumns),
          absl::StrCat(worker["pid"].get<uint32_t>()),
          OrUnknown(Phrase("{samples_per_second}", worker)),
          TimeSplit(worker),
          OrUnknown(Phrase("{staleness_mean}/{staleness_p50}/{staleness_p99}/{staleness_max}", worker)),
          Seconds(worker["seconds_since_heartbeat"]),
          FitLine(worker["device"], device_columns)};
}

// Adds a row for each element of the list; of many, of the first and the last ones.
template <typename Row>
std::string PrintList(const Json& list, std::vector<std::string> head, Row row) {
  Table table;
  table.Add(std::move(head));
  const size_t rows = list.size();
  for (size_t i = 0; i < rows; ++i) {
    if (rows <= kShownRows || i < kShownRows / 2 || i >= rows - kShownRows / 2) {
      table.Add(row(list[i]));
    } else if (i == kShownRows / 2) {
      table.Add({"", "..."});
    }
  }
  return table.Print();
}

std::string PrintWorkers(const Json& workers, int device_columns) {
  return PrintList(workers,
                   {"worker", "host", "pid", "samples/s", "time", "staleness", "heartbeat", "device"},
                   [device_columns](const Json& worker) { return WorkerRow(worker, device_columns); });
}

int LongestLine(const std::string& text) {
  size_t longest = 0;
  for (const auto& line : absl::StrSplit(text, '\n')) longest = std::max(longest, Columns(std::string(line)));
  return static_cast<int>(longest);
}

// Gives the device the columns that are left.
std::string WorkerTable(const Json& workers) {
  const int others = LongestLine(PrintWorkers(workers, 1)) - 1;
  return PrintWorkers(workers, std::max(kMinDeviceColumns, kStatusColumns - others));
}

std::string Members(const Json& facts) {
  const Json& workers = facts["workers"];
  const std::string evaluators = Phrase("{evaluators:evaluator}", facts, /*zeros=*/false);
  std::string text = absl::StrCat("\nworkers: ", workers.size(), Phrase(" of {planned_workers}", facts), ", ",
                                  evaluators.empty() ? "no evaluator" : evaluators);
  if (workers.empty()) return text + "\n";
  return absl::StrCat(
      text,
      "; time computing/pushing/pulling/waiting for data,\nstaleness mean/p50/p99/max in updates, and "
      "time since the last heartbeat\n",
      WorkerTable(workers));
}

std::string Shards(const Json& shards) {
  const auto row = [](const Json& shard) -> std::vector<std::string> {
    const std::string address = Phrase("{address}", shard);
    return {absl::StrCat(shard["shard"].get<uint32_t>()),
            address.empty() ? "not registered" : address,
            Phrase("{parameters}", shard),
            Phrase("{version}", shard),
            Phrase("{bytes_pushed}", shard),
            Phrase("{bytes_pulled}", shard),
            Phrase("{pushes_applied}", shard),
            Phrase(kNotApplied, shard, /*zeros=*/false)};
  };
  return absl::StrCat(
      "\nservers: payload in and out; pushes applied and not applied\n",
      PrintList(shards, {"server", "address", "parameters", "version", "in", "out", "applied", "not applied"},
                row));
}

// --------------------------------------------------------------------------------------- events, warnings

std::string Events(const v1::JobStatus& status) {
  if (status.events_size() == 0) return "";
  std::string text = "\nlast events\n";
  for (int i = std::max(0, status.events_size() - kShownEvents); i < status.events_size(); ++i) {
    text += HangingParagraph("  ", status.events(i), 4, kStatusColumns);
  }
  return text;
}

std::string FitLines(const std::string& text) {
  std::string fitted;
  for (const auto& line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&fitted, FitLine(std::string(line), kStatusColumns), "\n");
  }
  return fitted;
}

}  // namespace

std::string WarningsText(const std::vector<Warning>& warnings) {
  if (warnings.empty()) return "no warnings\n";
  std::string text = "warnings\n";
  for (const Warning& warning : warnings) {
    text += HangingParagraph("  ", absl::StrCat(warning.code, ": ", warning.found), 4, kStatusColumns);
    text += HangingParagraph("    ", warning.why, 4, kStatusColumns);
    text += HangingParagraph("    ", "-> " + warning.advice, 7, kStatusColumns);
  }
  return text;
}

std::string StatusText(const v1::JobStatus& status, const v1::JobStatus* before) {
  const Json facts = StatusJson(status, before);
  return FitLines(absl::StrCat(Head(status), JobTable(status, facts), Members(facts), Shards(facts["shards"]),
                               Events(status), "\n", WarningsText(Advise(status))));
}

}  // namespace catchment
