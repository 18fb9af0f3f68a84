#include "cli/live/status_text.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/live/advice.h"
#include "cli/live/progress.h"
#include "common/base/noise_scale.h"
#include "common/base/quorum_total.h"
#include "common/base/text.h"
#include "common/base/work_rates.h"

namespace catchment {
namespace {

// The most rows of a table; of more members or shards, the first and the last half of these are shown.
constexpr int kShownRows = 32;
constexpr int kShownEvents = 6;
constexpr int kHostColumns = 16;
constexpr int kMinDeviceColumns = 4;
constexpr char kUnknown[] = "-";

std::string Whole(double n) { return Count(std::llround(n)); }
std::string Three(double x) { return Short(x, 3); }

std::string Head(const v1::JobStatus& status) {
  return absl::StrCat(status.job(), " (", status.settings().algorithm().preset(), "), ",
                      DescribePhase(status), "\n");
}

// ------------------------------------------------------------------------------------------------ the job

std::string ProgressRow(const v1::JobStatus& status) {
  if (status.total_samples() == 0) return "";
  const double done = static_cast<double>(status.samples()) / static_cast<double>(status.total_samples());
  std::string row = absl::StrCat(Percent(done), ", ", Count(status.samples()), " of ",
                                 Count(status.total_samples()), " samples");
  if (status.samples() > 0) {
    absl::StrAppendFormat(&row, ", epoch %.2f of %s", status.epochs(), Short(status.epochs() / done, 4));
  }
  return absl::StrCat(row, ", ", Plural(status.updates(), "update"));
}

std::string TimeRow(const v1::JobStatus& status, const v1::JobStatus* before) {
  std::string row = absl::StrCat(Seconds(status.wall_seconds()), " trained");
  if (const auto rate = SamplesPerSecond(status, before))
    absl::StrAppend(&row, ", ", Whole(*rate), " samples/s");
  if (status.phase() == v1::JobStatus::TRAINING && status.samples_per_second() > 0) {
    absl::StrAppend(&row, ", ", Seconds(status.seconds_left()), " left");
  }
  return row;
}

// Returns the loss, and the accuracy unless targets are real numbers.
std::string Score(const v1::JobStatus& status, double loss, double accuracy) {
  const std::string text = absl::StrFormat("loss %.4f", loss);
  return status.has_accuracy() ? absl::StrCat(text, ", accuracy ", Percent(accuracy)) : text;
}

std::string TrainingRow(const v1::JobStatus& status) {
  if (status.samples() == 0) return "";
  return absl::StrCat(Score(status, status.train_loss(), status.train_accuracy()), ", over the last seconds");
}

std::string TestRow(const v1::JobStatus& status) {
  if (status.test_samples() == 0) return "";
  return absl::StrCat(Score(status, status.test_loss(), status.test_accuracy()), ", of the weights at ",
                      Count(status.tested_at_samples()), " samples (", Seconds(status.tested_at_seconds()),
                      ")");
}

std::string StalenessRow(const v1::JobStatus& status) {
  if (status.pushes_applied() == 0) return "";
  return absl::StrCat("mean ", Three(status.staleness_mean()), ", p50 ", Three(status.staleness_p50()),
                      ", p99 ", Three(status.staleness_p99()), ", max ", Three(status.staleness_max()),
                      " updates");
}

std::string QuorumRow(const v1::JobStatus& status) {
  const std::optional<QuorumTotal> quorum = TotalQuorum(status);
  if (!quorum) return "";
  const auto share = [&quorum](uint64_t updates) {
    return Percent(static_cast<double>(updates) / static_cast<double>(quorum->updates()));
  };
  return absl::StrCat(Three(quorum->merged_mean()), " contributions in an update; ", share(quorum->by_all),
                      " of the updates closed by all, ", share(quorum->by_grace), " by the grace, ",
                      share(quorum->by_loss), " by a loss");
}

std::string NoiseRow(const v1::JobStatus& status) {
  const std::optional<v1::GradientNoise> noise = TotalNoise(status);
  const std::optional<double> scale = noise ? NoiseScale(*noise) : std::nullopt;
  if (!scale) return "";
  return absl::StrCat(Plural(std::llround(*scale), "sample"), ", measured in ",
                      Plural(noise->updates(), "update"));
}

// Names the workers whose payloads stay in shared memory, instead of being sent.
std::string MemoryRow(const v1::JobStatus& status) {
  std::vector<uint32_t> sharing;
  for (const v1::WorkerStatus& worker : status.workers())
    if (worker.progress().shared_memory_servers() > 0) sharing.push_back(worker.worker());
  if (sharing.empty()) return "";
  if (static_cast<int>(sharing.size()) == status.workers_size()) return "payloads of all workers";
  if (static_cast<int>(sharing.size()) > kShownRows)
    return absl::StrCat("payloads of ", sharing.size(), " workers");
  return absl::StrCat("payloads of worker ", absl::StrJoin(sharing, ", "));
}

std::string WireRow(const v1::JobStatus& status) {
  if (status.bytes_pushed() + status.bytes_pulled() == 0) return "";
  std::string row = absl::StrCat(Bytes(static_cast<double>(status.bytes_pushed())), " pushed, ",
                                 Bytes(static_cast<double>(status.bytes_pulled())), " pulled");
  if (status.round_trip_p50_us() > 0) {
    absl::StrAppend(&row, "; round trip p50 ", Duration(status.round_trip_p50_us() / 1e6), ", p99 ",
                    Duration(status.round_trip_p99_us() / 1e6));
  }
  return row;
}

// Returns what the workers' loaders have read from files, and how many of their threads were busy with it.
std::string ReadingRow(const v1::JobStatus& status, const v1::JobStatus* before) {
  if (status.bytes_read() == 0) return "";
  const Work work = WorkOf(status, before);
  std::string row = absl::StrCat(Bytes(static_cast<double>(status.bytes_read())), " read");
  if (status.workers_size() > 0 && work.seconds() > 0) {
    absl::StrAppend(&row, "; ", Three(work.read / work.seconds()), " of ",
                    Plural(status.settings().data().loader_threads(), "loader thread"),
                    " of a worker are busy");
  }
  return row;
}

std::string CheckpointRow(const v1::JobStatus& status) {
  if (!status.writes_checkpoints()) return "none are written";
  return status.last_checkpoint() == 0 ? "none yet" : Count(status.last_checkpoint());
}

std::string SecurityRow(const v1::JobStatus& status) {
  if (!status.insecure()) return "";
  return "INSECURE: connections over the network are neither encrypted nor authenticated (--insecure)";
}

std::string JobTable(const v1::JobStatus& status, const v1::JobStatus* before) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"progress", ProgressRow(status)},     {"time", TimeRow(status, before)},
      {"training", TrainingRow(status)},     {"test", TestRow(status)},
      {"staleness", StalenessRow(status)},   {"quorum", QuorumRow(status)},
      {"noise scale", NoiseRow(status)},     {"on the wire", WireRow(status)},
      {"in memory", MemoryRow(status)},      {"data", ReadingRow(status, before)},
      {"checkpoint", CheckpointRow(status)}, {"security", SecurityRow(status)}};
  std::string text;
  for (const auto& [name, value] : rows) {
    if (value.empty()) continue;
    std::string head = "  " + name;
    head.resize(15, ' ');
    text += HangingParagraph(head, value, 15, kStatusColumns);
  }
  return text;
}

