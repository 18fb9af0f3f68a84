#include "server/edge/acceptor.h"

#include <glog/logging.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/open_files.h"
#include "common/base/random.h"
#include "server/edge/accepted_socket.h"

namespace catchment {
namespace {

constexpr int kAcceptedAtOnce = 64;
// The largest number of pieces in which the opening of a waiting connection may arrive, because each is
// examined.
constexpr int kMostPieces = 64;
constexpr double kPauseSeconds = 0.1;
// The interval at which connections are passed on that wait for others.
constexpr double kPassSeconds = 0.002;
// Addresses that are remembered although there is no connection from them.
constexpr size_t kMostSources = 4096;
// The time from the end of a connection to the return of its memory to the operating system.
constexpr double kTrimSeconds = 2;
constexpr double kComplainSeconds = 60;

}  // namespace

Acceptor::Acceptor(ListeningSockets sockets, const Options& options, PeerAccounts* accounts,
                   const Clock* clock)
    : listening_(std::move(sockets)),
      options_(options),
      accounts_(*accounts),
      clock_(*clock),
      endings_(options.endings, clock),
      handshakes_(options.handshakes_per_second, options.handshakes_at_once, clock->Now()),
      random_(RandomId()) {}

void Acceptor::Start(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  PCHECK(stop_.get() >= 0) << "eventfd";
  openings_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  PCHECK(openings_.get() >= 0) << "epoll_create1";
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
  waiting_.clear();
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
  std::vector<pollfd> files = {{stop_.get(), POLLIN, 0}, {openings_.get(), POLLIN, 0}};
  const size_t first = files.size();
  for (const Fd& fd : listening_.sockets) files.push_back({fd.get(), POLLIN, 0});
  while (true) {
    double now = clock_.Now();
    const bool accepts = now >= paused_until_;
    const int ready = poll(files.data(), accepts ? files.size() : first, PollMilliseconds(now));
    if (ready > 0 && files[0].revents != 0) return;
    now = clock_.Now();
    for (size_t i = first; accepts && i < files.size(); ++i) {
      if (ready > 0 && files[i].revents != 0) AcceptAll(files[i].fd, now);
    }
    ReadOpenings();
    PassReady(now);
    if (now >= next_suspects_) CheckSuspects(now);
    if (now >= next_check_) Check(now);
  }
}

int Acceptor::PollMilliseconds(double now) const {
  const bool waits = !connections_.empty() || !waiting_.empty() || trim_at_ > 0 || now < paused_until_;
  if (!waits) return -1;
  double due = now < paused_until_ ? std::min(next_check_, paused_until_) : next_check_;
  if (!suspects_.empty()) due = std::min(due, next_suspects_);
  if (next_pass_ > 0) due = std::min(due, next_pass_);
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
    if (!waiting_.empty()) {
      DropOne(now);
      continue;
    }
    const bool made_room = EndStranger(/*at_once=*/true, now) || EndIdle(nullptr);
    if (now - complained_ >= kComplainSeconds || complained_ == 0) {
      complained_ = now;
      LOG(WARNING) << "no connection can be accepted: " << std::strerror(error) << " (the limit is "
                   << OpenFilesLimit()
                   << "): " << (made_room ? "silent connections are closed; " : "new connections wait; ")
                   << kOpenFilesRemedy;
    }
    paused_until_ = now + kPauseSeconds;
    return;
  }
}

double Acceptor::Share(const Source& source, double now) const {
  return now < source.vouched_until ? options_.vouched_share : 1;
}

size_t Acceptor::PickOlderOfTwo(const std::vector<size_t>& candidates,
                                absl::FunctionRef<double(size_t)> since) {
  const size_t a = candidates[random_.Below(candidates.size())];
  const size_t b = candidates[random_.Below(candidates.size())];
  return since(a) <= since(b) ? a : b;
}

void Acceptor::Admit(Fd fd, double now) {
  if (!waiting_.empty() && waiting_.size() + strangers_.size() >= options_.strangers) DropOne(now);
  epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.fd = fd.get()}};
  if (epoll_ctl(openings_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return;
  Source& source = sources_[AddressOfPeer(PeerOf(fd.get()))];
  if (source.waiting == 0) source.turn = std::max(source.turn, turn_);
  ++source.waiting;
  waiting_.push_back({std::move(fd), &source, now});
}

void Acceptor::DropOne(double now) {
  double most = 0;
  std::vector<size_t> candidates;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Source& source = *waiting_[i].source;
    const double shares = static_cast<double>(source.waiting) / Share(source, now);
    if (shares > most) candidates.clear();
    most = std::max(most, shares);
    if (shares == most) candidates.push_back(i);
  }
  Drop(PickOlderOfTwo(candidates, [this](size_t i) { return waiting_[i].since; }));
}

