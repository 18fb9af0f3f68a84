// A peer that speaks HTTP/2 (RFC 9113) by hand over one connection, so that it can do what a gRPC library
// does not: stop in the middle of a message, never end one, read as slowly as it likes, open as many streams
// as it likes.
//
// Threads: none. Every wait has a bound, past which it fails.
#ifndef CATCHMENT_TESTS_SERVER_HTTP2_PEER_H_
#define CATCHMENT_TESTS_SERVER_HTTP2_PEER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace catchment {

class Http2Peer {
 public:
  // The server may send `window` bytes on each stream, and any number on the connection.
  explicit Http2Peer(const std::string& address, uint32_t window = 1 << 20);
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
  // Allows the server to send `bytes` more bytes.
  void Grant(uint32_t stream, uint32_t bytes);

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
    uint8_t type = 0, flags = 0;
    uint32_t stream = 0;
    std::string content;
  };

  void Write(const std::string& bytes);
  void WriteFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& content);
  // Within the time; false at the connection's end, or when none comes.
  bool TakeFrame(double patience_seconds);
  bool ReadExactly(size_t bytes, double patience_seconds, std::string* out);
  void Handle(const Frame& frame);
  void TakeSettings(const std::string& content);
  int64_t* Window(uint32_t stream);

  int fd_ = -1;
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

#endif  // CATCHMENT_TESTS_SERVER_HTTP2_PEER_H_
