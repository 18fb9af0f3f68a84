// Gives an attached program its file descriptors if it has not inherited them: a launcher between the daemon
// and the program, such as torchrun, closes descriptors that it does not know.
//
// Listens on an abstract Unix socket, whose name the environment variable CATCHMENT_ATTACH_ADDRESS has
// (proto/attach.proto), and sends the descriptors to the first process of the same user that connects.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_WORKER_ATTACH_DESCRIPTOR_OFFER_H_
#define CATCHMENT_WORKER_ATTACH_DESCRIPTOR_OFFER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

class DescriptorOffer {
 public:
  // Takes fds[0] and closes it at the end; the others must stay open as long as the offer lasts.
  static absl::StatusOr<std::unique_ptr<DescriptorOffer>> Create(std::vector<int> fds);
  ~DescriptorOffer();
  DescriptorOffer(const DescriptorOffer&) = delete;
  DescriptorOffer& operator=(const DescriptorOffer&) = delete;

  // Returns the name of the socket, without the zero byte that abstract names begin with.
  const std::string& address() const { return address_; }

  // Sends the descriptors to a process that has connected, if there is one, and then accepts no other. Does
  // not block.
  void Serve();

 private:
  DescriptorOffer(std::vector<int> fds, int listener, std::string address)
      : fds_(std::move(fds)), listener_(listener), address_(std::move(address)) {}

  const std::vector<int> fds_;
  int listener_;  // -1: closed
  const std::string address_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ATTACH_DESCRIPTOR_OFFER_H_
