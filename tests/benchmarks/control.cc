// Measures the cost of the control plane of a large job: see kUsage.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/process.h"
#include "cli/local/local_cluster.h"
#include "common/base/not_ready.h"
#include "common/base/text.h"
#include "common/job/data_sources.h"
#include "common/job/model_shapes.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"
#include "tests/benchmarks/control_servers.h"
#include "tests/benchmarks/control_workers.h"
#include "tests/benchmarks/process_usage.h"
#include "tests/benchmarks/report.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(bazel run -c opt //tests/benchmarks:control -- [flags]

Measures what the master spends on a job of many workers and servers (Downpour, a push in every step): one
real catchment_server is the master, and takes no pushes; the other servers and all workers are simulated in
this process and reach it over gRPC and loopback. The simulated shards are real ones, each worker pushes to
eight of them in every step, in turn, and has a separate connection to the master. The master writes
metrics.jsonl.

training    all workers train
waiting     all samples are assigned, and all workers but one wait for that one: the end of a job
core        share of a core that the master's process keeps busy (processor time, so other load does not count)
lease p50   from a worker's request for its next lease until it has it
calls/s     heartbeats and requests for leases, over all workers
)";

constexpr double kStartSeconds = 30;
constexpr double kBeginSeconds = 120;  // until every worker has a lease
constexpr uint64_t kPlenty = 4'000'000'000;
constexpr uint64_t kSamplesOfWaiting = 4;  // a worker

struct Options {
  std::vector<std::string> workers, servers;
  int step_ms = 1000;
  double seconds = 10;
  std::string json;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddString("json", "FILE", &o->json, "Writes the rows there, a list of objects.");
  flags.AddList("workers", "N,M", &o->workers, "Default: 100,500,1000,2000.");
  flags.AddList("servers", "N,M", &o->servers, "The master and the simulated ones. Default: 8,64.");
  flags.AddInt("step_ms", "N", 1, &o->step_ms, "A worker's step. Default 1000.");
  flags.AddSeconds("seconds", &o->seconds, "Measures so long. Default 10.");
  return flags;
}

struct Case {
  int workers = 1;
  int servers = 1;
  bool waiting = false;
};

struct Figures {
  double core = 0;
  std::optional<double> lease_p50_ms, lease_p99_ms;  // none was granted
  double calls_per_second = 0;
};

std::optional<double> QuantileMs(std::vector<double> seconds, double quantile) {
  if (seconds.empty()) return std::nullopt;
  const size_t at = std::min(seconds.size() - 1, static_cast<size_t>(quantile * seconds.size()));
  std::nth_element(seconds.begin(), seconds.begin() + at, seconds.end());
  return 1000 * seconds[at];
}

uint64_t SamplesOf(const Case& c) { return c.waiting ? kSamplesOfWaiting * c.workers : kPlenty; }

std::string JobText(const Case& c) {
  // 64 values a shard.
  return absl::StrCat("name: \"control\"\nmodel { synthetic { parameters: ", 64 * c.servers,
                      " } }\ndata { synthetic { samples: ", SamplesOf(c),
                      " } }\nalgorithm { preset: \"downpour\" }\nbatch_size: 1\nworkers: ", c.workers,
                      "\nepochs: 1\ncheckpoint { every_updates: 0 }\n");
}

class Run {
 public:
  Run(const Case& c, const Options& options, const std::string& program, const std::string& directory)
      : case_(c), options_(options), program_(program), directory_(directory) {}

  absl::StatusOr<Figures> Measure() {
    if (absl::Status status = Prepare(); !status.ok()) return status;
    SimulatedServers servers(job_, tensors_, case_.servers);
    if (absl::Status status = StartMaster(servers.address()); !status.ok()) return status;
    if (absl::Status status = servers.Register(job_, master_); !status.ok()) return status;
    const absl::StatusOr<uint64_t> run_id = RunId();
    if (!run_id.ok()) return run_id.status();
    ControlRecord record;
    SimulatedWorkers::Options options;
    options.master = master_;
    options.workers = case_.workers;
    options.step_seconds = options_.step_ms / 1000.0;
    options.train_samples = SamplesOf(case_);
    options.first_never_works = case_.waiting;
    SimulatedWorkers workers(options, tensors_, *run_id, &servers, &record);
    absl::Status status = workers.Start();
    if (status.ok()) status = AwaitWork(record);
    if (status.ok()) status = Watch(&record);
    process_->Signal(SIGKILL);
    if (!status.ok()) return status;
    return figures_;
  }

