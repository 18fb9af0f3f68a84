// The first bytes that a peer sends on a connection, by which the acceptor tells a peer that begins a
// handshake from one that only holds a connection.
#ifndef CATCHMENT_SERVER_EDGE_OPENING_H_
#define CATCHMENT_SERVER_EDGE_OPENING_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace catchment {

enum class Opening { kIncomplete, kComplete, kNone };

// An opening is complete within so many bytes.
inline constexpr size_t kMostBytesOfOpening = 16 << 10;

// Returns kComplete if `bytes` begin with a whole ClientHello of TLS (RFC 8446, 4.1.2 and 5.1), which may be
// split into several records, or with the preface of HTTP/2 (RFC 9113, 3.4), and kNone if no bytes that
// follow can make them so.
Opening OpeningOf(absl::string_view bytes);

// Returns true if an opening is that of TLS.
inline bool IsTls(absl::string_view bytes) { return !bytes.empty() && bytes[0] == '\x16'; }

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_OPENING_H_
