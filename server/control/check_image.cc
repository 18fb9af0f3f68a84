#include "server/control/check_image.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/rounding.h"
#include "common/job/algorithm_facts.h"
#include "server/control/data_ledger.h"
#include "server/control/job_state_machine.h"
#include "server/control/lease_ledger.h"
#include "server/control/membership.h"
#include "server/control/plan_ledger.h"
#include "server/control/sample_source.h"
#include "server/control/span.h"

namespace catchment {
namespace {

constexpr uint64_t kMaxSamples = UINT32_MAX;  // of the training set
constexpr uint64_t kMaxNumber = 1ULL << 48;   // versions, steps, checkpoints, generations
constexpr uint64_t kMaxIncarnation = 1ULL << 62;
constexpr uint64_t kMaxSteps = 1ULL << 24;  // in an image: they take memory
constexpr double kMaxSeconds = 1e10;

absl::Status Damaged(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the copy of the master's state is damaged: ", what));
}

// Finds the first problem of an image. Each check returns false if there is one.
class ImageCheck {
 public:
  ImageCheck(const v1::MasterImage& image, const v1::Job& job, int num_shards)
      : image_(image), job_(job), num_shards_(num_shards), pace_(PaceOf(job)) {}

  absl::Status Run() {
    const bool sound =
        CheckNumbers() && CheckMembers() && CheckRosters() && CheckCheckpoints() && CheckData();
    return sound ? absl::OkStatus() : Damaged(problem_);
  }

 private:
  template <typename... Parts>
  bool Fail(const Parts&... parts) {
    problem_ = absl::StrCat(parts...);
    return false;
  }
  bool Number(const char* name, uint64_t value) { return value <= kMaxNumber || Fail(name, " is ", value); }
  bool Seconds(const char* name, double value) {
    return (value >= 0 && value <= kMaxSeconds) || Fail(name, " is ", value);
  }

  bool CheckNumbers() {
    const v1::StateMachineImage& machine = image_.state_machine();
    const v1::CheckpointScheduleImage& schedule = image_.schedule();
    const v1::CheckpointTrackerImage& tracker = image_.checkpoints();
    const v1::EvaluationsImage& evaluations = image_.evaluations();
    if (machine.state() > static_cast<uint32_t>(JobStateMachine::State::kOver) ||
        machine.outcome() > static_cast<uint32_t>(JobStateMachine::Outcome::kFailed))
      return Fail("the job is in state ", machine.state(), ", with outcome ", machine.outcome());
    const v1::PlateauState& plateau = image_.plateau();
    if (plateau.has_factor() && !(plateau.factor() > 0 && plateau.factor() <= 1))
      return Fail("the learning rate's factor is ", plateau.factor());
    return Seconds("seconds_in_state", machine.seconds_in_state()) &&
           Seconds("trained_seconds", machine.trained_seconds()) &&
           Seconds("seconds_since", schedule.seconds_since()) &&
           Seconds("given_seconds", evaluations.given_seconds()) &&
           Seconds("last_seconds", evaluations.last_seconds()) &&
           Number("final_checkpoint", machine.final_checkpoint()) &&
           Number("schedule.last.number", schedule.last().number()) &&
           Number("schedule.last.version", schedule.last().version()) &&
           Number("schedule.last.generation", schedule.last().generation()) &&
           Number("schedule.before.number", schedule.before().number()) &&
           Number("schedule.before.version", schedule.before().version()) &&
           Number("schedule.before.generation", schedule.before().generation()) &&
           Number("seen_version", schedule.seen_version()) && Number("granted", image_.granted()) &&
           Number("checkpoints.earlier", tracker.earlier()) && Number("checkpoints.last", tracker.last()) &&
           Number("checkpoints.recorded", tracker.recorded()) &&
           Number("states.number", image_.states().number()) &&
           Number("states.version", image_.states().version()) && Number("due", evaluations.due()) &&
           Number("done", evaluations.done()) && Number("given", evaluations.given()) &&
           Number("final", evaluations.final()) && Number("best_wanted", image_.best_wanted()) &&
           Number("best_awaited_from", image_.best_awaited_from());
  }

