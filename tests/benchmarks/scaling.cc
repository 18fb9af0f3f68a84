// Measures how many workers a server supports: see the usage. scaling_run.cc measures a row, of a case in
// scaling_case.cc.
#include <atomic>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "tests/benchmarks/benchmark.h"
#include "tests/benchmarks/process.h"
#include "tests/benchmarks/scaling_case.h"
#include "tests/benchmarks/scaling_run.h"
#include "tests/benchmarks/wire_peers.h"

namespace catchment {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kNetworkSeconds = 0.5;

// The upper bound of what processes can exchange over loopback: returns the bytes a second, both directions
// together, over a connection for each core at once. On each a client writes `bytes` and reads as many,
// blocking, again and again; the other end reads, then writes.
double LoopbackBytesPerSecond(int64_t bytes) {
  const int64_t values = bytes / static_cast<int64_t>(sizeof(float));
  PeerOptions options{"tcp", values, Cores()};
  options.echo = true;
  const std::unique_ptr<WireServer> server = MakePlainServer(options);
  options.address = server->address();
  const SteadyClock clock;
  const double start = clock.Now();
  std::atomic<int64_t> exchanged = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < options.workers; ++i) {
    threads.emplace_back([&] {
      const std::unique_ptr<WireWorker> worker = MakePlainWorker(options);
      std::vector<float> buffer(values);
      do {
        worker->RoundTrip(buffer, absl::MakeSpan(buffer));
        exchanged += 2 * bytes;
      } while (clock.Now() < start + kNetworkSeconds);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(exchanged) / (clock.Now() - start);
}

class Scaling final : public Benchmark {
 public:
  void AddFlags(FlagSet* flags) override {
    AddNames(flags, "presets", &choice_.presets, "Only these presets.");
    AddNumbers(flags, "parameters", 1, 1'000'000'000, &choice_.parameters, "Only models of these sizes.");
    AddNumbers(flags, "workers", 1, 1000, &choice_.workers,
               "One worker is always measured: efficiency refers to it.");
    flags->AddInt("step_ms", "N", 1, &choice_.step_ms, "A step of all sizes. Default: see above.");
    flags->AddSeconds("seconds", &setting_.seconds,
                      "Measures so long, rounded up to an even number of steps. Default 5.");
  }

  absl::Status Run(const std::string& directory, std::vector<Row>* rows) override {
    SignalWaiter signals;
    ASSIGN_OR_RETURN(setting_.daemons, FindBuiltDaemons());
    setting_.directory = directory;
    const std::vector<ScalingCase> cases = MakeScalingCases(choice_);
    double left = 0;
    for (const ScalingCase& c : cases) left += ExpectedSeconds(c, setting_.seconds);
    for (size_t i = 0; i < cases.size(); ++i) {
      const ScalingCase& c = cases[i];
      std::cerr << "[" << i + 1 << "/" << cases.size() << ", " << Seconds(left) << " left] " << c.Describe()
                << std::flush;
      left -= ExpectedSeconds(c, setting_.seconds);
      if (const int64_t needed = EstimateScalingBytes(c); needed > AvailableBytes()) {
        std::cerr << ": left out; it needs about " << Bytes(needed) << " of memory, and "
                  << Bytes(AvailableBytes()) << " are free\n";
        continue;
      }
      if (std::exchange(network_parameters_, c.parameters) != c.parameters)
        network_ = LoopbackBytesPerSecond(c.bytes());
      absl::StatusOr<Row> row = Measure(c, &signals);
      if (!row.ok())
        return absl::Status(row.status().code(), absl::StrCat(c.Describe(), ": ", row.status().message()));
      std::cerr << absl::StrFormat(": %.2f updates/s\n", (*row)["updates_per_s"].get<double>());
      rows->push_back(*std::move(row));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Row> Measure(const ScalingCase& c, SignalWaiter* signals) {
    ASSIGN_OR_RETURN(const ScalingFigures f, MeasureScaling(c, setting_, signals));
    if (c.workers == 1) one_worker_ = f.updates_per_second;
    const auto number = [](const std::optional<double>& value) { return value ? Row(*value) : Row(); };
    return Row{{"preset", c.preset},
               {"parameters", c.parameters},
               {"step_ms", c.step_ms},
               {"workers", c.workers},
               {"updates_per_s", f.updates_per_second},
               {"efficiency", f.updates_per_second / (c.workers * one_worker_)},
               {"network_bound", c.preset == "sync" ? Row(SynchronousBound(c, network_)) : Row()},
               {"network_gb_per_s", network_ / 1e9},
               {"p50_ms", number(f.p50_ms)},
               {"p99_ms", number(f.p99_ms)},
               {"server_cpu_share", f.server_processors},
               {"server_rss_mib", f.server_bytes / kMib},
               {"worker_cpu_ms_per_update", 1000 * f.worker_processors / f.updates_per_second},
               {"worker_rss_mib", f.worker_bytes / kMib},
               {"machine_cpu_share", f.machine_share},
               {"start_s", f.start_seconds},
               {"measured_steps", MeasuredSteps(c, setting_.seconds)},
               {"cores", Cores()},
               {"processor", ProcessorModel()}};
  }

  ScalingChoice choice_;
  ScalingSetting setting_;
  double network_ = 0;  // bytes a second of plain sockets, measured with models of this size
  int64_t network_parameters_ = 0;
  double one_worker_ = 0;  // updates a second, of the preset and size under way, which one worker begins
};

}  // namespace

const BenchmarkKind kScaling = {
    "scaling",
    R"(Loads one catchment_server with many catchment_workers, all processes of this machine, over loopback. The
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
)",
    {{"preset", "preset"},
     {"parameters", "parameters"},
     {"step ms", "step_ms", 0},
     {"workers", "workers"},
     {"updates/s", "updates_per_s", 2},
     {"efficiency", "efficiency", 3},
     {"bound", "network_bound", 3},
     {"p50 ms", "p50_ms", 2},
     {"p99 ms", "p99_ms", 2},
     {"server", "server_cpu_share", 2},
     {"server MiB", "server_rss_mib", 0},
     {"worker ms", "worker_cpu_ms_per_update", 2},
     {"worker MiB", "worker_rss_mib", 0},
     {"busy", "machine_cpu_share", 2}},
    MakeBenchmark<Scaling>};

}  // namespace catchment
