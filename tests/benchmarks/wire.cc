// Measures the time from a gradient to the updated weights: see the usage. Begin reading at MeasureGroup.
#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "tests/benchmarks/benchmark.h"
#include "tests/benchmarks/process.h"
#include "tests/benchmarks/wire_peers.h"

namespace catchment {
namespace {

struct Variant {
  const char* name;
  const char* transport;
  bool tls;
  std::unique_ptr<WireServer> (*make_server)(const PeerOptions&);
  std::unique_ptr<WireWorker> (*make_worker)(const PeerOptions&);
  bool standby = false;
};

constexpr Variant kVariants[] = {
    {"plain_tcp", "tcp", false, MakePlainServer, MakePlainWorker},
    {"plain_unix", "unix", false, MakePlainServer, MakePlainWorker},
    {"protobuf_unary", "tcp", false, MakeProtobufServer, MakeUnaryWorker},
    {"protobuf_stream", "tcp", false, MakeProtobufServer, MakeStreamWorker},
    {"protobuf_unary_tls", "tcp", true, MakeProtobufServer, MakeUnaryWorker},
    {"catchment", "tcp", false, MakeCatchmentServer, MakeCatchmentWorker},
    {"catchment_shm", "shm", false, MakeCatchmentServer, MakeCatchmentWorker},
    {"catchment_unix", "unix", false, MakeCatchmentServer, MakeCatchmentWorker},
    {"catchment_tls", "tcp", true, MakeCatchmentServer, MakeCatchmentWorker},
    {"catchment_standby", "tcp", false, MakeCatchmentServer, MakeCatchmentWorker, true},
    {"catchment_shm_standby", "shm", false, MakeCatchmentServer, MakeCatchmentWorker, true},
};

struct Cell {
  int64_t bytes = 0;
  int workers = 1;
};

// ------------------------------------------------------------------------------------- the other processes

std::string UsageLine() {
  const ProcessUsage usage = UsageOfThisProcess();
  return absl::StrFormat("%.6f %.0f", usage.seconds, usage.wake_ups);
}

// Says its address; answers every line with what it has used.
void RunServer(const Variant& variant, const PeerOptions& options) {
  const std::unique_ptr<WireServer> server = variant.make_server(options);
  std::cout << server->address() << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << UsageLine() << std::endl;
  std::_Exit(0);  // a plain server would wait for its workers
}

// The gradient's values are small, so that the weights stay finite however long it runs.
std::pmr::vector<float> MakeGradient(int64_t values, std::pmr::memory_resource* memory) {
  std::pmr::vector<float> gradient(values, memory);
  for (int64_t i = 0; i < values; ++i) gradient[i] = 1e-3f * static_cast<float>(i % 7 - 3);
  return gradient;
}

// Checks the weights that a single worker must have received after `rounds` updates.
void CheckWeights(absl::Span<const float> gradient, absl::Span<const float> weights, int64_t rounds) {
  for (const size_t i : {size_t{0}, weights.size() / 2, weights.size() - 1}) {
    float expected = 0;
    for (int64_t r = 0; r < rounds; ++r) expected -= kLearningRate * gradient[i];
    CHECK_EQ(weights[i], expected) << "value " << i << " after " << rounds << " updates";
  }
}

// Answers a line with a number K by the milliseconds of K round trips, and by what it has used.
void RunWorker(const Variant& variant, const PeerOptions& options) {
  const std::unique_ptr<WireWorker> worker = variant.make_worker(options);
  const std::pmr::vector<float> gradient = MakeGradient(options.values, worker->memory());
  std::vector<float> weights(options.values);
  const SteadyClock clock;
  int64_t rounds = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const int count = std::stoi(line);
    std::string answer;
    for (int i = 0; i < count; ++i) {
      const double start = clock.Now();
      worker->RoundTrip(gradient, absl::MakeSpan(weights));
      absl::StrAppendFormat(&answer, "%.6f ", 1e3 * (clock.Now() - start));
    }
    rounds += count;
    if (options.workers == 1) CheckWeights(gradient, weights, rounds);
    std::cout << answer << UsageLine() << std::endl;
  }
  std::_Exit(0);
}

// ------------------------------------------------------------------------------------------ the coordinator

// One variant at one size: its processes, and what was measured.
class Contender {
 public:
  Contender(const Variant& variant, const Cell& cell, const std::string& directory) : variant_(variant) {
    PeerOptions options{variant.transport, cell.bytes / 4, cell.workers};
    options.standby = variant.standby;
    if (options.transport == "unix")
      options.address = absl::StrCat(directory, "/", variant.name, cell.bytes, "_", cell.workers);
    if (variant.tls) options.certificates = directory;
    server_ = std::make_unique<Subprocess>([&] { RunServer(variant, options); });
    options.address = server_->Receive();
    for (options.worker = 0; options.worker < cell.workers; ++options.worker)
      workers_.push_back(std::make_unique<Subprocess>([&] { RunWorker(variant, options); }));
  }

  const Variant& variant() const { return variant_; }

  struct Used {
    double seconds = 0;  // of processors, by all processes
    double server_wake_ups = 0, worker_wake_ups = 0;
  };

