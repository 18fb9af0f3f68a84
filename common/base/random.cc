#include "common/base/random.h"

#include <glog/logging.h>
#include <sys/random.h>

#include "absl/strings/str_format.h"

namespace catchment {

uint64_t RandomId() {
  uint64_t id = 0;
  // The kernel returns requests of up to 256 bytes in full, and blocks only early in the machine's boot.
  while (id == 0)
    PCHECK(getrandom(&id, sizeof(id), 0) == sizeof(id)) << "cannot get random bits from the system";
  return id;
}

std::string FormatId(uint64_t id) { return absl::StrFormat("%016x", id); }

}  // namespace catchment