  // ----------------------------------------------------------------------------------------------- members

  bool CheckMember(const v1::MemberImage& member) {
    const bool is_worker = member.role() == v1::WORKER;
    if (!is_worker && member.role() != v1::EVALUATOR) return Fail("a member has role ", member.role());
    if (member.index() >= (is_worker ? kMaxWorkers : Membership::kMaxEvaluators))
      return Fail("a member has index ", member.index());
    if (member.incarnation() == 0 || member.incarnation() >= image_.membership().next_incarnation())
      return Fail("a member has incarnation ", member.incarnation());
    const uint64_t most = std::max(kMaxPerLease, RoundUp(kStepsPerPlan, pace_.steps_per_version));
    return CheckSteps(member.lease_steps(), most) && Number("lease", member.lease()) &&
           Number("granted_steps", member.granted_steps()) &&
           Number("granted_samples", member.granted_samples());
  }

  bool CheckMembers() {
    const v1::MembershipImage& membership = image_.membership();
    if (membership.next_incarnation() > kMaxIncarnation)
      return Fail("next_incarnation is ", membership.next_incarnation());
    std::set<std::pair<int, uint32_t>> indices;
    std::set<uint64_t> incarnations;
    for (const v1::MemberImage& member : membership.members()) {
      if (!CheckMember(member)) return false;
      if (!indices.emplace(member.role(), member.index()).second ||
          !incarnations.insert(member.incarnation()).second)
        return Fail("two members have index ", member.index(), " or incarnation ", member.incarnation());
    }
    for (const uint32_t index : membership.held_indices()) {
      if (index >= kMaxWorkers) return Fail("index ", index, " is held");
    }
    for (const v1::LeavingImage& leaving : image_.leaving()) {
      if (!CheckMember(leaving.worker()) || !Number("leaving.generation", leaving.generation())) return false;
    }
    for (const auto* const states : {&image_.states().awaited(), &image_.states().saved()}) {
      for (const auto& [incarnation, index] : *states) {
        if (index >= kMaxWorkers) return Fail("the state of worker ", index, " is awaited");
      }
    }
    return true;
  }

  bool CheckRosters() {
    if (!Number("rosters.generation", image_.rosters().generation())) return false;
    for (int i = 0; i < image_.rosters().lists_size(); ++i) {
      const v1::RostersImage::List& list = image_.rosters().lists(i);
      if (!Number("from_version", list.from_version())) return false;
      if (i > 0 && list.from_version() <= image_.rosters().lists(i - 1).from_version())
        return Fail("a roster from version ", list.from_version(), " follows a later one");
      for (int m = 0; m < list.members_size(); ++m) {
        const v1::RostersImage::Entry& member = list.members(m);
        if (member.worker() >= kMaxWorkers || (m > 0 && member.worker() <= list.members(m - 1).worker()))
          return Fail("worker ", member.worker(), " is not in its place in a roster");
        if (!Number("since", member.since()) || !Number("clock", member.clock())) return false;
      }
    }
    return true;
  }

  // ------------------------------------------------------------------------------------------- checkpoints

  bool CheckShards(const v1::CheckpointImage& checkpoint) {
    if (!Number("checkpoint", checkpoint.number())) return false;
    if (checkpoint.shards_size() != num_shards_)
      return Fail("checkpoint ", checkpoint.number(), " has ", checkpoint.shards_size(), " shards");
    for (const v1::SavedShard& shard : checkpoint.shards()) {
      if (!IsFileName(shard.file()))
        return Fail("a shard of checkpoint ", checkpoint.number(), " has no file");
      if (!Number("shard.version", shard.version())) return false;
    }
    return true;
  }

