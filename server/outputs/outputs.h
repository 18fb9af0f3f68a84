// What a job leaves in its output directory:
//   metrics.jsonl            while it trains: a JSON object a line, each second (less often with more than 10,000
//                            pairs of a worker and a server) and after each evaluation
//   tensorboard/             the same lines as events for TensorBoard (tensorboard.h)
//   summary.json             at the end; docs/operating.md explains each key
//   model.safetensors        at the end: the weights, with PyTorch's names and layouts
//   model-best.safetensors   with evaluation.keep_best: those of the best evaluation so far
//
// Threads: one; WriteBest from any other. Errors: name the file.
#ifndef CATCHMENT_SERVER_OUTPUTS_OUTPUTS_H_
#define CATCHMENT_SERVER_OUTPUTS_OUTPUTS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/model_file.h"
#include "common/parameter_layout.h"
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

  // `directory` is made if need be; "": nothing is written. Metrics are appended: a resumed job goes on in them.
  static absl::StatusOr<std::unique_ptr<Outputs>> Open(const std::string& directory,
                                                       UnixTime unix_time = SystemTime);
  static double SystemTime();

  // Whether MaybeWriteMetrics would append a line, an evaluation aside.
  bool MetricsAreDue(uint64_t samples, double now) const;
  // Appends a line when it is time: `now` in seconds, of any clock.
  absl::Status MaybeWriteMetrics(const v1::JobStatus& status, double now);

  struct SummaryFacts {
    int servers = 1;
    std::vector<std::string> devices;  // of workers, each once
    uint64_t best_weights = 0;         // the evaluation that model-best.safetensors is of; 0: none
  };
  absl::Status WriteSummary(const v1::Job& job, const v1::JobStatus& status, const SummaryFacts& facts);

  absl::Status WriteModel(const v1::Job& job, const ParameterLayout& layout, absl::Span<const float> weights,
                          const ModelFacts& facts);

  absl::Status WriteBest(const v1::Job& job, const ParameterLayout& layout, absl::Span<const float> weights,
                         const ModelFacts& facts) const;
  // The score of the weights that WriteBest wrote last, also in an earlier life of the job. Errors: those of
  // ReadModelScore.
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
  std::unique_ptr<AppendedFile> metrics_;  // null: there is no directory
  TensorBoard tensorboard_;
  WorkerRates worker_rates_;
  double last_metrics_ = -1;
  double pause_ = 0;  // from the last line to the next, at least
  double last_test_loss_ = -1;
  uint64_t last_tested_at_ = 0;
  uint64_t last_samples_ = 0;
  GapTotal last_gap_;  // with the last line
};

// summary.json's text.
std::string SummaryJson(const v1::Job& job, const v1::JobStatus& status, const Outputs::SummaryFacts& facts);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_OUTPUTS_H_
