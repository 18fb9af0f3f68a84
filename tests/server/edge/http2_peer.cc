#include "tests/server/edge/http2_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "absl/strings/escaping.h"

namespace catchment {
namespace {

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

// A literal field; `kind`: 0, and it enters no table, or kIndexed.
constexpr char kIndexed = 0x40;
std::string HpackField(char kind, const std::string& name, const std::string& value) {
  return std::string(1, kind) + HpackString(name) + HpackString(value);
}

constexpr int kCallFields = 6;

// A client's side of TLS over the socket, after the handshake.
SSL* BeginTls(int fd, const TlsFiles& tls) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a socket without MSG_NOSIGNAL
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  CHECK_EQ(SSL_CTX_use_certificate_chain_file(context.get(), tls.cert.c_str()), 1) << tls.cert;
  CHECK_EQ(SSL_CTX_use_PrivateKey_file(context.get(), tls.key.c_str(), SSL_FILETYPE_PEM), 1) << tls.key;
  constexpr uint8_t kAlpn[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kAlpn, sizeof(kAlpn));
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL* const ssl = SSL_new(context.get());
  SSL_set_fd(ssl, fd);
  CHECK_EQ(SSL_connect(ssl), 1) << "the handshake failed";
  return ssl;
}

ssize_t ResultOf(SSL* ssl, int result) {
  if (result > 0) return result;
  const int error = SSL_get_error(ssl, result);
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
  return -1;
}

}  // namespace

std::string Http2Frame(Http2 type, uint8_t flags, uint32_t stream, const std::string& content) {
  return BigEndian(content.size(), 3) + BigEndian(static_cast<uint8_t>(type), 1) + BigEndian(flags, 1) +
         BigEndian(stream, 4) + content;
}

std::string CallHeaders(const std::string& method, bool indexed) {
  const char kind = indexed ? kIndexed : 0;
  return HpackField(kind, ":method", "POST") + HpackField(kind, ":scheme", "http") +
         HpackField(kind, ":path", method) + HpackField(kind, ":authority", "test") +
         HpackField(kind, "te", "trailers") + HpackField(kind, "content-type", "application/grpc");
}

std::string IndexedHeaders() {
  constexpr int kFirst = 62;  // after the static table
  std::string fields;
  for (int i = 0; i < kCallFields; ++i) fields.push_back(static_cast<char>(0x80 | (kFirst + i)));
  return fields;
}

std::string GrpcMessage(const std::string& bytes, uint32_t claimed) {
  return std::string(1, '\0') + BigEndian(claimed == 0 ? bytes.size() : claimed, 4) + bytes;
}

Http2Peer::Http2Peer(const std::string& address, uint32_t window, const TlsFiles& tls, uint8_t host) {
  sockaddr_in to = {}, from = {};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  fd_ = socket(AF_INET, SOCK_STREAM, 0);
  PCHECK(bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)) == 0);
  PCHECK(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) << address;
  if (!tls.cert.empty()) ssl_.reset(BeginTls(fd_, tls));
  windows_[0] = initial_window_;
  Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  WriteFrame(Http2::kSettings, 0, 0, BigEndian(kInitialWindowSize, 2) + BigEndian(window, 4));
  WriteFrame(Http2::kWindowUpdate, 0, 0, BigEndian(kLargestWindow - 65535, 4));
}

Http2Peer::~Http2Peer() { close(fd_); }

uint32_t Http2Peer::Call(const std::string& method, const std::string& hello) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  windows_[stream] = initial_window_;
  std::string fields = CallHeaders(method);
  if (!hello.empty()) fields += HpackField(0, "catchment-hello-bin", absl::Base64Escape(hello));
  WriteFrame(Http2::kHeaders, kEndHeaders, stream, fields);
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
    WriteFrame(Http2::kData, 0, stream, bytes.substr(sent, step));
    windows_[0] -= step;
    *Window(stream) -= step;
    sent += step;
  }
  return true;
}

bool Http2Peer::SendLast(uint32_t stream, const std::string& bytes) {
  if (!Send(stream, bytes)) return false;
  WriteFrame(Http2::kData, kEndStream, stream, "");
  return true;
}

void Http2Peer::Reset(uint32_t stream) { WriteFrame(Http2::kReset, 0, stream, BigEndian(kCancelled, 4)); }

void Http2Peer::Grant(uint32_t stream, uint32_t bytes) {
  WriteFrame(Http2::kWindowUpdate, 0, stream, BigEndian(bytes, 4));
}

