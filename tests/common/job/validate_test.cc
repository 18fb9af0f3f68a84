#include "common/job/validate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_text.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/common/job/found_problems.h"

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
      bias: true
    }
  }
  loss {
    kind: SOFTMAX_CROSS_ENTROPY
    label_smoothing: 0
  }
}
data {
  drawn_digits {
    train_samples: 20000
    test_samples: 4000
    seed: 1
  }
  loader_threads: 1
}
algorithm {
  preset: "sync"
  consistency {
    synchronous {
      backup_workers: 0
    }
  }
  contribution {
    gradient {
      push_period: 1
      fetch_period: 1
      local_learning_rate: 0
      mean: false
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
  worker_scaling: NO_SCALING
}
batch_size: 64
epochs: 1
workers: 1
seed: 1
deterministic: false
checkpoint {
  every_updates: 0
  keep: 2
  every_seconds: 300
}
evaluation {
  every_epochs: 1
  patience: 0
  min_improvement: 0
  best_by: LOSS
  keep_best: false
}
faults {
  heartbeat_timeout_seconds: 10
  non_finite_limit: 10
  connect_timeout_seconds: 60
  slowest_kib_per_second: 64
  stuck_seconds: 300
  standby: 0
  hold_up_seconds: 20
}
block_kib: 1024
compression {
  push: FLOAT32
  pull: FLOAT32
}
computation {
  precision: FLOAT32
}
last_minibatch: KEEP
shared_memory: true
)");
}

v1::Optimizer::Kind KindOf(const std::string& name) {
  v1::Optimizer::Kind kind = v1::Optimizer::UNSET;
  EXPECT_TRUE(v1::Optimizer::Kind_Parse(name, &kind));
  return kind;
}

TEST(FillDefaults, ManyWorkersHaveLongerLeases) {
  EXPECT_EQ(Filled({"workers=500"}).faults().heartbeat_timeout_seconds(), 10);
  EXPECT_EQ(Filled({"workers=2000"}).faults().heartbeat_timeout_seconds(), 40);
  EXPECT_EQ(
      Filled({"workers=2000", "faults.heartbeat_timeout_seconds=3"}).faults().heartbeat_timeout_seconds(), 3);
}

TEST(FillDefaults, ImagesAreReadByTwoThreads) {
  const v1::Data data = Filled({"data.image_folder={train: \"a\" classes: 10 size: 112}",
                                "data.augmentation.random_resized_crop={}"})
                            .data();
  EXPECT_EQ(data.loader_threads(), 2);
  EXPECT_EQ(data.image_folder().resize(), 128);
  EXPECT_THAT(data.image_folder().mean(), testing::ElementsAre(0.485f, 0.456f, 0.406f));
  EXPECT_EQ(data.augmentation().random_resized_crop().min_scale(), 0.08f);
  EXPECT_EQ(data.augmentation().random_resized_crop().max_ratio(), 4.0f / 3);
  EXPECT_EQ(Filled({"data.loader_threads=3"}).data().loader_threads(), 3);
}

TEST(FillDefaults, TwiceChangesNothing) {
  for (const Preset& preset : Presets()) {
    for (const std::string kind :
         {"SGD", "ADAM", "ADAGRAD", "RMSPROP", "ADADELTA", "ADAMW", "LARS", "LAMB", "LARC"}) {
      // Each preset goes with its own kind at least.
      std::vector<std::string> overrides = {"algorithm.preset=" + preset.name, "workers=4"};
      const auto known = FillDefaultsAndValidate(Minimal(overrides));
      ASSERT_TRUE(known.ok()) << preset.name << ": " << known.status();
      overrides.push_back("optimizer.kind=" + kind);
      if (known->optimizer().kind() != KindOf(kind) && !FillDefaultsAndValidate(Minimal(overrides)).ok())
        continue;
      const v1::Job once = Filled(overrides);
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
              "updates=5", "block_kib=64", "algorithm.consistency.asynchronous={}", "name=a-b_c.1"});
  EXPECT_EQ(job.optimizer().learning_rate(), 0.5f);
  EXPECT_EQ(job.optimizer().momentum(), 0);
  EXPECT_EQ(job.optimizer().schedule().decay(), v1::Schedule::CONSTANT);
  EXPECT_EQ(job.updates(), 5);
  EXPECT_EQ(job.block_kib(), 64);
  EXPECT_TRUE(job.algorithm().consistency().has_asynchronous());
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
  const v1::Optimizer lars = Filled({"optimizer.kind=LARS"}).optimizer();
  EXPECT_EQ(lars.momentum(), 0.9f);
  EXPECT_EQ(lars.trust_coefficient(), 0.001f);
  EXPECT_EQ(lars.learning_rate(), 1);
  EXPECT_FALSE(lars.has_epsilon());
  const v1::Optimizer lamb = Filled({"optimizer.kind=LAMB"}).optimizer();
  EXPECT_EQ(lamb.beta1(), 0.9f);
  EXPECT_EQ(lamb.beta2(), 0.999f);
  EXPECT_EQ(lamb.epsilon(), 1e-6f);
  EXPECT_EQ(lamb.learning_rate(), 0.001f);
  EXPECT_FALSE(lamb.has_trust_coefficient());
}

TEST(FillDefaults, SchedulesFieldsFollowTheDecay) {
  const auto filled = [](const std::string& decay) {
    return Filled({"optimizer.schedule.decay=" + decay}).optimizer().schedule().ShortDebugString();
  };
  EXPECT_EQ(filled("CONSTANT"), "decay: CONSTANT warmup: 0");
  EXPECT_EQ(filled("COSINE"), "decay: COSINE warmup: 0 final_fraction: 0");
  EXPECT_EQ(filled("STEP"), "decay: STEP warmup: 0 step_every: 0.333333343 factor: 0.1");
  EXPECT_EQ(filled("EXPONENTIAL"), "decay: EXPONENTIAL warmup: 0 final_fraction: 0.01");
  EXPECT_EQ(filled("POLYNOMIAL"), "decay: POLYNOMIAL warmup: 0 final_fraction: 0 power: 1");
  EXPECT_EQ(filled("ONE_CYCLE"),
            "decay: ONE_CYCLE warmup: 0 final_fraction: 0 pct_start: 0.3 initial_lr_fraction: 0.04");
  EXPECT_EQ(filled("PLATEAU"),
            "decay: PLATEAU warmup: 0 final_fraction: 0 factor: 0.1 patience: 10 threshold: 0.0001");
}

TEST(FillDefaults, TheFractionIsOfTopK) {
  EXPECT_FALSE(Filled({"compression.push=BFLOAT16"}).compression().has_top_k_fraction());
  const v1::Job job = Filled({"compression.push=TOP_K"});
  EXPECT_EQ(job.compression().top_k_fraction(), 0.01f);
  EXPECT_EQ(JobText(FillDefaultsAndValidate(job).value_or(v1::Job())), JobText(job));
}

TEST(FillDefaults, ResidualDecayIsOfCodecsWithErrorFeedback) {
  for (const std::string codec : {"FLOAT32", "BFLOAT16", "FLOAT16"}) {
    EXPECT_FALSE(Filled({"compression.push=" + codec}).compression().has_residual_decay()) << codec;
  }
  for (const std::string codec : {"TOP_K", "INT8", "E2M1", "E3M0"}) {
    const v1::Compression compression = Filled({"compression.push=" + codec}).compression();
    EXPECT_TRUE(compression.has_residual_decay()) << codec;
    EXPECT_EQ(compression.residual_decay(), 1) << codec;
    EXPECT_EQ(compression.has_top_k_fraction(), codec == "TOP_K") << codec;
  }
  const v1::Job job = Filled({"compression={push:E2M1 residual_decay:0.95}"});
  EXPECT_EQ(job.compression().residual_decay(), 0.95f);
  EXPECT_EQ(JobText(FillDefaultsAndValidate(job).value_or(v1::Job())), JobText(job));
}

TEST(FillDefaults, TheLossScaleIsOfFloat16) {
  EXPECT_EQ(Filled({}).computation().ShortDebugString(), "precision: FLOAT32");
  EXPECT_EQ(Filled({"computation.precision=BFLOAT16"}).computation().ShortDebugString(),
            "precision: BFLOAT16");
  const v1::Job job = Filled({"computation.precision=FLOAT16"});
  EXPECT_EQ(job.computation().loss_scale(), 65536);
  EXPECT_EQ(job.computation().loss_scale_period(), 2000);
  EXPECT_EQ(JobText(FillDefaultsAndValidate(job).value_or(v1::Job())), JobText(job));
}

