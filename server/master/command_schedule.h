// Which servers the master is to command now, and what the command has to carry. A server has at most one
// command under way, so that one that hangs delays no other. It is commanded at once when something has
// changed that it must know, and otherwise, while the job trains, so often that the servers together answer
// at most kServersPerTick commands and report at most kMarksPerTick marks of workers in a tick: many servers
// and workers together cost the master no more than a few, and are heard of less often. Two parts of commands
// and reports that grow with the workers are left out where they are not needed: the rosters, once a server
// has acknowledged them, and, while the job trains, statistics of workers, of which the master takes in at
// most kStatisticsPerTick a tick.
//
// Units: ticks, of about a tenth of a second, where nothing else is said. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_COMMAND_SCHEDULE_H_
#define CATCHMENT_SERVER_MASTER_COMMAND_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/master.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class CommandSchedule {
 public:
  static constexpr int kServersPerTick = 8;
  static constexpr int kMarksPerTick = 2000;
  static constexpr int kStatisticsPerTick = 1000;
  // How long a server may take to answer: twice as long after each command that failed, as reports of many workers
  // take their time over a slow network; but the end of the job is repeated soon.
  static constexpr double kAnswerSeconds = 5;
  static constexpr double kLongestAnswerSeconds = 20;

  explicit CommandSchedule(int num_servers) : servers_(num_servers) {}

  // What servers are to know at once.
  struct Wanted {
    uint64_t generation = 0;
    uint64_t checkpoint = 0;
    bool stop = false;
    v1::JobStatus::Phase phase = v1::JobStatus::WAITING;
    bool operator==(const Wanted&) const = default;
  };
  // What a command has to carry beside that.
  struct Content {
    bool rosters = false;
    bool statistics = false;  // asks for them
    double answer_seconds = kAnswerSeconds;
  };

  void Tick();
  // Whether the server is due for a reason that does not wait for a tick.
  bool IsDueAtOnce(int server, const Wanted& wanted) const;
  // Returns what a command to the server has to carry, which is under way from now on; nothing where none is
  // due.
  std::optional<Content> Begin(int server, const Wanted& wanted, int num_workers);
  // The command under way is answered; a null report: it failed, and is tried again at the next tick.
  void End(int server, const v1::ShardReport* report);
  // Another process takes the server's place.
  void Forget(int server);

 private:
  static constexpr int kNever = 1 << 20;

  struct Server {
    bool under_way = false;
    int failures = 0;  // since the last answer
    bool asked_for_statistics = false;
    Wanted sent;
    uint64_t acknowledged = 0;      // generation
    int since_sent = kNever;        // ticks
    int since_statistics = kNever;  // ticks since the last answer with them
  };

  bool IsDueNow(int server, const Wanted& wanted, int num_workers) const;
  // Ticks between two commands to a server for which nothing has changed. Servers take turns in them.
  int Period(const Wanted& wanted, int num_workers) const;
  int StatisticsPeriod(const Wanted& wanted, int num_workers) const;

  std::vector<Server> servers_;
  int64_t ticks_ = 0;
  int64_t allowance_ = kStatisticsPerTick;  // statistics that may be asked for until the next tick
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_COMMAND_SCHEDULE_H_
