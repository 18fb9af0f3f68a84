#include "common/job/validate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/job/job_text.h"
#include "common/job/overrides.h"
#include "common/job/presets.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

// A sound job with nothing but what is required, and `overrides`.
v1::Job Minimal(const std::vector<std::string>& overrides = {}) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "model { layers { flatten {} } layers { dense { units: 10 } } } data { drawn_digits {} }", &job));
  const absl::Status status = ApplyOverrides(overrides, &job);
  EXPECT_TRUE(status.ok()) << status;
  return job;
}

v1::Job Filled(const std::vector<std::string>& overrides = {}) {
  const auto job = FillDefaultsAndValidate(Minimal(overrides));
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::Job());
}

std::string Errors(const v1::Job& job) {
  const auto filled = FillDefaultsAndValidate(job);
  EXPECT_EQ(filled.status().code(), absl::StatusCode::kInvalidArgument) << job.ShortDebugString();
  return std::string(filled.status().message());
}

std::string Errors(const std::vector<std::string>& overrides) { return Errors(Minimal(overrides)); }

TEST(FillDefaults, EveryDefaultOfTheJob) {
  const v1::Job job = Filled();
  EXPECT_EQ(JobText(job), R"(name: "job"
model {
  layers {
    name: "flatten1"
    flatten {
    }
  }
  layers {
    name: "dense1"
    dense {
      units: 10
    }
  }
}
data {
  drawn_digits {
    train_samples: 20000
    test_samples: 4000
    seed: 1
  }
}
algorithm {
  preset: "sync"
  consistency {
    groups: 1
  }
  contribution {
    gradient {
      push_period: 1
      fetch_period: 1
      local_learning_rate: 0
    }
  }
  compensation {
    none {
    }
  }
}
optimizer {
  kind: SGD
  learning_rate: 0.05
  momentum: 0.9
  nesterov: false
  schedule {
    decay: COSINE
    warmup: 0
    final_fraction: 0
  }
}
batch_size: 64
epochs: 1
workers: 1
seed: 1
deterministic: false
checkpoint {
  every_updates: 1000
  keep: 2
}
evaluation {
  every_epochs: 1
}
faults {
  worker_lease_seconds: 10
  non_finite_limit: 10
  connect_timeout_seconds: 60
  slowest_kib_per_second: 64
}
block_kib: 1024
compression {
  push: FLOAT32
  pull: FLOAT32
}
)");
}

TEST(FillDefaults, TwiceChangesNothing) {
  for (const Preset& preset : Presets()) {
    for (const std::string kind : {"SGD", "ADAM", "ADAGRAD", "RMSPROP", "ADADELTA", "ADAMW"}) {
      if (preset.contribution == v1::Contribution::kElastic && kind != "SGD") continue;
      const v1::Job once = Filled({std::string("algorithm.preset=") + preset.name, "optimizer.kind=" + kind});
      const auto twice = FillDefaultsAndValidate(once);
      ASSERT_TRUE(twice.ok()) << preset.name << " " << kind << ": " << twice.status();
      EXPECT_EQ(JobText(*twice), JobText(once));
    }
  }
}

TEST(FillDefaults, ConvolutionAndPoolingGetStrideAndPadding) {
  v1::Job job = Minimal();
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      layers { conv2d { filters: 4 kernel_size: 3 } } layers { max_pool { size: 3 } } layers { flatten {} }
      layers { dense { units: 10 } })",
                                                            job.mutable_model()));
  const auto filled = FillDefaultsAndValidate(job);
  ASSERT_TRUE(filled.ok()) << filled.status();
  EXPECT_EQ(filled->model().layers(0).name(), "conv1");
  EXPECT_EQ(filled->model().layers(0).conv2d().stride(), 1);
  EXPECT_TRUE(filled->model().layers(0).conv2d().has_padding());
  EXPECT_EQ(filled->model().layers(1).max_pool().stride(), 3);
}

