// A TCP relay between a client and a server that can be cut: all its connections end at once, in the middle
// of whatever they carry; new ones are relayed again.
#ifndef CATCHMENT_TESTS_WORKER_CLIENT_RELAY_H_
#define CATCHMENT_TESTS_WORKER_CLIENT_RELAY_H_

#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace catchment {

class Relay {
 public:
  enum Direction { kToServer = 0, kToClient = 1 };

  // `target`: 127.0.0.1:PORT.
  explicit Relay(const std::string& target)
      : target_port_(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))) {
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in here = Local(0);
    CHECK_EQ(bind(listening_, reinterpret_cast<const sockaddr*>(&here), sizeof(here)), 0);
    CHECK_EQ(listen(listening_, 16), 0);
    socklen_t size = sizeof(here);
    CHECK_EQ(getsockname(listening_, reinterpret_cast<sockaddr*>(&here), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    accepting_ = std::thread([this] { Accept(); });
  }
  ~Relay() {
    {
      MutexLock lock(&mu_);
      ending_ = true;
    }
    shutdown(listening_, SHUT_RDWR);
    accepting_.join();
    Cut();
    for (std::thread& thread : threads_) thread.join();
    for (int fd : opened_) close(fd);
    close(listening_);
  }

  const std::string& address() const { return address_; }

  // Ends all connections.
  void Cut() {
    MutexLock lock(&mu_);
    CutLocked();
  }
  // Once: when that number of further bytes have gone in this direction, of which the last do not arrive.
  void CutAfter(Direction direction, int64_t bytes) {
    MutexLock lock(&mu_);
    CHECK_LT(left_, 0) << "one cut at a time";
    direction_ = direction;
    left_ = bytes;
  }
  // Returns true if a cut is pending.
  bool armed() {
    MutexLock lock(&mu_);
    return left_ >= 0;
  }
  void Disarm() {
    MutexLock lock(&mu_);
    left_ = -1;
  }

 private:
  static sockaddr_in Local(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Accept() {
    while (true) {
      const int client = accept(listening_, nullptr, nullptr);
      if (client < 0) return;
      const int server = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in target = Local(target_port_);
      const bool connected = connect(server, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0;
      MutexLock lock(&mu_);
      opened_.insert(opened_.end(), {client, server});
      if (!connected || ending_) {
        CutLocked();
        continue;
      }
      threads_.emplace_back([=, this] { Pump(client, server, kToServer); });
      threads_.emplace_back([=, this] { Pump(server, client, kToClient); });
    }
  }

  void Pump(int from, int to, Direction direction) {
    char buffer[16 << 10];
    while (true) {
      int64_t got = recv(from, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      bool cut = false;
      {
        MutexLock lock(&mu_);
        if (left_ >= 0 && direction == direction_) {
          cut = got >= left_;
          got = std::min(got, left_);
          left_ = cut ? -1 : left_ - got;
        }
      }
      for (int64_t sent = 0; sent < got;) {
        const int64_t now = send(to, buffer + sent, got - sent, MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += now;
      }
      if (cut) Cut();
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }

  // Descriptors stay open until the end, so that none is used for something else meanwhile.
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (int fd : opened_) shutdown(fd, SHUT_RDWR);
  }

  const uint16_t target_port_;
  std::string address_;
  int listening_ = -1;
  std::thread accepting_;

  Mutex mu_;
  std::vector<std::thread> threads_;  // changed by accepting_ only, until it has ended
  std::vector<int> opened_ ABSL_GUARDED_BY(mu_);
  Direction direction_ ABSL_GUARDED_BY(mu_) = kToServer;
  int64_t left_ ABSL_GUARDED_BY(mu_) = -1;  // bytes until the cut; below 0: none
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_CLIENT_RELAY_H_
