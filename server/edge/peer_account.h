// Accounts for the bytes that a server's peers send in addition to messages. gRPC 1.51 bounds the memory and
// the time of messages, but not of endless HEADERS, control frames, or calls that are reset as soon as they
// have begun: one connection could fill the machine's memory in seconds, or monopolize a thread. So a
// connection that sends far more than its messages explain is closed (acceptor.h).
#ifndef CATCHMENT_SERVER_EDGE_PEER_ACCOUNT_H_
#define CATCHMENT_SERVER_EDGE_PEER_ACCOUNT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace catchment {

// The account of one connection.
//
// Threads: safe, except Check, which one thread calls.
class PeerAccount {
 public:
  struct Limits {
    // Bytes on their way in messages that are not complete: in one of a call that has not begun, which is a
    // short message; in those of a call that has begun; and in those of a stream that transfers blocks, which
    // are more when it has transferred as many. gRPC reads them ahead of the server, whose memory quota
    // counts them.
    int64_t short_message_bytes = 4 << 20;
    int64_t read_ahead_bytes = 8 << 20;
    int64_t stream_bytes = 32 << 20;
    int64_t more_stream_bytes = 512 << 20;
    // Bytes in no message, such as headers, pings and those of TLS: at once, for each message, as a part of
    // its bytes, as a part of the bytes that the peer has received and acknowledges, and for each second.
    int64_t other_bytes = 128 << 10;
    int64_t bytes_of_message = 1024;
    double part_of_messages = 0.05;
    double part_of_received = 0.02;
    double bytes_per_second = 256;
    // Calls that have not been answered, because they are in progress, or because the peer has ended them.
    int64_t calls = 256;
    double calls_per_second = 10;
  };
  // The numbers of bytes that were read from the socket of the connection, and that its peer has
  // acknowledged.
  struct Traffic {
    uint64_t read = 0;
    uint64_t acknowledged = 0;
  };

  explicit PeerAccount(const Limits& limits) : limits_(limits) {}

  // A call has begun; its message of `bytes` has arrived; its answer is on the network.
  void CallBegan() { ++calls_; }
  void MessageArrived(size_t bytes);
  void CallAnswered();
  // The peer has been admitted to a stream that transfers blocks, which has ended.
  void StreamAdmitted() {
    ++streams_;
    has_stream_ = known_ = true;
  }
  void StreamEnded() { --streams_; }

  // Returns true if a call of the peer has been answered, or one of its streams admitted.
  bool known() const { return known_; }

  // Returns true if a stream of the peer that transfers blocks was admitted.
  bool has_stream() const { return has_stream_; }
  // Returns the calls in progress, and those that the peer has ended.
  int64_t calls() const { return calls_; }
  // Returns the number of such streams that are open.
  int streams() const { return streams_; }
  // Returns the time at which a message of the peer had last arrived, as seen by Check.
  double active_at() const { return active_at_; }
  // Returns the bytes of the peer that are in no message that has arrived, at the last Check.
  double other_bytes() const { return other_bytes_; }
  // Returns the calls of the peer that have not been answered, at the last Check.
  double unanswered() const { return unanswered_; }

  // Returns what the peer exceeds; an empty text if nothing. `traffic` reads the numbers of the socket: after
  // the account's, so that no message is counted before its bytes. `now` in seconds.
  std::string Check(absl::FunctionRef<Traffic()> traffic, double now);

 private:
  const Limits limits_;
  std::atomic<int64_t> message_bytes_{0}, messages_{0}, calls_{0};
  std::atomic<int> streams_{0};
  std::atomic<bool> has_stream_{false}, known_{false};
  // The peer's excess over its allowance. At least 0: unused allowance is not saved up.
  double other_bytes_ = 0, unanswered_ = 0;
  // At the last Check.
  double read_ = 0, allowed_ = 0, calls_seen_ = 0, now_ = 0;
  int64_t messages_seen_ = 0;
  double active_at_ = 0;
};

// The accounts of a listener's connections.
//
// Threads: safe.
class PeerAccounts {
 public:
  // `key` as KeyOfPeer returns it. Replaces the account of an earlier connection with the key.
  void Add(const std::string& key, std::shared_ptr<PeerAccount> account);
  // Removes the account if it is still the one of the key.
  void Remove(const std::string& key, const PeerAccount* account);
  // Returns the account of the connection with this peer (grpc::ServerContext::peer), or null if it has none.
  std::shared_ptr<PeerAccount> Find(absl::string_view peer) const;

 private:
  mutable Mutex mu_;
  std::unordered_map<std::string, std::shared_ptr<PeerAccount>> accounts_ ABSL_GUARDED_BY(mu_);
};

// Returns "ADDRESS PORT" for gRPC's name of a peer, such as "ipv4:10.0.0.1:7000" or "ipv6:%5B::1%5D:7000".
std::string KeyOfPeer(absl::string_view peer);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_PEER_ACCOUNT_H_