TEST(Presets, SetTheAxes) {
  struct Expected {
    const char* preset;
    bool synchronous;
    bool elastic;
    float momentum;
    bool nesterov;
  };
  for (const Expected& e :
       {Expected{"sync", true, false, 0.9f, false}, Expected{"downpour", false, false, 0.8f, false},
        Expected{"easgd", false, true, 0, false}, Expected{"easgd_sync", true, true, 0, false},
        Expected{"eamsgd", false, true, 0.9f, true}}) {
    const v1::Job job = Filled({std::string("algorithm.preset=") + e.preset, "workers=3"});
    SCOPED_TRACE(e.preset);
    EXPECT_EQ(job.algorithm().consistency().has_synchronous(), e.synchronous);
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

TEST(Presets, AsynchronousElasticWorkersKeepAMovingRate) {
  const auto rate = [](const std::string& preset, int workers) {
    return Filled({"algorithm.preset=" + preset, absl::StrCat("workers=", workers)})
        .algorithm()
        .contribution()
        .elastic()
        .moving_rate();
  };
  for (const char* preset : {"easgd", "eamsgd"}) {
    EXPECT_FLOAT_EQ(rate(preset, 2), 0.45f) << preset;
    EXPECT_FLOAT_EQ(rate(preset, 4), 0.3f) << preset;
    EXPECT_FLOAT_EQ(rate(preset, 60), 0.3f) << preset;
  }
  // All exchanges of a round are one update, which must not overshoot.
  EXPECT_FLOAT_EQ(rate("easgd_sync", 60), 0.9f / 60);
}

TEST(Presets, ManyElasticWorkersWithoutMomentumExchangeMoreOften) {
  const auto period = [](const std::string& preset, int workers, const std::string& set = "seed=1") {
    return Filled({"algorithm.preset=" + preset, absl::StrCat("workers=", workers), set})
        .algorithm()
        .contribution()
        .elastic()
        .communication_period();
  };
  EXPECT_EQ(period("easgd", 15), 4);
  EXPECT_EQ(period("easgd", 16), 2);
  EXPECT_EQ(period("easgd", 60, "algorithm.contribution.elastic.communication_period=8"), 8);
  EXPECT_EQ(period("eamsgd", 60), 4);
  EXPECT_EQ(period("easgd", 60, "optimizer.momentum=0.9"), 4);
  EXPECT_EQ(period("eamsgd", 60, "optimizer.momentum=0"), 2);
  EXPECT_EQ(period("easgd_sync", 60), 4);
}

TEST(Presets, BlendOnlyWithOverlap) {
  const auto blend = [](const std::string& preset, const std::string& set) {
    return Filled({"algorithm.preset=" + preset, set}).algorithm().contribution().pseudo_gradient().blend();
  };
  const std::string fields = "algorithm.contribution.pseudo_gradient.";
  for (const char* preset : {"streaming_diloco", "decoupled_diloco"}) {
    EXPECT_EQ(blend(preset, fields + "overlap_steps=1"), 0.5f) << preset;
    EXPECT_EQ(blend(preset, fields + "overlap_steps=0"), 0) << preset;
    EXPECT_EQ(blend(preset, fields + "blend=0.25"), 0.25f) << preset;
  }
}

TEST(Presets, ManyAsynchronousDilocoWorkersHaveShortRounds) {
  const auto filled = [](const std::string& preset, int workers, const std::string& set = "seed=1") {
    const v1::Job job = Filled({"algorithm.preset=" + preset, absl::StrCat("workers=", workers), set});
    return std::make_tuple(job.algorithm().contribution().pseudo_gradient().local_steps(),
                           job.optimizer().momentum(), job.optimizer().learning_rate());
  };
  EXPECT_EQ(filled("diloco_async", 8), std::make_tuple(16u, 0.5f, 0.7f));
  EXPECT_EQ(filled("diloco_async", 9), std::make_tuple(8u, 0.1f, 0.9f));
  EXPECT_EQ(filled("diloco_async", 60, "algorithm.contribution.pseudo_gradient.local_steps=50"),
            std::make_tuple(50u, 0.1f, 0.9f));
  EXPECT_EQ(filled("diloco_async", 60, "optimizer.momentum=0.5"), std::make_tuple(8u, 0.5f, 0.5f));
  EXPECT_EQ(filled("diloco_async", 60, "optimizer.learning_rate=0.7"), std::make_tuple(8u, 0.5f, 0.7f));
  EXPECT_EQ(filled("diloco", 60), std::make_tuple(16u, 0.9f, 0.7f));
}

TEST(Presets, SayWhoWaits) {
  const auto consistency = [](const std::string& preset) {
    return Filled({"algorithm.preset=" + preset, "workers=4"}).algorithm().consistency().ShortDebugString();
  };
  EXPECT_EQ(consistency("sync_backup"), "synchronous { backup_workers: 1 }");
  EXPECT_EQ(consistency("hybrid"), "grouped { groups: 2 backup_workers: 0 }");
  EXPECT_EQ(consistency("softsync"), "n_softsync { n: 1 }");
  EXPECT_EQ(consistency("fedbuff"), "n_softsync { size: 10 }");
  EXPECT_EQ(consistency("decoupled_diloco"), "quorum { minimum: 1 grace: 0.5 longest_grace_seconds: 10 }");
  EXPECT_EQ(consistency("ssp"), "bounded_staleness { bound: 3 }");
}

TEST(Presets, AnotherKindOfConsistencyTakesNothingFromThePreset) {
  EXPECT_EQ(Filled({"algorithm.preset=sync_backup", "algorithm.consistency.grouped={}", "workers=2"})
                .algorithm()
                .consistency()
                .ShortDebugString(),
            "grouped { groups: 2 backup_workers: 0 }");
}

TEST(FillDefaults, EachConsistencyHasItsOwn) {
  const auto filled = [](const std::string& consistency) {
    v1::Job job = Filled({"algorithm.consistency=" + consistency, "workers=2"});
    return job.algorithm().consistency().ShortDebugString();
  };
  EXPECT_EQ(filled("{asynchronous:{}}"), "asynchronous { emulated_delay: 0 }");
  EXPECT_EQ(filled("{n_softsync:{}}"), "n_softsync { n: 1 }");
  EXPECT_EQ(filled("{n_softsync:{size:7}}"), "n_softsync { size: 7 }");
  EXPECT_EQ(filled("{bounded_staleness:{}}"), "bounded_staleness { bound: 3 }");
}

TEST(FillDefaults, WorkerScalingIsOfTheServersOptimizer) {
  EXPECT_TRUE(Filled({"algorithm.preset=downpour"}).optimizer().has_worker_scaling());
  EXPECT_FALSE(Filled({"algorithm.preset=easgd"}).optimizer().has_worker_scaling());
}

TEST(Presets, WhatOtherWorkersSend) {
  const v1::Job dana = Filled({"algorithm.preset=dana"});
  EXPECT_TRUE(dana.algorithm().consistency().has_asynchronous());
  EXPECT_EQ(dana.algorithm().contribution().look_ahead().momentum(), 0.9f);
  EXPECT_EQ(dana.optimizer().momentum(), 0);
  const v1::Job gem = Filled({"algorithm.preset=gem"});
  EXPECT_TRUE(gem.algorithm().consistency().has_asynchronous());
  EXPECT_EQ(gem.algorithm().contribution().energy_matching().momentum(), 0.9f);
  EXPECT_EQ(gem.algorithm().contribution().energy_matching().energy(), 1);
  EXPECT_EQ(gem.optimizer().learning_rate(), 1);
  const v1::Job local_sgd = Filled({"algorithm.preset=local_sgd"});
  EXPECT_TRUE(local_sgd.algorithm().consistency().has_synchronous());
  EXPECT_EQ(local_sgd.algorithm().contribution().pseudo_gradient().local_steps(), 16);
  EXPECT_EQ(local_sgd.algorithm().contribution().pseudo_gradient().local_optimizer().kind(),
            v1::Optimizer::SGD);
  EXPECT_EQ(local_sgd.optimizer().learning_rate(), 1);
  EXPECT_EQ(local_sgd.optimizer().momentum(), 0);
  EXPECT_EQ(local_sgd.optimizer().schedule().decay(), v1::Schedule::CONSTANT)
      << "the center is the workers' mean";
  const v1::Job diloco = Filled({"algorithm.preset=diloco"});
  EXPECT_TRUE(diloco.algorithm().consistency().has_synchronous());
  EXPECT_EQ(diloco.algorithm().contribution().pseudo_gradient().local_optimizer().kind(),
            v1::Optimizer::ADAMW);
  EXPECT_EQ(diloco.optimizer().learning_rate(), 0.7f);
  EXPECT_EQ(diloco.optimizer().momentum(), 0.9f);
  EXPECT_TRUE(diloco.optimizer().nesterov());
  EXPECT_EQ(diloco.optimizer().schedule().decay(), v1::Schedule::CONSTANT);
}

TEST(Presets, LocalOptimizerIsFilledLikeTheServers) {
  const std::string path = "algorithm.contribution.pseudo_gradient.local_optimizer";
  const auto local = [](const std::vector<std::string>& overrides) {
    return Filled(overrides).algorithm().contribution().pseudo_gradient().local_optimizer();
  };
  const v1::Optimizer diloco = local({"algorithm.preset=diloco", path + ".weight_decay=0.1"});
  EXPECT_EQ(diloco.learning_rate(), 0.002f);
  EXPECT_EQ(diloco.weight_decay(), 0.1f);
  EXPECT_EQ(diloco.beta2(), 0.999f);
  EXPECT_EQ(diloco.schedule().decay(), v1::Schedule::COSINE);
  const v1::Optimizer other = local({"algorithm.preset=diloco", path + ".kind=ADAGRAD"});
  EXPECT_EQ(other.learning_rate(), 0.01f) << "PyTorch's, and not the preset's for ADAMW";
  EXPECT_EQ(other.epsilon(), 1e-10f);
  EXPECT_FALSE(other.has_weight_decay());
  const v1::Job sync = Filled({"algorithm.preset=sync", "algorithm.contribution.pseudo_gradient={}"});
  EXPECT_EQ(sync.optimizer().learning_rate(), 1) << "local_sgd's";
  EXPECT_EQ(sync.algorithm().contribution().pseudo_gradient().local_optimizer().kind(), v1::Optimizer::SGD);
}

TEST(Presets, OnlyFillWhatIsLeftOut) {
  const v1::Job job =
      Filled({"algorithm.preset=eamsgd", "algorithm.consistency.synchronous={}", "optimizer.momentum=0.5",
              "algorithm.contribution.elastic.communication_period=16"});
  EXPECT_TRUE(job.algorithm().consistency().has_synchronous());
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
  EXPECT_EQ(job.optimizer().learning_rate(), FindPreset("easgd_sync")->optimizer.learning_rate());
}

TEST(Presets, UnknownOneListsTheKnownOnesAndTheRestIsStillChecked) {
  EXPECT_EQ(Errors({"algorithm.preset=downpor", "batch_size=0"}),
            "algorithm.preset: no preset \"downpor\"; did you mean downpour? there are " + ListPresets() +
                "\nbatch_size: is 0; must be from 1 to 1000000");
}

TEST(Presets, NamesOfOtherSystemsLeadToTheirAlgorithm) {
  for (const auto& [name, preset] : std::vector<std::pair<std::string, std::string>>{{"async", "downpour"},
                                                                                     {"ASGD", "downpour"},
                                                                                     {"Hogwild!", "downpour"},
                                                                                     {"DDP", "sync"},
                                                                                     {"all-reduce", "sync"},
                                                                                     {"bsp", "sync"},
                                                                                     {"FedAvg", "local_sgd"},
                                                                                     {"Sync", "sync"}}) {
    EXPECT_EQ(Errors({"algorithm.preset=" + name}), "algorithm.preset: no preset \"" + name +
                                                        "\"; did you mean " + preset + "? there are " +
                                                        ListPresets());
  }
}

TEST(Validate, EmptyJobLacksAModelAndData) {
  EXPECT_EQ(Errors(v1::Job()),
            "model.layers: is empty; a model needs at least a dense layer\n"
            "data: has no source; give one of mnist {}, cifar10 {}, drawn_digits {}, generated_events {}, "
            "generated_images {}, table {}, image_folder {}, synthetic {}, external {}");
}

TEST(Validate, ModelIsNotCheckedAgainstDataThatTheJobLacks) {
  EXPECT_EQ(FoundProblems(Minimal({"model.layers[1].dense.units=7", "data={}"})), "data missing");
}

TEST(Validate, ModelIsCheckedAgainstTheData) {
  EXPECT_THAT(
      Errors({"model.layers[0]={relu{}}"}),
      HasSubstr(
          "model.layers[1].dense: its input is 1x28x28, but dense needs a vector; put flatten before it"));
  EXPECT_THAT(Errors({"model.layers[1].dense.units=7"}), HasSubstr("10 classes"));
}

TEST(Validate, AllProblemsAreReportedAtOnce) {
  const std::string errors = Errors({"workers=0", "optimizer.momentum=1.5", "checkpoint.keep=0", "epochs=0",
                                     "algorithm.consistency.grouped.groups=3"});
  for (const char* line :
       {"workers: is 0; must be from 1 to 10000", "optimizer.momentum: is 1.5; must be in [0, 1)",
        "checkpoint.keep: is 0; must be at least 1", "epochs: is 0; must be from 1 to 1000000000",
        "algorithm.consistency.grouped.groups: is 3, and workers is 1; every group needs a worker: lower it, "
        "raise workers, or set algorithm.consistency to synchronous {}"}) {
    EXPECT_THAT(errors, HasSubstr(line));
  }
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 4);
}

struct Case {
  std::vector<std::string> overrides;
  std::string problems;
};

class Refuses : public ::testing::TestWithParam<Case> {};

TEST_P(Refuses, WithTheReason) {
  EXPECT_EQ(FoundProblems(Minimal(GetParam().overrides)), GetParam().problems);
}

INSTANTIATE_TEST_SUITE_P(
    Ranges, Refuses,
    ::testing::Values(
        Case{{"name=a b/c"}, "name range"}, Case{{"name=.x"}, "name range"},
        Case{{"name=" + std::string(101, 'x')}, "name range"},
        Case{{"batch_size=1000001", "data={mnist{}}"}, "batch_size range, batch_size range"},
        Case{{"batch_size=500001", "last_minibatch=MERGE", "data.drawn_digits.train_samples=600000"},
             "last_minibatch range"},
        Case{{"batch_size=60001", "data={mnist{}}"}, "batch_size range"},
        Case{{"batch_size=64", "algorithm.preset=diloco",
              "algorithm.contribution.pseudo_gradient.local_steps=33554432"},
             "batch_size range"},
        Case{{"batch_size=64", "algorithm.preset=diloco",
              "algorithm.contribution.pseudo_gradient.local_steps=33554431"},
             ""},
        Case{{"data.generated_events={test_samples: 0}", "model.layers[1].dense.units=3"},
             "data.generated_events.test_samples range"},
        Case{{"data.generated_images={size: 4 classes: 10}"}, "data.generated_images.classes range"},
        Case{{"data.generated_images={size: 5000 classes: 10}"}, "data.generated_images.size range"},
        Case{{"data.image_folder={train: \"a\" classes: 1}", "model.layers[1].dense.units=1"},
             "data.image_folder.classes range"},
        Case{{"data.image_folder={classes: 10}"}, "data.image_folder.train missing"},
        Case{{"data.image_folder={train: \"a\" classes: 10 size: 32 resize: 31}"},
             "data.image_folder.resize range"},
        Case{{"data.image_folder={train: \"a\" classes: 10 mean: [0, 0] deviation: [1, 0, 1]}"},
             "data.image_folder.mean range, data.image_folder.deviation range"},
        Case{{"data.image_folder={train: \"a\" classes: 10}",
              "data.augmentation.random_resized_crop={min_scale: 0.9 max_scale: 0.5 max_ratio: 0.5}"},
             "data.augmentation.random_resized_crop.max_scale range, "
             "data.augmentation.random_resized_crop.max_ratio range"},
        Case{{"data.augmentation.random_resized_crop={}"}, "data.augmentation.random_resized_crop needs"},
        Case{{"data.loader_threads=0"}, "data.loader_threads range"},
        Case{{"data.loader_threads=257"}, "data.loader_threads range"},
        Case{{"data.augmentation={crop_padding: 28}"}, "data.augmentation.crop_padding range"},
        Case{{"data.generated_events={}", "data.augmentation={flip: true}", "model.layers[1].dense.units=3"},
             "data.augmentation unused"},
        Case{{"model.loss={label_smoothing: 1}"}, "model.loss.label_smoothing model"},
        Case{{"model.loss={kind: MEAN_SQUARED_ERROR label_smoothing: 0.1}"},
             "model.loss.label_smoothing model"},
        Case{{"batch_size=300", "data.drawn_digits.train_samples=100"}, "batch_size range"},
        Case{{"data.drawn_digits.test_samples=0"}, "data.drawn_digits.test_samples range"},
        Case{{"samples=0"}, "samples range"}, Case{{"updates=0"}, "updates range"},
        Case{{"updates=18446744073709551615"}, "updates range"}, Case{{"workers=10001"}, "workers range"},
        Case{{"block_kib=0"}, "block_kib range"},
        Case{{"algorithm.contribution.gradient.push_period=0", "algorithm.consistency.asynchronous={}",
              "algorithm.contribution.gradient.fetch_period=1"},
             "algorithm.contribution.gradient.push_period range"},
        Case{{"algorithm.contribution.elastic.communication_period=0"},
             "algorithm.contribution.elastic.communication_period range"},
        Case{{"algorithm.contribution.elastic.moving_rate=0"},
             "algorithm.contribution.elastic.moving_rate range"},
        Case{{"algorithm.contribution.elastic.moving_rate=1.5"},
             "algorithm.contribution.elastic.moving_rate range"},
        Case{{"optimizer.learning_rate=0"}, "optimizer.learning_rate range"},
        Case{{"optimizer.learning_rate=inf"}, "optimizer.learning_rate range"},
        Case{{"optimizer.learning_rate=nan"}, "optimizer.learning_rate range"},
        Case{{"optimizer.momentum=1"}, "optimizer.momentum range"},
        Case{{"optimizer.momentum=nan"}, "optimizer.momentum range"},
        Case{{"optimizer.kind=ADAM", "optimizer.beta1=1"}, "optimizer.beta1 range"},
        Case{{"optimizer.kind=ADAM", "optimizer.beta2=-1"}, "optimizer.beta2 range"},
        Case{{"optimizer.kind=ADAM", "optimizer.epsilon=0"}, "optimizer.epsilon range"},
        Case{{"optimizer.kind=RMSPROP", "optimizer.rho=1"}, "optimizer.rho range"},
        Case{{"optimizer.kind=RMSPROP", "optimizer.momentum=1"}, "optimizer.momentum range"},
        Case{{"optimizer.kind=ADADELTA", "optimizer.epsilon=-1"}, "optimizer.epsilon range"},
        Case{{"optimizer.weight_decay=-1"}, "optimizer.weight_decay range"},
        Case{{"optimizer.weight_decay=inf"}, "optimizer.weight_decay range"},
        Case{{"optimizer.weight_decay=nan"}, "optimizer.weight_decay range"},
        Case{{"optimizer.clip_value=0"}, "optimizer.clip_value range"},
        Case{{"optimizer.clip_value=inf"}, "optimizer.clip_value range"},
        Case{{"optimizer.schedule.warmup=1"}, "optimizer.schedule.warmup range"},
        Case{{"optimizer.schedule.final_fraction=nan"}, "optimizer.schedule.final_fraction range"},
        Case{{"optimizer.schedule={decay:EXPONENTIAL final_fraction:0}"},
             "optimizer.schedule.final_fraction range"},
        Case{{"optimizer.schedule={decay:STEP step_every:0}"}, "optimizer.schedule.step_every range"},
        Case{{"optimizer.schedule={decay:STEP step_every:1.5}"}, "optimizer.schedule.step_every range"},
        Case{{"optimizer.schedule={decay:STEP factor:nan}"}, "optimizer.schedule.factor range"},
        Case{{"optimizer.schedule={decay:POLYNOMIAL power:0}"}, "optimizer.schedule.power range"},
        Case{{"optimizer.schedule={decay:ONE_CYCLE pct_start:1}"}, "optimizer.schedule.pct_start range"},
        Case{{"optimizer.schedule={decay:ONE_CYCLE initial_lr_fraction:-1}"},
             "optimizer.schedule.initial_lr_fraction range"},
        Case{{"optimizer.schedule={decay:ONE_CYCLE min_momentum:0.95}", "optimizer.momentum=0.9"},
             "optimizer.schedule.min_momentum range"},
        Case{{"optimizer.kind=ADAM", "optimizer.schedule={decay:ONE_CYCLE min_momentum:-0.1}"},
             "optimizer.schedule.min_momentum range"},
        Case{{"optimizer.kind=ADAGRAD", "optimizer.schedule={decay:ONE_CYCLE min_momentum:0.5}"},
             "optimizer.schedule.min_momentum needs"},
        Case{{"algorithm.preset=staleness_aware", "optimizer.schedule={decay:ONE_CYCLE min_momentum:0.5}"},
             "optimizer.schedule.min_momentum conflict"},
        Case{{"optimizer.schedule={decay:PLATEAU factor:1.5 threshold:1 final_fraction:2}"},
             "optimizer.schedule.final_fraction range, optimizer.schedule.factor "
             "range, optimizer.schedule.threshold range"},
        Case{{"optimizer.kind=LARS", "optimizer.trust_coefficient=0"}, "optimizer.trust_coefficient range"},
        Case{{"optimizer.kind=LARS", "optimizer.momentum=1"}, "optimizer.momentum range"},
        Case{{"optimizer.kind=LAMB", "optimizer.beta2=1"}, "optimizer.beta2 range"},
        Case{{"evaluation.every_epochs=0"}, "evaluation.every_epochs range"},
        Case{{"evaluation.every_epochs=1e-30"}, "evaluation.every_epochs range"},
        Case{{"faults.heartbeat_timeout_seconds=0"}, "faults.heartbeat_timeout_seconds range"},
        Case{{"faults.non_finite_limit=0"}, "faults.non_finite_limit range"},
        Case{{"faults.connect_timeout_seconds=-1"}, "faults.connect_timeout_seconds range"},
        Case{{"faults.stuck_seconds=-1"}, "faults.stuck_seconds range"},
        Case{{"faults.hold_up_seconds=-1"}, "faults.hold_up_seconds range"}));

INSTANTIATE_TEST_SUITE_P(
    Consistency, Refuses,
    ::testing::Values(
        Case{{"algorithm.consistency.grouped.groups=3", "workers=2"},
             "algorithm.consistency.grouped.groups range"},
        Case{{"algorithm.consistency.grouped.groups=1"}, "algorithm.consistency.grouped.groups range"},
        Case{{"algorithm.consistency.grouped.groups=0"}, "algorithm.consistency.grouped.groups range"},
        Case{{"algorithm.consistency.grouped={groups:2 backup_workers:2}", "workers=5"},
             "algorithm.consistency.grouped.backup_workers range"},
        Case{{"algorithm.preset=sync_backup", "workers=1"},
             "algorithm.consistency.synchronous.backup_workers range"},
        Case{{"algorithm.preset=fedbuff", "algorithm.consistency.n_softsync.size=0"},
             "algorithm.consistency.n_softsync.size range"},
        Case{{"algorithm.consistency.n_softsync.n=0"}, "algorithm.consistency.n_softsync.n range"},
        Case{{"algorithm.consistency.n_softsync.n=5", "workers=4"},
             "algorithm.consistency.n_softsync.n range"},
        Case{{"algorithm.preset=diloco", "algorithm.consistency.quorum.minimum=5", "workers=4"},
             "algorithm.consistency.quorum.minimum range"},
        Case{{"algorithm.preset=diloco", "algorithm.consistency.quorum.grace=1",
              "algorithm.contribution.pseudo_gradient.overlap_steps=2"},
             "algorithm.consistency.quorum.grace range"},
        Case{{"algorithm.preset=diloco", "algorithm.consistency.quorum.longest_grace_seconds=0"},
             "algorithm.consistency.quorum.longest_grace_seconds range"},
        Case{{"algorithm.preset=diloco", "algorithm.consistency.quorum.grace=0.5"},
             "algorithm.consistency.quorum.grace needs"},
        Case{{"algorithm.preset=easgd", "algorithm.consistency.quorum={}"},
             "algorithm.consistency.quorum conflict"},
        Case{{"algorithm.preset=diloco", "algorithm.consistency.quorum={}", "deterministic=true"},
             "algorithm.consistency.quorum conflict"},
        Case{
            {"algorithm.preset=diloco", "algorithm.consistency.quorum={}", "algorithm.compensation.power={}"},
            "algorithm.compensation.power unused"},
        Case{{"algorithm.preset=diloco", "algorithm.consistency.quorum={}",
              "algorithm.compensation.delay_adaptive={}"},
             "algorithm.compensation.delay_adaptive unused"},
        Case{{"algorithm.preset=diloco", "algorithm.consistency.quorum={}",
              "algorithm.contribution.pseudo_gradient.steps_by_speed=true"},
             "algorithm.contribution.pseudo_gradient.steps_by_speed needs"},
        Case{{"algorithm.preset=downpour", "algorithm.consistency.asynchronous.emulated_delay=10001"},
             "algorithm.consistency.asynchronous.emulated_delay range"},
        Case{{"algorithm.preset=downpour", "algorithm.consistency.asynchronous.staleness_limit=0"},
             "algorithm.consistency.asynchronous.staleness_limit range"},
        Case{{"algorithm.preset=downpour",
              "algorithm.consistency.asynchronous={emulated_delay:2 staleness_limit:3}"},
             "algorithm.consistency.asynchronous.staleness_limit conflict"},
        Case{{"algorithm.preset=downpour", "algorithm.consistency.asynchronous.staleness_limit=3",
              "algorithm.contribution.gradient={push_period:2 fetch_period:4}"},
             "algorithm.consistency.asynchronous.staleness_limit needs"},
        Case{{"algorithm.preset=easgd", "algorithm.consistency.asynchronous.staleness_limit=2"},
             "algorithm.consistency.asynchronous.staleness_limit conflict"},
        Case{{"algorithm.preset=easgd", "algorithm.consistency.n_softsync.n=1"},
             "algorithm.consistency.n_softsync conflict"},
        Case{{"algorithm.preset=easgd", "algorithm.consistency.asynchronous.emulated_delay=2"},
             "algorithm.consistency.asynchronous.emulated_delay conflict"},
        Case{{"algorithm.preset=easgd_sync", "algorithm.consistency.synchronous.backup_workers=1",
              "workers=3"},
             "algorithm.consistency.synchronous.backup_workers conflict"},
        Case{{"algorithm.preset=easgd", "algorithm.consistency.grouped.backup_workers=1", "workers=4"},
             "algorithm.consistency.grouped.backup_workers conflict"},
        Case{{"algorithm.preset=easgd", "optimizer.worker_scaling=LINEAR"},
             "optimizer.worker_scaling conflict"},
        Case{{"algorithm.preset=hybrid", "workers=4",
              "algorithm.contribution.gradient={push_period:2 fetch_period:4}"},
             "algorithm.contribution.gradient.fetch_period conflict"},
        Case{{"algorithm.preset=easgd", "algorithm.consistency.grouped.groups=2", "workers=5",
              "algorithm.contribution.elastic.moving_rate=0.4"},
             "algorithm.contribution.elastic.moving_rate range"}));

INSTANTIATE_TEST_SUITE_P(
    Combinations, Refuses,
    ::testing::Values(
        Case{{"algorithm.preset=easgd", "optimizer.kind=ADAM"}, "optimizer.kind conflict"},
        Case{{"algorithm.preset=easgd", "optimizer.momentum=0.5", "optimizer.nesterov=false"},
             "optimizer.momentum conflict"},
        Case{{"optimizer.kind=ADAGRAD", "optimizer.momentum=0.5"}, "optimizer.momentum unused"},
        Case{{"optimizer.kind=ADAM", "optimizer.nesterov=true"}, "optimizer.nesterov unused"},
        Case{{"optimizer.nesterov=true", "optimizer.momentum=0"}, "optimizer.nesterov needs"},
        Case{{"optimizer.beta1=0.9"}, "optimizer.beta1 unused"},
        Case{{"optimizer.kind=ADAGRAD", "optimizer.beta2=0.9"}, "optimizer.beta2 unused"},
        Case{{"optimizer.epsilon=0.1"}, "optimizer.epsilon unused"},
        Case{{"optimizer.kind=LARS", "optimizer.epsilon=0.1"}, "optimizer.epsilon unused"},
        Case{{"optimizer.kind=LAMB", "optimizer.momentum=0.5"}, "optimizer.momentum unused"},
        Case{{"optimizer.kind=LAMB", "optimizer.trust_coefficient=0.1"},
             "optimizer.trust_coefficient unused"},
        Case{{"algorithm.preset=easgd", "optimizer.kind=LARS"}, "optimizer.kind conflict"},
        Case{{"optimizer.schedule={decay:CONSTANT final_fraction:0.1}"},
             "optimizer.schedule.final_fraction unused"},
        Case{{"optimizer.schedule={decay:STEP final_fraction:0.1}"},
             "optimizer.schedule.final_fraction unused"},
        Case{{"optimizer.schedule.step_every=0.1"}, "optimizer.schedule.step_every unused"},
        Case{{"optimizer.schedule={decay:EXPONENTIAL factor:0.1}"}, "optimizer.schedule.factor unused"},
        Case{{"optimizer.schedule={decay:STEP patience:1 threshold:0}"},
             "optimizer.schedule.patience unused, optimizer.schedule.threshold unused"},
        Case{{"optimizer.schedule={decay:PLATEAU step_every:0.1}"}, "optimizer.schedule.step_every unused"},
        Case{{"optimizer.schedule={decay:ONE_CYCLE power:2}"}, "optimizer.schedule.power unused"},
        Case{{"optimizer.schedule={decay:COSINE pct_start:0.5 initial_lr_fraction:0.1}"},
             "optimizer.schedule.pct_start unused, optimizer.schedule.initial_lr_fraction unused"},
        Case{{"optimizer.schedule={decay:COSINE min_momentum:0.5}"},
             "optimizer.schedule.min_momentum unused"},
        Case{{"optimizer.kind=ADAM", "optimizer.rho=0.9"}, "optimizer.rho unused"},
        Case{{"algorithm.contribution.gradient.mean=true"}, "algorithm.contribution.gradient.mean needs"},
        Case{{"optimizer.kind=ADAM", "optimizer.centered=true"}, "optimizer.centered unused"},
        Case{{"optimizer.kind=RMSPROP", "optimizer.nesterov=true"}, "optimizer.nesterov unused"},
        Case{{"optimizer.kind=ADAMW", "optimizer.learning_rate=0.5", "optimizer.weight_decay=2"},
             "optimizer.weight_decay conflict"},
        Case{{"algorithm.preset=easgd", "optimizer.weight_decay=0.01"}, "optimizer.weight_decay conflict"},
        Case{{"algorithm.preset=easgd", "optimizer.clip_value=1"}, "optimizer.clip_value conflict"},
        Case{{"algorithm.contribution.gradient={push_period:2 fetch_period:4}"},
             "algorithm.contribution.gradient.fetch_period conflict"},
        Case{{"algorithm.contribution.gradient.local_learning_rate=0.1"},
             "algorithm.contribution.gradient.local_learning_rate needs"},
        Case{{"algorithm.preset=downpour",
              "algorithm.contribution.gradient={push_period:2 fetch_period:1 "
              "local_learning_rate:0.1}"},
             "algorithm.contribution.gradient.local_learning_rate needs"},
        Case{{"algorithm.preset=easgd_sync", "algorithm.contribution.elastic.moving_rate=0.5", "workers=4"},
             "algorithm.contribution.elastic.moving_rate range"},
        Case{{"computation={precision:FLOAT16 loss_scale:1000}"}, "computation.loss_scale range"},
        Case{{"computation={precision:FLOAT16 loss_scale:0.5}"}, "computation.loss_scale range"},
        Case{{"computation={precision:FLOAT16 loss_scale:inf}"}, "computation.loss_scale range"},
        Case{{"computation={precision:FLOAT16 loss_scale_period:0}"}, "computation.loss_scale_period range"},
        Case{{"computation={precision:BFLOAT16 loss_scale:2}"}, "computation.loss_scale unused"},
        Case{{"computation.loss_scale_period=10"}, "computation.loss_scale_period unused"},
        Case{{"compression={push:TOP_K top_k_fraction:0}"}, "compression.top_k_fraction range"},
        Case{{"compression={push:TOP_K top_k_fraction:1.5}"}, "compression.top_k_fraction range"},
        Case{{"compression={push:TOP_K top_k_fraction:nan}"}, "compression.top_k_fraction range"},
        Case{{"compression={push:FLOAT16 top_k_fraction:0.1}"}, "compression.top_k_fraction unused"},
        Case{{"compression.pull=TOP_K"}, "compression.pull range"},
        Case{{"compression={push:E2M1 pull:E2M1}"}, "compression.pull range"},
        Case{{"compression={push:INT8 top_k_fraction:0.1}"}, "compression.top_k_fraction unused"},
        Case{{"compression={push:E3M0 residual_decay:0}"}, "compression.residual_decay range"},
        Case{{"compression={push:TOP_K residual_decay:1.5}"}, "compression.residual_decay range"},
        Case{{"compression={push:INT8 residual_decay:nan}"}, "compression.residual_decay range"},
        Case{{"compression={push:BFLOAT16 residual_decay:0.9}"}, "compression.residual_decay unused"},
        Case{{"compression.residual_decay=1"}, "compression.residual_decay unused"},
        Case{{"algorithm.preset=easgd", "compression.push=BFLOAT16"}, "compression.push conflict"},
        Case{{"algorithm.preset=easgd_sync", "compression.push=TOP_K"}, "compression.push conflict"},
        Case{{"algorithm.preset=eamsgd", "compression.pull=FLOAT16"}, "compression.pull conflict"}));

// `more`: on top of preset `preset`.
Case On(const std::string& preset, std::vector<std::string> more, const std::string& problems) {
  more.insert(more.begin(), "algorithm.preset=" + preset);
  return {std::move(more), problems};
}

constexpr char kLocal[] = "algorithm.contribution.pseudo_gradient.local_optimizer";
constexpr char kEnergy[] = "algorithm.contribution.energy_matching";

INSTANTIATE_TEST_SUITE_P(
    Contributions, Refuses,
    ::testing::Values(
        On("local_sgd", {"algorithm.contribution.pseudo_gradient.local_steps=0"},
           "algorithm.contribution.pseudo_gradient.local_steps range"),
        On("local_sgd", {absl::StrCat(kLocal, ".learning_rate=-1")},
           absl::StrCat(kLocal, ".learning_rate range")),
        On("local_sgd", {absl::StrCat(kLocal, ".schedule.warmup=2")},
           absl::StrCat(kLocal, ".schedule.warmup range")),
        On("local_sgd", {absl::StrCat(kLocal, ".kind=RMSPROP"), absl::StrCat(kLocal, ".nesterov=true")},
           absl::StrCat(kLocal, ".nesterov unused")),
        On("local_sgd", {absl::StrCat(kLocal, ".clip_norm=0")}, absl::StrCat(kLocal, ".clip_norm range")),
        On("local_sgd", {absl::StrCat(kLocal, ".worker_scaling=LINEAR")},
           absl::StrCat(kLocal, ".worker_scaling unused")),
        On("local_sgd", {absl::StrCat(kLocal, ".kind=LAMB")}, absl::StrCat(kLocal, ".kind range")),
        On("dana", {"algorithm.contribution.look_ahead.momentum=1"},
           "algorithm.contribution.look_ahead.momentum range"),
        On("dana", {"optimizer.momentum=0.5"}, "optimizer.momentum conflict"),
        On("dana", {"optimizer.kind=ADAM"}, "optimizer.kind conflict"),
        On("gem", {absl::StrCat(kEnergy, ".learning_rate=0")}, absl::StrCat(kEnergy, ".learning_rate range")),
        On("gem", {absl::StrCat(kEnergy, ".momentum=1")}, absl::StrCat(kEnergy, ".momentum range")),
        On("gem", {absl::StrCat(kEnergy, ".energy=nan")}, absl::StrCat(kEnergy, ".energy range")),
        On("gem", {"optimizer.momentum=0.5"}, "optimizer.momentum conflict"),
        On("gem", {"optimizer.learning_rate=0.5"}, "optimizer.learning_rate range"),
        On("gem", {"optimizer.weight_decay=0.1"}, "optimizer.weight_decay conflict"),
        On("gem", {"optimizer.clip_value=1"}, "optimizer.clip_value conflict"),
        On("gem", {"optimizer.clip_norm=1"}, "optimizer.clip_norm conflict"),
        On("gem", {"optimizer.worker_scaling=LINEAR"}, "optimizer.worker_scaling conflict"),
        On("gem", {"algorithm.consistency.synchronous={}"}, "algorithm.consistency.synchronous conflict"),
        On("gem", {"algorithm.compensation.inverse={}"}, "algorithm.compensation conflict"),
        On("gem", {"compression.pull=BFLOAT16"}, "compression.pull conflict"),
        On("easgd", {"optimizer.clip_norm=1"}, "optimizer.clip_norm conflict"),
        On("sync", {"optimizer.clip_norm=inf"}, "optimizer.clip_norm range"),
        On("diloco", {"updates=18446744073709551"}, "updates range")));

// The optimizer with these groups.
std::string Groups(const std::string& groups) { return absl::StrCat("optimizer={", groups, "}"); }

constexpr char kBias[] = "groups { names: '*.bias' weight_decay: 0 } ";
constexpr char kSlow[] = "groups { names: '*.bias' learning_rate_factor: 0.1 } ";

INSTANTIATE_TEST_SUITE_P(
    Groups, Refuses,
    ::testing::Values(
        Case{{Groups("groups { frozen: true }")}, "optimizer.groups[0].names missing"},
        Case{{Groups("groups { names: '*.bias' names: 'dense2.*' }")},
             "optimizer.groups[0].names[1] unknown"},
        Case{{Groups("groups { names: '*.bias' weight_decay: -1 }")},
             "optimizer.groups[0].weight_decay range"},
        Case{{Groups("groups { names: '*.bias' learning_rate_factor: 0 }")},
             "optimizer.groups[0].learning_rate_factor range"},
        Case{{Groups("groups { names: '*.bias' weight_decay: 0 frozen: true }")},
             "optimizer.groups[0].frozen conflict"},
        Case{{Groups(absl::StrCat(kBias, "groups { names: 'dense1.bias' }"))}, "optimizer.groups[1] unused"},
        Case{{Groups(absl::StrCat(kBias, "groups { names: '*' } groups { names: 'dense1.w*' }"))},
             "optimizer.groups[2] unused"},
        Case{{Groups("groups { names: '*' frozen: true }")}, "optimizer.groups conflict"},
        Case{{Groups("kind: ADAMW learning_rate: 0.5 "
                     "groups { names: '*.bias' learning_rate_factor: 10 weight_decay: 0.5 }")},
             "optimizer.groups[0] conflict"},
        On("easgd", {Groups("groups { names: '*.bias' weight_decay: 0.1 }")},
           "optimizer.groups[0].weight_decay conflict"),
        On("gem", {Groups(kSlow)}, "optimizer.groups[0].learning_rate_factor conflict"),
        On("gap_aware", {Groups(kSlow)}, "optimizer.groups[0].learning_rate_factor conflict"),
        On("downpour", {Groups(kSlow), "algorithm.compensation.closed_loop_momentum={}"},
           "optimizer.groups[0].learning_rate_factor conflict"),
        On("diloco", {absl::StrCat(kLocal, "={groups { names: '*.bias' frozen: true }}")},
           absl::StrCat(kLocal, ".groups unused"))));

TEST(Validate, EveryPresetHasGroupsWithoutDecayAndFrozenOnes) {
  for (const Preset& preset : Presets()) {
    for (const char* groups : {"groups { names: '*.bias' weight_decay: 0 } groups { names: '?*.weight' }",
                               "groups { names: 'dense[0-9].bias' frozen: true }"})
      Filled({Groups(groups), "workers=4", absl::StrCat("algorithm.preset=", preset.name)});
  }
}

TEST(Validate, SensibleCombinationsPass) {
  Filled({"algorithm.preset=diloco", "algorithm.consistency.asynchronous={}",
          "compression={push:TOP_K pull:BFLOAT16}"});
  Filled({"algorithm.preset=local_sgd", "optimizer.kind=ADAM", "optimizer.clip_norm=1",
          absl::StrCat(kLocal, ".clip_norm=1")});
  Filled({"algorithm.preset=dana", "algorithm.consistency.synchronous={}", "optimizer.clip_norm=1",
          "compression={push:BFLOAT16 pull:BFLOAT16}"});
  Filled({"algorithm.preset=gem", "compression.push=TOP_K", "optimizer.schedule.warmup=0.1"});
  Filled({"algorithm.contribution.gradient={push_period:4 local_learning_rate:0.01}"});
  Filled({"algorithm.preset=downpour", "algorithm.contribution.gradient={push_period:2 fetch_period:6}"});
  Filled({"algorithm.preset=downpour", "optimizer.kind=ADAM"});
  Filled({"algorithm.preset=easgd", "optimizer.momentum=0.9"});
  Filled({"algorithm.preset=easgd_sync", "workers=10000"});
  Filled({"algorithm.preset=easgd", "algorithm.contribution.elastic.moving_rate=1", "workers=4"});
  Filled({"algorithm.preset=easgd", "algorithm.consistency.grouped.groups=2", "workers=4"});
  Filled({"algorithm.preset=easgd", "algorithm.consistency.bounded_staleness.bound=0"});
  Filled({"algorithm.preset=hybrid", "algorithm.consistency.grouped.backup_workers=1", "workers=4"});
  Filled({"algorithm.preset=softsync", "algorithm.consistency.n_softsync.n=4", "workers=4"});
  // If the preset and the job set the number in different ways, the job's counts.
  EXPECT_EQ(Filled({"algorithm.preset=fedbuff", "algorithm.consistency.n_softsync.n=2", "workers=4"})
                .algorithm()
                .consistency()
                .ShortDebugString(),
            "n_softsync { n: 2 }");
  // Without an overlap there is nothing to be graceful with.
  EXPECT_EQ(Filled({"algorithm.preset=diloco", "algorithm.consistency.quorum.minimum=3", "workers=4"})
                .algorithm()
                .consistency()
                .ShortDebugString(),
            "quorum { minimum: 3 grace: 0 longest_grace_seconds: 10 }");
  Filled({"algorithm.preset=diloco_async", "algorithm.consistency.quorum={}",
          "algorithm.compensation.none={}", "algorithm.contribution.pseudo_gradient.steps_by_speed=false"});
  Filled({"algorithm.preset=downpour", "algorithm.consistency.asynchronous.emulated_delay=16",
          "optimizer.worker_scaling=SQUARE_ROOT"});
  Filled({"checkpoint.every_updates=0"});
  Filled({"checkpoint={every_updates:100 every_seconds:0.5}"});
  Filled({"optimizer.schedule={decay:ONE_CYCLE warmup:0.1}"});
  Filled({"optimizer.kind=LARS", "optimizer.schedule={decay:ONE_CYCLE min_momentum:0.85}"});
  Filled({"algorithm.preset=eamsgd", "optimizer.schedule={decay:ONE_CYCLE min_momentum:0}"});
  Filled({"optimizer.kind=LARS", "optimizer.weight_decay=0.1", "optimizer.clip_value=1"});
  Filled({"optimizer.kind=LARC", "optimizer.weight_decay=0.1"});
  Filled({"algorithm.preset=downpour", "optimizer.kind=LAMB"});
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

TEST(Validate, StragglersAreSlowerAndEachIsNamedOnce) {
  v1::Job job = Minimal();
  v1::Straggler* straggler = job.mutable_faults()->add_stragglers();
  straggler->set_worker(1);
  straggler->set_slowdown_factor(4);
  EXPECT_TRUE(FillDefaultsAndValidate(job).ok());
  *job.mutable_faults()->add_stragglers() = *straggler;
  EXPECT_EQ(Errors(job),
            "faults.stragglers[1].worker: is 1; must be unique; give each worker at most one straggler");
  job.mutable_faults()->mutable_stragglers()->RemoveLast();
  job.mutable_faults()->mutable_stragglers(0)->set_slowdown_factor(0.5);
  EXPECT_EQ(Errors(job), "faults.stragglers[0].slowdown_factor: is 0.5; must be from 1 to 1000");
}

TEST(Validate, SyntheticModelAndDataGetTheirDefaults) {
  const auto job = FillDefaultsAndValidate(Synthetic());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model().ShortDebugString(), "synthetic { parameters: 100 step_ms: 100 spread: 0 }");
  EXPECT_EQ(job->data().ShortDebugString(), "synthetic { samples: 1000000 }");
}

TEST(Validate, SyntheticModelAndDataGoTogetherOnly) {
  EXPECT_EQ(Errors(Synthetic({"data.drawn_digits={}"})),
            "model.synthetic: does not read samples; use it only with data { synthetic {} }");
  EXPECT_EQ(Errors({"data.synthetic={}"}),
            "data.synthetic: has samples without content; use it only with model { synthetic {} }");
}

// A sound job with a program's model, and `overrides`.
v1::Job External(const std::vector<std::string>& overrides = {}) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "model { external { tensors { name: 'a' shape: 2 shape: 3 } tensors { name: 'b' } } "
      "initial_weights: 'w.safetensors' } data { external { train_samples: 100 } }",
      &job));
  const absl::Status status = ApplyOverrides(overrides, &job);
  EXPECT_TRUE(status.ok()) << status;
  return job;
}