void Acceptor::Drop(size_t waiting) {
  --waiting_[waiting].source->waiting;
  std::swap(waiting_[waiting], waiting_.back());
  waiting_.pop_back();
}

void Acceptor::ReadOpenings() {
  epoll_event events[kAcceptedAtOnce];
  const int ready = epoll_wait(openings_.get(), events, kAcceptedAtOnce, 0);
  char bytes[kMostBytesOfOpening];
  for (int i = 0; i < ready; ++i) {
    const int fd = events[i].data.fd;
    const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                                 [fd](const Waiting& waiting) { return waiting.fd.get() == fd; });
    if (at == waiting_.end()) continue;
    if (at->opening == Opening::kIncomplete) {
      const ssize_t size = recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
      const absl::string_view arrived(bytes, std::max<ssize_t>(size, 0));
      at->opening = OpeningOf(arrived);
      at->tls = IsTls(arrived);
    }
    const bool closed = (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (closed || at->opening == Opening::kNone || ++at->pieces > kMostPieces) Drop(at - waiting_.begin());
  }
}

size_t Acceptor::PickReady(double now) {
  double first = std::numeric_limits<double>::infinity();
  std::vector<size_t> candidates;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Source& source = *waiting_[i].source;
    if (waiting_[i].opening != Opening::kComplete || (source.watched_until > 0 && now < source.next))
      continue;
    if (source.turn < first) candidates.clear();
    first = std::min(first, source.turn);
    if (source.turn == first) candidates.push_back(i);
  }
  return candidates.empty() ? waiting_.size() : candidates[random_.Below(candidates.size())];
}

void Acceptor::PassReady(double now) {
  if (now < next_pass_) return;
  next_pass_ = 0;
  const size_t most = std::max<size_t>(options_.strangers * 3 / 4, 1);
  while (true) {
    const size_t next = PickReady(now);
    if (next == waiting_.size()) return;
    UpdateStrangers();
    if ((strangers_.size() >= most && !EndStranger(/*at_once=*/false, now)) || !handshakes_.Take(now)) {
      next_pass_ = now + kPassSeconds;
      return;
    }
    std::swap(waiting_[next], waiting_.back());
    Waiting waiting = std::move(waiting_.back());
    waiting_.pop_back();
    --waiting.source->waiting;
    Pass(std::move(waiting), now);
  }
}

void Acceptor::Pass(Waiting waiting, double now) {
  const int fd = waiting.fd.get();
  Source& source = *waiting.source;
  const bool watched = source.watched_until > 0;
  epoll_ctl(openings_.get(), EPOLL_CTL_DEL, fd, nullptr);
  // A former connection with this file has ended since the last check.
  NoteEnded(fd, now);
  Connection connection;
  connection.cookie = CookieOf(fd);
  connection.peer = PeerOf(fd);
  connection.key = KeyOfPeer(connection.peer);
  connection.address = AddressOfPeer(connection.peer);
  connection.source = &source;
  PeerAccount::Limits limits = options_.limits;
  if (watched) limits.short_message_bytes = 0;
  connection.account = std::make_shared<PeerAccount>(limits);
  connection.tls = waiting.tls;
  turn_ = source.turn;
  source.turn += 1 / Share(source, now);
  ++source.strangers;
  strangers_.push_back({fd, connection.cookie, &source, now});
  if (watched) {
    source.next = now + options_.watched_interval_seconds;
    suspects_.push_back(strangers_.back());
  }
  accounts_.Add(connection.key, connection.account);
  connections_.emplace(fd, std::move(connection));
  MutexLock lock(&mu_);
  admitted_.push_back(std::move(waiting.fd));
  changed_.Notify();
}

bool Acceptor::IsStranger(const Stranger& stranger) const {
  const auto found = connections_.find(stranger.fd);
  return found != connections_.end() && found->second.cookie == stranger.cookie &&
         !found->second.account->known();
}

void Acceptor::UpdateStrangers() {
  std::erase_if(strangers_, [this](const Stranger& stranger) {
    if (IsStranger(stranger)) return false;
    --stranger.source->strangers;
    return true;
  });
}

bool Acceptor::EndStranger(bool at_once, double now) {
  UpdateStrangers();
  double most = 0;
  std::vector<size_t> candidates;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    const Source& source = *strangers_[i].source;
    const bool answered = connections_.at(strangers_[i].fd).answered;
    const double seconds = answered ? options_.answered_seconds : options_.stranger_seconds;
    if (!at_once && now - strangers_[i].since < seconds) continue;
    const double shares = static_cast<double>(source.strangers) / Share(source, now);
    if (shares > most) candidates.clear();
    most = std::max(most, shares);
    if (shares == most) candidates.push_back(i);
  }
  if (candidates.empty()) return false;
  const size_t ended = PickOlderOfTwo(candidates, [this](size_t i) { return strangers_[i].since; });
  const int fd = strangers_[ended].fd;
  if (CookieOf(fd) == strangers_[ended].cookie) Reset(fd);
  Forget(fd);
  UpdateStrangers();
  return true;
}

