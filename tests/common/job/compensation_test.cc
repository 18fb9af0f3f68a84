// Axis 3 of a job: defaults, ranges, and what it does not go together with.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/consistency_kinds.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "tests/common/job/found_problems.h"
#include "tests/conformance/jobs.h"

namespace catchment {
namespace {

// Returns a job with Downpour, unless the overrides set another preset.
v1::Job JobWith(const std::vector<std::string>& overrides) {
  v1::Job job = JobWithModel();
  job.mutable_algorithm()->set_preset("downpour");
  job.set_workers(4);
  EXPECT_TRUE(ApplyOverrides(overrides, &job).ok());
  return job;
}

absl::StatusOr<v1::Job> Fill(const std::vector<std::string>& overrides) {
  return FillDefaultsAndValidate(JobWith(overrides));
}

v1::Compensation Filled(const std::vector<std::string>& overrides) {
  const absl::StatusOr<v1::Job> job = Fill(overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->algorithm().compensation() : v1::Compensation();
}

const std::string kAt = "algorithm.compensation.";

TEST(Compensation, HasThePapersDefaults) {
  EXPECT_TRUE(Filled({}).has_none());
  EXPECT_EQ(Filled({kAt + "power={}"}).power().exponent(), 1);
  EXPECT_EQ(Filled({kAt + "exponential={}"}).exponential().rate(), 0.1f);
  EXPECT_EQ(Filled({kAt + "delay_compensated={}"}).delay_compensated().lambda(), 0.04f);
  const v1::DelayCompensation adaptive =
      Filled({kAt + "delay_compensated.adaptive=true"}).delay_compensated();
  EXPECT_EQ(adaptive.lambda(), 2);
  EXPECT_EQ(adaptive.decay(), 0.95f);
  const v1::OpenLoopMomentum open = Filled({kAt + "open_loop_momentum={}"}).open_loop_momentum();
  EXPECT_EQ(open.min_momentum(), 0);
  EXPECT_EQ(open.rate_correction(), 0.7f);
  EXPECT_EQ(open.averaging(), 0.01f);
  const v1::ClosedLoopMomentum closed = Filled({kAt + "closed_loop_momentum={}"}).closed_loop_momentum();
  EXPECT_EQ(closed.min_momentum(), -0.9f);
  EXPECT_EQ(closed.gain(), 0.01f);
  EXPECT_EQ(closed.coordinates(), 64u);
  const std::string nesterov = "optimizer.nesterov=true";
  EXPECT_EQ(Filled({nesterov, "workers=3", kAt + "delayed_nesterov={}"}).delayed_nesterov().every(), 3u);
  EXPECT_EQ(Filled({nesterov, kAt + "delayed_nesterov.every=5"}).delayed_nesterov().every(), 5u);
}

TEST(Compensation, PresetsHaveTheirs) {
  EXPECT_TRUE(Filled({"algorithm.preset=staleness_aware"}).has_open_loop_momentum());
  EXPECT_TRUE(Filled({"algorithm.preset=dc_asgd"}).has_delay_compensated());
  EXPECT_TRUE(Filled({"algorithm.preset=gap_aware"}).has_gap_aware());
  EXPECT_TRUE(Filled({"algorithm.preset=diloco_async"}).has_delayed_nesterov());
  // The job's own goes before the preset's.
  EXPECT_TRUE(Filled({"algorithm.preset=dc_asgd", kAt + "inverse={}"}).has_inverse());
}

TEST(Compensation, AsynchronousPresetsShrinkOutliers) {
  for (const Preset& preset : Presets()) {
    const v1::Compensation compensation = Filled({"algorithm.preset=" + preset.name, "workers=6"});
    const bool stale = KindOf(preset.algorithm.consistency()).has_staleness &&
                       !preset.algorithm.contribution().has_elastic();
    EXPECT_EQ(compensation.has_delay_adaptive(), stale) << preset.name;
    if (!stale) continue;
    EXPECT_EQ(compensation.delay_adaptive().threshold(), 6u) << preset.name;
    EXPECT_EQ(compensation.of(), v1::Compensation::STEP) << preset.name;
  }
  // The usual staleness changes nothing.
  EXPECT_EQ(Filled({"algorithm.contribution.gradient={push_period: 2 fetch_period: 6}"})
                .delay_adaptive()
                .threshold(),
            12u);
  EXPECT_EQ(Filled({"algorithm.consistency.asynchronous.emulated_delay=7"}).delay_adaptive().threshold(),
            11u);
  EXPECT_EQ(Filled({kAt + "delay_adaptive.threshold=9"}).delay_adaptive().threshold(), 9u);
  // A kind of the job's own replaces all of the preset's; other fields of the preset's kind do not.
  EXPECT_FALSE(Filled({kAt + "none={}"}).has_delay_adaptive());
  EXPECT_FALSE(Filled({kAt + "inverse={}"}).has_delay_adaptive());
  EXPECT_TRUE(Filled({"algorithm.preset=staleness_aware", kAt + "open_loop_momentum.averaging=0.5"})
                  .has_delay_adaptive());
  // With the preset's other axes they go too.
  EXPECT_FALSE(Filled({"algorithm.consistency.synchronous={}"}).has_delay_adaptive());
  EXPECT_FALSE(Filled({"algorithm.contribution.elastic={}"}).has_delay_adaptive());
}

TEST(Compensation, BoundsTheStepWhereMomentumIsLowered) {
  EXPECT_FALSE(Filled({}).has_step_bound());
  EXPECT_FALSE(Filled({kAt + "inverse={}"}).has_step_bound());
  EXPECT_EQ(Filled({"algorithm.preset=staleness_aware"}).step_bound(), 1.5f);
  EXPECT_EQ(Filled({kAt + "closed_loop_momentum={}"}).step_bound(), 1.5f);
  EXPECT_EQ(Filled({kAt + "closed_loop_momentum={}", kAt + "step_bound=5"}).step_bound(), 5);
  EXPECT_EQ(Filled({"algorithm.preset=dana"}).step_bound(), 3);
  EXPECT_EQ(Filled({"algorithm.preset=gem"}).step_bound(), 2);
}

v1::Optimizer OptimizerOf(const std::vector<std::string>& overrides) {
  const absl::StatusOr<v1::Job> job = Fill(overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->optimizer() : v1::Optimizer();
}

TEST(Compensation, StepsOfPresetsFollowTheWorkers) {
  const auto step = [](const v1::Optimizer& o) { return o.learning_rate() / (1 - o.momentum()); };
  for (const Preset& preset : Presets()) {
    for (const uint32_t workers : {2, 4, 8, 60}) {
      const absl::StatusOr<v1::Job> job =
          Fill({"algorithm.preset=" + preset.name, absl::StrCat("workers=", workers)});
      ASSERT_TRUE(job.ok()) << job.status();
      const bool by_round = job->algorithm().compensation().has_delayed_nesterov();
      const double delay =
          by_round ? 1 : workers / ContributionsPerUpdate(job->algorithm().consistency(), workers);
      const double own = step(preset.optimizer);
      const bool follows = preset.step_times_delay > 0 && workers > (by_round ? 8 : 4);
      EXPECT_NEAR(step(job->optimizer()),
                  follows ? std::min<double>(own, preset.step_times_delay / delay) : own, 1e-6)
          << preset.name << ", " << workers;
      EXPECT_LE(job->optimizer().momentum(), preset.optimizer.momentum()) << preset.name << ", " << workers;
    }
  }
}

TEST(Compensation, UpdatesOfSoftsyncHaveFourGradients) {
  const auto filled = [](int workers, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"algorithm.preset=softsync", absl::StrCat("workers=", workers)};
    all.insert(all.end(), more.begin(), more.end());
    absl::StatusOr<v1::Job> job = Fill(all);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : v1::Job();
  };
  for (const auto& [workers, n] : {std::pair(2, 1u), {7, 1}, {8, 2}, {15, 3}, {60, 15}})
    EXPECT_EQ(filled(workers, {}).algorithm().consistency().n_softsync().n(), n) << workers;
  const v1::Job one = filled(60, {"algorithm.consistency.n_softsync.n=1"});
  EXPECT_EQ(one.algorithm().consistency().n_softsync().n(), 1u);
  EXPECT_NEAR(one.optimizer().learning_rate(), 0.4, 1e-6);
  EXPECT_EQ(one.optimizer().momentum(), 0);
}

TEST(Compensation, BufferAndStepOfFedbuffFollowTheWorkers) {
  const auto filled = [](const std::vector<std::string>& overrides) {
    absl::StatusOr<v1::Job> job = Fill(overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : v1::Job();
  };
  const auto size = [](const v1::Job& job) { return job.algorithm().consistency().n_softsync().size(); };
  for (const uint32_t workers : {4, 15, 30, 60, 300}) {
    const v1::Job job = filled({"algorithm.preset=fedbuff", absl::StrCat("workers=", workers)});
    EXPECT_EQ(size(job), std::max(10u, workers / 3)) << workers;
    EXPECT_NEAR(job.optimizer().learning_rate(), std::min(1.0, 1.2 * size(job) / workers), 1e-6) << workers;
  }
  const v1::Job small =
      filled({"algorithm.preset=fedbuff", "workers=60", "algorithm.consistency.n_softsync.size=10"});
  EXPECT_EQ(size(small), 10u);
  EXPECT_NEAR(small.optimizer().learning_rate(), 0.2, 1e-6);
}

TEST(Compensation, FromFiveWorkersOnDownpourLeavesMomentumToAsynchrony) {
  EXPECT_EQ(OptimizerOf({"workers=4"}).momentum(), 0.8f);
  EXPECT_EQ(OptimizerOf({"workers=4"}).learning_rate(), 0.03f);
  EXPECT_EQ(OptimizerOf({"workers=5"}).momentum(), 0);
  EXPECT_NEAR(OptimizerOf({"workers=5"}).learning_rate(), 0.4 / 5, 1e-6);
  // The job's own settings stay as they are, and with one of momentum the rate is for it.
  EXPECT_EQ(OptimizerOf({"workers=60", "optimizer.learning_rate=0.03"}).learning_rate(), 0.03f);
  EXPECT_EQ(OptimizerOf({"workers=60", "optimizer.learning_rate=0.03"}).momentum(), 0.8f);
  EXPECT_NEAR(OptimizerOf({"workers=60", "optimizer.momentum=0.5"}).learning_rate(), 0.4 * 0.5 / 60, 1e-6);
  EXPECT_TRUE(OptimizerOf({"workers=60", "optimizer.nesterov=true"}).momentum() > 0);
  // So do compensations that need it.
  EXPECT_EQ(OptimizerOf({"workers=60", kAt + "open_loop_momentum={}"}).momentum(), 0.8f);
  EXPECT_EQ(OptimizerOf({"workers=60", "algorithm.preset=gap_aware"}).momentum(), 0.9f);
}

struct Case {
  std::vector<std::string> overrides;
  std::string problems;
};

TEST(Compensation, IsRefusedWithTheReason) {
  for (const Case& c : std::vector<Case>{
           {{kAt + "power.exponent=0"}, kAt + "power.exponent range"},
           {{kAt + "exponential.rate=-1"}, kAt + "exponential.rate range"},
           {{kAt + "delay_compensated.lambda=-1"}, kAt + "delay_compensated.lambda range"},
           {{kAt + "delay_compensated.decay=0.5"}, kAt + "delay_compensated.decay unused"},
           {{kAt + "delay_compensated={adaptive: true decay: 1}"}, kAt + "delay_compensated.decay range"},
           {{kAt + "open_loop_momentum.min_momentum=0.85"}, kAt + "open_loop_momentum.min_momentum range"},
           {{kAt + "open_loop_momentum.rate_correction=2"}, kAt + "open_loop_momentum.rate_correction range"},
           {{kAt + "open_loop_momentum.averaging=0"}, kAt + "open_loop_momentum.averaging range"},
           {{kAt + "closed_loop_momentum.min_momentum=-1"}, kAt + "closed_loop_momentum.min_momentum range"},
           {{kAt + "closed_loop_momentum.gain=0"}, kAt + "closed_loop_momentum.gain range"},
           {{kAt + "closed_loop_momentum.coordinates=0"}, kAt + "closed_loop_momentum.coordinates range"},
           {{"optimizer.nesterov=true", kAt + "delayed_nesterov.every=0"},
            kAt + "delayed_nesterov.every range"},
           {{kAt + "delayed_nesterov={}"}, kAt + "delayed_nesterov needs"},
           {{"optimizer.nesterov=true", "workers=2", "algorithm.consistency.grouped={}",
             kAt + "delayed_nesterov={}"},
            kAt + "delayed_nesterov needs"},
           {{"algorithm.preset=diloco", "algorithm.contribution.pseudo_gradient.steps_by_speed=true"},
            "algorithm.contribution.pseudo_gradient.steps_by_speed needs"},
           {{"algorithm.preset=diloco", "algorithm.contribution.pseudo_gradient.fragments=17"},
            "algorithm.contribution.pseudo_gradient.fragments range"},
           {{"algorithm.preset=streaming_diloco", "algorithm.contribution.pseudo_gradient.fragments=0"},
            "algorithm.contribution.pseudo_gradient.fragments range"},
           {{"algorithm.preset=diloco", "algorithm.contribution.pseudo_gradient.overlap_steps=16"},
            "algorithm.contribution.pseudo_gradient.overlap_steps range"},
           {{"algorithm.preset=diloco", "algorithm.contribution.pseudo_gradient.blend=0.5"},
            "algorithm.contribution.pseudo_gradient.blend needs"},
           {{"algorithm.preset=streaming_diloco", "algorithm.contribution.pseudo_gradient.blend=1"},
            "algorithm.contribution.pseudo_gradient.blend range"},
           {{"algorithm.preset=fedbuff", "algorithm.contribution.pseudo_gradient.fragments=2"},
            "algorithm.contribution.pseudo_gradient.fragments needs"},
           {{"algorithm.preset=diloco", "workers=3", "algorithm.consistency.synchronous.backup_workers=1",
             "algorithm.contribution.pseudo_gradient.overlap_steps=1"},
            "algorithm.contribution.pseudo_gradient.overlap_steps needs"},
           {{"algorithm.preset=easgd", kAt + "inverse={}"}, kAt + "inverse conflict"},
           {{"compression.pull=BFLOAT16", kAt + "gap_aware={}"}, "compression.pull conflict"},
           {{"algorithm.preset=sync", kAt + "inverse={}"}, kAt + "inverse unused"},
           {{"optimizer.kind=ADAM", kAt + "open_loop_momentum.min_momentum=0"},
            kAt + "open_loop_momentum needs"},
           {{kAt + "delay_adaptive.threshold=0"}, kAt + "delay_adaptive.threshold range"},
           {{kAt + "step_bound=0"}, kAt + "step_bound range"},
           {{kAt + "open_loop_momentum={}", kAt + "step_bound=inf"}, kAt + "step_bound range"},
           {{"algorithm.preset=sync", kAt + "delay_adaptive={}"}, kAt + "delay_adaptive unused"},
           {{"algorithm.preset=easgd", kAt + "step_bound=2"}, kAt + "step_bound conflict"},
           {{"algorithm.preset=easgd", kAt + "of=GRADIENT"}, kAt + "of conflict"},
           {{kAt + "gap_aware={}", kAt + "of=GRADIENT"}, kAt + "of unused"},
           {{kAt + "none={}", kAt + "of=STEP"}, kAt + "of unused"},
           {{"optimizer.momentum=0", kAt + "gap_aware={}"}, kAt + "gap_aware needs"},
       }) {
    EXPECT_EQ(FoundProblems(JobWith(c.overrides)), c.problems);
  }
}

}  // namespace
}  // namespace catchment
