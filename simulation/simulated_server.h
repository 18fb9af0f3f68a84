// A server of a simulation: the production shard behind a link, with one processor that applies blocks one
// after another.
#ifndef CATCHMENT_SIMULATION_SIMULATED_SERVER_H_
#define CATCHMENT_SIMULATION_SIMULATED_SERVER_H_

#include <memory>
#include <vector>

#include "proto/wire.pb.h"
#include "server/shard/shard.h"
#include "simulation/event_queue.h"
#include "simulation/network.h"

namespace catchment {

// The time that a server's processor works for a block, from the processor time of "catchment" in the first
// table of docs/results/performance.md, which is that of both ends: 0.13 ms for a small message and its
// answer, and 0.36 ns for each further byte.
inline constexpr double kServerSecondsPerBlock = 60e-6;
inline constexpr double kServerSecondsPerByte = 0.2e-9;  // received or sent

// A message's header, of Catchment and of gRPC.
inline constexpr double kHeaderBytes = 64;

class SimulatedServer {
 public:
  // `layout` and `events` outlive the server.
  SimulatedServer(const v1::Job& job, const ParameterLayout& layout, int index, Shard::Contents contents,
                  EventQueue* events);

  Shard* shard() { return &shard_; }
  Port* port() { return &port_; }
  // Returns the number of values of the shard.
  uint64_t num_parameters() const;

  // Takes a request that has arrived, and handles it when the processor has worked for it. `bytes`: of the
  // request and its answer.
  void Receive(Request request, double bytes);
  // Records that an answer of this time has left.
  void CountAnswer(double made_at) { shard_.CountAnswer(events_.Now() - made_at); }
  // Answers a command of the master, as ShardHost does.
  v1::ShardReport Control(const v1::ShardCommand& command);
  std::vector<float> Weights() const { return shard_.Weights(); }
  // Returns the first error of a request; OK if there was none.
  const absl::Status& status() const { return status_; }

 private:
  void Handle(Request request);
  // Delivers the answers of an operation, and adds an event for the next time at which an update is due.
  void Conclude(std::vector<Answer>* answers);
  void Tick(double time);
  void NoteSnapshot(std::unique_ptr<PendingSnapshot> snapshot);

  EventQueue& events_;
  Port port_;
  Link processor_;
  std::vector<v1::SavedShard> saved_;  // the last one
  double next_tick_ = Deadlines::kNever;
  Shard shard_;
  std::vector<Answer> answers_;
  absl::Status status_;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_SIMULATED_SERVER_H_
