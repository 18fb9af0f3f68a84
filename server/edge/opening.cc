#include "server/edge/opening.h"

#include <cstdint>
#include <string>

#include "absl/strings/match.h"

namespace catchment {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kRecordHeader = 5, kMostBytesOfRecord = 1 << 14, kHandshakeHeader = 4;

size_t Number(absl::string_view bytes) {
  size_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

Opening OpeningOfTls(absl::string_view bytes) {
  const Opening otherwise = bytes.size() < kMostBytesOfOpening ? Opening::kIncomplete : Opening::kNone;
  std::string header;  // of the handshake message
  size_t arrived = 0;
  while (!bytes.empty()) {
    if (!IsTls(bytes) || (bytes.size() > 1 && bytes[1] != '\x03')) return Opening::kNone;
    if (bytes.size() < kRecordHeader) return otherwise;
    const size_t size = Number(bytes.substr(3, 2));
    if (size == 0 || size > kMostBytesOfRecord) return Opening::kNone;
    bytes.remove_prefix(kRecordHeader);
    const absl::string_view content = bytes.substr(0, size);
    header += std::string(content.substr(0, kHandshakeHeader - header.size()));
    arrived += content.size();
    bytes.remove_prefix(content.size());
    if (!header.empty() && header[0] != '\x01') return Opening::kNone;
    if (header.size() < kHandshakeHeader) continue;
    const size_t needed = kHandshakeHeader + Number(absl::string_view(header).substr(1));
    if (needed > kMostBytesOfOpening) return Opening::kNone;
    // gRPC handles whole records.
    if (arrived >= needed && content.size() == size) return Opening::kComplete;
  }
  return otherwise;
}

}  // namespace

Opening OpeningOf(absl::string_view bytes) {
  if (IsTls(bytes)) return OpeningOfTls(bytes);
  if (absl::StartsWith(bytes, kPreface)) return Opening::kComplete;
  return absl::StartsWith(kPreface, bytes) ? Opening::kIncomplete : Opening::kNone;
}

}  // namespace catchment
