#include "worker/attach/program_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/program_metrics.h"
#include "common/trace/recorder.h"

namespace catchment {
namespace {

constexpr int kLookMilliseconds = 50;

void Record(const v1::FromProgram::Span& span) {
  if (TraceRecorder* const trace = Trace())
    trace->RecordOf(span.thread(), ShortLine(span.name(), kMaxMetricNameBytes), span.begin(), span.end());
}

bool Interrupted() { return errno == EINTR || errno == EAGAIN; }

}  // namespace

ProgramLink::~ProgramLink() { close(fd_); }

absl::Status ProgramLink::Gone() {
  absl::Status why = look_(/*closed=*/true);
  return why.ok() ? absl::InternalError("the program has closed its socket to the worker") : why;
}

absl::Status ProgramLink::Send(const v1::ToProgram& message) {
  const std::string bytes = message.SerializeAsString();
  while (send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (!Interrupted()) return ReadLastWord();
    // The program reads nothing at present.
    pollfd room = {fd_, POLLOUT, 0};
    poll(&room, 1, kLookMilliseconds);
    RETURN_IF_ERROR(look_(/*closed=*/false));
  }
  return absl::OkStatus();
}

absl::Status ProgramLink::ReadLastWord() {
  while (true) {
    RETURN_IF_ERROR(Receive().status());
  }
}

absl::StatusOr<v1::FromProgram> ProgramLink::Receive() {
  packet_.resize(kLargestPacket);
  while (true) {
    const ssize_t size = recv(fd_, packet_.data(), packet_.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (size > 0) {
      absl::StatusOr<v1::FromProgram> message = Parse(packet_.data(), static_cast<size_t>(size));
      if (!message.ok() || !message->has_span()) return message;
      Record(message->span());
      continue;
    }
    // The program has left messages of this end unread. Its own last ones can still be read.
    if (size < 0 && errno == ECONNRESET) continue;
    if (size == 0 || !Interrupted()) return Gone();
    pollfd message = {fd_, POLLIN, 0};
    if (poll(&message, 1, kLookMilliseconds) > 0) continue;
    RETURN_IF_ERROR(look_(/*closed=*/false));
  }
}

absl::StatusOr<v1::FromProgram> ProgramLink::Parse(const char* data, size_t size) const {
  v1::FromProgram message;
  const bool whole = size <= packet_.size() && message.ParseFromArray(data, static_cast<int>(size));
  if (!whole || message.kind_case() == v1::FromProgram::KIND_NOT_SET) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program sent ", size,
                     " bytes that are not a message of proto/attach.proto: does it write to a file "
                     "descriptor that it does not own, or is its catchment package from another build?"));
  }
  if (message.has_failed())
    return absl::InternalError(absl::StrCat("the program failed: ", message.failed().why()));
  return message;
}

}  // namespace catchment
