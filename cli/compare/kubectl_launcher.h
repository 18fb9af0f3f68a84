// Runs on Kubernetes, one after another: kubectl applies the manifests of each in its current cluster and
// namespace, and deletes them when it has copied the run's results from the volume.
//
// All runs have the name `catchment`, so that a namespace has one run. Its ConfigMap catchment-job says
// which: a later command waits for a run that an earlier one has applied, instead of applying it again. A
// signal ends the command and leaves the run. A run that fails or does not progress is deleted.
//
// Threads: an object is used by one thread.
#ifndef CATCHMENT_CLI_COMPARE_KUBECTL_LAUNCHER_H_
#define CATCHMENT_CLI_COMPARE_KUBECTL_LAUNCHER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/compare/cluster_command.h"
#include "cli/compare/kubernetes_run.h"
#include "cli/compare/launcher.h"
#include "common/base/clock.h"

namespace catchment {

// Units: seconds.
struct KubectlBounds {
  double poll = 5;  // between two requests for the state of a run
  double stall = 600;
};

class KubectlLauncher : public SequentialLauncher {
 public:
  // Finds kubectl in $PATH. NotFound if there is none.
  static absl::StatusOr<std::unique_ptr<Launcher>> Create(const CompareOptions& options,
                                                          SignalWaiter* signals);

  // Owns neither the options nor the signals.
  KubectlLauncher(const CompareOptions& options, std::string kubectl, const KubectlBounds& bounds,
                  SignalWaiter* signals)
      : options_(options), kubectl_(std::move(kubectl)), bounds_(bounds), signals_(signals) {}

  // Errors, in addition to those of the interface: FailedPrecondition if the namespace has another job;
  // Unavailable, with kubectl's own words, if it cannot apply or delete a run.
  absl::Status Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                      const CompareDirectory& directory, CompareProgress* progress, int* signal) override;

 private:
  // Returns the directory of the run of this comparison that is in the cluster; empty if there is none.
  absl::StatusOr<std::string> FindRun(const std::string& comparison) const;
  absl::Status Train(const PlannedRun& run, const CompareDirectory& directory, CompareProgress* progress,
                     int* signal) override;
  absl::Status Apply(const PlannedRun& run, const CompareDirectory& directory, const std::string& path) const;
  // Waits until the run has ended, and returns its result in words. Aborted after a signal.
  absl::StatusOr<std::string> AwaitEnd(const std::string& path, int* signal) const;
  // Returns whether the workers' Job has failed for good.
  bool WorkersFailed() const;
  // Copies the results of a run to its directory, the summary last.
  absl::Status CollectResults(const std::string& path) const;
  void CollectLogs(const std::string& path) const;
  std::string DescribeFailure(const std::string& reason, const std::string& path) const;
  absl::Status DeleteRun(const std::string& path) const;

  absl::StatusOr<std::string> Kubectl(const std::vector<std::string>& args,
                                      double seconds = kCommandSeconds) const;
  absl::StatusOr<std::string> InServer(const std::string& command) const;

  const CompareOptions& options_;
  const std::string kubectl_;
  const KubectlBounds bounds_;
  SignalWaiter* const signals_;
  const SteadyClock clock_;

  CompareProgress* progress_ = nullptr;
  std::string log_;      // what kubectl printed last
  std::string applied_;  // the directory of the run that an earlier command has applied; empty: there is none
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_KUBECTL_LAUNCHER_H_
