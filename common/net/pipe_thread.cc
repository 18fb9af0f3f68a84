#include "common/net/pipe_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/status_macros.h"
#include "common/net/message_pipe.h"

namespace catchment {
namespace {

// Events are a pipe's number, and the direction in the lowest bit.
constexpr uint64_t kNudge = 0;

}  // namespace

PipeThread::PipeThread(std::string name) : name_(std::move(name)) {}

PipeThread::~PipeThread() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    ending_ = true;
  }
  Nudge(/*id=*/0);
  thread_.join();
}

absl::Status PipeThread::Start() {
  if (thread_.joinable()) return absl::OkStatus();
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  nudge_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (epoll_.get() < 0 || nudge_.get() < 0 || !Watch(nudge_.get(), /*id=*/0, kInput, true))
    return absl::ErrnoToStatus(errno, "a thread for pipes");
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name_.c_str());
  return absl::OkStatus();
}

absl::Status PipeThread::Add(const std::shared_ptr<MessagePipe>& pipe) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Start());
  pipe->id_ = ++last_id_;
  pipes_.emplace(pipe->id_, pipe);
  return absl::OkStatus();
}

// Events of the pipe's files that were received already find nothing in the table.
void PipeThread::Remove(uint64_t id) {
  std::shared_ptr<MessagePipe> last;
  MutexLock lock(&mu_);
  const auto found = pipes_.find(id);
  if (found == pipes_.end()) return;
  last = std::move(found->second);
  pipes_.erase(found);
}

std::shared_ptr<MessagePipe> PipeThread::Find(uint64_t id) {
  MutexLock lock(&mu_);
  const auto found = pipes_.find(id);
  return found == pipes_.end() ? nullptr : found->second;
}

bool PipeThread::Watch(int fd, uint64_t id, Direction direction, bool watch) {
  epoll_event event = {};
  event.events = direction == kInput ? EPOLLIN : EPOLLOUT;
  event.data.u64 = id << 1 | direction;
  return epoll_ctl(epoll_.get(), watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) == 0;
}

void PipeThread::Nudge(uint64_t id) {
  {
    MutexLock lock(&mu_);
    nudged_.push_back(id);
  }
  const uint64_t one = 1;
  if (write(nudge_.get(), &one, sizeof(one)) < 0) return;  // it is readable already
}

void PipeThread::Run() {
  constexpr int kMostEvents = 16;
  epoll_event events[kMostEvents];
  std::vector<uint64_t> turn, next;  // pipes that continue without an event
  const auto read = [&](uint64_t id, MessagePipe* pipe) {
    if (pipe->OnReadable()) next.push_back(id);
  };
  while (true) {
    const int count = epoll_wait(epoll_.get(), events, kMostEvents, next.empty() ? -1 : 0);
    turn.swap(next);
    for (int i = 0; i < count; ++i) {
      const uint64_t event = events[i].data.u64;
      if (event == kNudge) {
        if (!TakeNudged(&turn)) return;
      } else if (const std::shared_ptr<MessagePipe> pipe = Find(event >> 1)) {
        (event & 1) == kInput ? read(event >> 1, pipe.get()) : pipe->OnWritable();
      }
    }
    for (const uint64_t id : turn) {
      if (const std::shared_ptr<MessagePipe> pipe = Find(id)) {
        pipe->OnWritable();
        read(id, pipe.get());
      }
    }
    turn.clear();
  }
}

bool PipeThread::TakeNudged(std::vector<uint64_t>* turn) {
  uint64_t ignored;
  if (read(nudge_.get(), &ignored, sizeof(ignored)) < 0) return true;
  MutexLock lock(&mu_);
  turn->insert(turn->end(), nudged_.begin(), nudged_.end());
  nudged_.clear();
  return !ending_;
}

}  // namespace catchment
