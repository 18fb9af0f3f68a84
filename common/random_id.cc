#include "common/random_id.h"

#include <glog/logging.h>
#include <sys/random.h>

#include "absl/strings/str_format.h"

namespace catchment {

uint64_t RandomId() {
  uint64_t id = 0;
  // The kernel never gives fewer than 256 bytes, and waits only early in the machine's start.
  while (id == 0) PCHECK(getrandom(&id, sizeof(id), 0) == sizeof(id)) << "no random bits from the system";
  return id;
}

std::string FormatId(uint64_t id) { return absl::StrFormat("%016x", id); }

}  // namespace catchment
