#include "common/net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr int kLargestPort = 65535;
constexpr char kUnix[] = "unix:";

bool IsPort(absl::string_view text) {
  int port = 0;
  return std::all_of(text.begin(), text.end(), absl::ascii_isdigit) && absl::SimpleAtoi(text, &port) &&
         port <= kLargestPort;
}

bool HasBrackets(absl::string_view host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']';
}

// Returns the mistake in an address; empty if there is none.
std::string Fault(absl::string_view address) {
  if (absl::StrContains(address, "://")) {
    return absl::StrCat(": leave out ", address.substr(0, address.find("://") + 3));
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return "";
  const absl::string_view host = address.substr(0, colon);
  if (!HasBrackets(host) && absl::StrContains(host, ':')) {
    return ": write an IPv6 address in brackets, [::1]:7000";
  }
  return "";
}

bool HasForm(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || !IsPort(address.substr(colon + 1))) return false;
  const absl::string_view host = address.substr(0, colon);
  if (HasBrackets(host)) return IsNumericHost(HostOf(std::string(address)));
  return !host.empty() && host.find_first_of(":/[]@ \t") == absl::string_view::npos;
}

// Returns true for localhost and the other names that a machine has for itself alone.
bool IsLocalhostName(const std::string& host) {
  return host == "localhost" || absl::StartsWith(host, "localhost.") || absl::EndsWith(host, ".localhost") ||
         host == "ip6-localhost" || host == "ip6-loopback";
}

void AddNumeric(const sockaddr* address, socklen_t size, std::vector<std::string>* to) {
  std::array<char, NI_MAXHOST> text;
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
    to->emplace_back(text.data());
}

}  // namespace

absl::Status TidyAddress(std::string* address) {
  absl::StripAsciiWhitespace(address);
  if (absl::StartsWith(*address, kUnix) || HasForm(*address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", *address, "' is not HOST:PORT, for example node0:7000", Fault(*address)));
}

absl::Status TidyAddresses(std::string* list) {
  std::vector<std::string> addresses = absl::StrSplit(*list, ',');
  for (std::string& address : addresses) {
    RETURN_IF_ERROR(TidyAddress(&address));
  }
  *list = absl::StrJoin(addresses, ",");
  return absl::OkStatus();
}

std::string HostOf(const std::string& address) {
  if (absl::StartsWith(address, kUnix)) return "unix";
  const std::string host = address.substr(0, address.rfind(':'));
  return HasBrackets(host) ? host.substr(1, host.size() - 2) : host;
}

bool IsNumericHost(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

std::vector<std::string> Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> addresses;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    AddNumeric(at->ai_addr, at->ai_addrlen, &addresses);
  }
  freeaddrinfo(found);
  return addresses;
}

std::vector<std::string> MachineAddresses() {
  ifaddrs* found = nullptr;
  std::vector<std::string> addresses;
  if (getifaddrs(&found) != 0) return addresses;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    if (at->ifa_addr->sa_family == AF_INET) AddNumeric(at->ifa_addr, sizeof(sockaddr_in), &addresses);
    if (at->ifa_addr->sa_family == AF_INET6) AddNumeric(at->ifa_addr, sizeof(sockaddr_in6), &addresses);
  }
  freeifaddrs(found);
  return addresses;
}

bool AreLoopback(const std::vector<std::string>& addresses) {
  return !addresses.empty() &&
         std::all_of(addresses.begin(), addresses.end(), [](const std::string& address) {
           return absl::StartsWith(address, "127.") || address == "::1";
         });
}

bool IsLocalHost(const std::string& host) {
  return (IsNumericHost(host) || IsLocalhostName(host)) && AreLoopback(Resolve(host));
}

std::string AddressToListenOn(const std::string& address, const std::vector<std::string>& addresses) {
  const std::string host = HostOf(address);
  if (IsNumericHost(host) || IsLocalhostName(host) || !AreLoopback(addresses)) return address;
  return absl::StrCat("[::]:", address.substr(address.rfind(':') + 1));
}

}  // namespace catchment
