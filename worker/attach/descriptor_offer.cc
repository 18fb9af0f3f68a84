#include "worker/attach/descriptor_offer.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace catchment {
namespace {

// Binds to an abstract name that the kernel chooses, and listens. Returns the name; empty: errno says why
// not.
std::string Listen(int fd) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof(address.sun_family);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(fd, 8) != 0) return "";
  size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  const size_t prefix = offsetof(sockaddr_un, sun_path) + 1;
  return std::string(address.sun_path + 1, size - prefix);
}

bool IsSameUser(int connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void SendDescriptors(int connection, const std::vector<int>& fds) {
  char byte = 0;
  iovec data = {&byte, 1};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)), '\0');
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  if (sendmsg(connection, &message, MSG_NOSIGNAL) < 0) {
    // The process has gone; that its program has ended is noticed elsewhere.
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DescriptorOffer>> DescriptorOffer::Create(std::vector<int> fds) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const std::string address = listener < 0 ? "" : Listen(listener);
  if (!address.empty()) {
    return std::unique_ptr<DescriptorOffer>(new DescriptorOffer(std::move(fds), listener, address));
  }
  const absl::Status status =
      absl::ErrnoToStatus(errno, "cannot create the socket that passes descriptors to the program");
  if (listener >= 0) close(listener);
  close(fds[0]);
  return status;
}

DescriptorOffer::~DescriptorOffer() {
  if (listener_ >= 0) close(listener_);
  close(fds_[0]);
}

void DescriptorOffer::Serve() {
  if (listener_ < 0) return;
  const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0) return;
  if (IsSameUser(connection)) {
    SendDescriptors(connection, fds_);
    close(listener_);
    listener_ = -1;
  }
  close(connection);
}

}  // namespace catchment
