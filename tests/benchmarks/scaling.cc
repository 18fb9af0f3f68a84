// Measures how many workers a server supports: see kUsage. A row is measured in scaling_run.cc, of a case in
// scaling_case.cc.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/program/command_line.h"
#include "tests/benchmarks/loopback.h"
#include "tests/benchmarks/process_usage.h"
#include "tests/benchmarks/report.h"
#include "tests/benchmarks/scaling_case.h"
#include "tests/benchmarks/scaling_run.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(bazel run -c opt //tests/benchmarks:scaling -- [flags]

Loads one catchment_server with many catchment_workers, all processes of this machine, over loopback. The
workers are synthetic: they sleep through a step instead of computing, then push a gradient and fetch the
weights. EASGD exchanges in every step (communication_period 1).

updates/s    contributions of single workers that the server has applied, in steady state
efficiency   of W workers: updates/s over W times those of one worker, measured in the same run
bound        sync only: the most that efficiency could be, by the bytes that plain sockets carry in the same run
p50, p99     from a worker's whole gradient to its fresh weights, the wait for other workers included
server       processors that the server keeps busy, 1 is a core; its memory
worker       processor time of the workers for each update; memory of one worker
busy         share of the machine's processors

A step takes 100 ms up to 100,000 parameters, 1 s up to 3,000,000, and 5 s above: sixty workers of 11 million
parameters exchange 1.06 GB/s with that, about what two cores can carry.
)";

struct Options {
  ScalingChoice choice;
  ScalingSetting setting;
  std::string json;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddString("json", "FILE", &o->json, "Writes the rows there, a list of objects.");
  flags.AddList("presets", "A,B", &o->choice.presets, "Default: sync,downpour,easgd.");
  flags.AddList("parameters", "N,M", &o->choice.parameters, "Default: 14000,1200000,11000000.");
  flags.AddList("workers", "N,M", &o->choice.workers,
                "Default: 1,2,4,8,16,32,60. One worker is always measured: efficiency refers to it.");
  flags.AddList("step_ms", "N", &o->choice.step_ms, "A step of all sizes. Default: see above.");
  flags.AddSeconds("seconds", &o->setting.seconds,
                   "Measures so long, rounded up to an even number of steps. Default 5.");
  return flags;
}

class Benchmark {
 public:
  Benchmark(std::vector<ScalingCase> cases, ScalingSetting setting, SignalWaiter* signals)
      : cases_(std::move(cases)), setting_(std::move(setting)), signals_(*signals) {
    table_.Add({"preset", "parameters", "step ms", "workers", "updates/s", "efficiency", "bound", "p50 ms",
                "p99 ms", "server", "server MiB", "worker ms", "worker MiB", "busy"});
  }