bool Http2Peer::ReadUntil(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kPatienceSeconds);
  while (!condition()) {
    const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
    if (left.count() < 0 || !TakeFrame(left.count())) return false;
  }
  return true;
}

uint64_t Http2Peer::Flood(const std::function<std::string()>& next, uint64_t most) {
  PCHECK(fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK) == 0);
  uint64_t sent = 0;
  std::string bytes;
  std::vector<char> discarded(1 << 16);
  while (sent < most) {
    if (bytes.empty()) bytes = next();
    const ssize_t received = ReceiveSome(discarded.data(), discarded.size());
    if (received == 0 || (received < 0 && errno != EAGAIN)) return sent;
    const ssize_t step = SendSome(bytes.data(), bytes.size());
    if (step < 0 && errno != EAGAIN) return sent;
    if (step > 0) {
      sent += step;
      bytes.erase(0, step);
    }
    pollfd ready = {fd_, POLLIN | POLLOUT, 0};
    if (step < 0 && received < 0) poll(&ready, 1, -1);
  }
  return sent;
}

void Http2Peer::ReadFor(int milliseconds) {
  std::vector<char> discarded(1 << 16);
  while (true) {
    pollfd readable = {fd_, POLLIN, 0};
    if (poll(&readable, 1, milliseconds) <= 0) return;
    const ssize_t received = ReceiveSome(discarded.data(), discarded.size());
    if (received == 0 || (received < 0 && errno != EAGAIN)) return;
  }
}

ssize_t Http2Peer::SendSome(const char* bytes, size_t size) {
  if (ssl_ == nullptr) return send(fd_, bytes, size, MSG_NOSIGNAL);
  return ResultOf(ssl_.get(), SSL_write(ssl_.get(), bytes, static_cast<int>(size)));
}

ssize_t Http2Peer::ReceiveSome(char* bytes, size_t size) {
  if (ssl_ == nullptr) return recv(fd_, bytes, size, 0);
  return ResultOf(ssl_.get(), SSL_read(ssl_.get(), bytes, static_cast<int>(size)));
}

void Http2Peer::Write(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t step = SendSome(bytes.data() + sent, bytes.size() - sent);
    if (step <= 0) return;  // the server has closed the connection: reading will tell
    sent += step;
  }
}

void Http2Peer::WriteFrame(Http2 type, uint8_t flags, uint32_t stream, const std::string& content) {
  Write(Http2Frame(type, flags, stream, content));
}

bool Http2Peer::ReadExactly(size_t bytes, double patience_seconds, std::string* out) {
  out->resize(bytes);
  for (size_t got = 0; got < bytes;) {
    pollfd readable = {fd_, POLLIN, 0};
    const bool pending = ssl_ != nullptr && SSL_pending(ssl_.get()) > 0;
    if (!pending && poll(&readable, 1, static_cast<int>(1000 * patience_seconds)) <= 0) return false;
    const ssize_t step = ReceiveSome(out->data() + got, bytes - got);
    if (step <= 0) return false;
    got += step;
  }
  return true;
}

bool Http2Peer::TakeFrame(double patience_seconds) {
  std::string head;
  if (!ReadExactly(9, patience_seconds, &head)) return false;
  Frame frame{static_cast<Http2>(head[3]),
              static_cast<uint8_t>(head[4]),
              ReadBigEndian(head, 5, 4) & kLargestWindow,
              {}};
  if (!ReadExactly(ReadBigEndian(head, 0, 3), kPatienceSeconds, &frame.content)) return false;
  Handle(frame);
  return true;
}

void Http2Peer::Handle(const Frame& frame) {
  switch (frame.type) {
    case Http2::kData:
      data_[frame.stream] += frame.content.size();
      break;
    case Http2::kHeaders:
    case Http2::kContinuation:
      headers_[frame.stream] += frame.content;
      break;
    case Http2::kReset:
      ended_.insert(frame.stream);
      break;
    case Http2::kSettings:
      if (frame.flags & kAck) break;
      TakeSettings(frame.content);
      WriteFrame(Http2::kSettings, kAck, 0, "");
      break;
    case Http2::kPing:
      if (!(frame.flags & kAck)) WriteFrame(Http2::kPing, kAck, 0, frame.content);
      break;
    case Http2::kWindowUpdate:
      *Window(frame.stream) += ReadBigEndian(frame.content, 0, 4);
      break;
    case Http2::kPriority:
    case Http2::kGoAway:
      break;
  }
  const bool has_end = frame.type == Http2::kData || frame.type == Http2::kHeaders;
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
