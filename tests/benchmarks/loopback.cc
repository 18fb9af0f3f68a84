#include "tests/benchmarks/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace catchment {
namespace {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

  // False when the other end has gone.
  bool Write(std::vector<char>* bytes) const {
    return Move(bytes, [this](char* at, size_t n) { return send(fd_, at, n, MSG_NOSIGNAL); });
  }
  bool Read(std::vector<char>* bytes) const {
    return Move(bytes, [this](char* at, size_t n) { return recv(fd_, at, n, 0); });
  }

 private:
  template <typename Call>
  static bool Move(std::vector<char>* bytes, Call call) {
    for (size_t done = 0; done < bytes->size();) {
      const ssize_t n = call(bytes->data() + done, bytes->size() - done);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }

  int fd_;
};

struct Pair {
  Socket client;
  Socket server;
};

absl::StatusOr<Pair> ConnectPair() {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.fd(), any, size) != 0 || listen(listener.fd(), 1) != 0 ||
      getsockname(listener.fd(), any, &size) != 0) {
    return absl::ErrnoToStatus(errno, "cannot listen on 127.0.0.1");
  }
  Socket client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(client.fd(), any, size) != 0) return absl::ErrnoToStatus(errno, "cannot connect to 127.0.0.1");
  Socket server(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  for (const Socket* end : {&client, &server}) {
    if (setsockopt(end->fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
      return absl::ErrnoToStatus(errno, "cannot set up a socket");
    }
  }
  return Pair{std::move(client), std::move(server)};
}

void Serve(const Socket& socket, int64_t bytes) {
  std::vector<char> buffer(bytes);
  while (socket.Read(&buffer) && socket.Write(&buffer)) {
  }
}

// Bytes exchanged by the client: once, and again until `deadline`.
int64_t Exchange(Socket socket, int64_t bytes, double deadline) {
  const SteadyClock clock;
  std::vector<char> buffer(bytes);
  int64_t exchanged = 0;
  do {
    if (!socket.Write(&buffer) || !socket.Read(&buffer)) break;
    exchanged += 2 * bytes;
  } while (clock.Now() < deadline);
  return exchanged;
}

}  // namespace

absl::StatusOr<double> LoopbackBytesPerSecond(int64_t bytes, int connections, double seconds) {
  std::vector<Pair> pairs;
  for (int i = 0; i < connections; ++i) {
    absl::StatusOr<Pair> pair = ConnectPair();
    if (!pair.ok()) return pair.status();
    pairs.push_back(*std::move(pair));
  }
  const SteadyClock clock;
  const double start = clock.Now();
  std::atomic<int64_t> exchanged = 0;
  std::vector<std::thread> threads;
  for (Pair& pair : pairs) {
    threads.emplace_back([&] { Serve(pair.server, bytes); });
    threads.emplace_back([&] { exchanged += Exchange(std::move(pair.client), bytes, start + seconds); });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(exchanged) / (clock.Now() - start);
}

}  // namespace catchment
