#include "server/edge/accepted_socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"

namespace catchment {

std::optional<PeerAccount::Traffic> TrafficOf(int fd) {
  // Read before the received bytes, so that bytes which arrive between the two count now rather than never.
  int unread = 0;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (ioctl(fd, SIOCINQ, &unread) != 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return std::nullopt;
  return PeerAccount::Traffic{info.tcpi_bytes_received - unread, info.tcpi_bytes_acked};
}

uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

void Reset(int fd) {
  sockaddr none = {};
  none.sa_family = AF_UNSPEC;
  if (connect(fd, &none, sizeof(none)) != 0) shutdown(fd, SHUT_RDWR);
}

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

}  // namespace catchment
