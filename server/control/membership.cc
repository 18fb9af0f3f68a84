#include "server/control/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/algorithm_facts.h"
#include "server/control/span.h"

namespace catchment {
namespace {

const char* NameOf(v1::Role role) { return role == v1::WORKER ? "worker" : "evaluator"; }

absl::Status NotAMember(const std::string& name) {
  return absl::NotFoundError(
      absl::StrCat(name, " is not a member: it sent no heartbeat for too long, or has left; register again"));
}

void SetHeard(Member* member, double now) {
  member->heard_at = std::max(member->heard_at, now);
  member->disconnected_at.reset();
}

// Returns, for the event log, why the member is considered lost.
std::string DescribeSilence(const Member& member, double now) {
  if (!member.disconnected_at) return absl::StrFormat("sent no heartbeat for %.1f s", now - member.heard_at);
  return absl::StrFormat("lost its connection to server %d and sent no heartbeat for %.1f s",
                         member.disconnected_from, now - *member.disconnected_at);
}

}  // namespace

std::string Member::name() const { return absl::StrCat(NameOf(role), " ", index, " (", process(), ")"); }

std::string Member::process() const { return absl::StrCat(host, ":", pid); }

Membership::Membership(double heartbeat_timeout_seconds, uint64_t next_incarnation, EventLog* events,
                       uint32_t groups)
    : heartbeat_timeout_seconds_(heartbeat_timeout_seconds),
      next_incarnation_(std::max<uint64_t>(1, next_incarnation)),
      events_(events),
      groups_(std::max(1u, groups)) {}

Member* Membership::Register(const v1::RegisterRequest& request, double now, const std::string& address) {
  Member member;
  member.role = request.role();
  member.index = NextIndex(request.role());
  member.incarnation = next_incarnation_++;
  member.host = request.host();
  member.pid = request.pid();
  member.device = request.device();
  member.class_names = request.class_names();
  member.address = address;
  member.heard_at = now;
  events_->AddOfMember(absl::StrCat(member.name(), " joined"), now);
  ++num_[member.role];
  incarnations_.reset();
  return &members_.emplace(Key{member.role, member.index}, member).first->second;
}

bool Membership::HasRoom(v1::Role role) const {
  return NextIndex(role) < (role == v1::WORKER ? kMaxWorkers : kMaxEvaluators);
}

bool Membership::IsFree(v1::Role role, uint32_t index) const {
  return members_.count({role, index}) == 0 && (role != v1::WORKER || held_indices_.count(index) == 0);
}

uint32_t Membership::NextIndex(v1::Role role) const {
  std::vector<int> sizes(role == v1::WORKER ? groups_ : 1);
  const auto size_of = [&sizes](uint32_t index) -> int& { return sizes[index % sizes.size()]; };
  if (sizes.size() > 1) {
    for (const Member* worker : workers()) ++size_of(worker->index);
  }
  const int fewest = *std::min_element(sizes.begin(), sizes.end());
  uint32_t index = role == v1::WORKER ? none_free_below_ : 0;
  while (!IsFree(role, index)) ++index;
  if (role == v1::WORKER) none_free_below_ = index;
  while (!IsFree(role, index) || size_of(index) > fewest) ++index;
  return index;
}

const Member* Membership::Find(v1::Role role, uint32_t index, uint64_t incarnation) const {
  const auto found = members_.find({role, index});
  return found != members_.end() && found->second.incarnation == incarnation ? &found->second : nullptr;
}

absl::StatusOr<Member*> Membership::Renew(v1::Role role, uint32_t index, uint64_t incarnation, double now) {
  const auto found = members_.find({role, index});
  if (found == members_.end() || found->second.incarnation != incarnation) {
    return NotAMember(absl::StrCat(NameOf(role), " ", index, " of incarnation ", incarnation));
  }
  SetHeard(&found->second, now);
  return &found->second;
}

absl::StatusOr<Member*> Membership::RenewEvaluator(uint64_t incarnation, double now) {
  for (auto& [key, member] : members_) {
    if (key.first == v1::EVALUATOR && member.incarnation == incarnation) {
      SetHeard(&member, now);
      return &member;
    }
  }
  return NotAMember(absl::StrCat("the evaluator of incarnation ", incarnation));
}

bool Membership::HasEvaluator(uint64_t incarnation) const {
  return std::any_of(members_.lower_bound({v1::EVALUATOR, 0}), members_.end(),
                     [incarnation](const auto& entry) {
                       return entry.first.first == v1::EVALUATOR && entry.second.incarnation == incarnation;
                     });
}

void Membership::Remove(v1::Role role, uint32_t index) {
  const int erased = static_cast<int>(members_.erase({role, index}));
  num_[role] -= erased;
  incarnations_.reset();
  if (erased > 0 && role == v1::WORKER) held_indices_.insert(index);
}

void Membership::ExtendDeadlines(double seconds, double now) {
  for (auto& [key, member] : members_) {
    member.heard_at = std::min(now, member.heard_at + seconds);
    if (member.disconnected_at) member.disconnected_at = std::min(now, *member.disconnected_at + seconds);
  }
}

void Membership::SetDisconnected(uint32_t worker, uint64_t incarnation, uint32_t server, double silence_limit,
                                 double now) {
  const auto found = members_.find({v1::WORKER, worker});
  if (found == members_.end() || found->second.incarnation != incarnation) return;
  Member& member = found->second;
  // Later reports are about the same connection.
  if (member.disconnected_at) return;
  member.disconnected_at = now;
  member.disconnected_from = server;
  member.silence_limit = silence_limit;
}

bool Membership::IsLost(const Member& member, double now) const {
  if (now - member.heard_at > heartbeat_timeout_seconds_) return true;
  return member.disconnected_at && now - *member.disconnected_at > member.silence_limit;
}

std::vector<Member> Membership::TakeExpired(double now) {
  std::vector<Member> expired;
  for (auto at = members_.begin(); at != members_.end();) {
    const Member& member = at->second;
    if (!IsLost(member, now)) {
      ++at;
      continue;
    }
    events_->AddOfMember(
        absl::StrCat(member.name(), " ", DescribeSilence(member, now), ": considered lost",
                     member.role == v1::WORKER ? "; its samples are assigned to other workers" : ""),
        now, member.worker());
    if (member.role == v1::WORKER) held_indices_.insert(member.index);
    expired.push_back(member);
    --num_[member.role];
    incarnations_.reset();
    at = members_.erase(at);
  }
  return expired;
}

std::vector<const Member*> Membership::MembersOf(v1::Role role) const {
  std::vector<const Member*> found;
  for (const auto& [key, member] : members_) {
    if (key.first == role) found.push_back(&member);
  }
  return found;
}

const std::vector<uint64_t>& Membership::worker_incarnations() const {
  if (!incarnations_) {
    incarnations_.emplace();
    for (const Member* worker : workers()) incarnations_->push_back(worker->incarnation);
  }
  return *incarnations_;
}

int Membership::num_connected_workers() const {
  const std::vector<const Member*> all = workers();
  return static_cast<int>(std::count_if(
      all.begin(), all.end(), [](const Member* worker) { return !worker->disconnected_at.has_value(); }));
}

int Membership::num(v1::Role role) const {
  const auto found = num_.find(role);
  return found == num_.end() ? 0 : found->second;
}

v1::MemberImage Member::Save() const {
  v1::MemberImage image;
  image.set_role(role);
  image.set_index(index);
  image.set_incarnation(incarnation);
  image.set_host(host);
  image.set_pid(pid);
  image.set_device(device);
  *image.mutable_progress() = progress;
  image.set_lease(lease.number());
  image.set_lease_version(lease.first_version());
  image.set_lease_step(lease.first_step());
  *image.mutable_lease_steps() = lease_steps;
  image.set_lease_local_steps(lease.local_steps());
  image.set_lease_last(lease.last());
  image.set_lease_settle(lease.settle());
  image.set_granted_steps(granted_steps);
  image.set_granted_samples(granted_samples);
  return image;
}

Member Member::Restore(const v1::MemberImage& image, double now) {
  Member member;
  member.role = image.role();
  member.index = image.index();
  member.incarnation = image.incarnation();
  member.host = image.host();
  member.pid = image.pid();
  member.device = image.device();
  member.heard_at = now;
  member.progress = image.progress();
  member.lease.set_number(image.lease());
  member.lease.set_first_version(image.lease_version());
  member.lease.set_first_step(image.lease_step());
  member.lease_steps = image.lease_steps();
  for (const Step& step : StepsOf(image.lease_steps())) *member.lease.add_minibatches() = ToMinibatch(step);
  member.lease.set_local_steps(image.lease_local_steps());
  member.lease.set_last(image.lease_last());
  member.lease.set_settle(image.lease_settle());
  member.granted_steps = image.granted_steps();
  member.granted_samples = image.granted_samples();
  return member;
}

v1::MembershipImage Membership::Save() const {
  v1::MembershipImage image;
  image.set_next_incarnation(next_incarnation_);
  for (const auto& [key, member] : members_) *image.add_members() = member.Save();
  image.mutable_held_indices()->Add(held_indices_.begin(), held_indices_.end());
  return image;
}

void Membership::Restore(const v1::MembershipImage& image, double now) {
  next_incarnation_ = image.next_incarnation();
  members_.clear();
  num_.clear();
  incarnations_.reset();
  for (const v1::MemberImage& one : image.members()) {
    members_.emplace(Key{one.role(), one.index()}, Member::Restore(one, now));
    ++num_[one.role()];
  }
  held_indices_ = {image.held_indices().begin(), image.held_indices().end()};
  none_free_below_ = 0;
}

}  // namespace catchment