// PyTorch's batch normalization refuses a single sample.
TEST(Validate, ProgramsGetNoMinibatchOfOneSample) {
  const auto last = [](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {"batch_size=8", "algorithm.preset=sync"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const auto job = FillDefaultsAndValidate(External(all));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(v1::Job()).last_minibatch();
  };
  EXPECT_EQ(last({"data.external.train_samples=64"}), v1::Job::KEEP);
  EXPECT_EQ(last({"data.external.train_samples=65"}), v1::Job::DROP);
  EXPECT_EQ(last({"data.external.train_samples=66"}), v1::Job::KEEP);
  EXPECT_EQ(last({"data.external.train_samples=67", "workers=2"}), v1::Job::DROP) << "of 1 and 2 samples";
  EXPECT_EQ(last({"data.external.train_samples=68", "workers=2"}), v1::Job::KEEP);
  EXPECT_EQ(last({"data.external.train_samples=67", "workers=2", "algorithm.preset=downpour"}),
            v1::Job::KEEP);
  EXPECT_EQ(last({"data.external.train_samples=65", "last_minibatch=KEEP"}), v1::Job::KEEP);
  EXPECT_EQ(FillDefaultsAndValidate(Minimal())->last_minibatch(), v1::Job::KEEP);
}

TEST(Validate, ExternalModelsAreChecked) {
  EXPECT_TRUE(FillDefaultsAndValidate(External()).ok());
  EXPECT_EQ(Errors(External({"model.initial_weights="})),
            "model.initial_weights: is required with model.external: a safetensors file with the "
            "weights that training starts from");
  EXPECT_EQ(Errors(External({"model.external.tensors[1].name=a"})),
            "model.external.tensors[1].name: is a; must be unique; "
            "list a parameter that two modules share once");
  EXPECT_EQ(Errors(External({"model.external.tensors[1].name="})),
            "model.external.tensors[1].name: is required");
  EXPECT_EQ(Errors(External({"model.external.tensors[0]={name: 'c' shape: 2 shape: 0}"})),
            "model.external.tensors[0].shape: is 0; must be at least 1");
  EXPECT_TRUE(FillDefaultsAndValidate(
                  External({"model.external.tensors[0]={name: 'c' shape: 1048576 shape: 1048575}"}))
                  .ok());
  EXPECT_EQ(Errors(External({"model.external.tensors[0]={name: 'c' shape: 1048576 shape: 1048576}"})),
            "model.external.tensors: have more than 1099511627776 values together (2^40), which is the most");
  EXPECT_THAT(Errors(External({"model.external={}"})), HasSubstr("model.external.tensors: has none"));
  EXPECT_THAT(Errors(External({"model.synthetic={parameters: 10}"})),
              HasSubstr("model.external: is given together with synthetic"));
}

TEST(Validate, GroupsAreNotForProgramsWithTheirOwnOptimizer) {
  EXPECT_EQ(FoundProblems(External({"algorithm.preset=local_sgd", Groups("groups { names: 'a' }"),
                                    "model.external.local_steps=true"})),
            "optimizer.groups conflict");
}

TEST(Validate, ExternalModelAndDataGoTogetherOnly) {
  EXPECT_THAT(Errors(External({"data.drawn_digits={}"})),
              HasSubstr("model.external: its program also loads the samples"));
  EXPECT_EQ(Errors({"data.external={train_samples: 100}"}),
            "data.external: has samples that a program loads; use it only with model { external { ... } }");
  EXPECT_EQ(Errors(External({"data.external.train_samples=0", "batch_size=1"})),
            "data.external.train_samples: is 0; must be from 1 to 4294967295");
  EXPECT_EQ(Errors(External({"batch_size=101"})),
            "batch_size: is 101; must not be above data.external.train_samples, 100");
  EXPECT_THAT(Errors(External({"evaluation.target_accuracy=0.5"})),
              HasSubstr("the data's test_samples is 0"));
}

TEST(Validate, SyntheticModelsAreChecked) {
  EXPECT_EQ(Errors(Synthetic({"model.synthetic={}"})),
            "model.synthetic.parameters: is 0; it is required, from 1 to 1099511627776");
  EXPECT_EQ(Errors(Synthetic({"model.synthetic.step_ms=-1"})),
            "model.synthetic.step_ms: is -1; must be from 0 to 600000");
  EXPECT_EQ(Errors(Synthetic({"model.synthetic.spread=nan"})),
            "model.synthetic.spread: is nan; must be from 0 to 3");
  EXPECT_EQ(Errors(Synthetic({"data.synthetic.samples=32"})),
            "batch_size: is 64; must not be above data.synthetic.samples, 32");
  EXPECT_EQ(Errors(Synthetic({"data.synthetic.samples=0", "batch_size=1"})),
            "data.synthetic.samples: is 0; must be at least 1");
}

TEST(Validate, PlateauNeedsATestLossAndARateThatIsTheServers) {
  const std::string plateau = "optimizer.schedule.decay=PLATEAU";
  Filled({plateau});
  Filled({plateau, "algorithm.preset=downpour"});
  Filled({plateau, "algorithm.preset=local_sgd"});
  const auto errors_on = [](const std::string& preset, std::vector<std::string> more) {
    more.push_back("algorithm.preset=" + preset);
    return Errors(more);
  };
  const std::string path = "optimizer.schedule.decay: is PLATEAU";
  EXPECT_EQ(errors_on("easgd", {plateau}),
            path +
                ", which only the servers can follow; with contribution elastic the learning rate is the "
                "workers'; set it to COSINE or STEP");
  EXPECT_EQ(
      errors_on("gem", {plateau}),
      path +
          ", which only the servers can follow; with contribution energy_matching the learning rate is the "
          "workers'; set it to COSINE or STEP");
  EXPECT_EQ(errors_on("sync", {plateau, "deterministic=true"}),
            path +
                " and deterministic is true; evaluations run concurrently with training and end at different "
                "times in each run; set it to COSINE or STEP, or deterministic to false");
  EXPECT_EQ(Errors(Synthetic({plateau})),
            path +
                ", which follows the test loss, and data.synthetic has no samples "
                "for tests; set it to COSINE or STEP");
  const std::string local = "algorithm.contribution.pseudo_gradient.local_optimizer.schedule.decay";
  EXPECT_EQ(errors_on("local_sgd", {local + "=PLATEAU"}),
            local +
                ": is PLATEAU, which only the servers can follow; set it to COSINE or STEP, or "
                "optimizer.schedule.decay to PLATEAU");
}

TEST(FillDefaults, TheBestWeightsAreKeptWherePatienceIsSet) {
  EXPECT_FALSE(Filled().evaluation().keep_best());
  EXPECT_FALSE(Filled({"evaluation.target_accuracy=0.9"}).evaluation().keep_best());
  EXPECT_TRUE(Filled({"evaluation.patience=3"}).evaluation().keep_best());
  EXPECT_FALSE(Filled({"evaluation.patience=3", "evaluation.keep_best=false"}).evaluation().keep_best());
}

TEST(Validate, TargetsAndPatienceHaveRanges) {
  Filled({"evaluation.target_accuracy=1", "evaluation.target_loss=0.1", "evaluation.patience=1",
          "evaluation.min_improvement=0.01", "evaluation.best_by=ACCURACY"});
  for (const char* bad : {"0", "-0.5", "98", "nan"}) {
    EXPECT_EQ(Errors({absl::StrCat("evaluation.target_accuracy=", bad)}),
              absl::StrCat("evaluation.target_accuracy: is ", bad, "; must be in (0, 1]: 98 % are 0.98"));
  }
  for (const char* bad : {"0", "-1", "inf", "nan"}) {
    EXPECT_EQ(Errors({absl::StrCat("evaluation.target_loss=", bad)}),
              absl::StrCat("evaluation.target_loss: is ", bad, "; must be a number above 0"));
  }
  for (const char* bad : {"-0.1", "inf", "nan"}) {
    EXPECT_EQ(Errors({absl::StrCat("evaluation.min_improvement=", bad)}),
              absl::StrCat("evaluation.min_improvement: is ", bad, "; must be a number, 0 or above"));
  }
  v1::Job job = Minimal();
  job.mutable_evaluation()->set_best_by(static_cast<v1::Evaluation::Measure>(9));
  EXPECT_EQ(Errors(job), "evaluation.best_by: is 9; must be LOSS or ACCURACY");
}

TEST(Validate, WhatFollowsTheTestSetNeedsOne) {
  for (const char* field : {"target_accuracy=0.5", "target_loss=1", "patience=2", "keep_best=true"}) {
    const std::string name = std::string(field).substr(0, std::string(field).find('='));
    std::vector<std::string> set = {absl::StrCat("evaluation.", field)};
    if (name == "patience") set.push_back("evaluation.keep_best=false");
    EXPECT_EQ(Errors(Synthetic(set)),
              absl::StrCat("evaluation.", name,
                           ": follows the test set's scores, "
                           "and data.synthetic has no samples for tests; leave it out"));
  }
}

TEST(Validate, WhatEndsTrainingByAnEvaluationIsNotForDeterministicJobs) {
  for (const char* field : {"target_accuracy=0.5", "target_loss=1", "patience=2"}) {
    const std::string name = std::string(field).substr(0, std::string(field).find('='));
    EXPECT_EQ(Errors({absl::StrCat("evaluation.", field), "deterministic=true"}),
              absl::StrCat("evaluation.", name,
                           ": ends training by an evaluation, and deterministic is true; evaluations run "
                           "concurrently with training and end at different times in each run; "
                           "leave it out, or set deterministic to false"));
  }
  Filled({"evaluation.keep_best=true", "evaluation.best_by=ACCURACY", "deterministic=true"});
}

TEST(Validate, UnknownEnumNumbersAreRefused) {
  v1::Job job = Minimal();
  job.set_device(static_cast<v1::Device>(9));
  job.mutable_optimizer()->mutable_schedule()->set_decay(static_cast<v1::Schedule::Decay>(9));
  EXPECT_EQ(Errors(job),
            "device: is 9; must be AUTO, CPU or CUDA\n"
            "optimizer.schedule.decay: is 9; must be CONSTANT, COSINE, STEP, EXPONENTIAL, "
            "POLYNOMIAL, ONE_CYCLE or PLATEAU");
  job = Minimal();
  job.mutable_optimizer()->set_kind(static_cast<v1::Optimizer::Kind>(99));
  EXPECT_EQ(
      Errors(job),
      "optimizer.kind: is 99; must be SGD, ADAGRAD, ADAM, RMSPROP, ADADELTA, ADAMW, LARS, LAMB or LARC");
  job = Minimal();
  job.mutable_compression()->set_push(static_cast<v1::Compression::Codec>(9));
  job.mutable_compression()->set_pull(static_cast<v1::Compression::Codec>(-1));
  EXPECT_EQ(Errors(job),
            "compression.push: is 9; must be one of FLOAT32, BFLOAT16, FLOAT16, TOP_K, INT8, E2M1, E3M0\n"
            "compression.pull: is -1; must be one of FLOAT32, BFLOAT16, FLOAT16, TOP_K, INT8, E2M1, E3M0");
}

// A sound job on a table, and `table` in its place.
v1::Job OnTable(const std::string& table = "shape: 4 classes: 10 train: 'a.csv'",
                const std::string& more = "") {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "model { layers { flatten {} } layers { dense { units: 10 } } } data { table { " + table + " } } " +
          more,
      &job));
  return job;
}

