// A file of events for TensorBoard: TFRecord's framing of messages. Of each record
//   8 bytes    N, the message's length, little-endian
//   4 bytes    masked CRC-32C of these eight
//   N bytes    the message
//   4 bytes    masked CRC-32C of the message
// masked(c) = (c rotated right by 15 bits) + 0xa282ead8 modulo 2^32: a CRC over data that hold their own CRC
// would be the same for all data. Source: tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format".
//
// A record is there as a whole or not at all, unless the process is killed in between, which readers take for
// a record that is still being written.
// Threads: one. Errors: name the file.
#ifndef CATCHMENT_SERVER_OUTPUTS_EVENT_FILE_H_
#define CATCHMENT_SERVER_OUTPUTS_EVENT_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/tensorboard.pb.h"
#include "server/outputs/appended_file.h"

namespace catchment {

class EventFile {
 public:
  // Makes the directory if need be, and in it a new file events.out.tfevents.SECONDS.HOST (of a later second
  // where that is taken), which begins with its version.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& directory, double unix_time);

  absl::Status Write(const tensorboard::Event& event);

  const std::string& path() const { return file_.path(); }

 private:
  EventFile(const std::string& path, int descriptor) : file_(path, descriptor) {}

  AppendedFile file_;
};

// A record's bytes.
std::string FrameRecord(const std::string& message);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_EVENT_FILE_H_
