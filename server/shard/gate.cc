#include "server/shard/gate.h"

#include <algorithm>
#include <cstdint>

#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

uint64_t Clock(const v1::Member& member, absl::Span<const Gate::Finished> finished) {
  const Gate::Finished& last = finished[member.worker()];
  return member.clock() + (last.incarnation == member.incarnation() ? last.pushes : 0);
}

}  // namespace

Gate::Gate(const v1::Algorithm& algorithm)
    : consistency_(algorithm.consistency()),
      synchronous_(IsSynchronous(algorithm.consistency())),
      groups_(NumGroups(algorithm.consistency())),
      backup_workers_(BackupWorkers(algorithm.consistency())),
      quorum_(algorithm.consistency().has_quorum() ? std::make_optional<Quorum>(algorithm) : std::nullopt),
      buffered_(IsBuffered(algorithm.consistency())),
      delay_(algorithm.consistency().asynchronous().emulated_delay()),
      staleness_limit_(algorithm.consistency().asynchronous().staleness_limit()),
      staleness_bound_(StalenessBound(algorithm.consistency())) {}

Gate::Table::Table(const v1::Roster& roster, uint32_t groups)
    : from_version(roster.from_version()),
      members(roster.members().begin(), roster.members().end()),
      active_of_group(std::max(groups, 1u)) {
  places.reserve(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    places.emplace(members[i].worker(), i);
    uint32_t& of_group = active_of_group[members[i].worker() % active_of_group.size()];
    members_before.push_back(of_group);
    if (members[i].idle()) continue;
    ++active;
    ++of_group;
  }
}

const v1::Member* Gate::Table::Find(uint32_t worker) const {
  const auto found = places.find(worker);
  return found == places.end() ? nullptr : &members[found->second];
}

bool Gate::Table::IsActive(const Arrival& arrival) const {
  const v1::Member* member = Find(arrival.worker);
  return member != nullptr && member->incarnation() == arrival.incarnation && !member->idle();
}

bool Gate::SetRosters(uint64_t generation, const std::vector<v1::Roster>& rosters) {
  if (generation <= generation_) return false;
  generation_ = generation;
  rosters_.clear();
  for (const v1::Roster& roster : rosters) rosters_.emplace_back(roster, groups_);
  return true;
}

bool Gate::IsMember(uint32_t worker, uint64_t incarnation) const {
  return std::any_of(rosters_.begin(), rosters_.end(), [&](const Table& roster) {
    const v1::Member* member = roster.Find(worker);
    return member != nullptr && member->incarnation() == incarnation;
  });
}

uint32_t Gate::ActiveMembers(uint64_t version) const {
  const Table* roster = RosterOf(version);
  return roster == nullptr ? 0 : roster->active;
}

void Gate::CountLate(const Arrival& arrival, Tally* tally) const {
  std::erase_if(tally->late, [&](const Arrival& late) { return late.worker == arrival.worker; });
  tally->late.push_back(arrival);
}

void Gate::Count(const Arrival& arrival, const std::optional<Arrival>& replaced, Tally* tally) const {
  std::erase_if(tally->late, [&](const Arrival& late) { return late.worker == arrival.worker; });
  // A tally of older rosters is counted again when it is used.
  if (tally->generation != generation_) return;
  const Table* roster = RosterOf(tally->from_version);
  if (roster == nullptr) return;
  tally->in += roster->IsActive(arrival);
  if (replaced) tally->in -= roster->IsActive(*replaced);
}

Gate::Decision Gate::Decide(uint64_t version, uint32_t group, absl::Span<const Arrival> arrived,
                            const QuorumTimes& times, Tally* tally) const {
  const Table* roster = RosterOf(version);
  if (roster == nullptr) return Decision::kWait;
  if (tally->generation != generation_ || tally->from_version != roster->from_version) {
    const auto in = std::count_if(arrived.begin(), arrived.end(),
                                  [roster](const Arrival& arrival) { return roster->IsActive(arrival); });
    tally->generation = generation_;
    tally->from_version = roster->from_version;
    tally->in = static_cast<uint32_t>(in);
  }
  if (arrived.empty()) tally->round = {};
  if (tally->in < Needed(*roster, group) && !IsDue(*roster, arrived, times, tally)) return Decision::kWait;
  if (!arrived.empty()) return Decision::kUpdate;
  return synchronous_ && RosterAfter(version) != nullptr ? Decision::kSkip : Decision::kWait;
}

uint32_t Gate::Needed(const Table& roster, uint32_t group) const {
  const uint32_t active = roster.active_of_group[group];
  return active == 0 ? 0 : active - std::min(backup_workers_, active - 1);
}

bool Gate::IsDue(const Table& roster, absl::Span<const Arrival> arrived, const QuorumTimes& times,
                 Tally* tally) const {
  if (!quorum_ || arrived.empty()) return false;
  const auto late = std::count_if(tally->late.begin(), tally->late.end(),
                                  [&roster](const Arrival& late) { return roster.IsActive(late); });
  return quorum_->IsDue(tally->in, roster.active - static_cast<uint32_t>(late), times, &tally->round);
}

bool Gate::IsBelowAll(uint64_t version) const {
  const uint32_t active = ActiveMembers(version);
  return quorum_ && quorum_->Needed(active) < active;
}

void Gate::ForEachActive(uint64_t version, absl::FunctionRef<void(const Arrival&)> function) const {
  const Table* roster = RosterOf(version);
  if (roster == nullptr) return;
  for (const v1::Member& member : roster->members) {
    if (!member.idle()) function({member.worker(), member.incarnation()});
  }
}

uint32_t Gate::Expected(uint64_t version, uint32_t group) const {
  const Table* roster = RosterOf(version);
  return roster == nullptr ? 0 : Needed(*roster, group);
}

uint32_t Gate::MembersBefore(uint64_t version, uint32_t worker) const {
  const Table* roster = RosterOf(version);
  const auto found = roster->places.find(worker);
  return found == roster->places.end() ? UINT32_MAX : roster->members_before[found->second];
}

uint64_t Gate::SkipTo(uint64_t version) const { return RosterAfter(version)->from_version; }

size_t Gate::Due(size_t waiting) const {
  if (!buffered_) return waiting > delay_ ? 1 : 0;
  const size_t batch = BufferedContributions(consistency_, ActiveMembers(0));
  return waiting >= batch ? batch : 0;
}

uint64_t Gate::ClockOf(uint32_t worker, absl::Span<const Finished> finished) const {
  const Table* roster = RosterOf(0);
  const v1::Member* member = roster == nullptr ? nullptr : roster->Find(worker);
  return member == nullptr ? 0 : Clock(*member, finished);
}

uint64_t Gate::HighestClock(absl::Span<const Finished> finished) const {
  const Table* roster = RosterOf(0);
  if (roster == nullptr) return UINT64_MAX;
  const uint32_t bound = staleness_bound_.value_or(0);
  uint64_t slowest = UINT64_MAX - bound;
  for (const v1::Member& member : roster->members) {
    if (!member.idle()) slowest = std::min(slowest, Clock(member, finished));
  }
  return slowest + bound;
}

const Gate::Table* Gate::RosterOf(uint64_t version) const {
  const Table* found = nullptr;
  for (const Table& roster : rosters_) {
    if (roster.from_version <= version) found = &roster;
  }
  return found;
}

const Gate::Table* Gate::RosterAfter(uint64_t version) const {
  for (const Table& roster : rosters_) {
    if (roster.from_version > version) return &roster;
  }
  return nullptr;
}

}  // namespace catchment
