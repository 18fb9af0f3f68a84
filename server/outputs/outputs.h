// Writes the files in a job's output directory:
//   metrics.jsonl            during training: a line with a JSON object every second (less often after the
//                            first hour, and with more than 10,000 pairs of a worker and a server) and after
//                            each evaluation
//   tensorboard/             the same lines as events for TensorBoard (tensorboard.h)
//   summary.json             at the end; docs/outputs.md explains each key
//   model.safetensors        at the end: the weights, with PyTorch's names and layouts
//   model-best.safetensors   with evaluation.keep_best: the weights of the best evaluation so far
//
// Threads: not thread-safe, except that WriteBest may be called from another thread. Errors: name the file.
#ifndef CATCHMENT_SERVER_OUTPUTS_OUTPUTS_H_
#define CATCHMENT_SERVER_OUTPUTS_OUTPUTS_H_

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/model_file.h"
#include "common/job/parameter_layout.h"
#include "common/job/program_metrics.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "server/outputs/appended_file.h"
#include "server/outputs/push_report.h"
#include "server/outputs/tensorboard.h"

namespace catchment {

class Outputs {
 public:
  using UnixTime = std::function<double()>;  // seconds since 1970

  // Creates `directory` if necessary; "": nothing is written. A resumed job appends to its metrics.
  static absl::StatusOr<std::unique_ptr<Outputs>> Open(const std::string& directory,
                                                       UnixTime unix_time = SystemTime);
  static double SystemTime();

  // Returns true if MaybeWriteMetrics would append a line even without a new evaluation.
  bool MetricsAreDue(uint64_t samples, double now) const;
  // Appends a line if one is due. `now` is in seconds of any clock.
  absl::Status MaybeWriteMetrics(const v1::JobStatus& status, double now);

  struct SummaryFacts {
    int servers = 1;
    std::vector<std::string> devices;  // of workers, without duplicates
    uint64_t best_weights = 0;         // the evaluation of model-best.safetensors; 0: none
    uint64_t computed_samples = 0;     // since the master's start, as the status's seconds
    // Measures of a simulation (simulation/goodput.h); absent: not measured.
    std::optional<double> goodput;
    std::optional<double> uptime;
    std::optional<uint64_t> busiest_second_bytes;
  };
  absl::Status WriteSummary(const v1::Job& job, const v1::JobStatus& status, const SummaryFacts& facts);

  // Writes the weights that `add` adds to the file.
  absl::Status WriteModel(const v1::Job& job, const ParameterLayout& layout, const ModelFacts& facts,
                          absl::FunctionRef<absl::Status(ModelWriter*)> add);

  absl::Status WriteBest(const v1::Job& job, const ParameterLayout& layout, absl::Span<const float> weights,
                         const ModelFacts& facts) const;
  // Returns the score of the weights that WriteBest wrote last, in this or an earlier run of the job. Errors:
  // those of ReadModelScore.
  absl::StatusOr<v1::BestState> ReadBest(const ParameterLayout& layout) const;

  bool enabled() const { return !directory_.empty(); }

 private:
  Outputs(std::string directory, UnixTime unix_time)
      : directory_(std::move(directory)),
        unix_time_(std::move(unix_time)),
        tensorboard_(directory_ + "/tensorboard") {}
  std::string best_path() const { return directory_ + "/model-best.safetensors"; }

  const std::string directory_;
  const UnixTime unix_time_;
  std::unique_ptr<AppendedFile> metrics_;  // null if there is no directory
  TensorBoard tensorboard_;
  WorkerRates worker_rates_;
  double last_metrics_ = -1;
  double pause_ = 0;    // the shortest time from the last line to the next
  uint64_t lines_ = 0;  // that were written
  double last_test_loss_ = -1;
  uint64_t last_tested_at_ = 0;
  uint64_t last_samples_ = 0;
  // The totals at the last line.
  GapTotal last_gap_;
  ProgramMetrics last_program_metrics_;
};

// Returns the measurements of a line of metrics.jsonl that are numbers of the whole job.
nlohmann::ordered_json JobMetrics(const v1::JobStatus& status);

// Returns the text of summary.json.
std::string SummaryJson(const v1::Job& job, const v1::JobStatus& status, const Outputs::SummaryFacts& facts);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_OUTPUTS_H_
