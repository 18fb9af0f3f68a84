// Sockets that listen for connections.
#ifndef CATCHMENT_COMMON_NET_LISTEN_H_
#define CATCHMENT_COMMON_NET_LISTEN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

// A file of the process, closed at the end.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  int Release();

 private:
  int fd_;
};

// Sockets that listen on all addresses of a host, at one port.
struct ListeningSockets {
  std::vector<Fd> sockets;
  int port = 0;
};

// Listens at all addresses of the host. Port 0 chooses a free one. Errors: Unavailable with the reason of the
// operating system, and what to do.
absl::StatusOr<ListeningSockets> ListenAt(const std::string& host, const std::string& port);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_LISTEN_H_
