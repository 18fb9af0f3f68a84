// Measures the cost of the control plane of a large job: see the usage.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/process.h"
#include "cli/local/local_cluster.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"
#include "common/job/data_sources.h"
#include "common/job/model_shapes.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "common/net/rpc.h"
#include "tests/benchmarks/benchmark.h"
#include "tests/benchmarks/control_servers.h"
#include "tests/benchmarks/control_workers.h"
#include "tests/benchmarks/process.h"

namespace catchment {
namespace {

constexpr double kStartSeconds = 30;
constexpr double kPoll = 0.02;
constexpr double kBeginSeconds = 120;  // until every worker has a lease
constexpr uint64_t kPlenty = 4'000'000'000;
constexpr uint64_t kSamplesOfWaiting = 4;  // a worker

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

struct Case {
  int workers = 1;
  int servers = 1;
  bool waiting = false;
  int step_ms = 1000;
  double seconds = 10;  // measured

  const char* phase() const { return waiting ? "waiting" : "training"; }
  double step_seconds() const { return step_ms / 1000.0; }
  uint64_t samples() const { return waiting ? kSamplesOfWaiting * workers : kPlenty; }
};

std::string JobText(const Case& c) {
  // 64 values a shard.
  return absl::StrCat("name: \"control\"\nmodel { synthetic { parameters: ", 64 * c.servers,
                      " } }\ndata { synthetic { samples: ", c.samples(),
                      " } }\nalgorithm { preset: \"downpour\" }\nbatch_size: 1\nworkers: ", c.workers,
                      "\nepochs: 1\ncheckpoint { every_updates: 0 }\n");
}

class MasterRun {
 public:
  // `directory`: for the job and the master's log.
  MasterRun(const Case& c, std::string program, std::string directory)
      : case_(c), program_(std::move(program)), directory_(std::move(directory)) {}

  absl::StatusOr<Row> Measure() {
    RETURN_IF_ERROR(Prepare());
    SimulatedServers servers(job_, tensors_, case_.servers);
    RETURN_IF_ERROR(StartMaster(servers.address()));
    // Both are called again until the master has made its shard.
    absl::Status registered;
    while (IsNotReady(registered = servers.Register(job_, master_))) Sleep(kPoll);
    RETURN_IF_ERROR(registered);
    absl::StatusOr<uint64_t> run_id;
    while (IsNotReady((run_id = RunId()).status())) Sleep(kPoll);
    RETURN_IF_ERROR(run_id.status());
    ControlRecord record;
    SimulatedWorkers::Options options;
    options.master = master_;
    options.workers = case_.workers;
    options.step_seconds = case_.step_seconds();
    options.train_samples = case_.samples();
    options.first_never_works = case_.waiting;
    SimulatedWorkers workers(options, tensors_, *run_id, &servers, &record);
    RETURN_IF_ERROR(workers.Start());
    RETURN_IF_ERROR(AwaitWork(record));
    absl::StatusOr<Row> row = Watch(&record);
    process_->Signal(SIGKILL);
    return row;
  }

 private:
  absl::Status Prepare() {
    v1::Job job;
    RETURN_IF_ERROR(ParseText(JobText(case_), "job", "", &job));
    ASSIGN_OR_RETURN(job_, FillDefaultsAndValidate(std::move(job)));
    const DataShape data = ShapeOf(job_.data());
    ASSIGN_OR_RETURN(const std::vector<LayerShape> layers,
                     InferShapes(job_.model(), data.input, data.target));
    tensors_ = ListTensors(layers);
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
    ASSIGN_OR_RETURN(Process process, Process::Start(command));
    process_.emplace(std::move(process));
    const double deadline = clock_.Now() + kStartSeconds;
    while (clock_.Now() < deadline && !process_->Poll().has_value()) {
      master_ = ListeningAddress(process_->Output(), 0);
      if (!master_.empty()) return absl::OkStatus();
      Sleep(kPoll);
    }
    return absl::UnavailableError(
        absl::StrCat("the master does not listen: ", absl::StrJoin(process_->LastLines(5), "\n")));
  }

  absl::StatusOr<uint64_t> RunId() const {
    const auto stub =
        v1::MasterService::NewStub(ConnectForControl(master_, grpc::InsecureChannelCredentials()));
    v1::GetJobReply reply;
    RETURN_IF_ERROR(FromGrpc(stub->GetJob(DeadlineContext(kStartSeconds).get(), {}, &reply)));
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
      Sleep(kPoll);
    }
    Sleep((case_.waiting ? 3 * kSamplesOfWaiting : 3) * case_.step_seconds());
    return record.error();
  }

