#include "server/edge/acceptor.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/open_files.h"
#include "server/edge/call_rate.h"

namespace catchment {
namespace {

constexpr int kAcceptedAtOnce = 64;
constexpr double kPauseSeconds = 0.1;
// The time from the end of a connection to the return of its memory to the operating system.
constexpr double kTrimSeconds = 2;
constexpr double kComplainSeconds = 60;

std::optional<PeerAccount::Traffic> TrafficOf(int fd) {
  // Before the bytes that were received: those that arrive between the two count now rather than never.
  int unread = 0;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (ioctl(fd, SIOCINQ, &unread) != 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return std::nullopt;
  return PeerAccount::Traffic{info.tcpi_bytes_received - unread, info.tcpi_bytes_acked};
}

// Returns 0 if the file is not a socket.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

bool IsClosedByPeer(int fd) {
  pollfd state = {fd, POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0;
}

// Ends a connection at once, with a reset. Bytes that have arrived are discarded: gRPC might need seconds for
// them.
void Reset(int fd) {
  sockaddr none = {};
  none.sa_family = AF_UNSPEC;
  if (connect(fd, &none, sizeof(none)) != 0) shutdown(fd, SHUT_RDWR);
}

// Returns the other end of a connection as gRPC names it.
std::string PeerOf(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
  const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
  is_v4 ? inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text))
        : inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return is_v4 ? absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port))
               : absl::StrCat("ipv6:[", text, "]:", ntohs(v6.sin6_port));
}

}  // namespace

Acceptor::Acceptor(ListeningSockets sockets, const Options& options, PeerAccounts* accounts,
                   const Clock* clock)
    : listening_(std::move(sockets)),
      options_(options),
      accounts_(*accounts),
      clock_(*clock),
      endings_(options.endings, clock) {}

void Acceptor::Start(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  PCHECK(stop_.get() >= 0) << "eventfd";
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "acceptor");
  passing_thread_ = std::thread([this] { PassOn(); });
  pthread_setname_np(passing_thread_.native_handle(), "connector");
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.Notify();
    }
    // Accounts are still checked, so that no peer can hold the thread.
    passing_thread_.join();
    const uint64_t one = 1;
    PCHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one)) << "eventfd";
    thread_.join();
  }
  listening_.sockets.clear();
  watched_.clear();
  MutexLock lock(&mu_);
  admitted_.clear();
}

void Acceptor::PassOn() {
  while (true) {
    Fd fd;
    {
      MutexLock lock(&mu_);
      changed_.Wait(&mu_, [this]() { return stopping_ || !admitted_.empty(); });
      if (stopping_) return;
      fd = std::move(admitted_.front());
      admitted_.pop_front();
    }
    on_connection_(fd.Release());
  }
}

void Acceptor::Run() {
  std::vector<pollfd> files = {{stop_.get(), POLLIN, 0}};
  for (const Fd& fd : listening_.sockets) files.push_back({fd.get(), POLLIN, 0});
  while (true) {
    double now = clock_.Now();
    const bool accepts = now >= paused_until_;
    const int ready = poll(files.data(), accepts ? files.size() : 1, PollMilliseconds(now));
    if (ready > 0 && files[0].revents != 0) return;
    now = clock_.Now();
    for (size_t i = 1; accepts && i < files.size(); ++i) {
      if (ready > 0 && files[i].revents != 0) AcceptAll(files[i].fd, now);
    }
    PassWatched(now);
    if (now >= next_suspects_) CheckSuspects(now);
    if (now >= next_check_) Check(now);
  }
}

int Acceptor::PollMilliseconds(double now) const {
  const bool waits = !connections_.empty() || !watched_.empty() || trim_at_ > 0 || now < paused_until_;
  if (!waits) return -1;
  double due = now < paused_until_ ? std::min(next_check_, paused_until_) : next_check_;
  if (!suspects_.empty()) due = std::min(due, next_suspects_);
  return static_cast<int>(std::clamp(std::ceil((due - now) * 1000), 0.0, 1000.0));
}