TEST(FillDefaults, GivenValuesStay) {
  const v1::Job job =
      Filled({"optimizer.learning_rate=0.5", "optimizer.momentum=0", "optimizer.schedule.decay=CONSTANT",
              "updates=5", "block_kib=64", "algorithm.consistency.groups=0", "name=a-b_c.1"});
  EXPECT_EQ(job.optimizer().learning_rate(), 0.5f);
  EXPECT_EQ(job.optimizer().momentum(), 0);
  EXPECT_EQ(job.optimizer().schedule().decay(), v1::Schedule::CONSTANT);
  EXPECT_EQ(job.updates(), 5);
  EXPECT_EQ(job.block_kib(), 64);
  EXPECT_EQ(job.algorithm().consistency().groups(), 0);
  EXPECT_EQ(job.name(), "a-b_c.1");
}

TEST(FillDefaults, FetchPeriodFollowsPushPeriod) {
  const v1::Job job = Filled({"algorithm.contribution.gradient.push_period=5"});
  EXPECT_EQ(job.algorithm().contribution().gradient().fetch_period(), 5);
}

TEST(FillDefaults, EpsilonAndBetasFollowTheKind) {
  const v1::Optimizer adam = Filled({"optimizer.kind=ADAM"}).optimizer();
  EXPECT_EQ(adam.beta1(), 0.9f);
  EXPECT_EQ(adam.beta2(), 0.999f);
  EXPECT_EQ(adam.epsilon(), 1e-8f);
  EXPECT_EQ(adam.learning_rate(), 0.001f);
  EXPECT_FALSE(adam.has_momentum());
  const v1::Optimizer adagrad = Filled({"optimizer.kind=ADAGRAD"}).optimizer();
  EXPECT_EQ(adagrad.epsilon(), 1e-10f);
  EXPECT_EQ(adagrad.learning_rate(), 0.01f);
  EXPECT_FALSE(adagrad.has_beta1());
  const v1::Optimizer rmsprop = Filled({"optimizer.kind=RMSPROP"}).optimizer();
  EXPECT_EQ(rmsprop.rho(), 0.99f);
  EXPECT_EQ(rmsprop.epsilon(), 1e-8f);
  EXPECT_EQ(rmsprop.learning_rate(), 0.01f);
  EXPECT_FALSE(rmsprop.has_momentum());
  const v1::Optimizer adadelta = Filled({"optimizer.kind=ADADELTA"}).optimizer();
  EXPECT_EQ(adadelta.rho(), 0.9f);
  EXPECT_EQ(adadelta.epsilon(), 1e-6f);
  EXPECT_EQ(adadelta.learning_rate(), 1);
  const v1::Optimizer adamw = Filled({"optimizer.kind=ADAMW"}).optimizer();
  EXPECT_EQ(adamw.weight_decay(), 0.01f);
  EXPECT_EQ(adamw.beta2(), 0.999f);
  EXPECT_EQ(adamw.learning_rate(), 0.001f);
  EXPECT_FALSE(adam.has_weight_decay());
}

TEST(FillDefaults, TheFractionIsOfTopK) {
  EXPECT_FALSE(Filled({"compression.push=BFLOAT16"}).compression().has_top_k_fraction());
  const v1::Job job = Filled({"compression.push=TOP_K"});
  EXPECT_EQ(job.compression().top_k_fraction(), 0.01f);
  EXPECT_EQ(JobText(FillDefaultsAndValidate(job).value_or(v1::Job())), JobText(job));
}

