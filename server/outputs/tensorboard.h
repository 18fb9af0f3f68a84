// Lines of metrics.jsonl as events for TensorBoard, in DIRECTORY/events.out.tfevents.*; the step is how many
// samples had been trained.
//   scalars      train/loss, train/accuracy, rate/samples_per_second, optimizer/learning_rate,
//                optimizer/momentum, optimizer/implicit_momentum, staleness/mean, staleness/p50,
//                staleness/p99, bytes/pushed, bytes/pulled, worker_I/samples_per_second,
//                worker_I/compute_share, worker_I/push_share, worker_I/pull_share, worker_I/data_share
//   and once for each evaluation, at the samples that its weights had, test/loss and test/accuracy
//   histogram    staleness: of all pushes since the servers' start, in updates
//
// What is null or not finite in a line is left out.
//
// Threads: one. Errors: name the file, and are returned once until a line is written again.
#ifndef CATCHMENT_SERVER_OUTPUTS_TENSORBOARD_H_
#define CATCHMENT_SERVER_OUTPUTS_TENSORBOARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "proto/tensorboard.pb.h"
#include "server/outputs/event_file.h"

namespace catchment {

class TensorBoard {
 public:
  using Json = nlohmann::ordered_json;

  explicit TensorBoard(std::string directory) : directory_(std::move(directory)) {}

  // staleness: how many pushes had which. unix_time: seconds since 1970.
  absl::Status Write(const Json& line, const std::map<uint64_t, uint64_t>& staleness, double unix_time);

 private:
  absl::Status WriteAll(const Json& line, const std::map<uint64_t, uint64_t>& staleness, double unix_time);
  absl::Status Open(int64_t step, double unix_time);
  absl::Status WriteTest(const Json& line, double unix_time);

  const std::string directory_;
  std::unique_ptr<EventFile> file_;  // null: no line is written yet
  std::string last_test_;            // of the last line
  bool error_reported_ = false;
};

// For each value a bucket of its own, half a unit to either side.
tensorboard::Histogram HistogramOf(const std::map<uint64_t, uint64_t>& counts);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_TENSORBOARD_H_
