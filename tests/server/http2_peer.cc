#include "tests/server/http2_peer.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/escaping.h"

namespace catchment {
namespace {

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;
constexpr uint16_t kInitialWindowSize = 4;
constexpr size_t kFrameBytes = 16384;
constexpr uint32_t kLargestWindow = 0x7fffffff;
constexpr uint32_t kCancelled = 8;  // the error code
constexpr double kPatienceSeconds = 60;

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

uint32_t ReadBigEndian(const std::string& text, size_t at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<uint8_t>(text[at + i]);
  return value;
}

// HPACK (RFC 7541): a string without Huffman coding; its length in 7 bits, and more bytes where it is longer.
std::string HpackString(const std::string& text) {
  std::string bytes;
  size_t length = text.size();
  if (length < 127) {
    bytes.push_back(static_cast<char>(length));
  } else {
    bytes.push_back(127);
    for (length -= 127; length >= 128; length >>= 7) bytes.push_back(static_cast<char>(length | 128));
    bytes.push_back(static_cast<char>(length));
  }
  return bytes + text;
}

// A literal field that goes into no table.
std::string HpackField(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + HpackString(name) + HpackString(value);
}

}  // namespace

std::string GrpcMessage(const std::string& bytes, uint32_t claimed) {
  return std::string(1, '\0') + BigEndian(claimed == 0 ? bytes.size() : claimed, 4) + bytes;
}

Http2Peer::Http2Peer(const std::string& address, uint32_t window) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  fd_ = socket(AF_INET, SOCK_STREAM, 0);
  PCHECK(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) << address;
  windows_[0] = initial_window_;
  Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  WriteFrame(kSettings, 0, 0, BigEndian(kInitialWindowSize, 2) + BigEndian(window, 4));
  WriteFrame(kWindowUpdate, 0, 0, BigEndian(kLargestWindow - 65535, 4));
}

Http2Peer::~Http2Peer() { close(fd_); }

uint32_t Http2Peer::Call(const std::string& method, const std::string& hello) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  windows_[stream] = initial_window_;
  std::string fields = HpackField(":method", "POST") + HpackField(":scheme", "http") +
                       HpackField(":path", method) + HpackField(":authority", "test") +
                       HpackField("te", "trailers") + HpackField("content-type", "application/grpc");
  if (!hello.empty()) fields += HpackField("catchment-hello-bin", absl::Base64Escape(hello));
  WriteFrame(kHeaders, kEndHeaders, stream, fields);
  return stream;
}

bool Http2Peer::Send(uint32_t stream, const std::string& bytes, double patience_seconds) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    while (TakeFrame(0)) {
    }
    const int64_t allowed = std::min(windows_[0], *Window(stream));
    if (Ended(stream)) return false;
    if (allowed <= 0) {
      if (!TakeFrame(patience_seconds)) return false;
      continue;
    }
    const size_t step = std::min({bytes.size() - sent, kFrameBytes, static_cast<size_t>(allowed)});
    WriteFrame(kData, 0, stream, bytes.substr(sent, step));
    windows_[0] -= step;
    *Window(stream) -= step;
    sent += step;
  }
  return true;
}

bool Http2Peer::SendLast(uint32_t stream, const std::string& bytes) {
  if (!Send(stream, bytes)) return false;
  WriteFrame(kData, kEndStream, stream, "");
  return true;
}

void Http2Peer::Reset(uint32_t stream) { WriteFrame(kReset, 0, stream, BigEndian(kCancelled, 4)); }

void Http2Peer::Grant(uint32_t stream, uint32_t bytes) {
  WriteFrame(kWindowUpdate, 0, stream, BigEndian(bytes, 4));
}

bool Http2Peer::ReadUntil(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kPatienceSeconds);
  while (!condition()) {
    const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
    if (left.count() < 0 || !TakeFrame(left.count())) return false;
  }
  return true;
}

void Http2Peer::Write(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t step = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (step <= 0) return;  // the server has closed the connection: reading will tell
    sent += step;
  }
}

void Http2Peer::WriteFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& content) {
  Write(BigEndian(content.size(), 3) + BigEndian(type, 1) + BigEndian(flags, 1) + BigEndian(stream, 4) +
        content);
}

bool Http2Peer::ReadExactly(size_t bytes, double patience_seconds, std::string* out) {
  out->resize(bytes);
  for (size_t got = 0; got < bytes;) {
    pollfd readable = {fd_, POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(1000 * patience_seconds)) <= 0) return false;
    const ssize_t step = recv(fd_, out->data() + got, bytes - got, 0);
    if (step <= 0) return false;
    got += step;
  }
  return true;
}

bool Http2Peer::TakeFrame(double patience_seconds) {
  std::string head;
  if (!ReadExactly(9, patience_seconds, &head)) return false;
  Frame frame{static_cast<uint8_t>(head[3]),
              static_cast<uint8_t>(head[4]),
              ReadBigEndian(head, 5, 4) & kLargestWindow,
              {}};
  if (!ReadExactly(ReadBigEndian(head, 0, 3), kPatienceSeconds, &frame.content)) return false;
  Handle(frame);
  return true;
}

void Http2Peer::Handle(const Frame& frame) {
  switch (frame.type) {
    case kData:
      data_[frame.stream] += frame.content.size();
      break;
    case kHeaders:
    case kContinuation:
      headers_[frame.stream] += frame.content;
      break;
    case kReset:
      ended_.insert(frame.stream);
      break;
    case kSettings:
      if (frame.flags & kAck) break;
      TakeSettings(frame.content);
      WriteFrame(kSettings, kAck, 0, "");
      break;
    case kPing:
      if (!(frame.flags & kAck)) WriteFrame(kPing, kAck, 0, frame.content);
      break;
    case kWindowUpdate:
      *Window(frame.stream) += ReadBigEndian(frame.content, 0, 4);
      break;
  }
  const bool has_end = frame.type == kData || frame.type == kHeaders;
  if (has_end && frame.flags & kEndStream) ended_.insert(frame.stream);
}

void Http2Peer::TakeSettings(const std::string& content) {
  for (size_t at = 0; at + 6 <= content.size(); at += 6) {
    if (ReadBigEndian(content, at, 2) != kInitialWindowSize) continue;
    const int64_t window = ReadBigEndian(content, at + 2, 4);
    for (auto& [stream, left] : windows_) left += stream == 0 ? 0 : window - initial_window_;
    initial_window_ = window;
  }
}

int64_t* Http2Peer::Window(uint32_t stream) {
  return &windows_.try_emplace(stream, initial_window_).first->second;
}

}  // namespace catchment