TEST(Presets, SetTheAxes) {
  struct Expected {
    const char* preset;
    uint32_t groups;
    bool elastic;
    float momentum;
    bool nesterov;
  };
  for (const Expected& e :
       {Expected{"sync", 1, false, 0.9f, false}, Expected{"downpour", 0, false, 0.8f, false},
        Expected{"easgd", 0, true, 0, false}, Expected{"easgd_sync", 1, true, 0, false},
        Expected{"eamsgd", 0, true, 0.9f, true}}) {
    const v1::Job job = Filled({std::string("algorithm.preset=") + e.preset, "workers=3"});
    SCOPED_TRACE(e.preset);
    EXPECT_EQ(job.algorithm().consistency().groups(), e.groups);
    EXPECT_EQ(job.algorithm().contribution().has_elastic(), e.elastic);
    EXPECT_EQ(job.algorithm().contribution().has_gradient(), !e.elastic);
    EXPECT_EQ(job.optimizer().momentum(), e.momentum);
    EXPECT_EQ(job.optimizer().nesterov(), e.nesterov);
    EXPECT_GT(job.optimizer().learning_rate(), 0);
    EXPECT_EQ(job.optimizer().schedule().decay(), v1::Schedule::COSINE);
    if (!e.elastic) continue;
    EXPECT_EQ(job.algorithm().contribution().elastic().communication_period(), 4);
    EXPECT_FLOAT_EQ(job.algorithm().contribution().elastic().moving_rate(), 0.3f);
  }
}

TEST(Presets, OnlyFillWhatIsLeftOut) {
  const v1::Job job =
      Filled({"algorithm.preset=eamsgd", "algorithm.consistency.groups=1", "optimizer.momentum=0.5",
              "algorithm.contribution.elastic.communication_period=16"});
  EXPECT_EQ(job.algorithm().consistency().groups(), 1);
  EXPECT_EQ(job.algorithm().contribution().elastic().communication_period(), 16);
  EXPECT_EQ(job.optimizer().momentum(), 0.5f);
  EXPECT_TRUE(job.optimizer().nesterov());
}

TEST(Presets, MomentumTurnedOffTakesNesterovWithIt) {
  EXPECT_FALSE(Filled({"algorithm.preset=eamsgd", "optimizer.momentum=0"}).optimizer().nesterov());
}

TEST(Presets, OptimizerFitsTheContributionThatTheJobHas) {
  const v1::Job job = Filled({"algorithm.preset=sync", "algorithm.contribution.elastic={}"});
  EXPECT_EQ(job.optimizer().momentum(), 0);
  EXPECT_EQ(job.optimizer().learning_rate(), FindPreset("easgd_sync")->learning_rate);
}

TEST(Presets, UnknownOneListsTheKnownOnesAndTheRestIsStillChecked) {
  EXPECT_EQ(
      Errors({"algorithm.preset=downpor", "batch_size=0"}),
      "algorithm.preset: no preset \"downpor\"; did you mean downpour? there are sync, downpour, easgd, "
      "easgd_sync, eamsgd\nbatch_size: is 0; must be from 1 to 1000000");
}

TEST(Validate, EmptyJobIsToldAllThatItLacks) {
  EXPECT_EQ(Errors(v1::Job()),
            "model.layers: is empty; a model needs at least a dense layer\n"
            "data: has no source; give one of mnist {}, drawn_digits {}, synthetic {}");
}

TEST(Validate, ModelIsCheckedAgainstTheData) {
  EXPECT_THAT(
      Errors({"model.layers[0]={relu{}}"}),
      HasSubstr(
          "model.layers[1].dense: its input is 1x28x28, and dense takes a vector; put flatten before it"));
  EXPECT_THAT(Errors({"model.layers[1].dense.units=7"}), HasSubstr("10 classes"));
}

TEST(Validate, AllProblemsAreToldAtOnce) {
  const std::string errors = Errors({"workers=0", "optimizer.momentum=1.5", "checkpoint.keep=0", "epochs=0",
                                     "algorithm.consistency.groups=3"});
  for (const char* line :
       {"workers: is 0; must be from 1 to 10000", "optimizer.momentum: is 1.5; must be in [0, 1)",
        "checkpoint.keep: is 0; must be at least 1", "epochs: is 0; must be from 1 to 1000000000",
        "algorithm.consistency.groups: is 3; must be 1 (synchronous) or 0 (asynchronous)"}) {
    EXPECT_THAT(errors, HasSubstr(line));
  }
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 4);
}