TEST(Table, HasDefaults) {
  const auto job = FillDefaultsAndValidate(OnTable());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data().table().ShortDebugString(),
            R"(train: "a.csv" shape: 4 classes: 10 features: "features" labels: "labels")");
}

TEST(Table, SaysWhatItsFieldsMustBe) {
  const std::pair<const char*, const char*> cases[] = {
      {"shape: 4 classes: 10", "data.table.train: is empty; name at least one file"},
      {"shape: 4 classes: 10 train: ''", "data.table.train: has an empty name"},
      {"classes: 10 train: 'a.csv'", "data.table.shape: has 0 numbers; must be of 1 (values), 2"},
      {"shape: [1, 2, 3, 4] classes: 10 train: 'a.csv'", "data.table.shape: has 4 numbers"},
      {"shape: [4, 0] classes: 10 train: 'a.csv'", "each at least 1"},
      {"shape: [65536, 65536] classes: 10 train: 'a.csv'", "a sample at most 2147483648 values"},
      {"shape: 4 train: 'a.csv'", "data.table: has neither classes nor targets; set classes"},
      {"shape: 4 classes: 1 train: 'a.csv'", "data.table.classes: is 1; must be from 2 to 1000000"},
      {"shape: 4 targets: 0 train: 'a.csv'", "data.table.targets: is 0; must be from 1"},
      {"shape: 4 classes: 10 train: 'a.csv' mean: [1, 2]",
       "data.table.mean: has 2 numbers; must have 1, or 4, one for each value of data.table.shape, 4"},
      {"shape: [3, 2, 2] classes: 10 train: 'a.csv' deviation: [1, 2]",
       "must have 1, or 3, one for each channel"},
      {"shape: 4 classes: 10 train: 'a.csv' deviation: 0",
       "data.table.deviation: is 0; must be a number above 0"},
      {"shape: 4 classes: 10 train: 'a.csv' features: 'x' labels: 'x'",
       "data.table.labels: is \"x\", and so is"},
  };
  for (const auto& [table, message] : cases) EXPECT_THAT(Errors(OnTable(table)), HasSubstr(message)) << table;
}

