#include "server/control/checkpoint_schedule.h"

#include <algorithm>
#include <utility>

#include "common/base/rounding.h"

namespace catchment {
namespace {

constexpr double kFirstInterval = 10;  // seconds

}  // namespace

CheckpointSchedule::CheckpointSchedule(const v1::Checkpointing& settings, bool synchronous,
                                       uint64_t first_version, bool overlaps)
    : every_updates_(settings.every_updates()),
      every_seconds_(settings.every_seconds()),
      synchronous_(synchronous),
      at_plan_ends_(synchronous && (settings.worker_state() || overlaps)),
      seen_version_(first_version),
      interval_(std::min(kFirstInterval, every_seconds_)) {
  last_.version = first_version;
}

bool CheckpointSchedule::Step(const Facts& facts, uint64_t generation) {
  if (!since_.has_value()) since_ = facts.now;
  const bool reached = facts.version >= last_.version;
  // No worker has anything left to push, so the version of the pending checkpoint will never be reached.
  const bool unreachable = !synchronous_ && facts.draining && facts.at_rest && !reached;
  if (pending_ && !(facts.failing && reached) && !unreachable) return false;
  std::optional<Announced> due = Due(facts);
  if (!due.has_value()) return false;
  before_ = std::exchange(last_, *due);
  last_.generation = generation;
  pending_ = true;
  seen_version_ = facts.version;
  since_ = facts.now;
  interval_ = std::min(2 * interval_, every_seconds_);
  return true;
}

std::optional<CheckpointSchedule::Announced> CheckpointSchedule::Due(const Facts& facts) const {
  std::optional<Announced> due;
  if (facts.draining) {
    due = DueAtRest(facts);
  } else {
    due = DueByUpdates(facts);
    if (!due.has_value()) due = DueBySeconds(facts);
  }
  if (!due.has_value()) return std::nullopt;
  due->number = std::max({due->number, facts.earlier + 1, last_.number + 1});
  return due;
}

std::optional<CheckpointSchedule::Announced> CheckpointSchedule::DueAtRest(const Facts& facts) const {
  if (!facts.at_rest || last_.at_rest) return std::nullopt;
  if (!synchronous_) return Announced{.number = facts.version, .at_rest = true};
  if (facts.granted <= last_.version) return std::nullopt;
  return Announced{.number = facts.granted, .version = facts.granted, .at_rest = true};
}

std::optional<CheckpointSchedule::Announced> CheckpointSchedule::DueByUpdates(const Facts& facts) const {
  if (every_updates_ == 0) return std::nullopt;
  const uint64_t after_last = RoundUp(std::max(last_.version, last_.number) + 1, every_updates_);
  if (at_plan_ends_) {
    if (facts.granted < after_last) return std::nullopt;
    return Announced{.number = facts.granted, .version = facts.granted};
  }
  if (synchronous_) {
    const uint64_t next = std::max(after_last, RoundUp(facts.granted, every_updates_));
    if (next >= facts.reach) return std::nullopt;
    return Announced{.number = next, .version = next};
  }
  if (every_seconds_ == 0) {
    const uint64_t next = std::max(after_last, RoundUp(facts.version + 1, every_updates_));
    return Announced{.number = next, .version = next};
  }
  const uint64_t passed = facts.version / every_updates_ * every_updates_;
  if (passed < after_last) return std::nullopt;
  return Announced{.number = passed};
}

std::optional<CheckpointSchedule::Announced> CheckpointSchedule::DueBySeconds(const Facts& facts) const {
  if (every_seconds_ == 0 || facts.now - *since_ < interval_) return std::nullopt;
  if (synchronous_) {
    if (facts.granted <= last_.version) return std::nullopt;
    return Announced{.number = facts.granted, .version = facts.granted};
  }
  if (facts.version <= seen_version_) return std::nullopt;
  return Announced{.number = facts.version};
}

bool CheckpointSchedule::Settle(uint64_t number) {
  if (!pending_ || number != last_.number) return false;
  pending_ = false;
  return true;
}

uint64_t CheckpointSchedule::LowestNeeded(uint64_t version) const {
  return pending_ ? std::min(version, last_.version) : version;
}

uint64_t CheckpointSchedule::UsedNumber(uint64_t version) const {
  return UsedUpTo(version < last_.version ? before_ : last_, version);
}

uint64_t CheckpointSchedule::UsedUpTo(const Announced& announced, uint64_t version) const {
  const bool same_state =
      synchronous_ ? version == announced.version : announced.at_rest && version == seen_version_;
  return same_state && announced.number > 0 ? announced.number - 1 : announced.number;
}

v1::CheckpointScheduleImage CheckpointSchedule::Save(double now) const {
  v1::CheckpointScheduleImage image;
  const auto save = [](const Announced& announced, v1::CheckpointScheduleImage::Announced* to) {
    to->set_number(announced.number);
    to->set_version(announced.version);
    to->set_generation(announced.generation);
    to->set_at_rest(announced.at_rest);
  };
  save(last_, image.mutable_last());
  save(before_, image.mutable_before());
  image.set_pending(pending_);
  image.set_seen_version(seen_version_);
  if (since_) image.set_seconds_since(now - *since_);
  return image;
}

void CheckpointSchedule::Restore(const v1::CheckpointScheduleImage& image, double now) {
  const auto restored = [](const v1::CheckpointScheduleImage::Announced& from) {
    return Announced{from.number(), from.version(), from.generation(), from.at_rest()};
  };
  last_ = restored(image.last());
  before_ = restored(image.before());
  pending_ = image.pending();
  seen_version_ = image.seen_version();
  since_.reset();
  if (image.has_seconds_since()) since_ = now - image.seconds_since();
}

}  // namespace catchment