struct Case {
  std::vector<std::string> overrides;
  std::string error;
};

class Refuses : public ::testing::TestWithParam<Case> {};

TEST_P(Refuses, WithTheReason) { EXPECT_EQ(Errors(GetParam().overrides), GetParam().error); }

INSTANTIATE_TEST_SUITE_P(
    Ranges, Refuses,
    ::testing::Values(
        Case{{"name=a b/c"}, "name: \"a b/c\" may have letters, digits, '-', '_' and '.' only"},
        Case{{"name=.x"}, "name: \".x\" must not begin with '.'"},
        Case{{"name=" + std::string(101, 'x')}, "name: has 101 characters; at most 100"},
        Case{{"batch_size=1000001", "data={mnist{}}"}, "batch_size: is 1000001; must be from 1 to 1000000"},
        Case{{"batch_size=300", "data.drawn_digits.train_samples=100"},
             "batch_size: is 300; must not be above data.drawn_digits.train_samples, 100"},
        Case{{"data.drawn_digits.test_samples=0"},
             "data.drawn_digits.test_samples: is 0; must be at least 1"},
        Case{{"samples=0"}, "samples: is 0; must be at least 1"},
        Case{{"updates=0"}, "updates: is 0; must be at least 1"},
        Case{{"updates=18446744073709551615"},
             "updates: is 18446744073709551615; with this batch_size and these workers that is more samples "
             "than can "
             "be counted"},
        Case{{"workers=10001"}, "workers: is 10001; must be from 1 to 10000"},
        Case{{"block_kib=0"}, "block_kib: is 0; must be from 1 to 65536"},
        Case{{"algorithm.contribution.gradient.push_period=0", "algorithm.consistency.groups=0",
              "algorithm.contribution.gradient.fetch_period=1"},
             "algorithm.contribution.gradient.push_period: is 0; must be at least 1"},
        Case{{"algorithm.contribution.elastic.communication_period=0"},
             "algorithm.contribution.elastic.communication_period: is 0; must be at least 1"},
        Case{{"algorithm.contribution.elastic.moving_rate=0"},
             "algorithm.contribution.elastic.moving_rate: is 0; must be in (0, 1]"},
        Case{{"algorithm.contribution.elastic.moving_rate=1.5"},
             "algorithm.contribution.elastic.moving_rate: is 1.5; must be in (0, 1]"},
        Case{{"optimizer.learning_rate=0"}, "optimizer.learning_rate: is 0; must be a number above 0"},
        Case{{"optimizer.learning_rate=inf"}, "optimizer.learning_rate: is inf; must be a number above 0"},
        Case{{"optimizer.learning_rate=nan"}, "optimizer.learning_rate: is nan; must be a number above 0"},
        Case{{"optimizer.momentum=1"}, "optimizer.momentum: is 1; must be in [0, 1)"},
        Case{{"optimizer.momentum=nan"}, "optimizer.momentum: is nan; must be in [0, 1)"},
        Case{{"optimizer.kind=ADAM", "optimizer.beta1=1"}, "optimizer.beta1: is 1; must be in [0, 1)"},
        Case{{"optimizer.kind=ADAM", "optimizer.beta2=-1"}, "optimizer.beta2: is -1; must be in [0, 1)"},
        Case{{"optimizer.kind=ADAM", "optimizer.epsilon=0"},
             "optimizer.epsilon: is 0; must be a number above 0"},
        Case{{"optimizer.kind=RMSPROP", "optimizer.rho=1"}, "optimizer.rho: is 1; must be in [0, 1)"},
        Case{{"optimizer.kind=RMSPROP", "optimizer.momentum=1"},
             "optimizer.momentum: is 1; must be in [0, 1)"},
        Case{{"optimizer.kind=ADADELTA", "optimizer.epsilon=-1"},
             "optimizer.epsilon: is -1; must be a number above 0"},
        Case{{"optimizer.weight_decay=-1"}, "optimizer.weight_decay: is -1; must be a number, 0 or above"},
        Case{{"optimizer.weight_decay=inf"}, "optimizer.weight_decay: is inf; must be a number, 0 or above"},
        Case{{"optimizer.weight_decay=nan"}, "optimizer.weight_decay: is nan; must be a number, 0 or above"},
        Case{{"optimizer.clip_value=0"}, "optimizer.clip_value: is 0; must be a number above 0"},
        Case{{"optimizer.clip_value=inf"}, "optimizer.clip_value: is inf; must be a number above 0"},
        Case{{"optimizer.schedule.warmup=1"}, "optimizer.schedule.warmup: is 1; must be in [0, 1)"},
        Case{{"optimizer.schedule.final_fraction=nan"},
             "optimizer.schedule.final_fraction: is nan; must be from 0 to 1"},
        Case{{"evaluation.every_epochs=0"}, "evaluation.every_epochs: is 0; must be a number above 0"},
        Case{{"faults.worker_lease_seconds=0"},
             "faults.worker_lease_seconds: is 0; must be a number above 0"},
        Case{{"faults.non_finite_limit=0"}, "faults.non_finite_limit: is 0; must be at least 1"},
        Case{{"faults.connect_timeout_seconds=-1"},
             "faults.connect_timeout_seconds: is -1; must be a number above 0"}));

