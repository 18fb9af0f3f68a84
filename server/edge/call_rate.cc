#include "server/edge/call_rate.h"

#include <arpa/inet.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace catchment {
namespace {

constexpr char kOthers[] = "others";

// Returns the first 64 bits of the address in "[ADDRESS]:PORT"; empty if it is not an IPv6 address.
std::string NetworkOf(absl::string_view name) {
  const size_t end = name.find_first_of("%]");  // an address of a link has %INTERFACE
  in6_addr address;
  if (end == absl::string_view::npos || !absl::StartsWith(name, "[") ||
      inet_pton(AF_INET6, std::string(name.substr(1, end - 1)).c_str(), &address) != 1) {
    return "";
  }
  return absl::BytesToHexString({reinterpret_cast<const char*>(&address), 8});
}

}  // namespace

std::string AddressOfPeer(absl::string_view peer) {
  if (absl::StartsWith(peer, "unix")) return "unix";
  if (absl::StartsWith(peer, "ipv4:")) return std::string(peer.substr(0, peer.rfind(':')));
  if (!absl::StartsWith(peer, "ipv6:")) return std::string(peer);
  const std::string network =
      NetworkOf(absl::StrReplaceAll(peer.substr(5), {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}}));
  return network.empty() ? std::string(peer) : absl::StrCat("ipv6:", network);
}

TokenBucket* CallRate::Find(const std::string& address, double now) {
  const auto found = buckets_.find(address);
  if (found != buckets_.end()) return &found->second;
  if (buckets_.size() >= options_.most_addresses) {
    std::erase_if(buckets_, [now](const auto& each) { return each.second.IsFull(now); });
  }
  const bool is_room = buckets_.size() < options_.most_addresses;
  const TokenBucket fresh(options_.per_second, options_.burst, now);
  return &buckets_.try_emplace(is_room ? address : kOthers, fresh).first->second;
}

absl::Status CallRate::Take(absl::string_view peer, double times) {
  const std::string address = AddressOfPeer(peer);
  MutexLock lock(&mu_);
  // Read under the lock, so that the times of a bucket do not decrease.
  const double now = clock_.Now();
  if (Find(address, now)->Take(now, times)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("more than ", options_.burst, " calls at once and then ",
                                             options_.per_second, " a second came from ", address,
                                             "; try again later"));
}

}  // namespace catchment
