// Measures how much checkpoints slow down training: see the usage.
#include <atomic>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/checkpoint/manifest.h"
#include "tests/benchmarks/benchmark.h"
#include "tests/benchmarks/process.h"
#include "tests/benchmarks/wire_peers.h"

namespace catchment {
namespace {

// Saves one checkpoint after the other, at least one, and deletes each once the next is there.
class Saver {
 public:
  Saver(WireServer* server, std::string directory) : server_(*server), directory_(std::move(directory)) {}

  void Start() {
    stop_ = false;
    thread_ = std::thread([this] {
      do {
        server_.SaveCheckpoint(++number_);
        std::filesystem::remove_all(CheckpointDirectory(directory_, number_ - 1));
      } while (!stop_);
    });
  }
  // Returns how many there are in all, once the one under way is saved.
  uint64_t Stop() {
    stop_ = true;
    thread_.join();
    return number_;
  }

 private:
  WireServer& server_;
  const std::string directory_;
  uint64_t number_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Says its address; then takes "save" and "rest", which it answers with the checkpoints so far.
void RunServer(const PeerOptions& options) {
  const std::unique_ptr<WireServer> server = MakeCatchmentServer(options);
  std::cout << server->address() << std::endl;
  Saver saver(server.get(), options.checkpoints);
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "save") {
      saver.Start();
    } else {
      std::cout << saver.Stop() << std::endl;
    }
  }
  std::_Exit(0);
}

class Checkpoint final : public Benchmark {
 public:
  void AddFlags(FlagSet* flags) override {
    flags->AddInt("bytes", "N", 4, &bytes_, "Of the weights. Default 44000000.");
    flags->AddInt("turns", "N", 1, &turns_, "Times that the two take turns. Default 8.");
    flags->AddInt("steps", "N", 1, &steps_, "Round trips of each turn. Default 50.");
    flags->AddString("dir", "DIR", &checkpoints_, "Where checkpoints go. Default: a directory in /tmp.");
  }

  absl::Status Run(const std::string& directory, std::vector<Row>* rows) override {
    PeerOptions options{"shm", bytes_ / 4};
    options.optimizer = v1::Optimizer::ADAM;
    options.checkpoints = checkpoints_.empty() ? directory : checkpoints_;
    Subprocess server([&] { RunServer(options); });
    options.address = server.Receive();
    const std::unique_ptr<WireWorker> worker = MakeCatchmentWorker(options);
    gradient_.assign(options.values, 1e-3f);
    weights_.resize(options.values);
    std::vector<double> warming, with, without;
    RoundTrips(10, worker.get(), &warming);
    uint64_t saved = 0;
    for (int turn = 0; turn < turns_; ++turn) {
      RoundTrips(steps_, worker.get(), &without);
      server.Send("save");
      RoundTrips(steps_, worker.get(), &with);
      server.Send("rest");
      saved = std::stoull(server.Receive());
    }
    rows->push_back({{"bytes", bytes_},
                     {"round_trips", with.size()},
                     {"checkpoints", saved},
                     {"without_p50_ms", Median(without)},
                     {"without_p99_ms", Quantile(without, 0.99)},
                     {"with_p50_ms", Median(with)},
                     {"with_p99_ms", Quantile(with, 0.99)},
                     {"ratio_p50", Median(with) / Median(without)},
                     {"ratio_p99", Quantile(with, 0.99) / Quantile(without, 0.99)}});
    return absl::OkStatus();
  }

 private:
  // Appends the milliseconds of each.
  void RoundTrips(int count, WireWorker* worker, std::vector<double>* times) {
    for (int i = 0; i < count; ++i) {
      const double start = clock_.Now();
      worker->RoundTrip(gradient_, absl::MakeSpan(weights_));
      times->push_back(1e3 * (clock_.Now() - start));
    }
  }

  int bytes_ = 44'000'000;
  int turns_ = 8;
  int steps_ = 50;
  std::string checkpoints_;
  const SteadyClock clock_;
  std::vector<float> gradient_, weights_;
};

}  // namespace

const BenchmarkKind kCheckpoint = {
    "checkpoint",
    R"(Times the round trip of one asynchronous worker's gradient over loopback, which the server applies with ADAM,
while the server saves one checkpoint after the other (weights and both vectors of state) and while it saves
none. Both take turns in one run; the server is a separate process. ratio_p99: with checkpoints over without.
)",
    {{"bytes", "bytes"},
     {"round trips", "round_trips"},
     {"checkpoints", "checkpoints"},
     {"without: p50 ms", "without_p50_ms"},
     {"p99 ms", "without_p99_ms"},
     {"with: p50 ms", "with_p50_ms"},
     {"p99 ms", "with_p99_ms"},
     {"ratio_p50", "ratio_p50"},
     {"ratio_p99", "ratio_p99"}},
    MakeBenchmark<Checkpoint>};

}  // namespace catchment
