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
#include <nlohmann/json.hpp>
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
#include "common/measures/measures.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "server/outputs/appended_file.h"
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

  // Adds an event to the next line. `kind`: "lost", of `worker`, "checkpoint", "recovered"; "": another,
  // which is not written.
  void NoteEvent(const std::string& text, const std::string& kind, std::optional<uint32_t> worker,
                 double wall_seconds);

  // Before the summary, writes events that are in no line yet to a last one.
  absl::Status WriteSummary(const v1::JobStatus& status, const RunFacts& facts);

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
  absl::Status WriteMetrics(const v1::JobStatus& status, const JobReading& reading,
                            nlohmann::ordered_json line);
  std::string best_path() const { return directory_ + "/model-best.safetensors"; }

  const std::string directory_;
  const UnixTime unix_time_;
  std::unique_ptr<AppendedFile> metrics_;  // null if there is no directory
  TensorBoard tensorboard_;
  double last_metrics_ = -1;
  double pause_ = 0;    // the shortest time from the last line to the next
  uint64_t lines_ = 0;  // that were written
  nlohmann::ordered_json last_score_;
  uint64_t last_samples_ = 0;
  nlohmann::ordered_json events_ = nlohmann::ordered_json::array();  // since the last line
  // The totals at the last line.
  v1::JobStatus last_workers_;  // contains only workers, at the last line with their rates
  GapTotal last_gap_;
  ProgramMetrics last_program_metrics_;
};

// Returns the measurements of a line of metrics.jsonl that are numbers of the whole job.
nlohmann::ordered_json JobMetrics(const v1::JobStatus& status);

// Returns the text of summary.json.
std::string SummaryJson(const v1::JobStatus& status, const RunFacts& facts);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_OUTPUTS_H_