bool Acceptor::EndIdle(const Source* source) {
  auto idlest = connections_.end();
  const auto activity = [](const PeerAccount& account) {
    return std::make_pair(account.calls() > 0, account.active_at());
  };
  for (auto at = connections_.begin(); at != connections_.end(); ++at) {
    const PeerAccount& account = *at->second.account;
    if (!account.known() || account.streams() > 0 || (source != nullptr && at->second.source != source))
      continue;
    if (idlest == connections_.end() || activity(account) < activity(*idlest->second.account)) idlest = at;
  }
  if (idlest == connections_.end()) return false;
  const int fd = idlest->first;
  if (CookieOf(fd) == idlest->second.cookie) Reset(fd);
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
  CheckSources(now);
  for (size_t i = waiting_.size(); i-- > 0;) {
    if (now - waiting_[i].since >= options_.opening_seconds) Drop(i);
  }
  if (trim_at_ > 0 && now >= trim_at_) {
    trim_at_ = 0;
    malloc_trim(0);
  }
}

void Acceptor::CheckSuspects(double now) {
  next_suspects_ = now + options_.check_watched_seconds;
  std::erase_if(suspects_, [this](const Stranger& suspect) { return !IsStranger(suspect); });
  std::vector<int> fds;
  fds.reserve(suspects_.size());
  for (const Stranger& suspect : suspects_) fds.push_back(suspect.fd);
  CheckAll(fds, now);
}

void Acceptor::CheckAll(const std::vector<int>& fds, double now) {
  for (const int fd : fds) {
    Connection& connection = connections_.at(fd);
    bool open = CookieOf(fd) == connection.cookie;
    std::string what;
    if (open) {
      what = connection.account->Check(
          [&] {
            const std::optional<PeerAccount::Traffic> traffic = TrafficOf(fd);
            open = traffic.has_value();
            connection.answered |= open && traffic->acknowledged > 0;
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

void Acceptor::CheckSources(double now) {
  for (auto& [address, source] : sources_) source.idle = source.streams = 0;
  for (const auto& [fd, connection] : connections_) {
    Source& source = *connection.source;
    if (!connection.account->known()) continue;
    ++(connection.account->streams() > 0 ? source.streams : source.idle);
    source.vouched_until = now + options_.vouched_seconds;
  }
  const bool full = sources_.size() > kMostSources;
  for (auto at = sources_.begin(); at != sources_.end();) {
    Source& source = at->second;
    for (; source.idle > options_.idle_connections + source.streams; --source.idle) EndIdle(&source);
    if (source.watched_until > 0 && now >= source.watched_until) {
      LOG_IF(WARNING, source.ended > 0)
          << source.ended << " more connections from " << at->first << " were closed for the same reason";
      source.watched_until = 0;
      source.ended = 0;
    }
    const bool unused = source.waiting + source.strangers + source.idle + source.streams == 0 &&
                        source.watched_until == 0 && (full || now >= source.vouched_until);
    unused ? at = sources_.erase(at) : ++at;
  }
}

void Acceptor::NoteEnded(int fd, double now) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  const Connection& connection = found->second;
  const PeerAccount& account = *connection.account;
  if (!account.has_stream()) {
    // A peer without a certificate cannot send more in a handshake of TLS.
    const int64_t of_handshake = connection.tls && !account.known() ? options_.limits.other_bytes : 0;
    const double bytes = std::max(account.other_bytes() - static_cast<double>(of_handshake), 0.0);
    const double times = std::floor(bytes / options_.bytes_of_ending) +
                         std::floor(account.unanswered() / options_.calls_of_ending);
    if (times > 0 && !endings_.Take(connection.peer, times).ok()) {
      trim_at_ = now + kTrimSeconds;
      Watch(connection,
            absl::StrCat(connection.address,
                         " repeatedly opens and closes connections without calls, "
                         "or without awaiting their answers, which no worker does"),
            now);
    }
  }
  Forget(fd);
}

void Acceptor::Watch(const Connection& connection, const std::string& what, double now) {
  Source& source = *connection.source;
  if (source.watched_until == 0) {
    LOG(WARNING) << what << ": connections from there are now handled one at a time";
    source.next = now + options_.watched_interval_seconds;
  } else {
    ++source.ended;
  }
  source.watched_until = now + options_.watch_seconds;
}

void Acceptor::End(int fd, const Connection& connection, const std::string& what, double now) {
  Reset(fd);
  trim_at_ = now + kTrimSeconds;
  Watch(connection, absl::StrCat(connection.peer, " has sent ", what, ", which no worker does; disconnected"),
        now);
}

void Acceptor::Forget(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  accounts_.Remove(found->second.key, found->second.account.get());
  connections_.erase(found);
}

}  // namespace catchment