  bool CheckCheckpoints() {
    if (image_.has_held() && !CheckShards(image_.held())) return false;
    for (const v1::CheckpointImage& checkpoint : image_.complete()) {
      if (!CheckShards(checkpoint)) return false;
      if (const absl::Status status = CheckMasterState(checkpoint.state()); !status.ok())
        return Fail(status.message());
    }
    return true;
  }

  // -------------------------------------------------------------------------------------------------- data

  // Checks that there are at most `most` steps, whose sizes are those of their spans.
  bool CheckSteps(const v1::StepsImage& steps, uint64_t most) {
    uint64_t count = 0, by_sizes = 0, by_spans = 0;
    if (steps.sizes_size() % 2 != 0) return Fail("the number of steps of a size is missing");
    for (int i = 0; i < steps.sizes_size(); i += 2) {
      if (steps.sizes(i) > kMaxSamples || steps.sizes(i + 1) > most - count)
        return Fail("there are ", steps.sizes(i + 1), " steps of ", steps.sizes(i), " samples");
      count += steps.sizes(i + 1);
      by_sizes += steps.sizes(i) * steps.sizes(i + 1);
    }
    for (const v1::SampleSpan& span : steps.spans()) {
      if (span.begin() >= span.end() || span.end() > kMaxSamples || span.epoch() > kMaxSamples)
        return Fail("steps have samples ", span.begin(), " to ", span.end(), " of epoch ", span.epoch());
      by_spans += span.end() - span.begin();
    }
    num_steps_ += count;
    if (num_steps_ > kMaxSteps) return Fail("there are more than ", kMaxSteps, " steps");
    return by_sizes == by_spans || Fail("steps of ", by_sizes, " samples have ", by_spans);
  }

  bool CheckData() {
    if (image_.train_samples() == 0 || image_.train_samples() > kMaxSamples)
      return Fail("the training set has ", image_.train_samples(), " samples");
    samples_per_epoch_ = SamplesPerEpoch(job_, image_.train_samples());
    return pace_.synchronous ? CheckPlans() : CheckLeases();
  }

  // Checks a source of samples, of which `open` are assigned and not done, and that none of the samples that
  // it has, or that are in `assigned`, are there twice or are fresh.
  bool CheckSource(const v1::SampleSourceImage& source, std::vector<Span> assigned, uint64_t open) {
    const Position next{source.next_epoch(), source.next_position()};
    if (next.epoch > kMaxSamples || next.position >= samples_per_epoch_)
      return Fail("the next sample is ", next.position, " of epoch ", next.epoch);
    const std::optional<Position> end = BudgetOf(job_, image_.train_samples()).end;
    if (end && *end < next) return Fail("the next sample, of epoch ", next.epoch, ", is beyond the budget");
    uint64_t returned = 0;
    for (const v1::SampleSpan& span : source.returned()) {
      assigned.push_back(FromProto(span));
      returned += span.end() - span.begin();
    }
    const std::string problem = DescribeProblem(std::move(assigned), image_.train_samples(), next);
    if (!problem.empty()) return Fail(problem);
    const uint64_t fresh_from = next.epoch * samples_per_epoch_ + next.position;
    return open + returned <= fresh_from ||
           Fail(open, " samples are assigned, which is more than were taken");
  }

  // Returns the samples of the steps from `first` on. The steps have been checked.
  static uint64_t SamplesFrom(const v1::StepsImage& steps, uint64_t first) {
    uint64_t before = 0, samples = 0;
    for (int i = 0; i < steps.sizes_size(); i += 2) {
      const uint64_t end = before + steps.sizes(i + 1);
      samples += steps.sizes(i) * (end - std::clamp(first, before, end));
      before = end;
    }
    return samples;
  }

  static uint64_t NumSteps(const v1::StepsImage& steps) {
    uint64_t count = 0;
    for (int i = 1; i < steps.sizes_size(); i += 2) count += steps.sizes(i);
    return count;
  }

