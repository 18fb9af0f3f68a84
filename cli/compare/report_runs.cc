#include "cli/compare/report_runs.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/process.h"
#include "cli/compare/compare_directory.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr char kUsage[] = R"(catchment report DIR... --out=DIR [flags]

Makes report.html and report.json from runs that have ended, as `catchment compare` does. The runs may have
been started in any way, on any machine. DIR is the --out of a run, or of a comparison, which stands for all
its runs. Runs are named by the differences between their jobs; runs that differ only in the seed are
averaged.

Examples:
  catchment report out-sync out-downpour out-easgd --out=report
  catchment report nodes4/* nodes16/* --out=report --target=0.99
)";

constexpr char kNotes[] = R"(
Exit code: 0: the report is written; 1: a directory holds no run, or no run is finished; 2: wrong command
line. docs/compare.md explains the report and the keys of report.json.
)";

using Fields = std::map<std::string, std::string>;  // value by path, "optimizer.learning_rate"

void AddFields(const std::string& prefix, const google::protobuf::Message& message, Fields* fields) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  reflection.ListFields(message, &set);
  for (const google::protobuf::FieldDescriptor* field : set) {
    const std::string path = prefix + field->name();
    if (!field->is_repeated() && field->message_type() != nullptr) {
      AddFields(path + ".", reflection.GetMessage(message, field), fields);
      // A message without fields says something, too: consistency { asynchronous {} }.
      if (reflection.GetMessage(message, field).ByteSizeLong() == 0) (*fields)[path] = "";
      continue;
    }
    google::protobuf::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    printer.SetUseShortRepeatedPrimitives(true);
    std::string& value = (*fields)[path];
    if (!field->is_repeated()) {
      printer.PrintFieldValueToString(message, field, -1, &value);
      continue;
    }
    std::vector<std::string> items(reflection.FieldSize(message, field));
    for (int i = 0; i < static_cast<int>(items.size()); ++i) {
      printer.PrintFieldValueToString(message, field, i, &items[i]);
      if (field->message_type() != nullptr) items[i] = absl::StrCat("{ ", items[i], "}");
    }
    value = absl::StrCat("[", absl::StrJoin(items, ", "), "]");
  }
}

Fields FieldsOf(const v1::Job& job) {
  Fields fields;
  AddFields("", job, &fields);
  return fields;
}

std::string ValueOf(const Fields& fields, const std::string& path) {
  const auto found = fields.find(path);
  return found == fields.end() ? "" : found->second;
}

// Returns true for a field that does not distinguish runs in a report: one that has a place of its own there,
// or that does not change the training.
bool IsIgnored(const std::string& path) {
  static const auto* const ignored = new std::set<std::string>{
      "workers", "seed", "name", "algorithm.preset", "model.initial_weights", "evaluation.keep_best"};
  if (ignored->count(path) > 0 || absl::EndsWith(path, ".directory")) return true;
  if (absl::StartsWith(path, "faults.")) return path != "faults.stragglers";
  return absl::StartsWith(path, "checkpoint.");
}

bool IsOfAlgorithm(const std::string& path) {
  return absl::StartsWith(path, "algorithm.") || absl::StartsWith(path, "optimizer.");
}

// Returns the fields of the job with the algorithm and the optimizer that its preset sets.
Fields FieldsOfPreset(const v1::Job& job) {
  v1::Job plain = job;
  plain.clear_algorithm();
  plain.clear_optimizer();
  plain.mutable_algorithm()->set_preset(job.algorithm().preset());
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(plain);
  return complete.ok() ? FieldsOf(*complete) : Fields();
}

// Returns the paths of all fields that are not equal in all jobs.
std::set<std::string> DifferingPaths(const std::vector<Fields>& jobs) {
  std::set<std::string> paths;
  for (const Fields& job : jobs) {
    for (const auto& [path, value] : job) {
      const bool differs =
          std::any_of(jobs.begin(), jobs.end(), [&path = path, &value = value](const Fields& other) {
            return other.count(path) == 0 || other.at(path) != value;
          });
      if (differs && !IsIgnored(path)) paths.insert(path);
    }
  }
  return paths;
}

// Returns the end of a path that distinguishes it from all others: "learning_rate".
std::string ShortPath(const std::string& path, const std::set<std::string>& paths) {
  for (size_t dot = path.rfind('.'); dot != std::string::npos && dot > 0; dot = path.rfind('.', dot - 1)) {
    const std::string end = path.substr(dot);
    const auto has_end = [&end](const std::string& other) { return absl::EndsWith("." + other, end); };
    if (std::count_if(paths.begin(), paths.end(), has_end) == 1) return end.substr(1);
  }
  return path;
}

// A run's directory, with its contents.
struct FoundRun {
  std::string directory;
  v1::Job job;
  RunResult result;
  int servers = 0;
};

absl::StatusOr<FoundRun> ReadRun(const std::string& directory) {
  FoundRun run;
  run.directory = directory;
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(directory + "/summary.json");
  if (!summary.ok()) {
    return absl::NotFoundError(
        absl::StrCat(directory, " holds no run that has ended: ", summary.status().message()));
  }
  ASSIGN_OR_RETURN(v1::Job job, LoadJob(directory + "/job.textproto", {}, FileNamedBy::kDirectory));
  ASSIGN_OR_RETURN(run.job, FillDefaultsAndValidate(std::move(job)));
  ReadResult(*summary, ReadTextFile(directory + "/metrics.jsonl").value_or(""), &run.result);
  const std::string phase = TextOrEmpty(*summary, "phase");
  run.result.done = phase == "DONE" || phase == "STOPPED";
  run.result.diverged = HasDiverged(*summary);
  if (!run.result.done && run.result.reason.empty()) run.result.reason = phase;
  run.result.directory = directory;
  run.result.workers = static_cast<int>(run.job.workers());
  run.result.seed = run.job.seed();
  SetRates(run.job, &run.result);
  const auto servers = summary->find("servers");
  if (servers != summary->end() && servers->is_number_integer()) run.servers = servers->get<int>();
  return run;
}

// Returns the directories of runs that a directory stands for.
absl::StatusOr<std::vector<std::string>> RunsIn(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return absl::NotFoundError(absl::StrCat(directory, " is not a directory; give the --out of a run"));
  }
  if (fs::exists(directory + "/summary.json", error)) return std::vector<std::string>{directory};
  std::vector<std::string> runs;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory + "/runs", error)) {
    if (fs::exists(entry.path() / "summary.json", error)) runs.push_back(entry.path().string());
  }
  std::sort(runs.begin(), runs.end());
  if (!runs.empty()) return runs;
  return absl::NotFoundError(absl::StrCat(
      directory,
      " contains neither a summary.json, which a run writes at its end, nor the runs/ of a comparison"));
}

absl::Status CheckSameModel(const std::vector<FoundRun>& runs) {
  const v1::Job& first = runs.front().job;
  for (const FoundRun& run : runs) {
    v1::Model a = first.model(), b = run.job.model();
    a.clear_initial_weights();
    b.clear_initial_weights();
    if (google::protobuf::util::MessageDifferencer::Equals(a, b)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(run.directory, " and ", runs.front().directory,
                     " train different models, whose scores cannot be compared"));
  }
  return absl::OkStatus();
}

absl::Status CheckDistinct(const std::vector<FoundRun>& runs) {
  std::map<std::tuple<std::string, int, uint64_t>, std::string> seen;
  for (const FoundRun& run : runs) {
    const RunResult& result = run.result;
    const auto [place, is_new] =
        seen.insert({{result.algorithm, result.workers, result.seed}, run.directory});
    if (is_new) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(place->second, " and ", run.directory, " are the same job (", result.algorithm, ", ",
                     Plural(result.workers, "worker"), ") with the same seed, ", result.seed,
                     "; leave one out, or run it with another seed"));
  }
  return absl::OkStatus();
}

std::string BudgetOf(const v1::Job& job) {
  if (job.has_samples()) return absl::StrCat("samples:", job.samples());
  if (job.has_updates()) return absl::StrCat("updates:", job.updates());
  return absl::StrCat("epochs:", job.epochs());
}

// Returns what all runs have, or `otherwise`.
template <typename Value, typename Get>
Value Common(const std::vector<FoundRun>& runs, Value otherwise, Get get) {
  const Value first = get(runs.front());
  const bool same =
      std::all_of(runs.begin(), runs.end(), [&](const FoundRun& run) { return get(run) == first; });
  return same ? first : otherwise;
}

std::vector<std::string> StragglersOf(const FoundRun& run) {
  std::vector<std::string> stragglers;
  for (const v1::Straggler& straggler : run.job.faults().stragglers())
    stragglers.push_back(ToString(straggler));
  return stragglers;
}

Comparison Describe(std::vector<FoundRun> runs) {
  Comparison comparison;
  comparison.version = VersionLine();
  comparison.job_name = runs.front().job.name();
  comparison.job = JobText(runs.front().job);
  comparison.budget = Common(runs, std::string(), [](const FoundRun& run) { return BudgetOf(run.job); });
  comparison.stragglers = Common(runs, std::vector<std::string>(), StragglersOf);
  comparison.servers = Common(runs, 0, [](const FoundRun& run) { return run.servers; });
  comparison.threads = 0;
  std::set<int> workers;
  std::set<uint64_t> seeds;
  std::set<std::string> names;
  for (FoundRun& run : runs) {
    workers.insert(run.result.workers);
    seeds.insert(run.result.seed);
    if (names.insert(run.result.algorithm).second) {
      comparison.algorithms.push_back(FactsOf(run.result.algorithm, run.job));
    }
    comparison.runs.push_back(std::move(run.result));
  }
  comparison.workers.assign(workers.begin(), workers.end());
  comparison.seeds = static_cast<int>(seeds.size());
  return comparison;
}

struct ReportOptions {
  std::vector<std::string> directories;
  std::string out;
  double target = 0;
};

absl::StatusOr<int> Report(const ReportOptions& options, const std::vector<std::string>& args,
                           const Streams& streams) {
  ASSIGN_OR_RETURN(Comparison comparison, CollectRuns(options.directories));
  comparison.command = ShellCommand("catchment report", args);
  comparison.wanted_target = options.target;
  const bool any = std::any_of(comparison.runs.begin(), comparison.runs.end(),
                               [](const RunResult& run) { return run.done || run.diverged; });
  if (!any) return absl::UnavailableError("no run has finished, so there is nothing to report");
  RETURN_IF_ERROR(ClaimNames(options.out, {kReportPage + 1, kReportJson + 1}));
  RETURN_IF_ERROR(WriteReport(comparison, options.out, streams.out));
  return 0;
}

}  // namespace

std::vector<std::string> NameJobs(const std::vector<v1::Job>& jobs) {
  std::vector<Fields> fields;
  for (const v1::Job& job : jobs) fields.push_back(FieldsOf(job));
  const std::set<std::string> differing = DifferingPaths(fields);
  std::vector<Fields> named(jobs.size());
  std::set<std::string> paths;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Fields preset = FieldsOfPreset(jobs[i]);
    for (const std::string& path : differing) {
      const std::string value = ValueOf(fields[i], path);
      if (IsOfAlgorithm(path) && value == ValueOf(preset, path)) continue;
      named[i][path] = value;
      paths.insert(path);
    }
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::string name = jobs[i].algorithm().preset();
    for (const auto& [path, value] : named[i]) {
      const std::string field = ShortPath(path, paths);
      absl::StrAppend(&name, ", ", value.empty() ? "without " + field : absl::StrCat(field, " ", value));
    }
    names.push_back(name);
  }
  return names;
}

absl::StatusOr<Comparison> CollectRuns(const std::vector<std::string>& directories) {
  std::vector<FoundRun> runs;
  for (const std::string& directory : directories) {
    ASSIGN_OR_RETURN(const std::vector<std::string> found, RunsIn(directory));
    for (const std::string& one : found) {
      ASSIGN_OR_RETURN(FoundRun run, ReadRun(one));
      runs.push_back(std::move(run));
    }
  }
  RETURN_IF_ERROR(CheckSameModel(runs));
  std::vector<v1::Job> jobs;
  for (const FoundRun& run : runs) jobs.push_back(run.job);
  const std::vector<std::string> names = NameJobs(jobs);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].result.algorithm = names[i];
  RETURN_IF_ERROR(CheckDistinct(runs));
  return Describe(std::move(runs));
}

int RunReportCommand(const std::vector<std::string>& args, const Streams& streams) {
  ReportOptions options;
  CommandLine line{.name = "catchment report", .usage = kUsage, .notes = kNotes};
  line.argument = {
      .name = "DIR", .example = "out-sync out-downpour --out=report", .all = &options.directories};
  line.flags.AddRequired("out", "DIR", &options.out, "Directory for report.html and report.json.");
  line.flags.AddNumber("target", &options.target,
                       "Target test accuracy, such as 0.97. Default: the highest multiple of 0.5 % that "
                       "at least half of the runs reach.");
  line.check = [&options] {
    return options.target < 1
               ? absl::OkStatus()
               : absl::InvalidArgumentError("--target: must be a fraction below 1, such as 0.97");
  };
  return RunCommandLine(&line, args, streams.out, streams.err,
                        [&] { return Report(options, args, streams); });
}

}  // namespace catchment
