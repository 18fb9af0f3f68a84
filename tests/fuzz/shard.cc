// Frames of workers to a shard, in every mode, with changes of its members in between. A refused frame must
// leave the shard as it was, and the shard must go on afterwards.
//
// Input: the mode; then steps, each with the byte of its kind.
#include <glog/logging.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 40, kBlockSize = 16;
constexpr uint32_t kBlocks = 3, kWorkers = 2;
constexpr int kMaxSteps = 200;

v1::Job JobOf(uint32_t mode) {
  switch (mode) {
    case 0:
      return GradientJob(false);
    case 1:
      return GradientJob(true);
    case 2:
      return ElasticJob(false, 0.5f);
    case 3:
      return ElasticJob(true, 0.5f);
    case 4:
      return GradientJobWith("consistency { grouped { groups: 2 } }");
    case 5:
      return GradientJobWith("consistency { synchronous { backup_workers: 1 } }");
    case 6:
      return GradientJobWith("consistency { n_softsync { n: 1 } }");
    case 7:
      return GradientJobWith("consistency { asynchronous { emulated_delay: 3 } }");
    case 8:
      return GradientJobWith("consistency { bounded_staleness { bound: 1 } }");
    default:
      return GradientJobWith(
          "consistency { quorum { minimum: 1 grace: 0.5 longest_grace_seconds: 1 } } "
          "contribution { pseudo_gradient { local_steps: 1 overlap_steps: 2 } }");
  }
}
constexpr uint32_t kModes = 10;

class Test {
 public:
  Test(FuzzInput in, uint32_t mode)
      : in_(in), mode_(mode), harness_(JobOf(mode), kValues, kBlockSize, {0, 1}) {}

  void Run() {
    for (int step = 0; step < kMaxSteps && !in_.empty(); ++step) Step();
    CheckGoesOn();
  }

 private:
  void Step() {
    switch (in_.Below(8)) {
      case 0:
        return SendRaw();
      case 1:
        return ChangeMembers();
      case 2:
        return harness_.Tick(now_ += in_.Byte());
      default:
        return SendFields();
    }
  }

  // A whole message.
  void SendRaw() {
    const uint32_t worker = in_.Below(kWorkers);
    Handle(worker, std::string(in_.Text()));
  }

  // A message whose fields are near those of a correct worker.
  void SendFields() {
    const uint32_t worker = in_.Below(kWorkers);
    v1::Block block;
    const uint32_t operation = in_.Below(8);
    block.set_operation(operation < 5 ? static_cast<v1::Block::Operation>(operation) : Usual());
    block.set_block(in_.Below(kBlocks + 1));
    block.set_sequence(sequences_[worker] + in_.Below(3));
    block.set_version(harness_.shard().version() + in_.Below(3) - 1);
    block.set_samples(in_.Below(3));
    block.set_steps(in_.Byte());
    if (block.operation() != v1::Block::PULL) {
      const size_t size =
          in_.Below(8) == 0 ? in_.Byte() : (block.block() + 1 < kBlocks ? 16 : 8) * sizeof(float);
      std::string payload(in_.Text());
      payload.resize(size);
      block.set_payload(payload);
    }
    sequences_[worker] = block.sequence();
    Handle(worker, block.SerializeAsString());
  }

  void ChangeMembers() {
    std::vector<uint32_t> members;
    const uint32_t which = in_.Below(4);
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      if ((which >> worker & 1) != 0) members.push_back(worker);
    }
    harness_.SetRosters({MakeRoster(harness_.shard().version() + in_.Below(3), members)});
  }

  void Handle(uint32_t worker, const std::string& bytes) {
    const absl::string_view piece = bytes;
    BlockHeader header;
    PayloadView payload;
    if (!DecodeFrame({&piece, 1}, &header, &payload).ok()) return;
    const std::string before = harness_.State();
    Request request =
        MakeRequest(worker, IncarnationOf(worker), header, std::make_shared<NamedSink>(NameOf(worker)));
    absl::Status status = harness_.shard().ReadPayload(payload, header.scale, &request.contribution);
    std::vector<Answer> answers;
    if (status.ok()) status = harness_.shard().Handle(std::move(request), now_, &answers);
    if (status.ok()) return;
    CHECK(answers.empty()) << status;
    CHECK(harness_.State() == before) << status;
  }

  v1::Block::Operation Usual() const {
    return mode_ == 2 || mode_ == 3 ? v1::Block::EXCHANGE : v1::Block::PUSH_PULL;
  }

  // Two new lives of the workers can push.
  void CheckGoesOn() {
    const ShardSnapshot snapshot = harness_.shard().Snapshot();
    harness_.SetRosters({RosterOfLives(harness_.shard().version(), {{0, 100}, {1, 101}})});
    harness_.Take();
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      for (uint32_t block = 0; block < kBlocks; ++block) {
        const absl::Status status = harness_.Handle({.worker = worker,
                                                     .operation = Usual(),
                                                     .version = snapshot.state.blocks(block).version(),
                                                     .value = 1,
                                                     .block = block,
                                                     .incarnation = 100 + worker});
        CHECK(status.ok()) << status;
      }
    }
  }

  FuzzInput in_;
  const uint32_t mode_;
  ShardHarness harness_;
  uint64_t sequences_[kWorkers] = {1, 1};
  double now_ = 0;
};

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::FuzzInput in(data, size);
  const uint32_t mode = in.Below(catchment::kModes);
  catchment::Test(in, mode).Run();
  return 0;
}
