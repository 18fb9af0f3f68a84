#include "server/control/state_collection.h"

#include <algorithm>
#include <utility>

namespace catchment {

void StateCollection::Begin(uint64_t number, uint64_t version, std::map<uint64_t, uint32_t> workers) {
  number_ = number;
  version_ = version;
  awaited_ = std::move(workers);
  saved_.clear();
}

uint64_t StateCollection::AskedFor(uint64_t incarnation, uint64_t version) const {
  return awaited_.count(incarnation) > 0 && version >= version_ ? number_ : 0;
}

bool StateCollection::Awaits(uint64_t incarnation, uint64_t number) const {
  return number == number_ && awaited_.count(incarnation) > 0;
}

void StateCollection::SetSaved(uint64_t incarnation) {
  if (auto state = awaited_.extract(incarnation)) saved_.insert(std::move(state));
}

std::vector<uint32_t> StateCollection::Saved(uint64_t number) const {
  std::vector<uint32_t> indices;
  if (number != number_) return indices;
  for (const auto& [incarnation, index] : saved_) indices.push_back(index);
  std::sort(indices.begin(), indices.end());
  return indices;
}

v1::StateCollectionImage StateCollection::Save() const {
  v1::StateCollectionImage image;
  image.set_number(number_);
  image.set_version(version_);
  image.mutable_awaited()->insert(awaited_.begin(), awaited_.end());
  image.mutable_saved()->insert(saved_.begin(), saved_.end());
  return image;
}

void StateCollection::Restore(const v1::StateCollectionImage& image) {
  number_ = image.number();
  version_ = image.version();
  awaited_ = {image.awaited().begin(), image.awaited().end()};
  saved_ = {image.saved().begin(), image.saved().end()};
}

}  // namespace catchment
