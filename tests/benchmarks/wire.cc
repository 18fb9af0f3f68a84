// Measures the time from a gradient to the updated weights: see kUsage. Begin reading at MeasureGroup.
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/program/command_line.h"
#include "tests/benchmarks/report.h"
#include "tests/benchmarks/wire_peers.h"
#include "tests/benchmarks/wire_process.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(bazel run -c opt //tests/benchmarks:wire -- [flags]

Times the round trip of a gradient over loopback: N bytes to the server, which applies SGD, and N bytes of
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
)";

struct Options {
  std::vector<std::string> bytes;
  std::vector<std::string> workers;
  std::vector<std::string> variants;
  double seconds = 2;
  std::string json;
  std::string role;
  std::string peer;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddString("json", "FILE", &o->json, "Writes the rows there, a list of objects.");
  flags.AddList(
      "bytes", "N", &o->bytes,
      "Only weights of this size. Any number of times. Default: 4096, 800000, 4800000, 44000000, 100000000.");
  flags.AddList("workers", "N", &o->workers,
                "Only this number of workers pushing at the same time. May be repeated. Default: 1, 2.");
  flags.AddList("variant", "NAME", &o->variants,
                "Only this variant, and plain_tcp. Any number of times. Default: all.");
  flags.AddSeconds("seconds", &o->seconds, "To spend on each figure, about. Default 2.");
  flags.AddString("role", "NAME", &o->role, "");
  flags.AddString("peer", "OPTIONS", &o->peer, "");
  return flags;
}

struct Variant {
  std::string name;
  std::string code;  // PeerOptions::variant
  std::string transport;
  bool tls = false;
};

const std::vector<Variant>& AllVariants() {
  static const auto* const all = new std::vector<Variant>{
      {"plain_tcp", "plain", "tcp"},
      {"plain_unix", "plain", "unix"},
      {"protobuf_unary", "protobuf_unary", "tcp"},
      {"protobuf_stream", "protobuf_stream", "tcp"},
      {"protobuf_unary_tls", "protobuf_unary", "tcp", true},
      {"catchment", "catchment", "tcp"},
      {"catchment_shm", "catchment", "shm"},
      {"catchment_unix", "catchment", "unix"},
      {"catchment_tls", "catchment", "tcp", true},
      {"catchment_standby", "catchment_standby", "tcp"},
      {"catchment_shm_standby", "catchment_standby", "shm"},
  };
  return *all;
}

// ------------------------------------------------------------------------------------- the other processes

std::string ToFlag(const PeerOptions& o) {
  return absl::StrCat("--peer=", o.variant, ",", o.transport, ",", o.tls, ",", o.values, ",", o.workers, ",",
                      o.worker, ",", o.address, ",", o.certificates);
}

PeerOptions FromFlag(const std::string& flag) {
  const std::vector<std::string> words = absl::StrSplit(flag, ',');
  CHECK_EQ(words.size(), 8u);
  return {words[0], words[1], words[2] == "1", std::stoll(words[3]), std::stoi(words[4]), std::stoi(words[5]),
          words[6], words[7]};
}

bool IsCatchment(const PeerOptions& options) { return absl::StartsWith(options.variant, "catchment"); }

std::unique_ptr<WireServer> MakeServer(const PeerOptions& options) {
  if (options.variant == "plain") return MakePlainServer(options);
  return IsCatchment(options) ? MakeCatchmentServer(options) : MakeProtobufServer(options);
}

std::unique_ptr<WireWorker> MakeWorker(const PeerOptions& options) {
  if (options.variant == "plain") return MakePlainWorker(options);
  return IsCatchment(options) ? MakeCatchmentWorker(options) : MakeProtobufWorker(options);
}

std::string UsageLine() {
  const ProcessUsage usage = UsageOfThisProcess();
  return absl::StrFormat("%.6f %.0f", usage.seconds, usage.wake_ups);
}

