#include "common/port_watch.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/address.h"
#include "common/open_files.h"

namespace catchment {
namespace {

// The interval at which a wait for a connection checks whether the watch has ended.
constexpr double kSliceSeconds = 0.1;
// The files of both ends of a connection, and those that gRPC opens for it.
constexpr int kSpareFiles = 6;

bool HasSpareFiles() {
  std::array<int, kSpareFiles> files;
  bool spare = true;
  for (int& file : files) {
    file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    spare &= file >= 0;
  }
  for (const int file : files) {
    if (file >= 0) close(file);
  }
  return spare;
}

// Returns " (127.0.1.1)" for a name.
std::string Addresses(const std::string& address) {
  const std::string host = HostOf(address);
  if (absl::StartsWith(address, "unix:") || IsNumericHost(host)) return "";
  return absl::StrCat(" (", absl::StrJoin(Resolve(host), ", "), ")");
}

bool AwaitConnection(grpc::Channel* channel, double seconds) {
  return channel->WaitForConnected(std::chrono::system_clock::now() +
                                   std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds)));
}

}  // namespace

PortWatch::PortWatch(std::string address, std::shared_ptr<grpc::ChannelCredentials> credentials,
                     const Options& options, std::function<void(const absl::Status&)> on_lost)
    : address_(std::move(address)),
      credentials_(std::move(credentials)),
      options_(options),
      on_lost_(std::move(on_lost)),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "port_watch");
}

absl::Status PortWatch::End() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  if (thread_.joinable()) thread_.join();
  MutexLock lock(&mu_);
  return status_;
}

bool PortWatch::reached() {
  MutexLock lock(&mu_);
  return reached_;
}

bool PortWatch::Pause() {
  MutexLock lock(&mu_);
  return changed_.WaitFor(&mu_, options_.check_seconds, [this] { return ending_; });
}

void PortWatch::Run() {
  for (int failures = 0; failures < kFailures;) {
    const bool spare = HasSpareFiles();
    const auto channel = ConnectForControl(address_, credentials_);
    bool connected = false, ending = false;
    for (double left = options_.connect_seconds; left > 0 && !connected && !ending; left -= kSliceSeconds) {
      connected = AwaitConnection(channel.get(), kSliceSeconds);
      MutexLock lock(&mu_);
      ending = ending_;
    }
    if (ending) return;
    LOG_IF(INFO, connected && !reached())
        << "this process is reachable at " << address_ << " from this machine" << Addresses(address_);
    if (connected) {
      failures = 0;
      MutexLock lock(&mu_);
      reached_ = true;
    } else if (reached() && spare && HasSpareFiles()) {
      ++failures;
    }
    if (failures < kFailures && Pause()) return;
  }
  const absl::Status lost =
      absl::UnavailableError(absl::StrCat("this process no longer accepts connections at ", address_,
                                          ": gRPC stops accepting them when the process runs out of open "
                                          "files (the limit is ",
                                          OpenFilesLimit(), "); ", kOpenFilesRemedy, ", and restart it"));
  LOG(ERROR) << lost.message();
  {
    MutexLock lock(&mu_);
    status_ = lost;
  }
  on_lost_(lost);
}

}  // namespace catchment
