// Frames of workers that err or lie, some of them damaged on the way, through the framing into a shard: what
// is refused leaves the shard as it was, and what is applied is applied once. All of it follows from fixed
// seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "proto/wire.pb.h"
#include "tests/common/wire/damage.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 40;
constexpr int64_t kBlockSize = 16;
constexpr uint32_t kBlocks = 3;  // of 16, 16 and 8 values
constexpr uint32_t kWorkers = 2;

int64_t SizeOf(uint32_t block) { return block + 1 < kBlocks ? 16 : 8; }

// The state of a worker's pushes that a shard must keep, in the terms of proto/wire.proto.
struct Pushes {
  uint64_t complete = 0;    // up to this one
  std::set<uint32_t> done;  // blocks of the next one
  uint64_t steps = 0;       // in those that are complete
  uint64_t next_steps = 1;  // in those and the next one, as its blocks have stated

  bool Has(uint64_t sequence, uint32_t block) const { return sequence <= complete || done.count(block) > 0; }
  void Add(uint32_t block, uint64_t of_next) {
    done.insert(block);
    next_steps = of_next;
    if (done.size() < kBlocks) return;
    ++complete;
    done.clear();
    steps = next_steps++;
  }
};

// Mostly what a worker may send next, often not quite.
v1::Block AnyRequest(const Pushes& pushes, uint64_t version, v1::Block::Operation operation, Random* random) {
  const auto seldom = [random](uint64_t usual, uint64_t other) {
    return random->Below(12) == 0 ? other : usual;
  };
  v1::Block request;
  request.set_operation(static_cast<v1::Block::Operation>(seldom(operation, random->Below(6))));
  request.set_sequence(seldom(pushes.complete + 1, pushes.complete + random->Below(3)));
  request.set_block(seldom(random->Below(kBlocks), random->Below(5)));
  request.set_version(seldom(version, version + random->Below(2)));
  request.set_samples(seldom(1, random->Below(4)));
  request.set_steps(seldom(pushes.next_steps, pushes.next_steps + random->Below(3) - 1));
  if (request.operation() == v1::Block::PULL) return request;
  std::vector<float> values(seldom(SizeOf(request.block()), random->Below(20)));
  for (float& value : values) value = static_cast<float>(random->Below(9)) - 4;
  if (!values.empty()) {
    values.back() = random->Below(12) == 0 ? std::numeric_limits<float>::quiet_NaN() : values.back();
  }
  request.set_payload(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return request;
}

// A shard, and the workers that trouble it.
class ShardFuzz {
 public:
  ShardFuzz(const v1::Job& job, uint64_t seed)
      : operation_(job.algorithm().contribution().has_elastic() ? v1::Block::EXCHANGE : v1::Block::PUSH_PULL),
        random_(seed),
        harness_(job, kValues, kBlockSize, {0, 1}) {}

  struct Frame {
    uint32_t worker = 0;
    std::string bytes;
    Pieces pieces;
    BlockHeader header;
    PayloadView payload;
    std::vector<uint64_t> versions;  // of the blocks, before
    Pushes pushes;                   // of the worker, before
    absl::Status status;             // what the shard said
    std::vector<Answer> answers;
  };

  // Sends one frame that can be read as a Block.
  void Send(Frame* frame) {
    frame->worker = random_.Below(kWorkers);
    if (shard().has_quorum()) PassTime();
    do {
      Write(frame);
    } while (!DecodeFrame(frame->pieces, &frame->header, &frame->payload).ok());
    frame->versions = Versions();
    frame->pushes = pushes_[frame->worker];
    const std::string before = harness_.State();
    Request request = MakeRequest(frame->worker, IncarnationOf(frame->worker), frame->header,
                                  std::make_shared<NamedSink>(NameOf(frame->worker)));
    frame->status = shard().ReadPayload(frame->payload, frame->header.scale, &request.contribution);
    if (frame->status.ok()) frame->status = shard().Handle(std::move(request), now_, &frame->answers);
    for (const Answer& answer : frame->answers)
      Note(static_cast<NamedSink&>(*answer.sink).name, answer.header);
    if (frame->status.ok()) return;
    ++refused_;
    EXPECT_EQ(harness_.State(), before) << frame->status;
    EXPECT_TRUE(frame->answers.empty()) << frame->status;
  }

  // New lives of both workers can do their work.
  void ExpectItStillWorks() {
    harness_.SetRosters({RosterOfLives(0, {{0, 100}, {1, 101}})});
    harness_.Take();
    const std::vector<uint64_t> before = Versions();
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      for (uint32_t block = 0; block < kBlocks; ++block) {
        const absl::Status status = harness_.Handle({.worker = worker,
                                                     .operation = operation_,
                                                     .version = before[block],
                                                     .value = 1,
                                                     .block = block,
                                                     .incarnation = 100 + worker,
                                                     .to = "new life"});
        ASSERT_TRUE(status.ok()) << status;
      }
    }
    const std::vector<Reply> replies = harness_.Take();
    EXPECT_EQ(
        std::count_if(replies.begin(), replies.end(), [](const Reply& r) { return r.to == "new life"; }),
        kWorkers * kBlocks);
    const std::vector<uint64_t> after = Versions();
    for (uint32_t block = 0; block < kBlocks; ++block) EXPECT_GT(after[block], before[block]);
  }

  Shard& shard() { return harness_.shard(); }
  int refused() const { return refused_; }

 private:
  void Write(Frame* frame) {
    const uint64_t version = Versions()[random_.Below(kBlocks)];
    frame->bytes = AnyRequest(pushes_[frame->worker], version, operation_, &random_).SerializeAsString();
    if (random_.Below(4) == 0) Damage(&frame->bytes, &random_);
    frame->pieces = CutAtRandom(frame->bytes, &random_);
  }

  // Deadlines pass in about half of the cases.
  void PassTime() {
    now_ += 0.25 * static_cast<double>(random_.Below(4));
    harness_.Tick(now_);
    for (const Reply& reply : harness_.Take()) Note(reply.to, reply.header);
  }

  void Note(const std::string& to, const BlockHeader& header) {
    Pushes& pushes = pushes_[to == NameOf(1)];
    if (header.operation != v1::Block::PULL && !pushes.Has(header.sequence, header.block))
      pushes.Add(header.block, header.steps);
  }

  std::vector<uint64_t> Versions() {
    std::vector<uint64_t> versions;
    const ShardSnapshot snapshot = shard().Snapshot();
    for (const v1::BlockState& block : snapshot.state.blocks()) versions.push_back(block.version());
    return versions;
  }

  const v1::Block::Operation operation_;
  Random random_;
  ShardHarness harness_;
  std::map<uint32_t, Pushes> pushes_;
  double now_ = 0;
  int refused_ = 0;
};

