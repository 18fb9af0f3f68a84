// The reference: blocking sockets and nothing else. A worker writes N bytes, then reads N; the server, on a
// thread for each connection, reads them all, applies SGD, and writes the weights.
#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "tests/benchmarks/wire_peers.h"

namespace catchment {
namespace {

struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address Resolve(const PeerOptions& options) {
  Address address;
  if (options.transport == "unix") {
    auto* const to = reinterpret_cast<sockaddr_un*>(&address.storage);
    to->sun_family = AF_UNIX;
    std::strncpy(to->sun_path, options.address.c_str(), sizeof(to->sun_path) - 1);
    address.size = sizeof(sockaddr_un);
    return address;
  }
  auto* const to = reinterpret_cast<sockaddr_in*>(&address.storage);
  int port = 0;
  CHECK(absl::SimpleAtoi(options.address.substr(options.address.rfind(':') + 1), &port));
  to->sin_family = AF_INET;
  to->sin_port = htons(port);
  to->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.size = sizeof(sockaddr_in);
  return address;
}

int OpenSocket(const PeerOptions& options) {
  const int fd = socket(options.transport == "unix" ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
  PCHECK(fd >= 0);
  return fd;
}

void SendAtOnce(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));  // fails on a Unix socket, which needs it not
}

void WriteAll(int fd, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = write(fd, from, bytes);
    PCHECK(done > 0);
    from += done;
    bytes -= done;
  }
}

// False at the end of the connection.
bool ReadAll(int fd, void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = read(fd, to, bytes);
    if (done <= 0) return false;
    to += done;
    bytes -= done;
  }
  return true;
}

class PlainServer final : public WireServer {
 public:
  explicit PlainServer(const PeerOptions& options)
      : options_(options), listener_(OpenSocket(options)), weights_(options.values, 0.0f) {
    Address address = Resolve(options);
    PCHECK(bind(listener_, address.get(), address.size) == 0);
    PCHECK(listen(listener_, options.workers) == 0);
    if (options.transport == "tcp") {
      PCHECK(getsockname(listener_, address.get(), &address.size) == 0);
      options_.address =
          absl::StrCat("127.0.0.1:", ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port));
    }
    for (int w = 0; w < options.workers; ++w) threads_.emplace_back([this] { Serve(); });
  }
  ~PlainServer() override {
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  std::string address() const override { return options_.address; }

 private:
  void Serve() {
    const int fd = accept(listener_, nullptr, nullptr);
    PCHECK(fd >= 0);
    SendAtOnce(fd);
    const size_t bytes = weights_.size() * sizeof(float);
    std::vector<float> gradient(weights_.size());
    // With one worker the weights do not change while they are sent.
    std::vector<float> copy(options_.workers > 1 ? weights_.size() : 0);
    while (ReadAll(fd, gradient.data(), bytes)) {
      if (!options_.echo) {
        MutexLock lock(&mu_);
        ApplySgd(gradient.data(), options_.values, weights_.data(), copy.empty() ? nullptr : copy.data());
      }
      const std::vector<float>& answer = options_.echo ? gradient : copy.empty() ? weights_ : copy;
      WriteAll(fd, answer.data(), bytes);
    }
    close(fd);
  }

  PeerOptions options_;
  const int listener_;
  Mutex mu_;
  std::vector<float> weights_;  // changed under mu_
  std::vector<std::thread> threads_;
};

class PlainWorker final : public WireWorker {
 public:
  explicit PlainWorker(const PeerOptions& options) : fd_(OpenSocket(options)) {
    Address address = Resolve(options);
    PCHECK(connect(fd_, address.get(), address.size) == 0) << options.address;
    SendAtOnce(fd_);
  }
  ~PlainWorker() override { close(fd_); }

  void RoundTrip(absl::Span<const float> gradient, absl::Span<float> weights) override {
    WriteAll(fd_, gradient.data(), gradient.size() * sizeof(float));
    CHECK(ReadAll(fd_, weights.data(), weights.size() * sizeof(float))) << "the server has gone";
  }

 private:
  const int fd_;
};

}  // namespace

void ApplySgd(const float* __restrict gradient, int64_t n, float* __restrict weights,
              float* __restrict copy) {
  if (copy == nullptr) {
    for (int64_t i = 0; i < n; ++i) weights[i] -= kLearningRate * gradient[i];
  } else {
    for (int64_t i = 0; i < n; ++i) copy[i] = weights[i] -= kLearningRate * gradient[i];
  }
}

std::unique_ptr<WireServer> MakePlainServer(const PeerOptions& options) {
  return std::make_unique<PlainServer>(options);
}

std::unique_ptr<WireWorker> MakePlainWorker(const PeerOptions& options) {
  return std::make_unique<PlainWorker>(options);
}

}  // namespace catchment