  // All workers at once; returns the milliseconds of every round trip.
  std::vector<double> Run(int count) {
    for (const auto& worker : workers_) worker->Send(absl::StrCat(count));
    std::vector<double> times;
    Used used;
    for (const auto& worker : workers_) {
      const std::vector<std::string> words = absl::StrSplit(worker->Receive(), ' ');
      const size_t trips = words.size() - 2;
      for (size_t i = 0; i < trips; ++i) times.push_back(std::stod(words[i]));
      used.seconds += std::stod(words[trips]);
      used.worker_wake_ups += std::stod(words[trips + 1]);
    }
    server_->Send("used");
    const std::vector<std::string> words = absl::StrSplit(server_->Receive(), ' ');
    used.seconds += std::stod(words[0]);
    used.server_wake_ups = std::stod(words[1]);
    seen_ = used;
    return times;
  }

  // Returns the median milliseconds. Nothing of it counts.
  double WarmUp(int count) {
    const double ms = Median(Run(count));
    warm_ = seen_;
    return ms;
  }
  void Visit(int count) {
    for (double ms : Run(count)) times_.push_back(ms);
  }

  double median_ms() const { return Median(times_); }
  size_t round_trips() const { return times_.size(); }
  // Returns what all visits have used.
  Used used() const {
    return {seen_.seconds - warm_.seconds, seen_.server_wake_ups - warm_.server_wake_ups,
            seen_.worker_wake_ups - warm_.worker_wake_ups};
  }