  absl::Status Run() {
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (absl::Status status = RunCase(i); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  void Print() const {
    if (!rows_.empty()) std::cout << table_.Print(0);
  }
  const std::vector<nlohmann::ordered_json>& rows() const { return rows_; }

 private:
  absl::Status RunCase(size_t index) {
    const ScalingCase& c = cases_[index];
    std::cerr << "[" << index + 1 << "/" << cases_.size() << ", " << Seconds(SecondsLeft(index)) << " left] "
              << c.Describe() << std::flush;
    const int64_t needed = EstimateScalingBytes(c);
    if (const int64_t available = AvailableBytes(); needed > available) {
      std::cerr << ": left out; it needs about " << Bytes(needed) << " of memory, and " << Bytes(available)
                << " are free\n";
      return absl::OkStatus();
    }
    if (absl::Status status = MeasureNetwork(c); !status.ok()) return status;
    const absl::StatusOr<ScalingFigures> figures = MeasureScaling(c, setting_, &signals_);
    if (!figures.ok()) {
      std::cerr << "\n";
      return absl::Status(figures.status().code(),
                          absl::StrCat(c.Describe(), ": ", figures.status().message()));
    }
    std::cerr << ": " << absl::StrFormat("%.2f", figures->updates_per_second) << " updates/s\n";
    AddRow(c, *figures);
    return absl::OkStatus();
  }

  double SecondsLeft(size_t next) const {
    double seconds = 0;
    for (; next < cases_.size(); ++next) seconds += ExpectedSeconds(cases_[next], setting_.seconds);
    return seconds;
  }

  absl::Status MeasureNetwork(const ScalingCase& c) {
    if (network_.count(c.parameters) > 0) return absl::OkStatus();
    constexpr double kNetworkSeconds = 0.5;
    const absl::StatusOr<double> speed = LoopbackBytesPerSecond(c.bytes(), Cores(), kNetworkSeconds);
    if (!speed.ok()) return speed.status();
    network_[c.parameters] = *speed;
    return absl::OkStatus();
  }

  void AddRow(const ScalingCase& c, const ScalingFigures& f) {
    // Each group of rows begins with one worker.
    if (c.workers == 1) one_worker_ = f.updates_per_second;
    const double efficiency = f.updates_per_second / (c.workers * one_worker_);
    const double worker_ms = 1000 * f.worker_processors / f.updates_per_second;
    const bool synchronous = c.preset == "sync";
    const double bound = SynchronousBound(c, network_[c.parameters]);
    constexpr double kMib = 1 << 20;
    const auto ms = [](const std::optional<double>& value) {
      return value.has_value() ? absl::StrFormat("%.2f", *value) : "";
    };
    table_.Add({c.preset, Count(c.parameters), Short(c.step_ms), Count(c.workers),
                absl::StrFormat("%.2f", f.updates_per_second), absl::StrFormat("%.3f", efficiency),
                synchronous ? absl::StrFormat("%.3f", bound) : "", ms(f.p50_ms), ms(f.p99_ms),
                absl::StrFormat("%.2f", f.server_processors), absl::StrFormat("%.0f", f.server_bytes / kMib),
                absl::StrFormat("%.2f", worker_ms), absl::StrFormat("%.0f", f.worker_bytes / kMib),
                absl::StrFormat("%.2f", f.machine_share)});
    const auto number = [](const std::optional<double>& value) {
      return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
    };
    rows_.push_back(
        {{"preset", c.preset},
         {"parameters", c.parameters},
         {"step_ms", c.step_ms},
         {"workers", c.workers},
         {"updates_per_s", f.updates_per_second},
         {"efficiency", efficiency},
         {"network_bound", synchronous ? nlohmann::ordered_json(bound) : nlohmann::ordered_json()},
         {"network_gb_per_s", network_[c.parameters] / 1e9},
         {"p50_ms", number(f.p50_ms)},
         {"p99_ms", number(f.p99_ms)},
         {"server_cpu_share", f.server_processors},
         {"server_rss_mib", f.server_bytes / kMib},
         {"worker_cpu_ms_per_update", worker_ms},
         {"worker_rss_mib", f.worker_bytes / kMib},
         {"machine_cpu_share", f.machine_share},
         {"start_s", f.start_seconds},
         {"measured_steps", MeasuredSteps(c, setting_.seconds)},
         {"cores", Cores()},
         {"processor", ProcessorModel()}});
  }

  const std::vector<ScalingCase> cases_;
  const ScalingSetting setting_;
  SignalWaiter& signals_;
  std::map<int64_t, double> network_;  // bytes a second of plain sockets, by parameters
  double one_worker_ = 0;              // updates a second, of the group under way
  Table table_;
  std::vector<nlohmann::ordered_json> rows_;
};

absl::StatusOr<DaemonPaths> FindBuiltDaemons() {
  const absl::StatusOr<std::string> here = OwnDirectory();
  if (!here.ok()) return here.status();
  // This program is in tests/benchmarks of Bazel's output, the daemons are in server and worker.
  return FindDaemons(std::filesystem::path(*here).parent_path());
}

absl::Status Run(Options options) {
  absl::StatusOr<std::vector<ScalingCase>> cases = ChooseScalingCases(options.choice);
  if (!cases.ok()) return cases.status();
  // Better known now than at the end that the file cannot be written.
  if (absl::Status status = WriteRows({}, options.json); !status.ok()) return status;
  SignalWaiter signals;
  const absl::StatusOr<DaemonPaths> daemons = FindBuiltDaemons();
  if (!daemons.ok()) return daemons.status();
  options.setting.daemons = *daemons;
  std::string directory = std::filesystem::temp_directory_path() / "catchment_scaling.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make a folder for logs, ", directory));
  }
  options.setting.directory = directory;
  Benchmark benchmark(*std::move(cases), options.setting, &signals);
  const absl::Status status = benchmark.Run();
  benchmark.Print();
  if (!status.ok()) {
    std::cerr << "logs are in " << directory << "\n";
    return status;
  }
  std::filesystem::remove_all(directory);
  return WriteRows(benchmark.rows(), options.json);
}

int Main(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  return RunBenchmark("scaling", kUsage, flags, args, [&] { return Run(options); });
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) { return catchment::Main({argv + 1, argv + argc}); }
