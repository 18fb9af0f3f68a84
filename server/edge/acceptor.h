// Accepts the connections to an address and passes them to gRPC, which would stop forever when the process
// has no file for one more (CVE-2023-4785), and would let peers that never make a call hold any number of
// them. Ends the connections of peers that exceed their accounts (peer_account.h).
//
// A connection waits until its peer has begun a handshake (opening.h), so that silent peers cost a file and
// nothing else. Of those that have, so many a second are passed on: addresses take turns (start-time fair
// queueing, Goyal 1996), and each time one of their connections is chosen at random. When there are too many
// connections, one of the address with most is closed: the older of two random ones, so that a newcomer that
// acts at once is nearly always kept, and one that is unlucky succeeds when it tries again. No order of
// arrival counts: a peer that opens thousands of connections a second would always be first.
#ifndef CATCHMENT_SERVER_EDGE_ACCEPTOR_H_
#define CATCHMENT_SERVER_EDGE_ACCEPTOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/token_bucket.h"
#include "common/net/listen.h"
#include "server/edge/call_rate.h"
#include "server/edge/opening.h"
#include "server/edge/peer_account.h"

namespace catchment {

// Threads: it has two of its own from Start to Stop. One accepts connections and checks their accounts. The
// other calls `on_connection`, in which gRPC may read from the new connection for as long as its peer sends.
class Acceptor {
 public:
  struct Options {
    PeerAccount::Limits limits;
    // The number of connections whose peers have made no call. At most three quarters of them are passed on.
    size_t strangers = 256;
    // The time for which a connection may wait for its peer to begin a handshake.
    double opening_seconds = 20;
    // The handshakes that begin at once, and in each second: a limit of the processor time that they need.
    double handshakes_at_once = 2000;
    double handshakes_per_second = 2000;
    // The time for which a peer that was passed on may make no call if others wait: after the server has
    // answered its handshake, and in any case.
    double answered_seconds = 0.1;
    double stranger_seconds = 2;
    // An address from which a peer has been answered within this time has the share of several others.
    double vouched_seconds = 3600;
    double vouched_share = 4;
    // Connections of one address whose peers have made a call and have no stream, in addition to one for each
    // stream from there. Beyond them the one is closed that has been silent for the longest.
    size_t idle_connections = 256;
    // Bytes on their way of all peers together that have no stream. Beyond them the peer with most is
    // disconnected, so that peers that are not known cannot fill the memory in which the messages of workers
    // arrive.
    double bytes_without_stream = 256 << 20;
    // Connections of one address that end within their accounts: each counts once for so many bytes in no
    // message (without those of a TLS handshake), and for so many calls that are not answered, unless it has
    // a stream. The address is watched beyond so many at once, and for each second.
    CallRate::Options endings = {.per_second = 16, .burst = 256};
    double bytes_of_ending = 4 << 10;
    double calls_of_ending = 16;
    // After a peer has exceeded its account: the time for which connections from its address wait for each
    // other, and the interval at which they are passed on. They may not begin with a long message.
    double watch_seconds = 60;
    double watched_interval_seconds = 0.5;
    // The interval at which accounts are checked: the larger of this and the second, for each connection. The
    // account of a connection that has waited is checked more often until its peer has been answered: while
    // it waited, its peer may have sent as much as the system keeps for it, which gRPC reads at once.
    double check_seconds = 0.02;
    double check_seconds_each = 1e-4;
    double check_watched_seconds = 0.002;
  };
  // Owns the connection's file, which does not block.
  using OnConnection = std::function<void(int fd)>;

  // The accounts and the clock outlive the object.
  Acceptor(ListeningSockets sockets, const Options& options, PeerAccounts* accounts, const Clock* clock);
  ~Acceptor() { Stop(); }

  int port() const { return listening_.port; }
  void Start(OnConnection on_connection);
  // Closes the port. Connections that were passed on stay open.
  void Stop();

