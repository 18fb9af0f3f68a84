#include "server/outputs/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/crc32c.h"
#include "common/base/machine.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");

constexpr char kVersion[] = "brain.Event:2";

template <typename Number>
std::string_view Bytes(const Number& number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

uint32_t MaskedCrc32c(std::string_view data) { return std::rotr(Crc32c(data), 15) + 0xa282ead8u; }

}  // namespace

std::string FrameRecord(const std::string& message) {
  const uint64_t length = message.size();
  const uint32_t length_check = MaskedCrc32c(Bytes(length));
  const uint32_t message_check = MaskedCrc32c(message);
  std::string record(Bytes(length));
  record.append(Bytes(length_check)).append(message).append(Bytes(message_check));
  return record;
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& directory, double unix_time) {
  RETURN_IF_ERROR(CreateDirectories(directory));
  auto seconds = static_cast<int64_t>(unix_time);
  std::string path;
  int descriptor;
  do {
    path = absl::StrCat(directory, "/events.out.tfevents.", seconds++, ".", HostName());
    descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (descriptor < 0 && errno == EEXIST);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  std::unique_ptr<EventFile> file(new EventFile(path, descriptor));
  tensorboard::Event version;
  version.set_wall_time(unix_time);
  version.set_file_version(kVersion);
  if (absl::Status status = file->Write(version); !status.ok()) {
    unlink(path.c_str());
    return status;
  }
  return file;
}

absl::Status EventFile::Write(const tensorboard::Event& event) {
  return file_.Append(FrameRecord(event.SerializeAsString()));
}

}  // namespace catchment
