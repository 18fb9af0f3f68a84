#include "server/shard/calls.h"

#include <utility>

namespace catchment {

bool Calls::Begin(uint32_t block, uint64_t version) {
  MutexLock lock(&mu_);
  std::optional<Call>& last = last_[fragments_of_blocks_[block]];
  if (last && last->version >= version) return false;
  last = Call{block, version};
  return true;
}

std::vector<Calls::Call> Calls::Last() const {
  std::vector<Call> calls;
  MutexLock lock(&mu_);
  for (const std::optional<Call>& last : last_) {
    if (last) calls.push_back(*last);
  }
  return calls;
}

Answer MakeCall(std::shared_ptr<AnswerSink> sink, const Calls::Call& call) {
  const BlockHeader header{.operation = v1::Block::CALL, .version = call.version, .block = call.block};
  return {std::move(sink), header, /*payload=*/nullptr};
}

}  // namespace catchment
