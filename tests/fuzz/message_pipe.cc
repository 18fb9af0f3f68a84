// Bytes of another process in a pipe: exactly the messages that they contain are received.
//
// Input: texts, which are written one after another.
#include "common/net/message_pipe.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/common/net/awaited_completion.h"
#include "tests/fuzz/input.h"

namespace catchment {
namespace {

constexpr uint32_t kMostBytes = 20'000;

// Returns the next message, and removes it; nothing: it is not complete, or too long.
std::optional<std::string> NextMessage(std::string* bytes) {
  uint32_t size;
  if (bytes->size() < sizeof(size)) return std::nullopt;
  std::memcpy(&size, bytes->data(), sizeof(size));
  if (size > kMostBytes || bytes->size() - sizeof(size) < size) return std::nullopt;
  std::string message = bytes->substr(sizeof(size), size);
  bytes->erase(0, sizeof(size) + size);
  return message;
}

void Test(FuzzInput in) {
  static PipeThread thread("pipes");
  v1::Pipes offer;
  const auto pipe = MessagePipe::Make(&thread, kMostBytes, &offer);
  CHECK(pipe.ok()) << pipe.status();
  std::string bytes;
  grpc::ByteBuffer message;
  AwaitedCompletion read;
  const auto expect = [&](const std::optional<std::string>& expected) {
    (*pipe)->Read(&message, &read);
    CHECK_EQ(read.Await(), expected.has_value());
    std::vector<grpc::Slice> slices;
    if (!expected) return;
    CHECK(message.Dump(&slices).ok());
    std::string received;
    for (const grpc::Slice& slice : slices)
      received.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    CHECK(received == *expected);
  };
  // A pipe's capacity is more.
  constexpr size_t kMostWritten = 40'000;
  for (size_t written = 0; !in.empty();) {
    const std::string piece(in.Text());
    written += piece.size();
    if (written > kMostWritten) break;
    CHECK_EQ(write(static_cast<int>(offer.to_server()), piece.data(), piece.size()),
             static_cast<ssize_t>(piece.size()));
    bytes += piece;
    // Some messages are received between the pieces, the others after the end.
    if (piece.size() % 2 == 0) continue;
    if (const std::optional<std::string> next = NextMessage(&bytes)) expect(next);
  }
  (*pipe)->Close();
  std::optional<std::string> next;
  do {
    next = NextMessage(&bytes);
    expect(next);
  } while (next);
  (*pipe)->Leave();
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size));
  return 0;
}
