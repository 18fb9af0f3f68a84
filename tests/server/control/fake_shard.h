// A shard as the master sees one: it takes commands, counts contributions into versions, saves itself,
// reports.
#ifndef CATCHMENT_TESTS_SERVER_CONTROL_FAKE_SHARD_H_
#define CATCHMENT_TESTS_SERVER_CONTROL_FAKE_SHARD_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/wire.pb.h"

namespace catchment {

class FakeShard {
 public:
  FakeShard(uint32_t index, bool synchronous, uint64_t version = 0)
      : index_(index), synchronous_(synchronous), version_(version) {}

  void Take(v1::ShardCommand command) {
    // A command has no rosters if the shard has acknowledged them.
    if (command.rosters().empty()) *command.mutable_rosters() = command_.rosters();
    if (command.generation() >= command_.generation()) command_ = std::move(command);
    for (auto& [version, contributions] : contributions_) {
      std::erase_if(contributions, [this](const auto& entry) { return !IsMember(entry.first); });
    }
    for (const v1::Roster& roster : command_.rosters()) {
      for (const v1::Member& member : roster.members()) {
        if (marks_[member.worker()].incarnation() >= member.incarnation()) continue;
        v1::PushMark mark;
        mark.set_worker(member.worker());
        mark.set_incarnation(member.incarnation());
        marks_[member.worker()] = mark;
      }
    }
    Advance();
    MaybeSave();
  }

  // Synchronous mode: to this version. `steps`: that it and those before it hold. False for one that is not
  // in the version's roster.
  bool Contribute(uint64_t incarnation, uint64_t version, uint64_t steps) {
    if (!IsIn(RosterOf(version), incarnation)) return false;
    if (synchronous_) {
      contributions_[version][incarnation] = steps;
      Advance();
    } else {
      SetSettled(incarnation, steps);
      Raise(version_ + 1);
    }
    return true;
  }

  // Steps of the worker in updates.
  uint64_t Settled(uint64_t incarnation) const {
    for (const auto& [index, mark] : marks_) {
      if (mark.incarnation() == incarnation) return mark.settled_steps();
    }
    return 0;
  }

  v1::ShardReport Report() const {
    v1::ShardReport report = extra_;
    report.set_shard(index_);
    report.set_generation(command_.generation());
    report.set_version(version_);
    for (const auto& [number, saved] : saved_) *report.add_saved() = saved;
    for (const auto& [index, mark] : marks_) {
      *report.add_marks() = mark;
      const auto now = contributions_.find(version_);
      const bool waits = now != contributions_.end() && now->second.count(mark.incarnation()) > 0;
      v1::PushMark* const reported = report.mutable_marks(report.marks_size() - 1);
      reported->set_waits(waits);
      reported->set_disconnected(disconnected_.count(mark.incarnation()) > 0);
    }
    return report;
  }

  // Synchronous mode: whether the update from `version` to the next was made with this member.
  bool MadeBy(uint64_t incarnation, uint64_t version) const {
    const auto made = made_by_.find(version);
    return made != made_by_.end() && made->second.count(incarnation) > 0;
  }

  // Steps of the worker in updates when the shard took the checkpoint.
  uint64_t SettledAt(uint64_t checkpoint, uint64_t incarnation) const {
    const auto& steps = settled_at_.at(checkpoint);
    const auto found = steps.find(incarnation);
    return found == steps.end() ? 0 : found->second;
  }

  // Steps in updates, by incarnation: now, and when the shard took the checkpoint.
  const std::map<uint64_t, uint64_t>& settled() const { return settled_; }
  const std::map<uint64_t, uint64_t>& settled_at(uint64_t checkpoint) const {
    return settled_at_.at(checkpoint);
  }

  uint64_t version() const { return version_; }
  const v1::ShardCommand& command() const { return command_; }
  // The worker's connection breaks.
  void Disconnect(uint64_t incarnation) { disconnected_.insert(incarnation); }
  // Statistics and errors to report.
  v1::ShardReport* extra() { return &extra_; }
  void set_saves(bool saves) { saves_ = saves; }

 private:
  const v1::Roster* RosterOf(uint64_t version) const {
    const v1::Roster* roster = nullptr;
    for (const v1::Roster& one : command_.rosters()) {
      if (one.from_version() <= version) roster = &one;
    }
    return roster;
  }

  bool IsMember(uint64_t incarnation) const {
    for (const v1::Roster& roster : command_.rosters()) {
      if (IsIn(&roster, incarnation)) return true;
    }
    return false;
  }

  void SetSettled(uint64_t incarnation, uint64_t steps) {
    settled_[incarnation] = steps;
    for (auto& [index, mark] : marks_) {
      if (mark.incarnation() != incarnation) continue;
      mark.set_answered_steps(steps);
      mark.set_settled_steps(steps);
      mark.set_begun_steps(steps);
    }
  }

  static bool IsIn(const v1::Roster* roster, uint64_t incarnation) {
    if (roster == nullptr) return false;
    for (const v1::Member& member : roster->members()) {
      if (member.incarnation() == incarnation) return true;
    }
    return false;
  }

  void Advance() {
    while (synchronous_) {
      const v1::Roster* roster = RosterOf(version_);
      if (roster == nullptr) return;
      if (roster->members_size() == 0) {
        uint64_t next = 0;
        for (const v1::Roster& one : command_.rosters()) {
          if (next == 0 && one.from_version() > version_) next = one.from_version();
        }
        if (next == 0) return;
        version_ = next;
        continue;
      }
      std::set<uint64_t> members;
      for (const v1::Member& member : roster->members()) {
        if (contributions_[version_].count(member.incarnation()) == 0) return;
        members.insert(member.incarnation());
      }
      for (uint64_t member : members) SetSettled(member, contributions_[version_][member]);
      made_by_[version_] = members;
      Raise(version_ + 1);
    }
  }

  void Raise(uint64_t version) {
    version_ = version;
    contributions_.erase(contributions_.begin(), contributions_.lower_bound(version));
    MaybeSave();
  }

  void MaybeSave() {
    const uint64_t number = command_.checkpoint();
    const uint64_t last = saved_.empty() ? 0 : saved_.rbegin()->first;
    if (!saves_ || number <= last || version_ < command_.checkpoint_version()) return;
    v1::SavedShard& saved = saved_[number];
    saved.set_checkpoint(number);
    saved.set_version(version_);
    saved.set_file(absl::StrCat("shard-", index_));
    for (const auto& [index, mark] : marks_) {
      saved.add_incarnations(mark.incarnation());
      saved.add_settled_steps(mark.settled_steps());
      saved.add_begun_steps(mark.begun_steps());
    }
    settled_at_[number] = settled_;
  }

  const uint32_t index_;
  const bool synchronous_;
  uint64_t version_;
  v1::ShardCommand command_;
  v1::ShardReport extra_;
  bool saves_ = true;
  std::set<uint64_t> disconnected_;
  std::map<uint64_t, std::map<uint64_t, uint64_t>> contributions_;  // steps by version and incarnation
  std::map<uint32_t, v1::PushMark> marks_;                          // by worker
  std::map<uint64_t, std::set<uint64_t>> made_by_;
  std::map<uint64_t, v1::SavedShard> saved_;
  std::map<uint64_t, uint64_t> settled_;                         // steps in updates, by incarnation
  std::map<uint64_t, std::map<uint64_t, uint64_t>> settled_at_;  // the same, by checkpoint
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_CONTROL_FAKE_SHARD_H_
