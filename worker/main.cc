// catchment_worker: computes gradients (or, with --role=evaluator, scores the test set) for the job of a
// master, which sends it the job. Begin reading in worker/trainer.h.
#include <gflags/gflags.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/rpc.h"
#include "worker/evaluator.h"
#include "worker/trainer.h"

DEFINE_string(master, "", "HOST:PORT of the master, the catchment_server with --index=0. Required.");
DEFINE_string(role, "worker", "worker: trains. evaluator: scores the test set from snapshots.");
DEFINE_string(device, "", "auto, cpu, cuda or cuda:INDEX; takes the place of the job's device.");
DEFINE_int32(
    local_index, -1,
    "Which one of this machine's workers this is, from 0: they take its CUDA devices in turn. Default: "
    "$SLURM_LOCALID, or 0.");
DEFINE_int32(threads, 1, "Threads that compute. Several workers on one machine share its cores.");
DEFINE_double(connect_timeout_seconds, 60, "How long to keep trying to reach the master.");
DEFINE_string(
    program, "",
    "Command, for /bin/sh, that computes the gradients of a job with model.external: \"python train.py\". It "
    "ends with the worker.");

namespace catchment {
namespace {

int LocalIndex() {
  if (FLAGS_local_index >= 0) return FLAGS_local_index;
  int index = 0;
  const char* const slurm = std::getenv("SLURM_LOCALID");
  return slurm != nullptr && absl::SimpleAtoi(slurm, &index) && index >= 0 ? index : 0;
}

absl::StatusOr<WorkerOptions> OptionsFromFlags() {
  if (FLAGS_master.empty()) return absl::InvalidArgumentError("--master=HOST:PORT is required");
  if (FLAGS_role != "worker" && FLAGS_role != "evaluator") {
    return absl::InvalidArgumentError("--role=" + FLAGS_role + " is not worker or evaluator");
  }
  if (FLAGS_threads < 1) return absl::InvalidArgumentError("--threads must be at least 1");
  auto credentials = ClientCredentials(TlsFilesFromFlags());
  if (!credentials.ok()) return credentials.status();
  return WorkerOptions{.master = FLAGS_master,
                       .credentials = *credentials,
                       .device = FLAGS_device,
                       .local_index = LocalIndex(),
                       .threads = FLAGS_threads,
                       .connect_timeout_seconds = FLAGS_connect_timeout_seconds,
                       .program = FLAGS_program,
                       .role = FLAGS_role == "evaluator" ? v1::EVALUATOR : v1::WORKER};
}

template <typename Life>
absl::Status RunUntilSignal(const WorkerOptions& options) {
  const SteadyClock clock;
  Life life(options, &clock);
  SignalThread signals([&](int) { life.Stop(); });
  return life.Run();
}

// OpenMP's threads spin when they have nothing to do, and take the core from another worker on the machine:
// two threads on two busy cores were up to ten times slower so. The library reads its setting when it is
// loaded, hence the new start.
void SleepWhenIdle(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(self.c_str(), argv);
}

absl::Status Main() {
  const absl::StatusOr<WorkerOptions> options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  return FLAGS_role == "evaluator" ? RunUntilSignal<Evaluator>(*options) : RunUntilSignal<Trainer>(*options);
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::SleepWhenIdle(argv);
  return catchment::RunDaemon(argc, argv,
                              "computes gradients for a Catchment job, or scores its test set.\n\n"
                              "  catchment_worker --master=node0:7000\n"
                              "  catchment_worker --master=node0:7000 --role=evaluator",
                              catchment::Main);
}