// Says its address; answers every line with what it has used.
[[noreturn]] void RunServer(const PeerOptions& options) {
  const std::unique_ptr<WireServer> server = MakeServer(options);
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
[[noreturn]] void RunWorker(const PeerOptions& options) {
  const std::unique_ptr<WireWorker> worker = MakeWorker(options);
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
  Contender(const Variant& variant, int64_t bytes, int workers, const std::string& directory,
            const std::string& certificates)
      : variant_(variant) {
    PeerOptions options{variant.code, variant.transport, variant.tls, bytes / 4, workers};
    options.address = variant.transport == "unix"
                          ? absl::StrCat(directory, "/", variant.name, bytes, "_", workers)
                          : "127.0.0.1:0";
    if (variant.tls) options.certificates = certificates;
    server_ = std::make_unique<Subprocess>(std::vector<std::string>{"--role=server", ToFlag(options)});
    options.address = server_->Receive();
    for (options.worker = 0; options.worker < workers; ++options.worker) {
      workers_.push_back(
          std::make_unique<Subprocess>(std::vector<std::string>{"--role=worker", ToFlag(options)}));
    }
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
  const Variant variant_;
  std::unique_ptr<Subprocess> server_;
  std::vector<std::unique_ptr<Subprocess>> workers_;
  std::vector<double> times_;
  Used warm_, seen_;  // up to the end of WarmUp, and of the last Run
};

struct Cell {
  int64_t bytes = 0;
  int workers = 1;
};

nlohmann::ordered_json RowOf(const Contender& contender, const Cell& cell, double plain_ms, double unary_ms) {
  const double ms = contender.median_ms();
  const auto trips = static_cast<double>(contender.round_trips());
  const double gigabytes = 2e-9 * static_cast<double>(cell.bytes) * trips;
  const Contender::Used used = contender.used();
  nlohmann::ordered_json row = {{"variant", contender.variant().name},
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

// Every variant once with one size and number of workers, taking turns.
std::vector<nlohmann::ordered_json> MeasureGroup(const std::vector<Variant>& variants, const Cell& cell,
                                                 double seconds, const std::string& directory,
                                                 const std::string& certificates) {
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const Variant& variant : variants) {
    contenders.push_back(
        std::make_unique<Contender>(variant, cell.bytes, cell.workers, directory, certificates));
  }
  // Connections, page tables, congestion windows and pools are warm after this. plain_tcp is the first.
  double plain_ms = 0;
  for (const auto& contender : contenders) {
    const double ms =
        contender->WarmUp(static_cast<int>(std::clamp<int64_t>(100'000'000 / cell.bytes, 3, 100)));
    if (plain_ms == 0) plain_ms = ms;
  }
  const int count = std::max(1, static_cast<int>(50 / plain_ms));
  const int turns = std::max(5, static_cast<int>(1e3 * seconds / (plain_ms * count)));
  for (int turn = 0; turn < turns; ++turn) {
    for (const auto& contender : contenders) contender->Visit(count);
  }
  double unary_ms = 0;
  for (const auto& contender : contenders) {
    if (contender->variant().name == "protobuf_unary") unary_ms = contender->median_ms();
  }
  std::vector<nlohmann::ordered_json> rows;
  for (const auto& contender : contenders) {
    rows.push_back(RowOf(*contender, cell, contenders.front()->median_ms(), unary_ms));
  }
  return rows;
}

void MakeCertificates(const std::string& directory) {
  const std::string command =
      absl::StrCat("bash deploy/make_certs.sh ", directory, " >", directory, "/log 2>&1");
  CHECK_EQ(std::system(command.c_str()), 0) << "see " << directory << "/log";
}

absl::StatusOr<std::vector<Variant>> ChooseVariants(const std::vector<std::string>& names) {
  if (names.empty()) return AllVariants();
  std::vector<Variant> chosen = {AllVariants().front()};
  std::vector<std::string> all;
  for (const Variant& variant : AllVariants()) {
    all.push_back(variant.name);
    if (std::find(names.begin(), names.end(), variant.name) != names.end() && variant.name != "plain_tcp") {
      chosen.push_back(variant);
    }
  }
  for (const std::string& name : names) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--variant=", name, " is none of ", absl::StrJoin(all, ", ")));
  }
  return chosen;
}

absl::StatusOr<std::vector<int64_t>> Numbers(const std::string& flag, const std::vector<std::string>& texts,
                                             std::vector<int64_t> otherwise, int64_t most) {
  if (texts.empty()) return otherwise;
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 1 || number > most) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", text, " is not from 1 to ", most));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::vector<Cell>> ChooseCells(const Options& options) {
  const auto sizes =
      Numbers("bytes", options.bytes, {4096, 800'000, 4'800'000, 44'000'000, 100'000'000}, 4e9);
  if (!sizes.ok()) return sizes.status();
  const auto workers = Numbers("workers", options.workers, {1, 2}, 1000);
  if (!workers.ok()) return workers.status();
  std::vector<Cell> cells;
  for (int64_t bytes : *sizes) {
    // Whole float32 values.
    for (int64_t count : *workers)
      cells.push_back({std::max<int64_t>(4, bytes / 4 * 4), static_cast<int>(count)});
  }
  return cells;
}

void Print(const std::vector<nlohmann::ordered_json>& rows) {
  Table table;
  table.Add(
      {"variant", "bytes", "workers", "ms", "of plain TCP", "of unary", "GB/s", "cpu s/GB", "wake-ups"});
  for (const auto& row : rows) {
    const auto number = [&](const char* key) {
      return row.contains(key) ? Short(row[key].get<double>(), 3) : std::string();
    };
    table.Add({row["variant"].get<std::string>(), Count(row["bytes"].get<int64_t>()),
               Count(row["workers"].get<int64_t>()), number("median_ms"), number("ratio_to_plain_tcp"),
               number("ratio_to_protobuf_unary"), number("gb_per_s"), number("cpu_s_per_gb"),
               absl::StrCat(number("server_wake_ups"), " + ", number("worker_wake_ups"))});
  }
  std::cout << "a gradient there, fresh weights back, over loopback: medians\n" << table.Print(0);
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

void PrintPromises(const std::vector<nlohmann::ordered_json>& rows) {
  const auto find = [&](const char* variant, int64_t bytes) {
    return std::find_if(rows.begin(), rows.end(), [&](const auto& row) {
      return row["variant"] == variant && row["bytes"] == bytes && row["workers"] == 1;
    });
  };
  bool any = false;
  Table table;
  table.Add({"one worker", "bytes", "figure", "promised", "measured", "kept"});
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
    table.Add({promise.variant, Count(promise.bytes), figure, Short(promise.most, 3), Short(measured, 3),
               measured <= promise.most ? "yes" : "no"});
    any = true;
  }
  if (any) std::cout << "\n" << table.Print(0);
}

absl::Status Run(const Options& options) {
  const absl::StatusOr<std::vector<Variant>> variants = ChooseVariants(options.variants);
  if (!variants.ok()) return variants.status();
  const absl::StatusOr<std::vector<Cell>> cells = ChooseCells(options);
  if (!cells.ok()) return cells.status();
  char directory[] = "/tmp/catchment_wire_XXXXXX";
  PCHECK(mkdtemp(directory) != nullptr);
  MakeCertificates(directory);
  std::vector<nlohmann::ordered_json> rows;
  for (size_t i = 0; i < cells->size(); ++i) {
    const Cell& cell = (*cells)[i];
    std::cerr << i + 1 << " of " << cells->size() << ": " << Bytes(static_cast<double>(cell.bytes)) << ", "
              << Plural(cell.workers, "worker") << std::endl;
    for (auto& row : MeasureGroup(*variants, cell, options.seconds, directory, directory)) {
      rows.push_back(std::move(row));
    }
  }
  std::filesystem::remove_all(directory);
  Print(rows);
  PrintPromises(rows);
  return WriteRows(rows, options.json);
}

int Main(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  return RunBenchmark("wire", kUsage, flags, args, [&] {
    if (options.role == "server") RunServer(FromFlag(options.peer));
    if (options.role == "worker") RunWorker(FromFlag(options.peer));
    return Run(options);
  });
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  catchment::TuneProcess();
  return catchment::Main({argv + 1, argv + argc});
}