// ------------------------------------------------------------------------------------- members and shards

// Returns "93/2/4/1 %".
std::string TimeSplit(const Work& work) {
  if (work.seconds() <= 0) return kUnknown;
  const auto percent = [&](double part) { return Whole(100 * *work.share(part)); };
  return absl::StrCat(percent(work.compute), "/", percent(work.push), "/", percent(work.pull), "/",
                      percent(work.data), " %");
}

std::string Staleness(const v1::WorkerStatus& worker) {
  if (worker.progress().steps() == 0) return kUnknown;
  return absl::StrJoin({Three(worker.staleness_mean()), Three(worker.staleness_p50()),
                        Three(worker.staleness_p99()), Three(worker.staleness_max())},
                       "/");
}

std::vector<std::string> WorkerRow(const v1::WorkerStatus& worker, const v1::JobStatus* before,
                                   int device_columns) {
  const Work work = WorkOf(worker, before);
  const auto rate = work.samples_per_second();
  return {absl::StrCat(worker.worker()),
          FitLine(worker.host(), kHostColumns),
          absl::StrCat(worker.pid()),
          rate ? Whole(*rate) : kUnknown,
          TimeSplit(work),
          Staleness(worker),
          Seconds(worker.seconds_since_heartbeat()),
          FitLine(worker.device(), device_columns)};
}

