// Measures how much checkpoints slow down training: see kUsage. Begin reading at Measure.
#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/checkpoint/manifest.h"
#include "common/program/command_line.h"
#include "server/edge/listener.h"
#include "server/edge/shard_service.h"
#include "server/host/shard_host.h"
#include "server/shard/run_claim.h"
#include "tests/benchmarks/report.h"
#include "tests/benchmarks/wire_process.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(bazel run -c opt //tests/benchmarks:checkpoint -- [flags]

Times the round trip of one asynchronous worker's gradient over loopback, which the server applies with ADAM,
while the server saves one checkpoint after the other (weights and both vectors of state) and while it saves
none. Both take turns in one run; the server is a separate process. ratio_p99: with checkpoints over without.
)";

constexpr uint64_t kRunId = 1;
constexpr int64_t kBlockValues = 1 << 18;  // a job's default of 1 MiB

struct Options {
  int bytes = 44'000'000;
  int turns = 8;
  int steps = 50;
  std::string directory;
  std::string json;
  std::string role;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddInt("bytes", "N", 4, &o->bytes, "Of the weights. Default 44000000.");
  flags.AddInt("turns", "N", 1, &o->turns, "Times that the two take turns. Default 8.");
  flags.AddInt("steps", "N", 1, &o->steps, "Round trips of each turn. Default 50.");
  flags.AddString("dir", "DIR", &o->directory, "Where checkpoints go. Default: a directory in /tmp.");
  flags.AddString("json", "FILE", &o->json, "Writes the row there, in a list.");
  flags.AddString("role", "NAME", &o->role, "");
  return flags;
}

v1::Job MakeJob() {
  v1::Job job;
  job.set_name("checkpoint");
  job.mutable_algorithm()->mutable_consistency()->mutable_asynchronous();
  v1::AccruedGradient* const gradient = job.mutable_algorithm()->mutable_contribution()->mutable_gradient();
  gradient->set_push_period(1);
  gradient->set_fetch_period(1);
  v1::Optimizer* const optimizer = job.mutable_optimizer();
  optimizer->set_kind(v1::Optimizer::ADAM);
  optimizer->set_learning_rate(1e-3f);
  optimizer->set_beta1(0.9f);
  optimizer->set_beta2(0.999f);
  optimizer->set_epsilon(1e-8f);
  optimizer->mutable_schedule()->set_decay(v1::Schedule::CONSTANT);
  return job;
}

ParameterLayout MakeLayout(const Options& options) {
  return *ParameterLayout::Create({{"w", {options.bytes / 4}}}, 1, kBlockValues);
}

// ------------------------------------------------------------------------------------------------ the server

v1::ShardCommand MakeCommand() {
  v1::ShardCommand command;
  command.set_generation(1);
  command.mutable_run()->set_id(kRunId);
  v1::Member* const member = command.add_rosters()->add_members();
  member->set_incarnation(1);
  return command;
}

// Saves one checkpoint after the other, and deletes each once the next is there.
class Saver {
 public:
  Saver(ShardHost* host, std::string directory) : host_(*host), directory_(std::move(directory)) {}

  void Start() {
    stop_ = false;
    thread_ = std::thread([this] {
      while (!stop_) SaveOne();
    });
  }
  // Returns how many there are in all, once the one under way is saved.
  uint64_t Stop() {
    stop_ = true;
    thread_.join();
    return number_;
  }