INSTANTIATE_TEST_SUITE_P(
    Combinations, Refuses,
    ::testing::Values(
        Case{{"algorithm.preset=easgd", "optimizer.kind=ADAM"},
             "optimizer.kind: is ADAM; must be SGD with contribution elastic: it moves each worker's own "
             "weights, and "
             "an exchange pulls these away from what its running averages describe; for ADAM use preset sync "
             "or "
             "downpour"},
        Case{{"algorithm.preset=easgd", "optimizer.momentum=0.5", "optimizer.nesterov=false"},
             "optimizer.momentum: is 0.5 without nesterov; with contribution elastic momentum is Nesterov's "
             "(EAMSGD): "
             "set nesterov to true, or momentum to 0 (EASGD)"},
        Case{{"optimizer.kind=ADAGRAD", "optimizer.momentum=0.5"},
             "optimizer.momentum: is of SGD and RMSPROP; ADAGRAD has none, leave it out or set "
             "optimizer.kind to SGD "
             "or RMSPROP"},
        Case{{"optimizer.kind=ADAM", "optimizer.nesterov=true"},
             "optimizer.nesterov: is of SGD; ADAM has none, leave it out or set optimizer.kind to SGD"},
        Case{{"optimizer.nesterov=true", "optimizer.momentum=0"},
             "optimizer.nesterov: is true and momentum is 0; Nesterov's step looks ahead along the momentum: "
             "set "
             "momentum above 0, or leave nesterov out"},
        Case{{"optimizer.beta1=0.9"},
             "optimizer.beta1: is of ADAM and ADAMW; SGD has none, leave it out or set optimizer.kind to "
             "ADAM or "
             "ADAMW"},
        Case{{"optimizer.kind=ADAGRAD", "optimizer.beta2=0.9"},
             "optimizer.beta2: is of ADAM and ADAMW; ADAGRAD has none, leave it out or set optimizer.kind to "
             "ADAM or "
             "ADAMW"},
        Case{{"optimizer.epsilon=0.1"},
             "optimizer.epsilon: is of ADAGRAD, RMSPROP, ADADELTA, ADAM and ADAMW; SGD has none, leave it "
             "out or "
             "set optimizer.kind to ADAGRAD, RMSPROP, ADADELTA, ADAM or ADAMW"},
        Case{
            {"optimizer.kind=ADAM", "optimizer.rho=0.9"},
            "optimizer.rho: is of RMSPROP and ADADELTA; ADAM has none, leave it out or set optimizer.kind to "
            "RMSPROP or ADADELTA"},
        Case{{"optimizer.kind=RMSPROP", "optimizer.nesterov=true"},
             "optimizer.nesterov: is of SGD; RMSPROP has none, leave it out or set optimizer.kind to SGD"},
        Case{{"optimizer.kind=ADAMW", "optimizer.learning_rate=0.5", "optimizer.weight_decay=2"},
             "optimizer.weight_decay: is 2; with learning_rate 0.5 one step takes all of the weights away: "
             "their "
             "product must be below 1"},
        Case{{"algorithm.preset=easgd", "optimizer.weight_decay=0.01"},
             "optimizer.weight_decay: does not belong to contribution elastic, whose workers move by plain "
             "gradients; leave it out"},
        Case{{"algorithm.preset=easgd", "optimizer.clip_value=1"},
             "optimizer.clip_value: does not belong to contribution elastic, whose workers move by plain "
             "gradients; "
             "leave it out"},
        Case{{"algorithm.contribution.gradient={push_period:2 fetch_period:4}"},
             "algorithm.contribution.gradient.fetch_period: is 4 and push_period is 2; they must be equal "
             "with "
             "consistency.groups 1: every worker of a synchronous update computes at the same version; leave "
             "it out, "
             "or set groups to 0"},
        Case{{"algorithm.contribution.gradient.local_learning_rate=0.1"},
             "algorithm.contribution.gradient.local_learning_rate: is 0.1; it needs push_period above 1: "
             "with 1 the "
             "weights are fetched after every step, and the local step is lost"},
        Case{{"algorithm.preset=downpour",
              "algorithm.contribution.gradient={push_period:2 fetch_period:1 "
              "local_learning_rate:0.1}"},
             "algorithm.contribution.gradient.local_learning_rate: is 0.1; it needs fetch_period above 1: "
             "with 1 the "
             "weights are fetched after every step, and the local step is lost"},
        Case{{"algorithm.preset=easgd_sync", "algorithm.contribution.elastic.moving_rate=0.5", "workers=4"},
             "algorithm.contribution.elastic.moving_rate: is 0.5 with 4 workers; must be at most 1 / workers "
             "with "
             "consistency.groups 1: the center would move beyond the workers' mean"},
        Case{{"compression={push:TOP_K top_k_fraction:0}"},
             "compression.top_k_fraction: is 0; must be in (0, 1]"},
        Case{{"compression={push:TOP_K top_k_fraction:1.5}"},
             "compression.top_k_fraction: is 1.5; must be in (0, 1]"},
        Case{{"compression={push:TOP_K top_k_fraction:nan}"},
             "compression.top_k_fraction: is nan; must be in (0, 1]"},
        Case{{"compression={push:FLOAT16 top_k_fraction:0.1}"},
             "compression.top_k_fraction: is of push TOP_K; leave it out, or set compression.push to TOP_K"},
        Case{{"compression.pull=TOP_K"},
             "compression.pull: is TOP_K, which is for gradients: a worker pulls all weights, not the "
             "largest; must be FLOAT32, BFLOAT16 or FLOAT16"},
        Case{{"algorithm.preset=easgd", "compression.push=BFLOAT16"},
             "compression.push: is BFLOAT16; must be FLOAT32 with contribution elastic: worker and center "
             "must move by the same difference, and rounded weights would pull the center off"},
        Case{{"algorithm.preset=easgd_sync", "compression.push=TOP_K"},
             "compression.push: is TOP_K; must be FLOAT32 with contribution elastic: worker and center "
             "must move by the same difference, and rounded weights would pull the center off"},
        Case{{"algorithm.preset=eamsgd", "compression.pull=FLOAT16"},
             "compression.pull: is FLOAT16; must be FLOAT32 with contribution elastic: worker and center "
             "must move by the same difference, and rounded weights would pull the center off"}));

