// Sends a shard's image and its changes to a replica, as messages.
#ifndef CATCHMENT_TESTS_SERVER_SHARD_STANDBY_PARTS_H_
#define CATCHMENT_TESTS_SERVER_SHARD_STANDBY_PARTS_H_

#include <glog/logging.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/job/parameter_layout.h"
#include "server/shard/replica.h"
#include "server/shard/shard.h"
#include "server/shard/standby_log.h"

namespace catchment {

inline void SendPart(const v1::StandbyPart& part, Replica* replica) {
  v1::StandbyPart received;
  CHECK(received.ParseFromString(part.SerializeAsString()));
  const absl::Status status = replica->Add(std::move(received));
  CHECK(status.ok()) << status << " " << part.ShortDebugString().substr(0, 400);
}

inline void SendVector(const float* values, int64_t size, Replica* replica) {
  v1::StandbyPart part;
  part.set_vector(std::string(reinterpret_cast<const char*>(values), size * sizeof(float)));
  SendPart(part, replica);
}

inline void SendChange(const StandbyLog::Change& change, Replica* replica) {
  for (const BufferPtr& vector : change.vectors) SendVector(vector->data(), vector->size(), replica);
  SendPart(change.part, replica);
}

inline void SendImage(Shard* shard, const ParameterLayout& layout, Replica* replica) {
  Shard::Image image = shard->BeginImage();
  replica->BeginStream();
  SendPart(image.begin, replica);
  for (const v1::StandbyPart& ledger : image.ledgers) SendPart(ledger, replica);
  const ShardSnapshot& values = image.values->Finish();
  const int64_t begin = layout.shard(shard->index()).begin;
  for (int b = 0; b < shard->num_blocks(); ++b) {
    const Range block = shard->block_range(b);
    SendVector(values.weights.data() + block.begin - begin, block.size(), replica);
    for (const std::vector<float>& state : values.states)
      SendVector(state.data() + block.begin - begin, block.size(), replica);
    SendChange(image.blocks[b], replica);
  }
  v1::StandbyPart end;
  end.set_complete(true);
  end.set_number(image.number);
  SendPart(end, replica);
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_SHARD_STANDBY_PARTS_H_