 private:
  const Variant& variant_;
  std::unique_ptr<Subprocess> server_;
  std::vector<std::unique_ptr<Subprocess>> workers_;
  std::vector<double> times_;
  Used warm_, seen_;  // up to the end of WarmUp, and of the last Run
};

Row RowOf(const Contender& contender, const Cell& cell, double plain_ms, double unary_ms) {
  const double ms = contender.median_ms();
  const auto trips = static_cast<double>(contender.round_trips());
  const double gigabytes = 2e-9 * static_cast<double>(cell.bytes) * trips;
  const Contender::Used used = contender.used();
  Row row = {{"variant", contender.variant().name},
             {"transport", contender.variant().transport},
             {"tls", contender.variant().tls},
             {"bytes", cell.bytes},
             {"workers", cell.workers},
             {"median_ms", ms},
             {"ratio_to_plain_tcp", ms / plain_ms},
             {"gb_per_s", 1e-6 * static_cast<double>(cell.bytes) * cell.workers / ms},
             {"cpu_s_per_gb", used.seconds / gigabytes},
             {"server_wake_ups", used.server_wake_ups / trips},
             {"worker_wake_ups", used.worker_wake_ups / trips},
             {"round_trips", contender.round_trips()}};
  if (unary_ms > 0) row["ratio_to_protobuf_unary"] = ms / unary_ms;
  return row;
}

// A promise about one worker's round trip: at most `most` for `key` of the variant; with `of`, for its ratio
// to that variant's.
struct Promise {
  const char* variant;
  int64_t bytes;
  const char* key;
  double most;
  const char* of = nullptr;
};

constexpr Promise kPromises[] = {
    {"catchment", 800'000, "ratio_to_plain_tcp", 1.9},
    {"catchment", 4'800'000, "ratio_to_plain_tcp", 1.2},
    {"catchment", 44'000'000, "ratio_to_plain_tcp", 0.85},
    {"catchment_shm", 800'000, "ratio_to_plain_tcp", 1.2},
    {"catchment_shm", 4'800'000, "ratio_to_plain_tcp", 0.5},
    {"catchment_shm", 44'000'000, "ratio_to_plain_tcp", 0.5},
    {"catchment_shm", 800'000, "cpu_s_per_gb", 0.25},
    {"catchment_shm", 4'800'000, "cpu_s_per_gb", 0.25},
    {"catchment_shm", 44'000'000, "cpu_s_per_gb", 0.25},
    {"catchment_shm_standby", 800'000, "median_ms", 1.35, "catchment_shm"},
    {"catchment_shm_standby", 4'800'000, "median_ms", 1.35, "catchment_shm"},
    {"catchment_shm_standby", 44'000'000, "median_ms", 1.35, "catchment_shm"},
};

void PrintPromises(const std::vector<Row>& rows) {
  const auto find = [&](const char* variant, int64_t bytes) {
    return std::find_if(rows.begin(), rows.end(), [&](const auto& row) {
      return row["variant"] == variant && row["bytes"] == bytes && row["workers"] == 1;
    });
  };
  std::vector<Row> kept;
  for (const Promise& promise : kPromises) {
    const auto row = find(promise.variant, promise.bytes);
    if (row == rows.end()) continue;
    double measured = (*row)[promise.key].get<double>();
    std::string figure = absl::StrReplaceAll(promise.key, {{"_", " "}});
    if (promise.of != nullptr) {
      const auto reference = find(promise.of, promise.bytes);
      if (reference == rows.end()) continue;
      measured /= (*reference)[promise.key].get<double>();
      figure = absl::StrCat("ratio to ", promise.of);
    }
    kept.push_back({{"variant", promise.variant},
                    {"bytes", promise.bytes},
                    {"figure", figure},
                    {"promised", promise.most},
                    {"measured", measured},
                    {"kept", measured <= promise.most}});
  }
  if (kept.empty()) return;
  std::cout << "\n";
  PrintRows(kept, {{"one worker", "variant"},
                   {"bytes", "bytes"},
                   {"figure", "figure"},
                   {"promised", "promised"},
                   {"measured", "measured"},
                   {"kept", "kept"}});
}

class Wire final : public Benchmark {
 public:
  Wire() {
    for (const Variant& variant : kVariants) variants_.push_back(variant.name);
  }

  void AddFlags(FlagSet* flags) override {
    AddNumbers(flags, "bytes", 4, 4'000'000'000, &bytes_, "Only weights of these sizes.");
    AddNumbers(flags, "workers", 1, 1000, &workers_, "Only these numbers of workers that push at once.");
    AddNames(flags, "variant", &variants_, "Only these variants, and plain_tcp.");
    flags->AddSeconds("seconds", &seconds_, "To spend on each figure, about. Default 2.");
  }

  absl::Status Run(const std::string& directory, std::vector<Row>* rows) override {
    const std::string command =
        absl::StrCat("bash deploy/make_certs.sh ", directory, " >", directory, "/log 2>&1");
    if (std::system(command.c_str()) != 0) return absl::UnavailableError("there are no certificates");
    for (const int64_t bytes : bytes_) {
      for (const int64_t workers : workers_) {
        std::cerr << Bytes(static_cast<double>(bytes)) << ", " << Plural(workers, "worker") << std::endl;
        // Whole float32 values.
        MeasureGroup({bytes / 4 * 4, static_cast<int>(workers)}, directory, rows);
      }
    }
    return absl::OkStatus();
  }

 private:
  // Every variant once with one size and number of workers, taking turns.
  void MeasureGroup(const Cell& cell, const std::string& directory, std::vector<Row>* rows) {
    std::vector<std::unique_ptr<Contender>> contenders;
    for (const Variant& variant : kVariants) {
      if (contenders.empty() ||
          std::find(variants_.begin(), variants_.end(), variant.name) != variants_.end())
        contenders.push_back(std::make_unique<Contender>(variant, cell, directory));
    }
    // Connections, page tables, congestion windows and pools are warm after this. plain_tcp is the first.
    double plain_ms = 0;
    for (const auto& contender : contenders) {
      const double ms =
          contender->WarmUp(static_cast<int>(std::clamp<int64_t>(100'000'000 / cell.bytes, 3, 100)));
      if (plain_ms == 0) plain_ms = ms;
    }
    const int count = std::max(1, static_cast<int>(50 / plain_ms));
    const int turns = std::max(5, static_cast<int>(1e3 * seconds_ / (plain_ms * count)));
    for (int turn = 0; turn < turns; ++turn) {
      for (const auto& contender : contenders) contender->Visit(count);
    }
    double unary_ms = 0;
    for (const auto& contender : contenders) {
      if (contender->variant().name == std::string("protobuf_unary")) unary_ms = contender->median_ms();
    }
    for (const auto& contender : contenders)
      rows->push_back(RowOf(*contender, cell, contenders.front()->median_ms(), unary_ms));
  }

  std::vector<int64_t> bytes_ = {4096, 800'000, 4'800'000, 44'000'000, 100'000'000};
  std::vector<int64_t> workers_ = {1, 2};
  std::vector<std::string> variants_;
  double seconds_ = 2;
};

}  // namespace

const BenchmarkKind kWire = {
    "wire",
    R"(Times the round trip of a gradient over loopback: N bytes to the server, which applies SGD, and N bytes of
fresh weights back. Every variant has a server and its workers in separate processes; all are up at once and
take turns, so that disturbances of the machine affect all of them.

plain_tcp, plain_unix   blocking sockets: write N, read N; the reference
protobuf_unary          generated messages over gRPC, one call a round trip
protobuf_stream         the same in messages of 1 MiB on a stream, written by one thread and read by another
catchment               the server's shard and the worker's client; _shm: with payloads in shared memory, which is
                        what a job on one machine does; _unix: over a Unix socket; _tls: mutual TLS;
                        _standby: answers wait until the standby, on a thread of the server's process, has
                        the update

Medians over all round trips of all workers. GB/s: 1e9 bytes, each way, all workers together. "cpu s/GB":
processor seconds of all processes for each GB moved, both ways counted. "wake-ups": how often a thread of the
server's process, and of a worker's, waited and was woken for a round trip.
)",
    {{"variant", "variant"},
     {"bytes", "bytes"},
     {"workers", "workers"},
     {"ms", "median_ms"},
     {"of plain TCP", "ratio_to_plain_tcp"},
     {"of unary", "ratio_to_protobuf_unary"},
     {"GB/s", "gb_per_s"},
     {"cpu s/GB", "cpu_s_per_gb"},
     {"server wake-ups", "server_wake_ups"},
     {"worker wake-ups", "worker_wake_ups"}},
    MakeBenchmark<Wire>,
    PrintPromises};

}  // namespace catchment