 private:
  // The state of an address.
  struct Source {
    size_t waiting = 0, strangers = 0;  // its connections
    double turn = 0;                    // when one of its connections is passed on, in turns
    double vouched_until = 0;
    double watched_until = 0;  // 0: it is not watched
    double next = 0;           // the time at which one of its connections is passed on while it is watched
    uint64_t ended = 0;        // further connections for which it would have been watched
    size_t idle = 0, streams = 0;  // its connections whose peers are known, at the last Check
  };
  // A connection that has not been passed on.
  struct Waiting {
    Fd fd;
    Source* source;
    double since;
    Opening opening = Opening::kIncomplete;
    int pieces = 0;  // in which it has arrived
    bool tls = false;
  };
  struct Connection {
    uint64_t cookie = 0;  // of the socket, which tells it from a later one with the same file
    std::string peer, key, address;
    Source* source = nullptr;
    std::shared_ptr<PeerAccount> account;
    bool tls = false, answered = false;
  };
  struct Stranger {
    int fd;
    uint64_t cookie;
    Source* source;
    double since;
  };

  void Run();
  void PassOn();
  int PollMilliseconds(double now) const;
  void AcceptAll(int listening, double now);
  void Admit(Fd fd, double now);
  // Examines the bytes that have arrived on the waiting connections.
  void ReadOpenings();
  // Close a connection that waits: one of the address with most, and the one with this index.
  void DropOne(double now);
  void Drop(size_t waiting);
  // Passes on the connections whose turn it is.
  void PassReady(double now);
  // Returns the index of a connection in waiting_; its size if there is none.
  size_t PickReady(double now);
  size_t PickOlderOfTwo(const std::vector<size_t>& candidates, absl::FunctionRef<double(size_t)> since);
  void Pass(Waiting waiting, double now);
  // Forgets the strangers that have made a call, or whose connections have ended.
  void UpdateStrangers();
  // Closes the connection of a stranger whose time has passed; with `at_once`, of any stranger. Returns false
  // if there is none.
  bool EndStranger(bool at_once, double now);
  // Closes the connection of a known peer without stream that has been silent for the longest, without a call
  // if there is one: of one address if `source` is not null. Returns false if there is none.
  bool EndIdle(const Source* source);
  // Returns the share of an address: 1, or that of several.
  double Share(const Source& source, double now) const;
  bool IsStranger(const Stranger& stranger) const;
  void Check(double now);
  void CheckSuspects(double now);
  // Ends the connections with these files that exceed their accounts, and forgets those that have ended.
  void CheckAll(const std::vector<int>& fds, double now);
  void CheckPeersWithoutStream(double now);
  void CheckSources(double now);
  // Counts a connection that was ended elsewhere, and forgets it.
  void NoteEnded(int fd, double now);
  void Watch(const Connection& connection, const std::string& what, double now);
  void End(int fd, const Connection& connection, const std::string& what, double now);
  void Forget(int fd);

  ListeningSockets listening_;
  const Options options_;
  PeerAccounts& accounts_;
  const Clock& clock_;
  OnConnection on_connection_;
  Fd stop_;  // an eventfd
  std::thread thread_, passing_thread_;
  Mutex mu_;
  CondVar changed_;
  std::deque<Fd> admitted_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Used only by the accepting thread.
  Fd openings_;                                      // an epoll, with the files of waiting_
  std::map<std::string, Source> sources_;            // by address
  std::vector<Waiting> waiting_;                     // in any order
  std::unordered_map<int, Connection> connections_;  // by file
  std::vector<Stranger> strangers_;                  // the oldest first
  std::vector<Stranger> suspects_;                   // those of them whose addresses are watched
  CallRate endings_;
  TokenBucket handshakes_;
  Random random_;
  double next_check_ = 0, next_suspects_ = 0, next_pass_ = 0, paused_until_ = 0, trim_at_ = 0,
         complained_ = 0;
  double turn_ = 0;  // of the connection that was passed on last
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_ACCEPTOR_H_
