// Addresses as flags have them: HOST:PORT, [HOST]:PORT or unix:PATH.
//
// Threads: pure functions, except that names are resolved by the C library, which may ask the network.
#ifndef CATCHMENT_COMMON_ADDRESS_H_
#define CATCHMENT_COMMON_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace catchment {

// Removes spaces around the address, and checks its form. Errors: InvalidArgument that names what is expected.
absl::Status TidyAddress(std::string* address);
// Likewise for each address of a list with commas between.
absl::Status TidyAddresses(std::string* list);

// Returns HOST, without brackets. For unix:PATH returns "unix".
std::string HostOf(const std::string& address);
// Returns true if `host` is written as a number, as in 10.0.0.1 or ::1.
bool IsNumericHost(const std::string& host);
// Returns true for localhost and the other names that a machine has for itself alone.
bool IsLocalhost(const std::string& host);

// Returns the numeric addresses of a host; none if it is unknown.
std::vector<std::string> Resolve(const std::string& host);
// Returns true if a host has addresses, and all of them are those of the loopback interface.
bool IsLoopback(const std::string& host);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_ADDRESS_H_
