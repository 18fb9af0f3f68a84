// catchment_worker: computes gradients (or, with --role=evaluator, scores the test set) for the job of a
// master, which sends it the job. Begin reading in worker/loop/trainer.h.
#include <glog/logging.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/master_address.h"
#include "common/net/address.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"
#include "common/program/daemon.h"
#include "kernels/cuda/loader.h"
#include "worker/loop/evaluator.h"
#include "worker/loop/trainer.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment_worker --master=HOST:PORT|DIR [flags]

Computes gradients for a job, or scores its test set. The job comes from the master.

Examples:
  catchment_worker --master=node0:7000
  catchment_worker --master=node0:7000 --role=evaluator
  catchment_worker --master=out             joins the job that `catchment train --out=out` runs on this machine
)";

struct Flags {
  std::string master;     // its address
  std::string directory;  // in which it was found; empty: the address was given
  std::string role = "worker";
  std::string device;
  int local_index = -1;
  int threads = 1;
  double connect_timeout_seconds = 60;
  std::string program;
  bool no_shared_memory = false;
  std::string stage;
  TlsFiles tls;
  bool insecure = false;
};

// Replaces the --out of a running job by its master's address.
absl::Status FindMaster(Flags* flags) {
  std::error_code error;
  if (!std::filesystem::is_directory(flags->master, error)) return TidyAddress(&flags->master);
  const absl::StatusOr<MasterPlace> place = ReadMasterPlace(flags->master);
  if (absl::IsNotFound(place.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--master=", flags->master, ": no master uses this directory (no file ", flags->master,
                     "/master.address): give the --out of a running job's master, or its HOST:PORT"));
  }
  RETURN_IF_ERROR(place.status());
  flags->directory = std::exchange(flags->master, place->address);
  return absl::OkStatus();
}

absl::Status CheckFlags(Flags* flags) {
  RETURN_IF_ERROR(FindMaster(flags));
  FillTlsFiles(flags->role, &flags->tls);
  RETURN_IF_ERROR(CheckComplete(flags->tls));
  return CheckSecure(flags->master, flags->tls, flags->insecure);
}

CommandLine MakeCommandLine(Flags* f) {
  CommandLine line;
  line.usage = kUsage;
  line.flags.AddRequired("master", "HOST:PORT|DIR", &f->master,
                         "The address of the master, the catchment_server with --index=0, or its --out.");
  line.flags.AddChoice("role", {"worker", "evaluator"}, &f->role,
                       "worker: trains. evaluator: scores the test set from snapshots. Default worker.");
  line.flags.AddString("device", "DEVICE", &f->device,
                       "auto, cpu, cuda or cuda:INDEX; takes the place of the job's device.");
  line.flags.AddInt("local_index", "N", -1, &f->local_index,
                    "The index of this worker among those of this machine, from 0: they take its CUDA "
                    "devices in turn. Default: $SLURM_LOCALID, or 0.");
  line.flags.AddInt("threads", "N", 1, &f->threads,
                    "Threads that compute. Several workers on one machine share its cores. Default 1.");
  line.flags.AddSeconds("connect_timeout_seconds", &f->connect_timeout_seconds,
                        "How long to keep trying to reach the master. Default 60.");
  line.flags.AddString("program", "COMMAND", &f->program,
                       "Command, for /bin/sh, that computes the gradients of a job with model.external: "
                       "\"python train.py\". It ends with the worker.");
  line.flags.AddSwitch("no_shared_memory", &f->no_shared_memory,
                       "Sends gradients and weights over the connection even between processes of this "
                       "machine. Default: the job's shared_memory.");
  line.flags.AddString(
      "stage", "DIR", &f->stage,
      "Copies the images or packed shards of the job's data to this directory of the machine "
      "first, such as $TMPDIR; its workers share the copy, and the last one removes it. Default: "
      "the data are read where they are.");
  AddSecurityFlags(&f->tls, &f->insecure, &line.flags);
  line.check = [f] { return CheckFlags(f); };
  return line;
}

int LocalIndex(const Flags& flags) {
  if (flags.local_index >= 0) return flags.local_index;
  int index = 0;
  const char* const slurm = std::getenv("SLURM_LOCALID");
  return slurm != nullptr && absl::SimpleAtoi(slurm, &index) && index >= 0 ? index : 0;
}

absl::StatusOr<WorkerOptions> MakeOptions(const Flags& flags) {
  LOG_IF(WARNING, flags.tls.ca.empty() && !IsLocal(flags.master)) << kInsecureWarning;
  ASSIGN_OR_RETURN(auto credentials, ClientCredentials(flags.tls));
  return WorkerOptions{.master = flags.master,
                       .directory = flags.directory,
                       .credentials = credentials,
                       .device = flags.device,
                       .local_index = LocalIndex(flags),
                       .threads = flags.threads,
                       .connect_timeout_seconds = flags.connect_timeout_seconds,
                       .program = flags.program,
                       .shared_memory = !flags.no_shared_memory,
                       .stage = flags.stage,
                       .role = flags.role == "evaluator" ? v1::EVALUATOR : v1::WORKER};
}

// Runs a Trainer or an Evaluator until it ends or a signal stops it.
template <typename Member>
absl::StatusOr<DaemonEnd> RunUntilSignal(const WorkerOptions& options, MetricsEndpoint* metrics) {
  const SteadyClock clock;
  Member member(options, &clock);
  const MetricsSource source(metrics, [&member](MetricFamilies* families) { member.AddMetrics(families); });
  SignalThread signals([&](int) { member.Stop(); });
  const absl::Status status = member.Run();
  if (member.program_failed()) return DaemonEnd{std::string(status.message()), kExitProgramFailed};
  RETURN_IF_ERROR(status);
  return DaemonEnd{member.end()};
}

// Starts this program again with OMP_WAIT_POLICY=PASSIVE, unless the variable is set. By default, idle
// threads of OpenMP spin and take the core from other workers on the machine: two threads on two busy cores
// were up to ten times slower. OpenMP reads the variable when it is loaded.
void MakeIdleThreadsSleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(self.c_str(), argv);
}

absl::StatusOr<DaemonEnd> Main(const Flags& flags, MetricsEndpoint* metrics) {
  ASSIGN_OR_RETURN(const WorkerOptions options, MakeOptions(flags));
  return options.role == v1::EVALUATOR ? RunUntilSignal<Evaluator>(options, metrics)
                                       : RunUntilSignal<Trainer>(options, metrics);
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::MakeIdleThreadsSleep(argv);
  catchment::Flags flags;
  catchment::CommandLine line = catchment::MakeCommandLine(&flags);
  catchment::RunDaemon(
      argc, argv, &line,
      [&flags](catchment::MetricsEndpoint* metrics) { return catchment::Main(flags, metrics); },
      [] { return "CUDA: " + catchment::DescribeCudaPlugin(catchment::CudaPluginPath()) + "\n"; });
}