bool IsShown(int row, int rows) {
  return rows <= kShownRows || row < kShownRows / 2 || row >= rows - kShownRows / 2;
}

std::string PrintWorkers(const v1::JobStatus& status, const v1::JobStatus* before, int device_columns) {
  Table table;
  table.Add({"worker", "host", "pid", "samples/s", "time", "staleness", "heartbeat", "device"});
  for (int i = 0; i < status.workers_size(); ++i) {
    if (IsShown(i, status.workers_size())) {
      table.Add(WorkerRow(status.workers(i), before, device_columns));
    } else if (i == kShownRows / 2) {
      table.Add({"", "..."});
    }
  }
  return table.Print();
}

int LongestLine(const std::string& text) {
  size_t longest = 0;
  for (const auto& line : absl::StrSplit(text, '\n')) longest = std::max(longest, Columns(std::string(line)));
  return static_cast<int>(longest);
}

// Gives the device the columns that are left.
std::string WorkerTable(const v1::JobStatus& status, const v1::JobStatus* before) {
  const int others = LongestLine(PrintWorkers(status, before, 1)) - 1;
  return PrintWorkers(status, before, std::max(kMinDeviceColumns, kStatusColumns - others));
}

std::string Members(const v1::JobStatus& status, const v1::JobStatus* before) {
  std::string text =
      absl::StrCat("\nworkers: ", status.workers_size(), " of ", status.settings().workers(),
                   status.evaluators() > 0 ? absl::StrCat(", ", Plural(status.evaluators(), "evaluator"))
                                           : ", no evaluator");
  if (status.workers_size() == 0) return text + "\n";
  return absl::StrCat(
      text,
      "; time computing/pushing/pulling/waiting for data,\nstaleness mean/p50/p99/max in updates, and "
      "time since the last heartbeat\n",
      WorkerTable(status, before));
}

std::vector<std::string> ShardRow(const v1::JobStatus& status, int index) {
  const v1::ServerStatus& server = status.servers(index);
  std::vector<std::string> row = {absl::StrCat(index),
                                  server.address().empty() ? "not registered" : server.address(),
                                  Count(server.parameters())};
  for (const v1::ShardReport& shard : status.shards()) {
    if (static_cast<int>(shard.shard()) != index) continue;
    const PushCounts pushes = CountPushes(shard);
    row.insert(row.end(), {Count(shard.version()), Bytes(static_cast<double>(shard.bytes_pushed())),
                           Bytes(static_cast<double>(shard.bytes_pulled())), Count(pushes.applied),
                           DescribeNotApplied(pushes)});
  }
  return row;
}

std::string Shards(const v1::JobStatus& status) {
  Table table;
  table.Add({"server", "address", "parameters", "version", "in", "out", "applied", "not applied"});
  for (int s = 0; s < status.servers_size(); ++s) {
    if (IsShown(s, status.servers_size())) {
      table.Add(ShardRow(status, s));
    } else if (s == kShownRows / 2) {
      table.Add({"", "..."});
    }
  }
  return absl::StrCat("\nservers: payload in and out; pushes applied and not applied\n", table.Print());
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

PushCounts CountPushes(const v1::ShardReport& shard) {
  PushCounts counts;
  for (const v1::WorkerStatistics& worker : shard.workers()) {
    counts.applied += worker.applied();
    counts.waiting += worker.waiting();
    counts.late += worker.late();
    counts.non_finite += worker.non_finite();
    counts.duplicate += worker.duplicate();
    counts.split += worker.split();
  }
  return counts;
}

std::string DescribeNotApplied(const PushCounts& counts) {
  std::vector<std::string> parts;
  if (counts.waiting > 0) parts.push_back(Count(counts.waiting) + " waiting");
  if (counts.late > 0) parts.push_back(Count(counts.late) + " late");
  if (counts.non_finite > 0) parts.push_back(Count(counts.non_finite) + " not finite");
  if (counts.duplicate > 0) parts.push_back(Count(counts.duplicate) + " duplicate");
  if (counts.split > 0) parts.push_back(Count(counts.split) + " late in part");
  return absl::StrJoin(parts, ", ");
}

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
  return FitLines(absl::StrCat(Head(status), JobTable(status, before), Members(status, before),
                               Shards(status), Events(status), "\n", WarningsText(Advise(status))));
}

}  // namespace catchment
