// Addresses as flags have them: HOST:PORT, [HOST]:PORT or unix:PATH.
//
// Threads: pure functions, except that names are resolved by the C library, which may ask the network.
#ifndef CATCHMENT_COMMON_NET_ADDRESS_H_
#define CATCHMENT_COMMON_NET_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace catchment {

// Removes spaces around the address, and checks its form. Errors: InvalidArgument that names the expected
// form.
absl::Status TidyAddress(std::string* address);
// Does the same for each address of a list with commas between.
absl::Status TidyAddresses(std::string* list);

// Returns HOST, without brackets. For unix:PATH returns "unix".
std::string HostOf(const std::string& address);
// Returns true if `host` is written as a number, as in 10.0.0.1 or ::1.
bool IsNumericHost(const std::string& host);
// Returns the numeric addresses of a host; none if it is unknown.
std::vector<std::string> Resolve(const std::string& host);
// Returns the numeric addresses of this machine's interfaces.
std::vector<std::string> MachineAddresses();
// Returns true if there are addresses, and all of them are those of the loopback interface.
bool AreLoopback(const std::vector<std::string>& addresses);

// Returns true if a process that listens at `host` is meant for this machine alone: localhost, or an address
// of the loopback interface. Other names are meant for all machines, although a machine may have its own name
// for 127.0.1.1, as Debian's installer writes it to /etc/hosts.
bool IsLocalHost(const std::string& host);
// Returns the address on which a server with this address listens: all interfaces if `addresses`, those of
// its host, are all of the loopback interface, and the host is not meant for this machine only; otherwise the
// address itself.
std::string AddressToListenOn(const std::string& address, const std::vector<std::string>& addresses);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_ADDRESS_H_
