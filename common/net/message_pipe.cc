#include "common/net/message_pipe.h"

#include <endian.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/open_files.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr size_t kSizeBytes = sizeof(uint32_t);
// Bytes that are read from a pipe at a time, and the largest message that is not received in place.
constexpr size_t kChunk = 4096;
// After an end was closed, it receives at most this number of bytes, the capacity of a pipe.
constexpr size_t kMostAfterClose = 64 << 10;

absl::Status SystemError(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

// Opens a pipe for reading and writing, at both ends, so that no end fails, or raises SIGPIPE, when the other
// one is gone; the end of the stream shows that.
absl::StatusOr<Fd> OpenPipe(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (fd.get() < 0) return SystemError(path);
  return fd;
}

absl::StatusOr<Fd> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("pipe2");
  const Fd reads(ends[0]), writes(ends[1]);
  return OpenPipe(absl::StrCat("/proc/self/fd/", reads.get()));
}

absl::StatusOr<uint64_t> InodeOf(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError("fstat");
  return info.st_ino;
}

absl::StatusOr<Fd> OpenPipeOf(const v1::Pipes& offer, uint32_t descriptor, uint64_t inode) {
  const std::string path = absl::StrCat("/proc/", offer.process(), "/fd/", descriptor);
  const std::string expected = absl::StrCat("pipe:[", inode, "]");
  char target[64];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  if (length < 0) return absl::FailedPreconditionError(SystemError(path).message());
  if (absl::string_view(target, length) != expected) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the peer's pipe; the peer may be in another container"));
  }
  absl::StatusOr<Fd> fd = OpenPipe(path);
  if (!fd.ok()) return absl::FailedPreconditionError(fd.status().message());
  struct stat info;
  // The process may have been replaced since.
  if (fstat(fd->get(), &info) != 0 || info.st_ino != inode || info.st_uid != geteuid())
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a pipe of this user"));
  return fd;
}

// `size`: the result of a read that has just failed.
bool IsEmpty(ssize_t size) { return size < 0 && (errno == EAGAIN || errno == EINTR); }

}  // namespace

// ---------------------------------------------------------------------------------------------- MessagePipe

absl::StatusOr<std::shared_ptr<MessagePipe>> MessagePipe::Make(PipeThread* thread, uint32_t most_bytes,
                                                               v1::Pipes* offer) {
  ASSIGN_OR_RETURN(Fd in, MakePipe());
  ASSIGN_OR_RETURN(Fd out, MakePipe());
  // The lowest free descriptors are used. Connections need the others.
  if (out.get() > OpenFilesLimit() / 2)
    return absl::ResourceExhaustedError("half of the open files are used");
  offer->set_process(getpid());
  offer->set_to_server(in.get());
  offer->set_to_client(out.get());
  ASSIGN_OR_RETURN(const uint64_t to_server, InodeOf(in.get()));
  ASSIGN_OR_RETURN(const uint64_t to_client, InodeOf(out.get()));
  offer->set_to_server_inode(to_server);
  offer->set_to_client_inode(to_client);
  std::shared_ptr<MessagePipe> pipe(new MessagePipe(thread, most_bytes, std::move(in), std::move(out)));
  RETURN_IF_ERROR(thread->Add(pipe));
  return pipe;
}

absl::StatusOr<std::shared_ptr<MessagePipe>> MessagePipe::Open(PipeThread* thread, uint32_t most_bytes,
                                                               const v1::Pipes& offer) {
  ASSIGN_OR_RETURN(Fd in, OpenPipeOf(offer, offer.to_client(), offer.to_client_inode()));
  ASSIGN_OR_RETURN(Fd out, OpenPipeOf(offer, offer.to_server(), offer.to_server_inode()));
  std::shared_ptr<MessagePipe> pipe(new MessagePipe(thread, most_bytes, std::move(in), std::move(out)));
  RETURN_IF_ERROR(thread->Add(pipe));
  return pipe;
}

void MessagePipe::Leave() {
  {
    // The files stay open in processes that this one has forked.
    MutexLock lock(&mu_);
    WatchInput(false);
    WatchOutput(false);
  }
  thread_.Remove(id_);
}

void MessagePipe::Close() {
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
  }
  thread_.Nudge(id_);
}

void MessagePipe::WatchInput(bool watch) { Watch(in_.get(), PipeThread::kInput, watch, &watches_input_); }

void MessagePipe::WatchOutput(bool watch) { Watch(out_.get(), PipeThread::kOutput, watch, &watches_output_); }

void MessagePipe::Watch(int fd, PipeThread::Direction direction, bool watch, bool* watches) {
  if (*watches == watch) return;
  *watches = watch;
  if (thread_.Watch(fd, id_, direction, watch)) return;
  LOG(WARNING) << "a pipe to a process on this machine is closed: " << SystemError("epoll_ctl");
  closed_ = true;
  thread_.Nudge(id_);
}

// -------------------------------------------------------------------------------------------------- reading

void MessagePipe::Read(grpc::ByteBuffer* message, Completion* done) {
  done->Tag();
  MutexLock lock(&mu_);
  message_ = message;
  reading_ = done;
  if (receiving_) return;
  // Its bytes may have been read together with those of an earlier message.
  if (!watches_input_ || closed_) thread_.Nudge(id_);
}