  bool CheckLeases() {
    if (!image_.has_leases()) return Fail("it has no leases");
    const v1::LeaseLedgerImage& leases = image_.leases();
    std::set<uint64_t> incarnations;
    std::vector<Span> assigned;
    uint64_t kept = 0, open_minibatches = 0, open_samples = 0;
    for (const v1::LeaseLedgerImage::Holder& holder : leases.holders()) {
      if (!incarnations.insert(holder.incarnation()).second)
        return Fail("incarnation ", holder.incarnation(), " is there twice");
      if (!CheckSteps(holder.kept(), kMaxSteps) || !Number("first", holder.first()) ||
          !Number("holder.leases", holder.leases()))
        return false;
      const uint64_t steps = NumSteps(holder.kept()), end = holder.first() + steps;
      if (holder.done() < holder.first() || holder.done() > end || (holder.gone() && holder.done() != end))
        return Fail("incarnation ", holder.incarnation(), " has done ", holder.done(), " of ", end,
                    " minibatches");
      if (holder.most() == 0 || holder.most() > kMaxPerLease)
        return Fail("a lease has up to ", holder.most(), " minibatches");
      kept += steps;
      open_minibatches += end - holder.done();
      open_samples += SamplesFrom(holder.kept(), holder.done() - holder.first());
      for (const v1::SampleSpan& span : holder.kept().spans()) assigned.push_back(FromProto(span));
    }
    if (leases.open_minibatches() != open_minibatches || leases.open_samples() != open_samples)
      return Fail("the leases have ", open_minibatches, " minibatches of ", open_samples,
                  " samples to do, not ", leases.open_minibatches(), " of ", leases.open_samples());
    if (leases.assigned_minibatches() < kept || leases.assigned_minibatches() > kMaxNumber)
      return Fail(leases.assigned_minibatches(), " minibatches are assigned");
    return CheckSource(leases.source(), std::move(assigned), open_samples);
  }

  // Adds to *open the samples of the plan that are not done, and to *assigned those that no other plan can
  // have.
  bool CheckPlan(const v1::PlanLedgerImage::Plan& plan, std::vector<Span>* assigned, uint64_t* open) {
    if (!CheckSteps(plan.steps(), RoundUp(kStepsPerPlan, pace_.steps_per_version))) return false;
    const std::vector<Step> steps = StepsOf(plan.steps());
    if (steps.empty() || steps.size() % pace_.steps_per_version != 0)
      return Fail("a plan has ", steps.size(), " steps");
    std::set<uint64_t> holders;
    const uint64_t count = plan.participants_size();
    if (count == 0 || count > kMaxWorkers) return Fail("a plan has ", count, " participants");
    for (uint64_t rank = 0; rank < count; ++rank) {
      const v1::PlanLedgerImage::Participant& participant = plan.participants(static_cast<int>(rank));
      if (!holders.insert(participant.holder()).second || participant.done() > steps.size())
        return Fail("a plan has incarnation ", participant.holder(), " twice, or after its end");
      for (uint64_t i = 0; i < steps.size(); ++i) {
        const bool is_done = i < participant.done();
        if (!is_done && participant.gone()) break;
        const uint64_t samples = NumSamples(steps[i]);
        const uint64_t begin = samples * rank / count, end = samples * (rank + 1) / count;
        if (!is_done) *open += end - begin;
        const Step part = Slice(steps[i], begin, end);
        assigned->insert(assigned->end(), part.begin(), part.end());
      }
    }
    return true;
  }

