// A peer that speaks HTTP/2 (RFC 9113) by hand over one connection, so that it can do what a gRPC library
// does not: stop in the middle of a message, never end one, read as slowly as it likes, open as many streams
// as it likes.
//
// Threads: none. Every wait has a bound, past which it fails.
#ifndef CATCHMENT_TESTS_SERVER_EDGE_HTTP2_PEER_H_
#define CATCHMENT_TESTS_SERVER_EDGE_HTTP2_PEER_H_

#include <openssl/ssl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/net/rpc.h"

namespace catchment {

enum class Http2 : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

// Returns the bytes of a frame. Flags: 1 ends a stream, or acknowledges; 4 ends headers.
std::string Http2Frame(Http2 type, uint8_t flags, uint32_t stream, const std::string& content);

// Returns the headers of a call. `indexed`: they enter the table of the connection (HPACK), and
// IndexedHeaders refers to them from then on.
std::string CallHeaders(const std::string& method, bool indexed = false);
std::string IndexedHeaders();

class Http2Peer {
 public:
  // The server may send `window` bytes on each stream, and any number on the connection. With the files of a
  // certificate the connection has TLS. `host`: this peer's own address is 127.0.0.host.
  explicit Http2Peer(const std::string& address, uint32_t window = 1 << 20, const TlsFiles& tls = {},
                     uint8_t host = 1);
  ~Http2Peer();
  Http2Peer(const Http2Peer&) = delete;
  Http2Peer& operator=(const Http2Peer&) = delete;

  // Begins a call and returns its stream; "catchment-hello-bin" is in the metadata where `hello` is not
  // empty.
  uint32_t Call(const std::string& method, const std::string& hello);
  // As much as the server's windows allow at once, then more as it allows more. False when the server has
  // ended the stream or the connection, or allows nothing more for `patience_seconds`.
  bool Send(uint32_t stream, const std::string& bytes, double patience_seconds = 60);
  // The same, all at once and the last of the stream.
  bool SendLast(uint32_t stream, const std::string& bytes);
  // Ends the stream at once (RST_STREAM).
  void Reset(uint32_t stream);
  // Sends what `next` returns, again and again, and discards what the server sends. Returns the number of
  // bytes when the server has ended the connection, or when they are `most`.
  uint64_t Flood(const std::function<std::string()>& next, uint64_t most);
  // Allows the server to send `bytes` more bytes.
  void Grant(uint32_t stream, uint32_t bytes);

  // Reads what the server sends until it sends nothing for this time, or ends the connection.
  void ReadFor(int milliseconds);
  // Reads until it holds; false when the connection ends, or after a minute.
  bool ReadUntil(const std::function<bool()>& condition);

  // The state of what has been received so far.
  bool Ended(uint32_t stream) const { return ended_.count(stream) > 0; }  // in order, or reset
  const std::string& Headers(uint32_t stream) {
    return headers_[stream];
  }  // with the status's message in clear
  uint64_t Bytes(uint32_t stream) { return data_[stream]; }
  int NumEnded() const { return static_cast<int>(ended_.size()); }

 private:
  struct Frame {
    Http2 type = Http2::kData;
    uint8_t flags = 0;
    uint32_t stream = 0;
    std::string content;
  };

  void Write(const std::string& bytes);
  void WriteFrame(Http2 type, uint8_t flags, uint32_t stream, const std::string& content);
  // Within the time; false at the connection's end, or when none comes.
  bool TakeFrame(double patience_seconds);
  bool ReadExactly(size_t bytes, double patience_seconds, std::string* out);
  void Handle(const Frame& frame);
  void TakeSettings(const std::string& content);
  int64_t* Window(uint32_t stream);

  // As send and recv; -1 with EAGAIN if a socket that does not block would.
  ssize_t SendSome(const char* bytes, size_t size);
  ssize_t ReceiveSome(char* bytes, size_t size);

  int fd_ = -1;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};  // null: clear text
  uint32_t next_stream_ = 1;
  // Flow-control windows for sending.
  int64_t initial_window_ = 65535;
  std::map<uint32_t, int64_t> windows_;  // 0: the connection's

  std::map<uint32_t, std::string> headers_;
  std::map<uint32_t, uint64_t> data_;
  std::set<uint32_t> ended_;
};

// A message as gRPC has it on a stream; `claimed` bytes are announced, where it is not 0.
std::string GrpcMessage(const std::string& bytes, uint32_t claimed = 0);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_EDGE_HTTP2_PEER_H_