TEST(Validate, SensibleCombinationsPass) {
  Filled({"algorithm.contribution.gradient={push_period:4 local_learning_rate:0.01}"});
  Filled({"algorithm.preset=downpour", "algorithm.contribution.gradient={push_period:2 fetch_period:6}"});
  Filled({"algorithm.preset=downpour", "optimizer.kind=ADAM"});
  Filled({"algorithm.preset=easgd", "optimizer.momentum=0.9"});
  Filled({"algorithm.preset=easgd_sync", "workers=10000"});
  Filled({"algorithm.preset=easgd", "algorithm.contribution.elastic.moving_rate=1", "workers=4"});
  Filled({"checkpoint.every_updates=0"});
  Filled({"compression={push:TOP_K top_k_fraction:1 pull:BFLOAT16}"});
  Filled({"algorithm.preset=downpour", "compression={push:FLOAT16 pull:FLOAT16}"});
  Filled({"algorithm.preset=easgd", "compression={push:FLOAT32 pull:FLOAT32}"});
}

// A sound synthetic job, and `overrides`.
v1::Job Synthetic(const std::vector<std::string>& overrides = {}) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "model { synthetic { parameters: 100 } } data { synthetic {} }", &job));
  const absl::Status status = ApplyOverrides(overrides, &job);
  EXPECT_TRUE(status.ok()) << status;
  return job;
}

