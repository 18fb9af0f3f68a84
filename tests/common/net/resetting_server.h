// Speaks just enough HTTP/2 (RFC 9113) to end every call with RST_STREAM, as gRPC does for a server that is
// short of memory.
#ifndef CATCHMENT_TESTS_COMMON_NET_RESETTING_SERVER_H_
#define CATCHMENT_TESTS_COMMON_NET_RESETTING_SERVER_H_

#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace catchment {

// Serves one connection at a time. Threads: safe.
class ResettingServer {
 public:
  // The error code of the frame; 11: ENHANCE_YOUR_CALM.
  explicit ResettingServer(uint8_t code) : code_(code) {
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    PCHECK(bind(listening_, reinterpret_cast<const sockaddr*>(&here), size) == 0);
    PCHECK(listen(listening_, 16) == 0);
    PCHECK(getsockname(listening_, reinterpret_cast<sockaddr*>(&here), &size) == 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    thread_ = std::thread([this] {
      while (Serve(accept(listening_, nullptr, nullptr))) {
      }
    });
  }
  // The clients have closed their connections.
  ~ResettingServer() {
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    close(listening_);
  }

  const std::string& address() const { return address_; }
  int num_calls() const { return calls_; }

 private:
  enum FrameType : char { kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6 };
  static constexpr char kAck = 1;
  static constexpr size_t kPrefaceBytes = 24;
  static constexpr size_t kHeaderBytes = 9;  // length in 3 bytes, type, flags, stream in 4 bytes

  static bool Read(int fd, size_t size, std::string* bytes) {
    bytes->resize(size);
    return size == 0 || recv(fd, bytes->data(), size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  static void Write(int fd, char type, char flags, const std::string& stream, const std::string& content) {
    const std::string frame =
        std::string{0, 0, static_cast<char>(content.size()), type, flags} + stream + content;
    (void)send(fd, frame.data(), frame.size(), MSG_NOSIGNAL);
  }

  // Returns false when the server ends.
  bool Serve(int fd) {
    if (fd < 0) return false;
    std::string header, content;
    Write(fd, kSettings, 0, std::string(4, '\0'), "");
    bool open = Read(fd, kPrefaceBytes, &content);
    while (open && Read(fd, kHeaderBytes, &header)) {
      const auto byte = [&header](int at) { return static_cast<size_t>(static_cast<uint8_t>(header[at])); };
      open = Read(fd, byte(0) << 16 | byte(1) << 8 | byte(2), &content);
      const std::string stream = header.substr(5);
      const bool acknowledges = (header[4] & kAck) != 0;
      if (header[3] == kSettings && !acknowledges) Write(fd, kSettings, kAck, stream, "");
      if (header[3] == kPing && !acknowledges) Write(fd, kPing, kAck, stream, content);
      if (header[3] != kHeaders) continue;
      ++calls_;
      Write(fd, kReset, 0, stream, std::string{0, 0, 0, static_cast<char>(code_)});
    }
    close(fd);
    return true;
  }

  const uint8_t code_;
  int listening_ = -1;
  std::string address_;
  std::atomic<int> calls_{0};
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_NET_RESETTING_SERVER_H_
