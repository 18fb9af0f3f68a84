// The parts that a standby receives, in any order. A copy that is complete must be one that a shard can
// continue with.
//
// Input: the kind of job; then parts, protobuf's bytes.
#include "server/shard/replica.h"

#include <glog/logging.h>

#include <memory>
#include <string>
#include <utility>

#include "server/shard/shard.h"
#include "tests/fuzz/input.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

constexpr const char* kAlgorithms[] = {
    "", "consistency { synchronous {} }", "consistency { bounded_staleness { bound: 1 } }",
    "consistency { n_softsync { n: 1 } } compensation { delay_compensated { lambda: 0.1 } }"};

void Run(FuzzInput in) {
  const v1::Job job = GradientJobWith(kAlgorithms[in.Below(std::size(kAlgorithms))]);
  const ParameterLayout layout = FlatLayout(/*values=*/6, /*num_shards=*/1, /*block_size=*/4);
  Replica replica(job, layout, 0);
  replica.BeginStream();
  for (int parts = 0; parts < 200 && !in.empty(); ++parts) {
    v1::StandbyPart part;
    if (!part.ParseFromString(std::string(in.Text()))) continue;
    if (!replica.Add(std::move(part)).ok()) replica.BeginStream();
  }
  if (!replica.complete()) return;
  Replica second(job, layout, 0);
  second.BeginStream();
  replica.Export([&](const v1::StandbyPart& part) {
    const absl::Status status = second.Add(part);
    CHECK(status.ok()) << status;
    return true;
  });
  CHECK(second.complete());
  Shard shard(job, layout, 0, second.TakeContents(), [](std::unique_ptr<PendingSnapshot>) {});
  CHECK(shard.Weights() == replica.TakeContents().weights || shard.Weights() != shard.Weights());
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Run(catchment::FuzzInput(data, size));
  return 0;
}
