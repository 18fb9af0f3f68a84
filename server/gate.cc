#include "server/gate.h"

#include <algorithm>

namespace catchment {

bool Gate::SetRosters(uint64_t generation, std::vector<v1::Roster> rosters) {
  if (generation <= generation_) return false;
  generation_ = generation;
  rosters_ = std::move(rosters);
  return true;
}

bool Gate::IsMember(uint32_t worker, uint64_t incarnation) const {
  for (const v1::Roster& roster : rosters_) {
    for (const v1::Member& member : roster.members()) {
      if (member.worker() == worker && member.incarnation() == incarnation) return true;
    }
  }
  return false;
}

Gate::Decision Gate::Decide(uint64_t version, absl::Span<const uint32_t> arrived) const {
  if (!synchronous_) return arrived.empty() ? Decision::kWait : Decision::kUpdate;
  const v1::Roster* roster = RosterOf(version);
  if (roster == nullptr) return Decision::kWait;
  if (arrived.size() < static_cast<size_t>(roster->members_size())) return Decision::kWait;
  for (const v1::Member& member : roster->members()) {
    if (!std::binary_search(arrived.begin(), arrived.end(), member.worker())) return Decision::kWait;
  }
  if (!arrived.empty()) return Decision::kUpdate;
  return RosterAfter(version) != nullptr ? Decision::kSkip : Decision::kWait;
}

uint64_t Gate::SkipTo(uint64_t version) const { return RosterAfter(version)->from_version(); }

const v1::Roster* Gate::RosterOf(uint64_t version) const {
  const v1::Roster* found = nullptr;
  for (const v1::Roster& roster : rosters_) {
    if (roster.from_version() <= version) found = &roster;
  }
  return found;
}

const v1::Roster* Gate::RosterAfter(uint64_t version) const {
  for (const v1::Roster& roster : rosters_) {
    if (roster.from_version() > version) return &roster;
  }
  return nullptr;
}

}  // namespace catchment