  absl::StatusOr<Row> Watch(ControlRecord* record) {
    record->Begin();
    const double begin = clock_.Now(), used = ProcessorSeconds(process_->pid());
    const int64_t calls = record->calls();
    Sleep(case_.seconds);
    const double seconds = clock_.Now() - begin;
    Row row = {{"workers", case_.workers}, {"servers", case_.servers}, {"phase", case_.phase()}};
    row["step_ms"] = case_.step_ms;
    row["core_share"] = (ProcessorSeconds(process_->pid()) - used) / seconds;
    const std::vector<double> leases = record->TakeLeaseSeconds();
    row["lease_p50_ms"] = QuantileMs(leases, 0.5);
    row["lease_p99_ms"] = QuantileMs(leases, 0.99);
    row["calls_per_s"] = (record->calls() - calls) / seconds;
    row["cores"] = Cores();
    row["processor"] = ProcessorModel();
    if (const auto end = process_->Poll(); end.has_value()) {
      return absl::AbortedError(absl::StrCat("the master ended: ", ToString(*end), ": ",
                                             absl::StrJoin(process_->LastLines(5), "\n")));
    }
    RETURN_IF_ERROR(record->error());
    return row;
  }

  // Null: no lease was granted.
  static Row QuantileMs(const std::vector<double>& seconds, double q) {
    return seconds.empty() ? Row() : Row(1000 * Quantile(seconds, q));
  }

  const Case case_;
  const std::string program_, directory_;
  const SteadyClock clock_;
  v1::Job job_;
  std::vector<TensorSpec> tensors_;
  std::optional<Process> process_;
  std::string master_;
};

class Control final : public Benchmark {
 public:
  void AddFlags(FlagSet* flags) override {
    AddNumbers(flags, "workers", 2, 10'000, &workers_, "Simulated workers.");
    AddNumbers(flags, "servers", 1, 256, &servers_, "The master and the simulated ones.");
    flags->AddInt("step_ms", "N", 1, &step_ms_, "A worker's step. Default 1000.");
    flags->AddSeconds("seconds", &seconds_, "Measures so long. Default 10.");
  }

  absl::Status Run(const std::string& directory, std::vector<Row>* rows) override {
    ASSIGN_OR_RETURN(const DaemonPaths daemons, FindBuiltDaemons());
    for (const int64_t servers : servers_) {
      for (const int64_t workers : workers_) {
        for (const bool waiting : {false, true}) {
          const Case c{static_cast<int>(workers), static_cast<int>(servers), waiting, step_ms_, seconds_};
          const std::string run = absl::StrCat(directory, "/", workers, "-", servers, "-", c.phase());
          ASSIGN_OR_RETURN(Row row, MasterRun(c, daemons.server, run).Measure());
          std::cerr << row.dump() << "\n";
          rows->push_back(std::move(row));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t> workers_ = {100, 500, 1000, 2000};
  std::vector<int64_t> servers_ = {8, 64};
  int step_ms_ = 1000;
  double seconds_ = 10;
};

}  // namespace

const BenchmarkKind kControl = {
    "control",
    R"(Measures what the master spends on a job of many workers and servers (Downpour, a push in every step): one
real catchment_server is the master, and takes no pushes; the other servers and all workers are simulated in
this process and reach it over gRPC and loopback. The simulated shards are real ones, each worker pushes to
eight of them in every step, in turn, and has a separate connection to the master. The master writes
metrics.jsonl.

training    all workers train
waiting     all samples are assigned, and all workers but one wait for that one: the end of a job
core        share of a core that the master's process keeps busy (processor time, so other load does not count)
lease p50   from a worker's request for its next lease until it has it
calls/s     heartbeats and requests for leases, over all workers
)",
    {{"workers", "workers"},
     {"servers", "servers"},
     {"phase", "phase"},
     {"core", "core_share", 3},
     {"lease p50 ms", "lease_p50_ms", 2},
     {"lease p99 ms", "lease_p99_ms", 2},
     {"calls/s", "calls_per_s", 0}},
    MakeBenchmark<Control>};

}  // namespace catchment