 private:
  absl::Status Prepare() {
    v1::Job job;
    if (absl::Status status = ParseText(JobText(case_), "job", "", &job); !status.ok()) return status;
    absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(std::move(job));
    if (!complete.ok()) return complete.status();
    job_ = *std::move(complete);
    const DataShape data = ShapeOf(job_.data());
    absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(job_.model(), data.input, data.target);
    if (!layers.ok()) return layers.status();
    tensors_ = ListTensors(*layers);
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ + "/job.textproto") << JobText(case_);
    return absl::OkStatus();
  }

  absl::Status StartMaster(const std::string& others) {
    std::vector<std::string> addresses(case_.servers, others);
    addresses[0] = "127.0.0.1:0";
    Command command;
    command.name = "master";
    command.argv = {program_, "--job=" + directory_ + "/job.textproto",
                    "--servers=" + absl::StrJoin(addresses, ","), "--out=" + directory_ + "/out"};
    command.log = directory_ + "/master.log";
    absl::StatusOr<Process> process = Process::Start(command);
    if (!process.ok()) return process.status();
    process_.emplace(*std::move(process));
    const double deadline = clock_.Now() + kStartSeconds;
    while (clock_.Now() < deadline && !process_->Poll().has_value()) {
      master_ = ListeningAddress(process_->Output(), 0);
      if (!master_.empty()) return absl::OkStatus();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return absl::UnavailableError(
        absl::StrCat("the master does not listen: ", absl::StrJoin(process_->LastLines(5), "\n")));
  }

  absl::StatusOr<uint64_t> RunId() const {
    const auto stub =
        v1::MasterService::NewStub(ConnectForControl(master_, grpc::InsecureChannelCredentials()));
    v1::GetJobReply reply;
    absl::Status status;
    do {
      status = FromGrpc(stub->GetJob(DeadlineContext(kStartSeconds).get(), {}, &reply));
    } while (IsNotReady(status));  // until the master has made its shard
    if (!status.ok()) return status;
    return reply.run_id();
  }

  // Until every worker has its first lease and a little longer; or, waiting, until all but one have none.
  absl::Status AwaitWork(const ControlRecord& record) {
    const double deadline = clock_.Now() + kBeginSeconds;
    while (record.working() < case_.workers && record.error().ok()) {
      if (clock_.Now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat(record.working(), " workers have a lease after ", kBeginSeconds, " s"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const double steps = case_.waiting ? 3 * kSamplesOfWaiting : 3;
    std::this_thread::sleep_for(std::chrono::duration<double>(steps * options_.step_ms / 1000.0));
    return record.error();
  }

  absl::Status Watch(ControlRecord* record) {
    record->Begin();
    const double begin = clock_.Now(), used = ProcessorSeconds(process_->pid());
    const int64_t calls = record->calls();
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
    const double seconds = clock_.Now() - begin;
    figures_.core = (ProcessorSeconds(process_->pid()) - used) / seconds;
    figures_.calls_per_second = (record->calls() - calls) / seconds;
    const std::vector<double> leases = record->TakeLeaseSeconds();
    figures_.lease_p50_ms = QuantileMs(leases, 0.5);
    figures_.lease_p99_ms = QuantileMs(leases, 0.99);
    if (const auto end = process_->Poll(); end.has_value()) {
      return absl::AbortedError(absl::StrCat("the master ended: ", ToString(*end), ": ",
                                             absl::StrJoin(process_->LastLines(5), "\n")));
    }
    return record->error();
  }

  const Case case_;
  const Options& options_;
  const std::string program_, directory_;
  const SteadyClock clock_;
  v1::Job job_;
  std::vector<TensorSpec> tensors_;
  std::optional<Process> process_;
  std::string master_;
  Figures figures_;
};

absl::StatusOr<std::vector<int>> Numbers(const std::string& flag, const std::vector<std::string>& texts,
                                         const std::string& defaults, int least, int most) {
  std::vector<int> numbers;
  const std::string all = texts.empty() ? defaults : absl::StrJoin(texts, ",");
  for (const absl::string_view text : absl::StrSplit(all, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, "=", text, ": takes whole numbers from ", least, " to ", most));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::vector<Case>> ChooseCases(const Options& options) {
  const auto workers = Numbers("workers", options.workers, "100,500,1000,2000", 2, 10'000);
  if (!workers.ok()) return workers.status();
  const auto servers = Numbers("servers", options.servers, "8,64", 1, 256);
  if (!servers.ok()) return servers.status();
  std::vector<Case> cases;
  for (const int s : *servers) {
    for (const int w : *workers) {
      for (const bool waiting : {false, true}) cases.push_back({w, s, waiting});
    }
  }
  return cases;
}

nlohmann::ordered_json RowOf(const Case& c, const Figures& f, const Options& options) {
  const auto number = [](const std::optional<double>& value) {
    return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  return {{"workers", c.workers},
          {"servers", c.servers},
          {"phase", c.waiting ? "waiting" : "training"},
          {"step_ms", options.step_ms},
          {"core_share", f.core},
          {"lease_p50_ms", number(f.lease_p50_ms)},
          {"lease_p99_ms", number(f.lease_p99_ms)},
          {"calls_per_s", f.calls_per_second},
          {"cores", Cores()},
          {"processor", ProcessorModel()}};
}

absl::Status RunCases(const Options& options, const std::vector<Case>& cases, const std::string& program,
                      const std::string& directory) {
  Table table;
  table.Add({"workers", "servers", "phase", "core", "lease p50 ms", "lease p99 ms", "calls/s"});
  std::vector<nlohmann::ordered_json> rows;
  absl::Status status;
  for (const Case& c : cases) {
    const char* const phase = c.waiting ? "waiting" : "training";
    const std::string run = absl::StrCat(directory, "/", c.workers, "-", c.servers, "-", phase);
    const absl::StatusOr<Figures> f = Run(c, options, program, run).Measure();
    status = f.status();
    if (!status.ok()) break;
    const auto ms = [](const std::optional<double>& value) {
      return value.has_value() ? absl::StrFormat("%.2f", *value) : "";
    };
    table.Add({Count(c.workers), Count(c.servers), phase, absl::StrFormat("%.3f", f->core),
               ms(f->lease_p50_ms), ms(f->lease_p99_ms), absl::StrFormat("%.0f", f->calls_per_second)});
    rows.push_back(RowOf(c, *f, options));
    std::cerr << rows.back().dump() << "\n";
  }
  if (!rows.empty()) std::cout << table.Print(0);
  if (!status.ok()) return status;
  return WriteRows(rows, options.json);
}

absl::Status RunAll(const Options& options) {
  const absl::StatusOr<std::vector<Case>> cases = ChooseCases(options);
  if (!cases.ok()) return cases.status();
  if (absl::Status status = WriteRows({}, options.json); !status.ok()) return status;
  const absl::StatusOr<std::string> here = OwnDirectory();
  if (!here.ok()) return here.status();
  const std::filesystem::path root = std::filesystem::path(*here).parent_path().parent_path();
  std::string directory = std::filesystem::temp_directory_path() / "catchment_control.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make a folder for logs, ", directory));
  }
  const absl::Status status = RunCases(options, *cases, root / "server/catchment_server", directory);
  if (status.ok()) std::filesystem::remove_all(directory);
  if (!status.ok()) std::cerr << "logs are in " << directory << "\n";
  return status;
}

int Main(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  return RunBenchmark("control", kUsage, flags, args, [&] { return RunAll(options); });
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::TuneProcess();
  return catchment::Main({argv + 1, argv + argc});
}