 private:
  void SaveOne() {
    v1::ShardCommand command = MakeCommand();
    command.set_checkpoint(++number_);
    command.set_generation(1 + number_);
    while (true) {
      const v1::ShardReport report = host_.Control(command, clock_.Now());
      CHECK(report.save_error().empty()) << report.save_error();
      if (report.saved_size() > 0 && report.saved(report.saved_size() - 1).checkpoint() == number_) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::filesystem::remove_all(CheckpointDirectory(directory_, number_ - 1));
  }

  ShardHost& host_;
  const std::string directory_;
  const SteadyClock clock_;
  uint64_t number_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Says its address; then takes "save" and "rest", which it answers with the checkpoints so far.
[[noreturn]] void RunServer(const Options& options) {
  const ParameterLayout layout = MakeLayout(options);
  Shard::Contents contents;
  contents.weights.assign(layout.size(), 0.5f);
  ShardHost host(MakeJob(), layout, 0, std::move(contents), options.directory);
  const SteadyClock clock;
  host.Control(MakeCommand(), clock.Now());
  RunClaim claim(/*server_instance=*/1);
  v1::Run run;
  run.set_id(kRunId);
  CHECK(claim.Claim(run).ok());
  ShardService service("checkpoint", layout, host.shard(), &claim,
                       [](const v1::ShardCommand&) { return v1::ShardReport(); });
  absl::StatusOr<Listener> listener =
      Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {&service}, {});
  CHECK(listener.ok()) << listener.status();
  std::cout << listener->address() << std::endl;
  Saver saver(&host, options.directory);
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "save") {
      saver.Start();
    } else {
      std::cout << saver.Stop() << std::endl;
    }
  }
  std::_Exit(0);
}

// ------------------------------------------------------------------------------------------------ the worker

class Worker {
 public:
  Worker(const Options& options, const std::string& address)
      : layout_(MakeLayout(options)),
        client_({{address},
                 grpc::InsecureChannelCredentials(),
                 "checkpoint",
                 0,
                 1,
                 60,
                 v1::Compression(),
                 kRunId},
                &layout_, &clock_),
        gradient_(layout_.size(), 1e-3f),
        weights_(layout_.size()) {}

  // Milliseconds of each.
  void RoundTrips(int count, std::vector<double>* times) {
    for (int i = 0; i < count; ++i) {
      const double start = clock_.Now();
      const auto outcome = client_.PushPull(gradient_, 1, absl::MakeSpan(weights_), ++steps_);
      CHECK(outcome.ok()) << outcome.status();
      times->push_back(1e3 * (clock_.Now() - start));
    }
  }

 private:
  const SteadyClock clock_;
  const ParameterLayout layout_;
  ParameterClient client_;
  uint64_t steps_ = 0;
  const std::vector<float> gradient_;
  std::vector<float> weights_;
};

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

nlohmann::ordered_json Measure(const Options& options) {
  Subprocess server(
      {"--role=server", absl::StrCat("--bytes=", options.bytes), absl::StrCat("--dir=", options.directory)});
  Worker worker(options, server.Receive());
  std::vector<double> warming, with, without;
  worker.RoundTrips(10, &warming);
  uint64_t checkpoints = 0;
  for (int turn = 0; turn < options.turns; ++turn) {
    worker.RoundTrips(options.steps, &without);
    server.Send("save");
    worker.RoundTrips(options.steps, &with);
    server.Send("rest");
    checkpoints = std::stoull(server.Receive());
  }
  return {{"bytes", options.bytes},
          {"round_trips", with.size()},
          {"checkpoints", checkpoints},
          {"without_p50_ms", Median(without)},
          {"without_p99_ms", Quantile(without, 0.99)},
          {"with_p50_ms", Median(with)},
          {"with_p99_ms", Quantile(with, 0.99)},
          {"ratio_p50", Median(with) / Median(without)},
          {"ratio_p99", Quantile(with, 0.99) / Quantile(without, 0.99)}};
}

absl::Status Run(Options options) {
  if (options.role == "server") RunServer(options);
  const bool own_directory = options.directory.empty();
  if (own_directory) {
    std::string name = "/tmp/checkpoint-benchmark-XXXXXX";
    CHECK(mkdtemp(name.data()) != nullptr) << name;
    options.directory = name;
  }
  const nlohmann::ordered_json row = Measure(options);
  for (const auto& [key, value] : row.items()) std::cout << absl::StrFormat("%-16s ", key) << value << "\n";
  if (own_directory) std::filesystem::remove_all(options.directory);
  return WriteRows({row}, options.json);
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::Options options;
  catchment::FlagSet flags = catchment::MakeFlags(&options);
  return catchment::RunBenchmark("checkpoint", catchment::kUsage, flags, {argv + 1, argv + argc},
                                 [&options] { return catchment::Run(options); });
}