void Acceptor::AcceptAll(int listening, double now) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Fd fd(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) {
      Admit(std::move(fd), now);
      if (now < paused_until_) return;
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    const int error = errno;
    // The connections wait in the kernel until the process can accept them.
    const bool made_room = EndOldestStranger(0, now);
    if (now - complained_ >= kComplainSeconds || complained_ == 0) {
      complained_ = now;
      LOG(WARNING) << "no connection can be accepted: " << std::strerror(error) << " (the limit is "
                   << OpenFilesLimit() << "): "
                   << (made_room ? "connections without calls are closed; " : "new connections wait; ")
                   << kOpenFilesRemedy;
    }
    paused_until_ = now + kPauseSeconds;
    return;
  }
}

void Acceptor::Admit(Fd fd, double now) {
  const std::string address = AddressOfPeer(PeerOf(fd.get()));
  const auto watched = watched_.find(address);
  if (watched != watched_.end()) {
    std::deque<Fd>& waiting = watched->second.waiting;
    std::erase_if(waiting, [](const Fd& one) { return IsClosedByPeer(one.get()); });
    if (waiting.size() < options_.watched_waiting) waiting.push_back(std::move(fd));
    return;
  }
  Pass(std::move(fd), /*watched=*/false, now);
}

void Acceptor::Pass(Fd fd, bool watched, double now) {
  UpdateStrangers(&strangers_);
  if (strangers_.size() >= options_.strangers && !EndOldestStranger(options_.stranger_seconds, now))
    paused_until_ = now + kPauseSeconds;
  Connection connection;
  connection.cookie = CookieOf(fd.get());
  connection.peer = PeerOf(fd.get());
  connection.key = KeyOfPeer(connection.peer);
  connection.address = AddressOfPeer(connection.peer);
  PeerAccount::Limits limits = options_.limits;
  if (watched) limits.short_message_bytes = 0;
  connection.account = std::make_shared<PeerAccount>(limits);
  connection.since = now;
  // A former connection with this file has ended since the last check.
  NoteEnded(fd.get(), now);
  strangers_.push_back({fd.get(), connection.cookie});
  if (watched) suspects_.push_back(strangers_.back());
  accounts_.Add(connection.key, connection.account);
  connections_.emplace(fd.get(), std::move(connection));
  MutexLock lock(&mu_);
  admitted_.push_back(std::move(fd));
  changed_.Notify();
}

void Acceptor::PassWatched(double now) {
  for (auto at = watched_.begin(); at != watched_.end();) {
    Watched& watched = at->second;
    // Connections of peers that have given up are skipped.
    while (!watched.waiting.empty() && now >= watched.next) {
      Fd fd = std::move(watched.waiting.front());
      watched.waiting.pop_front();
      if (IsClosedByPeer(fd.get())) continue;
      watched.next = now + options_.watched_interval_seconds;
      Pass(std::move(fd), /*watched=*/true, now);
    }
    if (now < watched.until || !watched.waiting.empty()) {
      ++at;
      continue;
    }
    LOG_IF(WARNING, watched.ended > 0)
        << watched.ended << " more connections from " << at->first << " were closed for the same reason";
    at = watched_.erase(at);
  }
}

void Acceptor::UpdateStrangers(std::deque<Stranger>* strangers) const {
  std::erase_if(*strangers, [this](const Stranger& stranger) {
    const auto found = connections_.find(stranger.fd);
    return found == connections_.end() || found->second.cookie != stranger.cookie ||
           found->second.account->known();
  });
}

bool Acceptor::EndOldestStranger(double seconds, double now) {
  UpdateStrangers(&strangers_);
  if (strangers_.empty()) return false;
  const int fd = strangers_.front().fd;
  const Connection& oldest = connections_.at(fd);
  if (now - oldest.since < seconds) return false;
  if (CookieOf(fd) == oldest.cookie) Reset(fd);
  Forget(fd);
  return true;
}

