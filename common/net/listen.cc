#include "common/net/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace catchment {
namespace {

// After this time a peer whose machine has failed does not block messages to it.
constexpr unsigned kUserTimeoutMs = 20'000;
// The number of tries to find a port that is free at all addresses of a host.
constexpr int kPortTries = 16;

// Returns the system's reason for an address that a process cannot listen on, and what to do.
absl::Status CannotListen(int error) {
  const std::string why = std::strerror(error);
  if (error == EADDRNOTAVAIL) {
    return absl::UnavailableError(
        why + "; it is not an address of this machine: is --index that of the server on this machine?");
  }
  if (error == EACCES) return absl::UnavailableError(why + "; choose a port of at least 1024");
  return absl::UnavailableError(why + "; choose another port, or 0 for a free one");
}

bool IsWildcard(const addrinfo& at) {
  return at.ai_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(at.ai_addr)->sin6_addr);
}

uint16_t* PortIn(sockaddr* address) {
  return address->sa_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

int PortOf(int fd) {
  sockaddr_storage bound = {};
  auto* const address = reinterpret_cast<sockaddr*>(&bound);
  socklen_t size = sizeof(bound);
  return getsockname(fd, address, &size) == 0 ? ntohs(*PortIn(address)) : 0;
}

// Accepted sockets inherit the options. Returns an invalid file, and errno, if it cannot listen.
Fd ListenOn(const addrinfo& at, int port) {
  sockaddr_storage address = {};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  *PortIn(reinterpret_cast<sockaddr*>(&address)) = htons(static_cast<uint16_t>(port));
  Fd fd(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return fd;
  const int on = 1, only6 = IsWildcard(at) ? 0 : 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
  if (at.ai_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof(only6));
  const bool listens = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), at.ai_addrlen) == 0 &&
                       listen(fd.get(), SOMAXCONN) == 0;
  if (listens) return fd;
  const int error = errno;
  fd = Fd();
  errno = error;
  return fd;
}

// Listens at all addresses of the list that the machine has. Returns the first error that ends it, or that of
// all.
int TryToListen(const addrinfo* found, int port, ListeningSockets* out) {
  out->sockets.clear();
  out->port = port;
  int error = 0;
  bool both = false;  // a socket for IPv6 listens at all addresses of IPv4, too
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (both) break;
    Fd fd = ListenOn(*at, out->port);
    if (fd.get() < 0) {
      error = errno;
      if (error == EADDRINUSE || error == EACCES) return error;
      continue;  // such as an address of IPv6 on a machine without it
    }
    if (out->port == 0) out->port = PortOf(fd.get());
    both = IsWildcard(*at);
    out->sockets.push_back(std::move(fd));
  }
  return out->sockets.empty() ? error : 0;
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

absl::StatusOr<ListeningSockets> ListenAtAddressesOf(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list); error != 0)
    return absl::UnavailableError(gai_strerror(error));
  const std::unique_ptr<addrinfo, FreeAddresses> found(list);
  const int wanted = ntohs(*PortIn(found->ai_addr));
  ListeningSockets sockets;
  int error = 0;
  // A port that is free at one address may be in use at another.
  for (int i = 0; i < (wanted == 0 ? kPortTries : 1); ++i) {
    error = TryToListen(found.get(), wanted, &sockets);
    if (error != EADDRINUSE) break;
  }
  if (error != 0) return CannotListen(error);
  return sockets;
}

bool HasNoIpv6() {
  const Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  return fd.get() < 0 || bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

int Fd::Release() { return std::exchange(fd_, -1); }

absl::StatusOr<ListeningSockets> ListenAt(const std::string& host, const std::string& port) {
  if (host != "0.0.0.0" && host != "::") return ListenAtAddressesOf(host, port);
  absl::StatusOr<ListeningSockets> everywhere = ListenAtAddressesOf("::", port);
  // The machine may be without IPv6.
  return everywhere.ok() || !HasNoIpv6() ? std::move(everywhere) : ListenAtAddressesOf("0.0.0.0", port);
}

}  // namespace catchment
