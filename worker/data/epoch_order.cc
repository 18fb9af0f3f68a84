#include "worker/data/epoch_order.h"

#include <numeric>
#include <utility>

#include "common/base/random.h"
#include "glog/logging.h"

namespace catchment {
namespace {

void Shuffle(uint64_t seed, std::vector<uint32_t>* order) {
  Random random(seed);
  std::iota(order->begin(), order->end(), 0);
  for (size_t i = order->size() - 1; i > 0; --i) std::swap((*order)[i], (*order)[random.Below(i + 1)]);
}

}  // namespace

EpochOrder::EpochOrder(uint64_t seed, int64_t num_samples) : seed_(seed), num_samples_(num_samples) {
  CHECK(num_samples >= 1 && num_samples <= int64_t{UINT32_MAX}) << num_samples;
}

const std::vector<uint32_t>& EpochOrder::order(uint64_t epoch) {
  Cached& last = cached_[0];
  if (last.epoch == epoch && !last.order.empty()) return last.order;
  std::swap(cached_[0], cached_[1]);
  if (last.epoch == epoch && !last.order.empty()) return last.order;
  last.epoch = epoch;
  last.order.resize(num_samples_);
  Shuffle(Derive(seed_, epoch), &last.order);
  return last.order;
}

}  // namespace catchment
