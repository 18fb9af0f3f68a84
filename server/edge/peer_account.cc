#include "server/edge/peer_account.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace catchment {

void PeerAccount::MessageArrived(size_t bytes) {
  message_bytes_ += static_cast<int64_t>(bytes);
  ++messages_;
}

void PeerAccount::CallAnswered() {
  --calls_;
  known_ = true;
}

std::string PeerAccount::Check(absl::FunctionRef<Traffic()> traffic, double now) {
  if (now_ == 0) now_ = now;
  const double seconds = now - now_;
  now_ = now;
  if (const int64_t messages = messages_; messages != messages_seen_ || active_at_ == 0) {
    messages_seen_ = messages;
    active_at_ = now;
  }
  const double of_messages = static_cast<double>(message_bytes_) * (1 + limits_.part_of_messages) +
                             static_cast<double>(messages_ * limits_.bytes_of_message);
  const Traffic total = traffic();
  const double allowed = of_messages + static_cast<double>(total.acknowledged) * limits_.part_of_received;
  const auto read = static_cast<double>(total.read);
  other_bytes_ += read - read_ - (allowed - allowed_) - seconds * limits_.bytes_per_second;
  other_bytes_ = std::max(other_bytes_, 0.0);
  read_ = read;
  allowed_ = allowed;
  const double calls = static_cast<double>(calls_);
  unanswered_ = std::max(unanswered_ + calls - calls_seen_ - seconds * limits_.calls_per_second, 0.0);
  calls_seen_ = calls;
  const int64_t under_way =
      has_stream_ ? limits_.stream_bytes + std::min<int64_t>(message_bytes_, limits_.more_stream_bytes)
      : calls > 0 ? limits_.read_ahead_bytes
                  : limits_.short_message_bytes;
  if (other_bytes_ > static_cast<double>(limits_.other_bytes + under_way))
    return absl::StrCat(std::llround(other_bytes_ / 1024), " KiB that are not part of any message");
  if (unanswered_ > static_cast<double>(limits_.calls))
    return absl::StrCat(std::llround(unanswered_), " calls that it has ended before their answers");
  return "";
}

void PeerAccounts::Add(const std::string& key, std::shared_ptr<PeerAccount> account) {
  MutexLock lock(&mu_);
  accounts_[key] = std::move(account);
}

void PeerAccounts::Remove(const std::string& key, const PeerAccount* account) {
  MutexLock lock(&mu_);
  const auto found = accounts_.find(key);
  if (found != accounts_.end() && found->second.get() == account) accounts_.erase(found);
}

std::shared_ptr<PeerAccount> PeerAccounts::Find(absl::string_view peer) const {
  const std::string key = KeyOfPeer(peer);
  MutexLock lock(&mu_);
  const auto found = accounts_.find(key);
  return found == accounts_.end() ? nullptr : found->second;
}

std::string KeyOfPeer(absl::string_view peer) {
  std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "ipv4:") && !absl::ConsumePrefix(&rest, "ipv6:")) return text;
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return text;
  absl::string_view address = rest.substr(0, colon);
  absl::ConsumePrefix(&address, "[");
  absl::ConsumeSuffix(&address, "]");
  // An address of a link has %INTERFACE.
  return absl::StrCat(address.substr(0, address.find('%')), " ", rest.substr(colon + 1));
}

}  // namespace catchment
