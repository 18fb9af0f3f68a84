// Writes the lines of metrics.jsonl as events for TensorBoard to DIRECTORY/events.out.tfevents.*. The step is
// the number of trained samples.
//   scalars      the tags in JobMeasures, except test/..., worker_I/KEY of worker_rates, program/NAME
//   scalars      once for each evaluation, at the samples of its weights: test/...
//   histogram    the tags of lists of [value, count]
//
// Values that are null or not finite are left out.
//
// Threads: not thread-safe. Errors: name the file. After an error, later ones are not returned until a line
// has been written.
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

  // `unix_time` is in seconds since 1970.
  absl::Status Write(const Json& line, double unix_time);

 private:
  absl::Status WriteAll(const Json& line, double unix_time);
  absl::Status Open(int64_t step, double unix_time);
  absl::Status WriteTest(const Json& line, double unix_time);

  const std::string directory_;
  std::unique_ptr<EventFile> file_;  // null if no line has been written yet
  std::string last_test_;            // the test values of the last line
  bool error_reported_ = false;
};

// Returns a histogram with one bucket for each value, from value - 0.5 to value + 0.5.
tensorboard::Histogram HistogramOf(const std::map<uint64_t, uint64_t>& counts);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_TENSORBOARD_H_
