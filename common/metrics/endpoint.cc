#include "common/metrics/endpoint.h"

#include <glog/logging.h>
#include <poll.h>
#include <prometheus/text_serializer.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/net/listen.h"

namespace catchment {
namespace {

constexpr size_t kMostClients = 64, kMostBytesOfRequest = 32 << 10;
constexpr double kClientSeconds = 10;
constexpr int kPauseMs = 100;

}  // namespace

class MetricsEndpoint::Page {
 public:
  explicit Page(std::string program) : program_(std::move(program)) {}

  std::string Text() const {
    MetricFamilies families;
    AddGauge("catchment_build_info", "The program and its version.", 1, &families,
             {{"program", program_}, {"version", BuildVersion()}});
    AddProcess(&families);
    MutexLock lock(&mu_);
    if (source_) source_(&families);
    return prometheus::TextSerializer().Serialize(families);
  }

  void Set(Source source) {
    MutexLock lock(&mu_);
    source_ = std::move(source);
  }

 private:
  const std::string program_;
  mutable Mutex mu_;
  Source source_ ABSL_GUARDED_BY(mu_);
};

// Answers GET /metrics (HTTP/1.1, RFC 9112), one request for each connection, on one thread that waits for no
// peer: a connection that is silent or slow costs a place, of which one is taken from the older of two
// connections, chosen at random, when there are too many.
class MetricsEndpoint::Server {
 public:
  Server(ListeningSockets sockets, const Page* page) : listening_(std::move(sockets)), page_(*page) {
    PCHECK(stop_.get() >= 0) << "eventfd";
    thread_ = std::thread([this] { Run(); });
    pthread_setname_np(thread_.native_handle(), "metrics");
  }
  ~Server() {
    const uint64_t one = 1;
    PCHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one)) << "eventfd";
    thread_.join();
  }

 private:
  struct Client {
    Fd fd;
    double since = 0;
    std::string request, answer;  // what has arrived, and what is still to be sent
    bool done = false;
  };

  void Run() {
    while (true) {
      std::vector<pollfd> files = {{stop_.get(), POLLIN, 0}};
      for (const Client& client : clients_)
        files.push_back({client.fd.get(), static_cast<int16_t>(client.answer.empty() ? POLLIN : POLLOUT), 0});
      for (const Fd& fd : listening_.sockets) files.push_back({fd.get(), POLLIN, 0});
      poll(files.data(), files.size(), clients_.empty() ? -1 : 1000);
      if (files[0].revents != 0) return;
      const size_t first = 1 + clients_.size();
      for (size_t i = 1; i < first; ++i) {
        if (files[i].revents != 0) Advance(&clients_[i - 1]);
      }
      for (size_t i = first; i < files.size(); ++i) {
        if (files[i].revents != 0) AcceptAll(files[i].fd);
      }
      const double now = clock_.Now();
      std::erase_if(clients_, [now](const Client& client) {
        return client.done || now - client.since >= kClientSeconds;
      });
    }
  }

  void AcceptAll(int listening) {
    for (size_t i = 0; i < kMostClients; ++i) {
      Fd fd(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const bool no_file = fd.get() < 0 && (errno == EMFILE || errno == ENFILE);
      if (fd.get() < 0 && !no_file) return;
      if (no_file && clients_.empty()) {
        poll(nullptr, 0, kPauseMs);
        return;
      }
      if (no_file || clients_.size() >= kMostClients) DropOne();
      if (!no_file) clients_.push_back({std::move(fd), clock_.Now()});
    }
  }

  void DropOne() {
    size_t a = random_.Below(clients_.size());
    const size_t b = random_.Below(clients_.size());
    if (clients_[b].since < clients_[a].since) a = b;
    std::swap(clients_[a], clients_.back());
    clients_.pop_back();
  }

  void Advance(Client* client) const {
    if (client->answer.empty()) {
      char bytes[kMostBytesOfRequest];
      const ssize_t size = recv(client->fd.get(), bytes, sizeof(bytes), 0);
      if (size > 0) client->request.append(bytes, size);
      const bool complete = absl::StrContains(client->request, "\r\n\r\n");
      client->done = !complete && (size <= 0 || client->request.size() > kMostBytesOfRequest);
      if (!complete) return;
      client->answer = Answer(client->request);
    }
    const ssize_t size = send(client->fd.get(), client->answer.data(), client->answer.size(), MSG_NOSIGNAL);
    if (size > 0) client->answer.erase(0, size);
    client->done = client->answer.empty() || (size < 0 && errno != EAGAIN);
  }

  std::string Answer(const std::string& request) const {
    const bool found =
        absl::StartsWith(request, "GET /metrics ") || absl::StartsWith(request, "GET /metrics?");
    const std::string body =
        found ? page_.Text() : "GET /metrics is the only request that is answered here\n";
    return absl::StrCat("HTTP/1.1 ", found ? "200 OK" : "404 Not Found",
                        "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: ",
                        body.size(), "\r\nConnection: close\r\n\r\n", body);
  }

  ListeningSockets listening_;
  const Page& page_;
  const SteadyClock clock_;
  const Fd stop_{eventfd(0, EFD_CLOEXEC)};
  Random random_{RandomId()};
  std::vector<Client> clients_;
  std::thread thread_;
};

absl::StatusOr<std::string> MetricsEndpoint::ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  int number = 0;
  if (host.empty() || !absl::SimpleAtoi(port, &number) || number < 0 || number > 65535) {
    return absl::InvalidArgumentError(
        "must be PORT, for this machine only, or HOST:PORT, such as 0.0.0.0:9100 for all interfaces");
  }
  return absl::StrCat(host, ":", number);
}

MetricsEndpoint::MetricsEndpoint(const std::string& address, const std::string& program)
    : page_(std::make_unique<Page>(program)) {
  if (address.empty()) return;
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  absl::StatusOr<ListeningSockets> sockets =
      ListenAt(std::string(absl::StripSuffix(absl::StripPrefix(host, "["), "]")), address.substr(colon + 1));
  if (!sockets.ok()) {
    LOG(ERROR) << "cannot serve metrics at " << address << ": " << sockets.status().message()
               << "; the daemon continues without metrics";
    return;
  }
  address_ = absl::StrCat(host, ":", sockets->port);
  server_ = std::make_unique<Server>(*std::move(sockets), page_.get());
  LOG(INFO) << "metrics are at http://" << address_ << "/metrics";
}

MetricsEndpoint::~MetricsEndpoint() = default;

void MetricsEndpoint::SetSource(Source source) { page_->Set(std::move(source)); }

}  // namespace catchment
