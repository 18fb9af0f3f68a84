// Accepts the connections to an address and passes them to gRPC, which would stop forever when the process
// has no file for one more (CVE-2023-4785), and would let peers that never make a call hold any number of
// them. Ends the connections of peers that exceed their accounts (peer_account.h).
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/net/listen.h"
#include "server/edge/call_rate.h"
#include "server/edge/peer_account.h"

namespace catchment {

// Threads: it has two of its own from Start to Stop. One accepts connections and checks their accounts. The
// other calls `on_connection`, in which gRPC may read from the new connection for as long as its peer sends.
class Acceptor {
 public:
  struct Options {
    PeerAccount::Limits limits;
    // The number of connections whose peers have made no call, and the time for which each may stay so if
    // others wait.
    size_t strangers = 256;
    double stranger_seconds = 2;
    // Bytes on their way of all peers together that have no stream. Beyond them the peer with most is
    // disconnected, so that peers that are not known cannot fill the memory in which the messages of workers
    // arrive.
    double bytes_without_stream = 256 << 20;
    // Connections of one address that end without a call: at once, and for each second. Beyond them it is
    // watched. A connection that ends within its account counts more often: once for so many bytes in no
    // message, and for so many calls that are not answered, unless it has a stream.
    CallRate::Options endings = {.per_second = 16, .burst = 256};
    double bytes_of_ending = 4 << 10;
    double calls_of_ending = 16;
    // After a peer has exceeded its account: the time for which connections from its address wait for each
    // other, the interval at which they are accepted, and how many may wait. They may not begin with a long
    // message.
    double watch_seconds = 60;
    double watched_interval_seconds = 0.5;
    size_t watched_waiting = 64;
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
  struct Connection {
    uint64_t cookie = 0;  // of the socket, which tells it from a later one with the same file
    std::string peer, key, address;
    std::shared_ptr<PeerAccount> account;
    double since = 0;
  };
  struct Stranger {
    int fd;
    uint64_t cookie;
  };
  struct Watched {
    double until = 0, next = 0;
    std::deque<Fd> waiting;
    uint64_t ended = 0;  // further connections for which it would have been watched
  };

  void Run();
  void PassOn();
  int PollMilliseconds(double now) const;
  void AcceptAll(int listening, double now);
  void Admit(Fd fd, double now);
  void Pass(Fd fd, bool watched, double now);
  // Forgets the strangers that have made a call, or whose connections have ended.
  void UpdateStrangers(std::deque<Stranger>* strangers) const;
  void PassWatched(double now);
  // Returns false if there is none that is `seconds` old.
  bool EndOldestStranger(double seconds, double now);
  void Check(double now);
  void CheckSuspects(double now);
  // Ends the connections with these files that exceed their accounts, and forgets those that have ended.
  void CheckAll(const std::vector<int>& fds, double now);
  void CheckPeersWithoutStream(double now);
  // Counts a connection that was ended elsewhere, and forgets it.
  void NoteEnded(int fd, double now);
  void Watch(const std::string& address, const std::string& what, double now);
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
  std::unordered_map<int, Connection> connections_;  // by file
  std::deque<Stranger> strangers_;                   // the oldest first
  std::deque<Stranger> suspects_;                    // those of them that have waited
  std::map<std::string, Watched> watched_;           // by address
  CallRate endings_;
  double next_check_ = 0, next_suspects_ = 0, paused_until_ = 0, trim_at_ = 0, complained_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_ACCEPTOR_H_
