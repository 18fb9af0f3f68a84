// The daemon's end of the socket to an attached program: whole messages of proto/attach.proto.
//
// Threads: one at a time.
#ifndef CATCHMENT_WORKER_ATTACH_PROGRAM_LINK_H_
#define CATCHMENT_WORKER_ATTACH_PROGRAM_LINK_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/attach.pb.h"

namespace catchment {

class ProgramLink {
 public:
  // The largest packet, in bytes.
  static constexpr int kLargestPacket = 131072;

  // Returns an error if waiting for the program is pointless. `closed`: the program has closed its
  // end.
  using Look = std::function<absl::Status(bool closed)>;

  // Takes `fd`, a connected SOCK_SEQPACKET socket. `look` is asked a few times a second while Receive waits.
  ProgramLink(int fd, Look look) : fd_(fd), look_(std::move(look)) {}
  ~ProgramLink();
  ProgramLink(const ProgramLink&) = delete;
  ProgramLink& operator=(const ProgramLink&) = delete;

  // Errors: the error of `look` if the program is gone.
  absl::Status Send(const v1::ToProgram& message);

  // Waits for the next message that is not a span, which it records. Errors: Internal with the program's
  // reason for Failed; InvalidArgument for bytes that are not a message; the errors of `look`.
  absl::StatusOr<v1::FromProgram> Receive();

 private:
  absl::StatusOr<v1::FromProgram> Parse(const char* data, size_t size) const;
  absl::Status Gone();
  // The program has closed its end. Returns the reason that it has sent before, or that of Gone.
  absl::Status ReadLastWord();

  const int fd_;
  const Look look_;
  std::string packet_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ATTACH_PROGRAM_LINK_H_