TEST(Validate, SyntheticModelAndDataGetTheirDefaults) {
  const auto job = FillDefaultsAndValidate(Synthetic());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model().ShortDebugString(), "synthetic { parameters: 100 step_ms: 100 spread: 0 }");
  EXPECT_EQ(job->data().ShortDebugString(), "synthetic { samples: 1000000 }");
}

TEST(Validate, SyntheticModelAndDataGoTogetherOnly) {
  EXPECT_EQ(Errors(Synthetic({"data.drawn_digits={}"})),
            "model.synthetic: computes nothing from samples; it goes with data { synthetic {} } alone");
  EXPECT_EQ(Errors({"data.synthetic={}"}),
            "data.synthetic: has samples without content; it goes with model { synthetic {} } alone");
}

TEST(Validate, SyntheticModelsAreChecked) {
  EXPECT_EQ(Errors(Synthetic({"model.synthetic={}"})),
            "model.synthetic.parameters: is 0; it is required, from 1 to 2147483647");
  EXPECT_EQ(Errors(Synthetic({"model.synthetic.step_ms=-1"})),
            "model.synthetic.step_ms: is -1; must be from 0 to 600000");
  EXPECT_EQ(Errors(Synthetic({"model.synthetic.spread=nan"})),
            "model.synthetic.spread: is nan; must be from 0 to 3");
  EXPECT_EQ(Errors(Synthetic({"data.synthetic.samples=32"})),
            "batch_size: is 64; must not be above data.synthetic.samples, 32");
  EXPECT_EQ(Errors(Synthetic({"data.synthetic.samples=0", "batch_size=1"})),
            "data.synthetic.samples: is 0; must be at least 1");
}

TEST(Validate, UnknownEnumNumbersAreRefused) {
  v1::Job job = Minimal();
  job.set_device(static_cast<v1::Device>(9));
  job.mutable_optimizer()->mutable_schedule()->set_decay(static_cast<v1::Schedule::Decay>(9));
  EXPECT_EQ(Errors(job),
            "device: is 9; must be AUTO, CPU or CUDA\n"
            "optimizer.schedule.decay: is 9; must be CONSTANT or COSINE");
  job = Minimal();
  job.mutable_optimizer()->set_kind(static_cast<v1::Optimizer::Kind>(9));
  EXPECT_EQ(Errors(job), "optimizer.kind: is 9; must be SGD, ADAGRAD, ADAM, RMSPROP, ADADELTA or ADAMW");
  job = Minimal();
  job.mutable_compression()->set_push(static_cast<v1::Compression::Codec>(9));
  job.mutable_compression()->set_pull(static_cast<v1::Compression::Codec>(-1));
  EXPECT_EQ(Errors(job),
            "compression.push: is 9; must be one of FLOAT32, BFLOAT16, FLOAT16, TOP_K\n"
            "compression.pull: is -1; must be one of FLOAT32, BFLOAT16, FLOAT16, TOP_K");
}

}  // namespace
}  // namespace catchment
