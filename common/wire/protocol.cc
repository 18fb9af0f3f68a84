#include "common/wire/protocol.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/version.h"

namespace catchment {

absl::Status CheckProtocolVersion(absl::string_view peer, uint32_t version, absl::string_view build,
                                  absl::string_view me) {
  if (version == kProtocolVersion) return absl::OkStatus();
  // Registrations have contained it since version 2.
  const std::string theirs = version == 0 ? "1 or older" : absl::StrCat(version);
  return absl::FailedPreconditionError(
      absl::StrCat(peer, " speaks protocol version ", theirs, build.empty() ? "" : " (Catchment ", build,
                   build.empty() ? "" : ")", ", ", me, " ", kProtocolVersion, " (Catchment ", BuildVersion(),
                   "): use binaries of one release"));
}

}  // namespace catchment
