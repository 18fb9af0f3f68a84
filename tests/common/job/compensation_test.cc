// Axis 3 of a job: defaults, ranges, and what it does not go together with.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "tests/conformance/jobs.h"

namespace catchment {
namespace {

// Fills a job with Downpour, unless the overrides set another preset.
absl::StatusOr<v1::Job> Fill(const std::vector<std::string>& overrides) {
  v1::Job job = JobWithModel();
  job.mutable_algorithm()->set_preset("downpour");
  job.set_workers(4);
  EXPECT_TRUE(ApplyOverrides(overrides, &job).ok());
  return FillDefaultsAndValidate(job);
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

struct Case {
  std::vector<std::string> overrides;
  std::string error;
};

TEST(Compensation, IsRefusedWithTheReason) {
  for (const Case& c : std::vector<Case>{
           {{kAt + "power.exponent=0"}, kAt + "power.exponent: is 0; must be a number above 0"},
           {{kAt + "exponential.rate=-1"}, kAt + "exponential.rate: is -1; must be a number above 0"},
           {{kAt + "delay_compensated.lambda=-1"},
            kAt + "delay_compensated.lambda: is -1; must be a number, 0 or above"},
           {{kAt + "delay_compensated.decay=0.5"},
            kAt + "delay_compensated.decay: belongs to the adaptive kind; leave it out, or set adaptive to "
                  "true"},
           {{kAt + "delay_compensated={adaptive: true decay: 1}"},
            kAt + "delay_compensated.decay: is 1; must be in [0, 1)"},
           {{kAt + "open_loop_momentum.min_momentum=0.85"},
            kAt + "open_loop_momentum.min_momentum: is 0.85; must be above -1 and at most "
                  "optimizer.momentum, 0.8"},
           {{kAt + "open_loop_momentum.rate_correction=2"},
            kAt + "open_loop_momentum.rate_correction: is 2; must be from 0 to 1"},
           {{kAt + "open_loop_momentum.averaging=0"},
            kAt + "open_loop_momentum.averaging: is 0; must be in (0, 1]"},
           {{kAt + "closed_loop_momentum.min_momentum=-1"},
            kAt + "closed_loop_momentum.min_momentum: is -1; must be above -1 and at most "
                  "optimizer.momentum, 0.8"},
           {{kAt + "closed_loop_momentum.gain=0"},
            kAt + "closed_loop_momentum.gain: is 0; must be a number above 0"},
           {{kAt + "closed_loop_momentum.coordinates=0"},
            kAt + "closed_loop_momentum.coordinates: is 0; must be from 1 to 10000"},
           {{"optimizer.nesterov=true", kAt + "delayed_nesterov.every=0"},
            kAt + "delayed_nesterov.every: is 0; must be at least 1"},
           {{kAt + "delayed_nesterov={}"},
            kAt + "delayed_nesterov: delays Nesterov momentum; set optimizer.kind to SGD, optimizer.momentum "
                  "above 0 "
                  "and optimizer.nesterov to true"},
           {{"optimizer.nesterov=true", "workers=2", "algorithm.consistency.grouped={}",
             kAt + "delayed_nesterov={}"},
            kAt + "delayed_nesterov: needs an update for every contribution; set algorithm.consistency to "
                  "asynchronous {} or bounded_staleness {}, or choose open_loop_momentum"},
           {{"algorithm.preset=diloco", "algorithm.contribution.pseudo_gradient.steps_by_speed=true"},
            "algorithm.contribution.pseudo_gradient.steps_by_speed: is true, and only with "
            "algorithm.consistency "
            "asynchronous {} may workers make different numbers of steps; leave it out, or set "
            "algorithm.consistency to asynchronous {}"},
           {{"algorithm.preset=easgd", kAt + "inverse={}"},
            kAt + "inverse: does not belong to contribution elastic, which sends weights, not gradients: the "
                  "spring "
                  "between worker and center is the same, however old; leave it out"},
           {{"compression.pull=BFLOAT16", kAt + "gap_aware={}"},
            "compression.pull: is BFLOAT16; must be FLOAT32 with " + kAt +
                "gap_aware, which compares the center with the very weights that a worker was sent"},
           {{"algorithm.preset=sync", kAt + "inverse={}"},
            kAt + "inverse: has no effect with consistency.synchronous: no contribution is stale; leave it "
                  "out, or set algorithm.consistency to asynchronous {}"},
           {{"optimizer.kind=ADAM", kAt + "open_loop_momentum.min_momentum=0"},
            kAt + "open_loop_momentum: sets the momentum of SGD; set optimizer.kind to SGD and "
                  "optimizer.momentum "
                  "above 0, to what training without staleness would have"},
           {{"optimizer.momentum=0", kAt + "gap_aware={}"},
            kAt + "gap_aware: measures gaps in steps of SGD's momentum; set optimizer.kind to SGD and "
                  "optimizer.momentum above 0"},
       }) {
    EXPECT_EQ(Fill(c.overrides).status().message(), c.error);
  }
}

}  // namespace
}  // namespace catchment
