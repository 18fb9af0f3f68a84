// The center as a simulated worker reaches it: Parameters over the simulated network. It is to a simulation
// what ParameterClient (worker/client/parameter_client.h) is to a worker, with the same schedule of blocks
// and the same codecs.
//
// Threads: those of the simulation. Errors: Cancelled after Cancel; those of the shards.
#ifndef CATCHMENT_SIMULATION_SIMULATED_PARAMETERS_H_
#define CATCHMENT_SIMULATION_SIMULATED_PARAMETERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/codec/codec.h"
#include "common/codec/push_encoder.h"
#include "common/job/parameter_layout.h"
#include "simulation/goodput.h"
#include "simulation/network.h"
#include "simulation/process.h"
#include "simulation/simulated_server.h"
#include "worker/client/block_schedule.h"
#include "worker/client/transfer_totals.h"
#include "worker/parameters.h"

namespace catchment {

using SimulatedServers = std::vector<std::unique_ptr<SimulatedServer>>;

class SimulatedParameters final : public Parameters {
 public:
  struct Options {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    v1::Compression compression;
    double wire_scale = 1;       // bytes on the wire for each byte of a payload
    Goodput* goodput = nullptr;  // outlives the object
  };
  // All pointers outlive the object. `caller` makes the calls.
  SimulatedParameters(const Options& options, const ParameterLayout* layout, SimulatedServers* servers,
                      SimulatedNetwork* network, Port* port, SimulatedProcess* caller, EventQueue* events);
  // Closes the connections.
  ~SimulatedParameters() override;

  void Start(const Operation& operation) override;
  void Ready(Range range) override;
  absl::Status Await(Range range) override;
  absl::StatusOr<Outcome> Finish(int fragment) override;
  bool IsDone(int fragment) const override;
  int num_fragments() const override { return layout_.num_fragments(); }
  std::vector<Range> fragment(int fragment) const override { return layout_.fragment(fragment); }
  bool Called(int fragment) override;

  // Adds seconds that the worker has computed.
  void AddComputed(double seconds) { computed_ += seconds; }

  // Ends the wait under way and all later ones.
  void Cancel();
  // Does the same for a process that hangs: its connections are open for further seconds.
  void Hang(double seconds) {
    open_for_ = seconds;
    Cancel();
  }
  const TransferTotals& totals() const { return totals_; }

 private:
  // One connection to a server. Answers may still arrive when the worker has gone.
  struct Channel final : AnswerSink {
    void Deliver(Answer answer) override;

    SimulatedParameters* owner = nullptr;  // null: the worker has gone
    explicit Channel(size_t blocks) : versions(blocks), seconds(blocks) {}

    int shard = 0;
    bool sending = false;
    std::vector<uint64_t> versions;      // of each block, as last pulled
    std::map<uint32_t, uint64_t> calls;  // the version of the last call of each block
    BlockSeconds seconds;
    std::unique_ptr<BlockSchedule> schedule;
    std::unique_ptr<PushEncoder> encoder;
  };

  // The state of a fragment's operation.
  struct Transfer {
    Operation operation;
    uint64_t sequence = 0;  // of the last push or exchange
    int64_t missing = 0;    // values of the input that are not Ready
    int unanswered = 0;     // blocks
    double ready_at = 0;
    double left_at = 0;
    Outcome outcome;

    bool has_input() const { return operation.kind != Operation::kPull; }
  };

  uint32_t FragmentOf(int shard, int block) const { return layout_.FragmentsOfBlocks(shard)[block]; }
  // Opens the connections.
  void Connect();
  // Sends the next block that is ready, if the connection is free.
  void SendNext(const std::shared_ptr<Channel>& channel);
  absl::StatusOr<Request> MakeBlock(const std::shared_ptr<Channel>& channel, int block, size_t* bytes);
  void Take(Channel* channel, const Answer& answer, size_t bytes);
  absl::Status WaitFor(int fragment, absl::FunctionRef<int(const BlockSchedule& schedule)> unanswered);
  bool AllSent(uint32_t fragment) const;
  void CountWait(int fragment, double from, double to);
  double WireBytes(size_t payload) const {
    return kHeaderBytes + options_.wire_scale * static_cast<double>(payload);
  }

  const Options options_;
  const ParameterLayout& layout_;
  SimulatedServers& servers_;
  SimulatedNetwork& network_;
  Port& port_;
  SimulatedProcess& caller_;
  EventQueue& events_;
  const Codec pull_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::vector<char> encoded_;

  std::vector<Transfer> transfers_;  // by fragment
  int started_ = 0;                  // the fragment whose input becomes Ready
  double open_for_ = 0;              // after the process has stopped
  double computed_ = 0;              // seconds
  bool connected_ = false;
  bool cancelled_ = false;
  absl::Status status_;
  TransferTotals totals_;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_SIMULATED_PARAMETERS_H_