void Acceptor::Check(double now) {
  next_check_ = now + std::max(options_.check_seconds,
                               options_.check_seconds_each * static_cast<double>(connections_.size()));
  std::vector<int> fds;
  fds.reserve(connections_.size());
  for (const auto& [fd, connection] : connections_) fds.push_back(fd);
  CheckAll(fds, now);
  CheckPeersWithoutStream(now);
  if (trim_at_ > 0 && now >= trim_at_) {
    trim_at_ = 0;
    malloc_trim(0);
  }
}

void Acceptor::CheckSuspects(double now) {
  next_suspects_ = now + options_.check_watched_seconds;
  UpdateStrangers(&suspects_);
  std::vector<int> fds;
  fds.reserve(suspects_.size());
  for (const Stranger& suspect : suspects_) fds.push_back(suspect.fd);
  CheckAll(fds, now);
}

void Acceptor::CheckAll(const std::vector<int>& fds, double now) {
  for (const int fd : fds) {
    const Connection& connection = connections_.at(fd);
    bool open = CookieOf(fd) == connection.cookie;
    std::string what;
    if (open) {
      what = connection.account->Check(
          [&] {
            const std::optional<PeerAccount::Traffic> traffic = TrafficOf(fd);
            open = traffic.has_value();
            return traffic.value_or(PeerAccount::Traffic());
          },
          now);
    }
    if (!open) {
      NoteEnded(fd, now);
    } else if (!what.empty()) {
      End(fd, connection, what, now);
      Forget(fd);
    }
  }
}

void Acceptor::CheckPeersWithoutStream(double now) {
  double total = 0;
  auto most = connections_.end();
  for (auto at = connections_.begin(); at != connections_.end(); ++at) {
    const PeerAccount& account = *at->second.account;
    if (account.has_stream()) continue;
    total += account.other_bytes();
    if (most == connections_.end() || account.other_bytes() > most->second.account->other_bytes()) most = at;
  }
  if (total <= options_.bytes_without_stream) return;
  const int fd = most->first;
  End(fd, most->second,
      absl::StrCat(std::llround(most->second.account->other_bytes() / 1024),
                   " KiB of messages that are not complete, and others as much"),
      now);
  Forget(fd);
}

void Acceptor::NoteEnded(int fd, double now) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  const Connection& connection = found->second;
  const PeerAccount& account = *connection.account;
  double times = account.known() ? 0 : 1;
  if (!account.has_stream()) {
    times += std::floor(account.other_bytes() / options_.bytes_of_ending) +
             std::floor(account.unanswered() / options_.calls_of_ending);
  }
  if (times > 0 && !endings_.Take(connection.peer, times).ok()) {
    trim_at_ = now + kTrimSeconds;
    Watch(connection.address,
          absl::StrCat(connection.address,
                       " repeatedly opens and closes connections without calls, or without awaiting their "
                       "answers, which no worker does"),
          now);
  }
  Forget(fd);
}

void Acceptor::Watch(const std::string& address, const std::string& what, double now) {
  const auto [watched, is_new] = watched_.try_emplace(address);
  watched->second.until = now + options_.watch_seconds;
  if (is_new) {
    LOG(WARNING) << what << ": connections from there are now handled one at a time";
  } else {
    ++watched->second.ended;
  }
}

void Acceptor::End(int fd, const Connection& connection, const std::string& what, double now) {
  Reset(fd);
  trim_at_ = now + kTrimSeconds;
  Watch(connection.address,
        absl::StrCat(connection.peer, " has sent ", what, ", which no worker does; disconnected"), now);
}

void Acceptor::Forget(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  accounts_.Remove(found->second.key, found->second.account.get());
  connections_.erase(found);
}

}  // namespace catchment
