// Many workers of a job, as far as the control plane sees them: each has a separate connection to the
// master, sends heartbeats, asks for leases, and sleeps through a step instead of computing.
#ifndef CATCHMENT_TESTS_BENCHMARKS_CONTROL_WORKERS_H_
#define CATCHMENT_TESTS_BENCHMARKS_CONTROL_WORKERS_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/job/parameter_layout.h"
#include "common/net/completion.h"
#include "proto/master.grpc.pb.h"
#include "tests/benchmarks/control_servers.h"

namespace catchment {

// Shared by all workers.
//
// Threads: safe.
class ControlRecord {
 public:
  // Starts counting leases and calls.
  void Begin();
  void OnCall() { ++calls_; }
  void OnGranted(double waited_seconds);
  void OnError(const absl::Status& status);
  // A worker has got its first lease.
  void OnWorking() { ++working_; }

  std::vector<double> TakeLeaseSeconds();
  int64_t calls() const { return calls_; }
  int working() const { return working_; }
  // The first error of any worker.
  absl::Status error() const;

 private:
  mutable Mutex mu_;
  bool counts_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<double> lease_seconds_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::atomic<int64_t> calls_ = 0;
  std::atomic<int> working_ = 0;
};

class SimulatedWorkers {
 public:
  struct Options {
    std::string master;
    int workers = 1;
    double step_seconds = 1;
    uint64_t train_samples = 0;
    bool first_never_works = false;  // it keeps its first lease, so that the job does not end
  };
  // `servers` and `record` outlive the workers.
  SimulatedWorkers(Options options, const std::vector<TensorSpec>& tensors, uint64_t run_id,
                   SimulatedServers* servers, ControlRecord* record);
  ~SimulatedWorkers();

  // Registers all of them, each of which begins at once.
  absl::Status Start();

 private:
  class Worker;

  const Options options_;
  v1::RegisterRequest registration_;
  SimulatedServers& servers_;
  ControlRecord& record_;
  const SteadyClock clock_;
  CompletionThread thread_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_CONTROL_WORKERS_H_