// ------------------------------------------------------------------------------------ what must come of it

// The required answer of a shard in an asynchronous gradient job, derived from the protocol alone.
struct Verdict {
  bool refused = false;
  v1::Block::Fate fate = v1::Block::FATE_UNSET;  // unset: no answer yet
};

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::abs(value) < 0x1p63f; });
}

std::vector<float> FloatsOf(const PayloadView& payload) {
  std::vector<float> values(payload.size() / sizeof(float));
  std::string bytes(payload.size(), '\0');
  payload.CopyTo(bytes.data());
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

Verdict Judge(const ShardFuzz::Frame& frame) {
  const BlockHeader& header = frame.header;
  if (header.block >= kBlocks) return {true};
  const uint64_t version = frame.versions[header.block];
  if (header.operation == v1::Block::PULL) {
    if (frame.payload.size() > 0) return {true};
    return {false, header.version <= version ? v1::Block::APPLIED : v1::Block::FATE_UNSET};
  }
  if (header.operation != v1::Block::PUSH && header.operation != v1::Block::PUSH_PULL) return {true};
  if (frame.payload.size() != SizeOf(header.block) * sizeof(float)) return {true};
  if (header.sequence == 0 || header.sequence > frame.pushes.complete + 1) return {true};
  const bool duplicate = frame.pushes.Has(header.sequence, header.block);
  if (header.version > version && !duplicate) return {true};
  if (!duplicate) {
    const Pushes& pushes = frame.pushes;
    const uint64_t more = header.steps - std::min(header.steps, pushes.steps);
    // The job pushes in every step; its last push may have two, and so may the first of a life.
    const uint64_t most = pushes.complete == 0 ? 2 : std::min<uint64_t>(2, more);
    if (header.samples > most * GradientJob(false).batch_size()) return {true};
    if (header.steps < pushes.steps || (!pushes.done.empty() && header.steps != pushes.next_steps))
      return {true};
  }
  if (!AllFinite(FloatsOf(frame.payload))) return {false, v1::Block::NON_FINITE};
  return {false, duplicate ? v1::Block::DUPLICATE : v1::Block::APPLIED};
}

void Subtract(const ShardFuzz::Frame& frame, std::vector<float>* weights) {
  const std::vector<float> gradient = FloatsOf(frame.payload);
  for (size_t k = 0; k < gradient.size(); ++k) (*weights)[frame.header.block * kBlockSize + k] -= gradient[k];
}

TEST(ShardFuzz, AsynchronousShardDoesWhatTheProtocolSaysAndAppliesEachBlockOnce) {
  ShardFuzz fuzz(GradientJob(false), 1);
  std::vector<float> weights(kValues, 0.0f);
  std::map<v1::Block::Fate, int> fates;
  for (int i = 0; i < 30000; ++i) {
    ShardFuzz::Frame frame;
    fuzz.Send(&frame);
    const Verdict verdict = Judge(frame);
    ASSERT_EQ(!frame.status.ok(), verdict.refused) << "frame " << i << ": " << frame.status;
    ++fates[verdict.fate];
    if (verdict.fate == v1::Block::FATE_UNSET) {
      ASSERT_TRUE(frame.answers.empty()) << "frame " << i;
      continue;
    }
    ASSERT_FALSE(frame.answers.empty()) << "frame " << i;
    ASSERT_EQ(frame.answers.front().header.fate, verdict.fate) << "frame " << i;
    ASSERT_EQ(frame.answers.front().header.sequence, frame.header.sequence) << "frame " << i;
    if (verdict.fate == v1::Block::APPLIED && frame.header.samples > 0) Subtract(frame, &weights);
    const std::vector<float> got = fuzz.shard().Weights();
    ASSERT_EQ(std::memcmp(got.data(), weights.data(), kValues * sizeof(float)), 0) << "after frame " << i;
  }
  EXPECT_GT(fuzz.refused(), 5000);
  EXPECT_GT(fates[v1::Block::APPLIED], 5000);
  EXPECT_GT(fates[v1::Block::DUPLICATE], 1000);
  EXPECT_GT(fates[v1::Block::NON_FINITE], 500);
  fuzz.ExpectItStillWorks();
}

TEST(ShardFuzz, RefusedFramesChangeNothingAndTheShardGoesOnInEveryMode) {
  for (const v1::Job& job :
       {GradientJob(true), ElasticJob(false, 0.5f), ElasticJob(true, 0.5f),
        GradientJobWith("consistency { grouped { groups: 2 } }"),
        GradientJobWith("consistency { synchronous { backup_workers: 1 } }"),
        GradientJobWith("consistency { n_softsync { n: 1 } }"),
        GradientJobWith("consistency { asynchronous { emulated_delay: 3 } }"),
        GradientJobWith("consistency { bounded_staleness { bound: 1 } }"),
        GradientJobWith("consistency { quorum { minimum: 1 grace: 0.5 "
                        "longest_grace_seconds: 1 } } "
                        "contribution { pseudo_gradient { local_steps: 1 overlap_steps: 2 } }")}) {
    ShardFuzz fuzz(job, 2);
    for (int i = 0; i < 10000 && !HasFailure(); ++i) {
      ShardFuzz::Frame frame;
      fuzz.Send(&frame);
    }
    EXPECT_GT(fuzz.refused(), 1500) << job.algorithm().DebugString();
    EXPECT_GT(fuzz.shard().version(), 100u) << job.algorithm().DebugString();
    fuzz.ExpectItStillWorks();
  }
}

}  // namespace
}  // namespace catchment
