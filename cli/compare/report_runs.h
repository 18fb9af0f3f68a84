// The report of a comparison, from finished runs: of one machine or of several, of `catchment train`, of
// daemons that were started by hand, or of a cluster.
#ifndef CATCHMENT_CLI_COMPARE_REPORT_RUNS_H_
#define CATCHMENT_CLI_COMPARE_REPORT_RUNS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/terminal.h"
#include "cli/report/comparison.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns a name for each job: its preset, and each other field whose value differs between the jobs, except
// the number of workers, the seed, the job's name and the paths of files. A field of the algorithm or the
// optimizer counts only if it differs from the preset's. The jobs are complete.
//   {"sync", "downpour, learning_rate 0.01"}
std::vector<std::string> NameJobs(const std::vector<v1::Job>& jobs);

// Reads the runs in `directories`: the --out of a run, or of a comparison, which stands for all its runs.
// Errors: NotFound for a directory that holds no run; InvalidArgument for runs that train different models or
// that have everything in common, their seed included.
absl::StatusOr<Comparison> CollectRuns(const std::vector<std::string>& directories);

// Runs a command line of `catchment report`. Returns the exit code, which --help explains.
int RunReportCommand(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_REPORT_RUNS_H_
