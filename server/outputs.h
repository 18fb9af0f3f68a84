// What a job leaves in its output directory:
//   metrics.jsonl       while it trains: one JSON object per line, about every second and after every evaluation
//   summary.json        at the end; docs/operating.md explains each key
//   model.safetensors   at the end: the weights, with PyTorch's names and layouts
//
// Threads: one. Errors: name the file.
#ifndef CATCHMENT_SERVER_OUTPUTS_H_
#define CATCHMENT_SERVER_OUTPUTS_H_

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/parameter_layout.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "server/push_report.h"

namespace catchment {

class Outputs {
 public:
  // `directory` is made if need be; "": nothing is written. Metrics are appended: a resumed job goes on in them.
  static absl::StatusOr<std::unique_ptr<Outputs>> Open(const std::string& directory);

  // Appends a line when it is time: `now` in seconds.
  absl::Status MaybeWriteMetrics(const v1::JobStatus& status, double now);

  struct SummaryFacts {
    int servers = 1;
    std::vector<std::string> devices;  // of workers, each once
  };
  absl::Status WriteSummary(const v1::Job& job, const v1::JobStatus& status, const SummaryFacts& facts);

  absl::Status WriteModel(const v1::Job& job, const ParameterLayout& layout, absl::Span<const float> weights);

  bool enabled() const { return !directory_.empty(); }

 private:
  explicit Outputs(std::string directory) : directory_(std::move(directory)) {}

  const std::string directory_;
  std::ofstream metrics_;
  double last_metrics_ = -1;
  double last_test_loss_ = -1;
  uint64_t last_samples_ = 0;
  GapTotal last_gap_;  // with the last line
};

// summary.json's text.
std::string SummaryJson(const v1::Job& job, const v1::JobStatus& status, const Outputs::SummaryFacts& facts);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_H_
