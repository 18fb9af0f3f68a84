#include "server/control/rosters.h"

#include <algorithm>

namespace catchment {

Rosters::Rosters(uint64_t first_version) {
  if (first_version == 0) return;
  ++generation_;
  lists_.push_back({0, {}});
}

void Rosters::Join(uint32_t worker, uint64_t incarnation, uint64_t clock) {
  ++generation_;
  if (lists_.empty()) lists_.push_back({0, {}});
  std::vector<Entry>& members = lists_.back().members;
  const auto after = std::find_if(members.begin(), members.end(),
                                  [worker](const Entry& entry) { return entry.worker > worker; });
  members.insert(after, {worker, incarnation, generation_, false, clock});
}

void Rosters::SetIdle(uint64_t incarnation) {
  Entry* const entry = Find(incarnation);
  if (entry == nullptr || entry->idle) return;
  entry->idle = true;
  ++generation_;
}

void Rosters::SetActive(uint64_t incarnation, uint64_t clock) {
  Entry* const entry = Find(incarnation);
  if (entry == nullptr || !entry->idle) return;
  entry->idle = false;
  entry->clock = clock;
  entry->since = ++generation_;
}

bool Rosters::IsIdle(uint32_t worker, uint64_t incarnation) const {
  const absl::Span<const Entry> members = Current();
  const auto entry = std::lower_bound(members.begin(), members.end(), worker,
                                      [](const Entry& each, uint32_t index) { return each.worker < index; });
  return entry != members.end() && entry->worker == worker && entry->incarnation == incarnation &&
         entry->idle;
}

bool Rosters::IsIdle(uint64_t incarnation) const {
  const absl::Span<const Entry> members = Current();
  return std::any_of(members.begin(), members.end(), [incarnation](const Entry& entry) {
    return entry.incarnation == incarnation && entry.idle;
  });
}

absl::Span<const Rosters::Entry> Rosters::Current() const {
  if (lists_.empty()) return {};
  return lists_.back().members;
}

Rosters::Entry* Rosters::Find(uint64_t incarnation) {
  if (lists_.empty()) return nullptr;
  std::vector<Entry>& members = lists_.back().members;
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const Entry& entry) { return entry.incarnation == incarnation; });
  return found == members.end() ? nullptr : &*found;
}

void Rosters::Begin(uint64_t from_version, const std::vector<Entry>& members, uint64_t passed) {
  if (!lists_.empty() && lists_.back().from_version >= from_version) return;
  ++generation_;
  List list{from_version, members};
  for (Entry& entry : list.members) entry.since = generation_;
  lists_.push_back(std::move(list));
  DropPassed(passed);
}

void Rosters::DropPassed(uint64_t version) {
  size_t passed = 0;
  while (passed + 1 < lists_.size() && lists_[passed + 1].from_version <= version) ++passed;
  lists_.erase(lists_.begin(), lists_.begin() + passed);
}

bool Rosters::Remove(uint64_t incarnation) {
  size_t removed = 0;
  for (List& list : lists_) {
    removed += std::erase_if(list.members,
                             [incarnation](const Entry& entry) { return entry.incarnation == incarnation; });
  }
  if (removed > 0) ++generation_;
  return removed > 0;
}

std::optional<uint64_t> Rosters::Since(uint64_t version, uint64_t incarnation) const {
  for (auto list = lists_.rbegin(); list != lists_.rend(); ++list) {
    if (list->from_version > version) continue;
    for (const Entry& entry : list->members) {
      if (entry.incarnation == incarnation) return entry.since;
    }
    break;
  }
  return std::nullopt;
}

void Rosters::Fill(v1::ShardCommand* command) const {
  command->set_generation(generation_);
  for (const List& list : lists_) {
    v1::Roster* roster = command->add_rosters();
    roster->set_from_version(list.from_version);
    for (const Entry& entry : list.members) {
      v1::Member* member = roster->add_members();
      member->set_worker(entry.worker);
      member->set_incarnation(entry.incarnation);
      member->set_idle(entry.idle);
      member->set_clock(entry.clock);
    }
  }
}

v1::RostersImage Rosters::Save() const {
  v1::RostersImage image;
  image.set_generation(generation_);
  for (const List& list : lists_) {
    v1::RostersImage::List* const one = image.add_lists();
    one->set_from_version(list.from_version);
    for (const Entry& entry : list.members) {
      v1::RostersImage::Entry* const member = one->add_members();
      member->set_worker(entry.worker);
      member->set_incarnation(entry.incarnation);
      member->set_since(entry.since);
      member->set_idle(entry.idle);
      member->set_clock(entry.clock);
    }
  }
  return image;
}

void Rosters::Restore(const v1::RostersImage& image) {
  generation_ = image.generation();
  lists_.clear();
  for (const v1::RostersImage::List& one : image.lists()) {
    List& list = lists_.emplace_back(List{one.from_version(), {}});
    for (const v1::RostersImage::Entry& member : one.members())
      list.members.push_back(
          {member.worker(), member.incarnation(), member.since(), member.idle(), member.clock()});
  }
}

}  // namespace catchment