bool MessagePipe::OnReadable() {
  bool closed;
  {
    MutexLock lock(&mu_);
    closed = closed_;
    receiving_ = reading_ != nullptr;
    if (!receiving_) {
      WatchInput(false);
      return false;
    }
  }
  Progress progress = Receive();
  if (progress == Progress::kWaits && closed) progress = Progress::kFailed;
  Completion* done;
  {
    MutexLock lock(&mu_);
    if (progress == Progress::kWaits) {
      // If the end has been closed in the meantime, a nudge follows.
      receiving_ = false;
      WatchInput(true);
      return false;
    }
    if (closed) received_since_close_ += received_.Length() + kSizeBytes;
    if (received_since_close_ > kMostAfterClose) progress = Progress::kFailed;
    message_->Swap(&received_);
    done = std::exchange(reading_, nullptr);
  }
  received_.Clear();
  Completion::Run(done, progress == Progress::kMessage);
  MutexLock lock(&mu_);
  const bool more = reading_ != nullptr && (unread_at_ < unread_.size() || closed_);
  receiving_ = more;
  if (!more) WatchInput(reading_ != nullptr);
  return more;
}

MessagePipe::Progress MessagePipe::Receive() {
  while (true) {
    if (long_message_.size() > 0) {
      const size_t left = long_message_.size() - long_received_;
      char* const at = reinterpret_cast<char*>(const_cast<uint8_t*>(long_message_.begin())) + long_received_;
      const ssize_t size = read(in_.get(), at, left);
      if (size <= 0) return IsEmpty(size) ? Progress::kWaits : Progress::kFailed;
      long_received_ += size;
      if (long_received_ < long_message_.size()) continue;
      const grpc::Slice message = std::exchange(long_message_, grpc::Slice());
      grpc::ByteBuffer(&message, 1).Swap(&received_);
      return Progress::kMessage;
    }
    const char* const bytes = unread_.data() + unread_at_;
    const size_t available = unread_.size() - unread_at_;
    if (available >= kSizeBytes) {
      uint32_t little_endian;
      std::memcpy(&little_endian, bytes, kSizeBytes);
      const size_t size = le32toh(little_endian);
      if (size > most_bytes_) {
        LOG(WARNING) << "a process on this machine announces a message of " << size << " bytes; at most "
                     << most_bytes_ << " are allowed";
        return Progress::kFailed;
      }
      const size_t arrived = std::min(size, available - kSizeBytes);
      if (arrived == size) {
        const grpc::Slice message(bytes + kSizeBytes, size);
        unread_at_ += kSizeBytes + size;
        grpc::ByteBuffer(&message, 1).Swap(&received_);
        return Progress::kMessage;
      }
      if (size > kChunk) {
        long_message_ = grpc::Slice(size);
        std::memcpy(const_cast<uint8_t*>(long_message_.begin()), bytes + kSizeBytes, arrived);
        long_received_ = arrived;
        unread_at_ = unread_.size();
        continue;
      }
    }
    unread_.erase(0, unread_at_);
    unread_at_ = 0;
    const size_t kept = unread_.size();
    unread_.resize(kept + kChunk);
    const ssize_t size = read(in_.get(), unread_.data() + kept, kChunk);
    unread_.resize(kept + std::max<ssize_t>(size, 0));
    if (size <= 0) return IsEmpty(size) ? Progress::kWaits : Progress::kFailed;
  }
}

// -------------------------------------------------------------------------------------------------- writing

bool MessagePipe::Write(const grpc::ByteBuffer& message, Completion* done) {
  done->Tag();
  CHECK(message.Dump(&slices_).ok());
  size_ = htole32(static_cast<uint32_t>(message.Length()));
  written_ = 0;
  if (Flush()) return true;
  MutexLock lock(&mu_);
  writing_ = done;
  closed_ ? thread_.Nudge(id_) : WatchOutput(true);
  return false;
}

bool MessagePipe::Flush() {
  while (true) {
    constexpr size_t kMostPieces = 16;
    iovec pieces[kMostPieces];
    size_t count = 0;
    size_t skip = written_;
    const auto add = [&](const void* bytes, size_t size) {
      const size_t skipped = std::min(skip, size);
      skip -= skipped;
      if (size == skipped || count == kMostPieces) return;
      pieces[count++] = {static_cast<char*>(const_cast<void*>(bytes)) + skipped, size - skipped};
    };
    add(&size_, kSizeBytes);
    for (const grpc::Slice& slice : slices_) add(slice.begin(), slice.size());
    if (count == 0) break;
    const ssize_t size = writev(out_.get(), pieces, static_cast<int>(count));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    written_ += size;
  }
  slices_.clear();
  return true;
}

void MessagePipe::OnWritable() {
  Completion* done = nullptr;
  bool closed;
  {
    MutexLock lock(&mu_);
    if (writing_ == nullptr) return;
    closed = closed_;
  }
  if (!closed && !Flush()) return;
  {
    MutexLock lock(&mu_);
    WatchOutput(false);
    done = std::exchange(writing_, nullptr);
  }
  if (closed) slices_.clear();
  Completion::Run(done, !closed);
}

}  // namespace catchment