TEST(Table, LossesGoWithTheTarget) {
  const std::string targets = "shape: 4 targets: 10 train: 'a.csv'";
  EXPECT_THAT(
      Errors(OnTable(targets)),
      HasSubstr(
          "model.loss.kind: is SOFTMAX_CROSS_ENTROPY, which needs one class per sample, but the data has 10 "
          "real targets per sample; use MEAN_SQUARED_ERROR, or SIGMOID_CROSS_ENTROPY for targets in [0, 1]"));
  for (const char* kind : {"MEAN_SQUARED_ERROR", "SIGMOID_CROSS_ENTROPY"}) {
    v1::Job job = OnTable(targets);
    ASSERT_TRUE(ApplyOverrides({std::string("model.loss.kind=") + kind}, &job).ok());
    EXPECT_TRUE(FillDefaultsAndValidate(job).ok()) << FillDefaultsAndValidate(job).status();
    job.mutable_model()->mutable_loss()->set_label_smoothing(0.1f);
    EXPECT_THAT(Errors(job),
                HasSubstr("model.loss.label_smoothing: applies to classes, but the data has real targets"));
  }
  EXPECT_THAT(Errors(OnTable("shape: 4 targets: 3 train: 'a.csv'")),
              HasSubstr("the data has 3 targets; end with dense { units: 3 }"));
}

TEST(Table, RealTargetsHaveNoAccuracy) {
  v1::Job job = OnTable("shape: 4 targets: 10 train: 'a.csv' test: 'test.csv'",
                        "evaluation { target_accuracy: 0.5 best_by: ACCURACY }");
  job.mutable_model()->mutable_loss()->set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  EXPECT_EQ(Errors(job),
            "evaluation.target_accuracy: is a fraction of the test samples, "
            "but these have no classes; set evaluation.target_loss\n"
            "evaluation.best_by: is ACCURACY, but test samples have no classes; set it to LOSS");
}

TEST(Table, PlateauNeedsATestSet) {
  EXPECT_THAT(
      Errors(OnTable("shape: 4 classes: 10 train: 'a.csv'", "optimizer { schedule { decay: PLATEAU } }")),
      HasSubstr("data.table.test names no file"));
}

}  // namespace
}  // namespace catchment
