#ifndef CATCHMENT_COMMON_BASE_HOST_NAME_H_
#define CATCHMENT_COMMON_BASE_HOST_NAME_H_

#include <unistd.h>

#include <string>

namespace catchment {

// Returns this host's name; empty if it cannot be read.
inline std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_HOST_NAME_H_
