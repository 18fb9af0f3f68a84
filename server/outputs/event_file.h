// A file of events for TensorBoard: messages in TFRecord framing. The format of each record is
//   8 bytes    N, the message's length, little-endian
//   4 bytes    masked CRC-32C of these eight
//   N bytes    the message
//   4 bytes    masked CRC-32C of the message
// where masked(c) = (c rotated right by 15 bits) + 0xa282ead8 modulo 2^32; the mask is needed because the CRC
// of data that contain their own CRC is a constant.
// Source: tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format".
//
// A record is written completely or not at all, unless the process is killed in between; readers treat an
// incomplete record as one that is still being written.
// Threads: not thread-safe. Errors: name the file.
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
  // Creates the directory if necessary, and in it a new file events.out.tfevents.SECONDS.HOST, which begins
  // with the format's version. If a file of that name exists, a later second is used.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& directory, double unix_time);

  absl::Status Write(const tensorboard::Event& event);

  const std::string& path() const { return file_.path(); }

 private:
  EventFile(const std::string& path, int descriptor) : file_(path, descriptor) {}

  AppendedFile file_;
};

// Returns the bytes of a record.
std::string FrameRecord(const std::string& message);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_EVENT_FILE_H_
