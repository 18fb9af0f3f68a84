// Decides which servers the master sends a command to, and what the command contains.
//
// A server has at most one command in flight, so that a server that hangs does not delay the others. It gets
// a command at once when something has changed that it must know. Otherwise, while the job trains, commands
// are spaced so that all servers together answer at most kServersPerTick commands and report at most
// kMarksPerTick marks of workers in a tick; the master's load is therefore bounded however many servers and
// workers there are. Two parts of commands and reports that grow with the number of workers are left out
// where possible: the rosters once a server has acknowledged them, and, while the job trains, the statistics
// of workers, of which the master processes at most kStatisticsPerTick in a tick.
//
// Units: ticks of about a tenth of a second, unless stated otherwise. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_COMMAND_SCHEDULE_H_
#define CATCHMENT_SERVER_CONTROL_COMMAND_SCHEDULE_H_

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
  // The time that a server has to answer. It doubles after each failed command, because the reports of many
  // workers may take long over a slow network, except for the command to stop, which is repeated soon.
  static constexpr double kAnswerSeconds = 5;
  static constexpr double kLongestAnswerSeconds = 20;

  explicit CommandSchedule(int num_servers) : servers_(num_servers) {}

  // The state that servers must learn at once.
  struct Wanted {
    uint64_t generation = 0;
    uint64_t checkpoint = 0;
    bool stop = false;
    v1::JobStatus::Phase phase = v1::JobStatus::WAITING;
    bool operator==(const Wanted&) const = default;
  };
  // The optional parts of a command.
  struct Content {
    bool rosters = false;
    bool statistics = false;  // asks for statistics
    double answer_seconds = kAnswerSeconds;
  };

  void Tick();
  // Returns true if the server must get a command before the next tick.
  bool IsDueAtOnce(int server, const Wanted& wanted) const;
  // Begins a command to the server and returns its content, or nothing if no command is due. The command is
  // in flight until End.
  std::optional<Content> Begin(int server, const Wanted& wanted, int num_workers);
  // Ends the command in flight. A null report means that it failed; it is repeated at the next tick.
  void End(int server, const v1::ShardReport* report);
  // Forgets the server's state because another process has replaced it.
  void Forget(int server);

 private:
  static constexpr int kNever = 1 << 20;

  struct Server {
    bool in_flight = false;
    int failures = 0;  // since the last answer
    bool asked_for_statistics = false;
    Wanted sent;
    uint64_t acknowledged = 0;      // generation
    int since_sent = kNever;        // ticks
    int since_statistics = kNever;  // ticks since the last answer with them
  };

  bool IsDueNow(int server, const Wanted& wanted, int num_workers) const;
  // Returns the number of ticks between two commands to a server for which nothing has changed.
  int Period(const Wanted& wanted, int num_workers) const;
  int StatisticsPeriod(const Wanted& wanted, int num_workers) const;

  std::vector<Server> servers_;
  int64_t ticks_ = 0;
  int64_t allowance_ = kStatisticsPerTick;  // statistics that may be asked for until the next tick
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_COMMAND_SCHEDULE_H_