  // Checks that the leases of a holder that are not done are of plans that it takes part in.
  bool CheckHolder(const v1::PlanLedgerImage& plans, const v1::PlanLedgerImage::Holder& holder) {
    const auto& leases = holder.leases();
    if (!Number("forgotten", holder.forgotten()) || !Number("done_steps", holder.done_steps())) return false;
    if (holder.done() < holder.forgotten() || holder.done() - holder.forgotten() > uint64_t(leases.size()))
      return Fail("incarnation ", holder.incarnation(), " has done ", holder.done(), " leases");
    for (int i = 0; i < leases.size(); ++i) {
      if (leases[i] >= plans.next_step() || (i > 0 && leases[i] <= leases[i - 1]))
        return Fail("incarnation ", holder.incarnation(), " has a lease of step ", leases[i]);
      if (holder.forgotten() + i < holder.done()) continue;
      const auto plan =
          std::lower_bound(plans.plans().begin(), plans.plans().end(), leases[i],
                           [](const auto& one, uint64_t step) { return one.first_step() < step; });
      const auto is_holder = [&holder](const auto& one) { return one.holder() == holder.incarnation(); };
      if (plan == plans.plans().end() || plan->first_step() != leases[i] ||
          std::none_of(plan->participants().begin(), plan->participants().end(), is_holder))
        return Fail("incarnation ", holder.incarnation(), " has a lease of a plan without it");
    }
    return true;
  }

  bool CheckPlans() {
    if (!image_.has_plans()) return Fail("it has no plans");
    const v1::PlanLedgerImage& plans = image_.plans();
    if (!Number("next_step", plans.next_step()) || !Number("budget_steps", plans.budget_steps()))
      return false;
    std::vector<Span> assigned;
    uint64_t open_samples = 0, steps = 0;
    for (int p = 0; p < plans.plans_size(); ++p) {
      const v1::PlanLedgerImage::Plan& plan = plans.plans(p);
      if (!CheckPlan(plan, &assigned, &open_samples)) return false;
      const uint64_t next = p + 1 < plans.plans_size() ? plans.plans(p + 1).first_step() : plans.next_step();
      if (plan.first_step() > kMaxNumber || plan.first_step() % pace_.steps_per_version != 0 ||
          plan.first_step() + NumSteps(plan.steps()) != next)
        return Fail("the plan from step ", plan.first_step(), " is followed by step ", next);
      if (plan.budget_steps() < steps || plan.budget_steps() > kMaxNumber)
        return Fail("a plan begins with ", plan.budget_steps(), " steps of the budget");
      const bool abandoned = std::all_of(plan.participants().begin(), plan.participants().end(),
                                         [](const auto& participant) { return participant.gone(); });
      if (!abandoned) steps += NumSteps(plan.steps());
    }
    if (plans.budget_steps() < steps) return Fail(plans.budget_steps(), " steps of the budget are planned");
    std::set<uint64_t> incarnations;
    for (const v1::PlanLedgerImage::Holder& holder : plans.holders()) {
      if (!incarnations.insert(holder.incarnation()).second || !CheckHolder(plans, holder))
        return !problem_.empty() ? false : Fail("incarnation ", holder.incarnation(), " is there twice");
    }
    if (plans.open_samples() != open_samples)
      return Fail("the plans have ", open_samples, " samples to do, not ", plans.open_samples());
    return CheckSource(plans.source(), std::move(assigned), open_samples);
  }

  const v1::MasterImage& image_;
  const v1::Job& job_;
  const int num_shards_;
  const Pace pace_;
  uint64_t samples_per_epoch_ = 0;
  uint64_t num_steps_ = 0;
  std::string problem_;
};

}  // namespace

absl::Status CheckMasterImage(const v1::MasterImage& image, const v1::Job& job, int num_shards) {
  return ImageCheck(image, job, num_shards).Run();
}

absl::Status CheckMasterCopy(const v1::MasterCopy& copy, const v1::Job& job, int num_shards,
                             uint64_t run_id) {
  if (copy.run_id() != run_id) return Damaged("it is of another run");
  if (copy.servers_size() != num_shards)
    return Damaged(absl::StrCat("it has ", copy.servers_size(), " servers"));
  for (const v1::ServerImage& server : copy.servers()) {
    if (server.epoch() > kMaxNumber || server.offered_epoch() > kMaxNumber)
      return Damaged(absl::StrCat("a shard has epoch ", std::max(server.epoch(), server.offered_epoch())));
  }
  return CheckMasterImage(copy.master(), job, num_shards);
}

}  // namespace catchment
