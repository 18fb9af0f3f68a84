#include "cli/job/job_explanation.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "cli/job/commands.h"
#include "cli/job/read_job.h"
#include "common/job/job_text.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kCnn[] = "examples/mnist_cnn.textproto";

JobFacts Facts(const std::vector<std::string>& set, int servers = 1, int workers = 2) {
  const auto job = LoadCompleteJob(kCnn, set, workers);
  EXPECT_TRUE(job.ok()) << job.status();
  auto facts = JobFacts::Create(*job, servers);
  EXPECT_TRUE(facts.ok()) << facts.status();
  return *std::move(facts);
}

TEST(LoadCompleteJobTest, WorkersAreTheFlagsUnlessAnOverrideSetsThem) {
  EXPECT_EQ(LoadCompleteJob(kCnn, {}, 5)->workers(), 5u);
  EXPECT_EQ(LoadCompleteJob(kCnn, {"workers=3"}, 5)->workers(), 3u);
  EXPECT_EQ(LoadCompleteJob(kCnn, {}, 0)->workers(), 2u);
}

std::vector<std::string> Codes(const std::vector<std::string>& set, int workers) {
  std::vector<std::string> codes;
  const nlohmann::ordered_json json = JobToJson(Facts(set, 1, workers));
  for (const auto& warning : json["warnings"]) codes.push_back(warning["code"]);
  return codes;
}

constexpr char kDownpour[] = "algorithm.preset=downpour";

TEST(JobWarningsTest, NamesMomentumThatIsTooHighForTheWorkers) {
  const std::string momentum = "optimizer.momentum=0.9", rate = "optimizer.learning_rate=0.03";
  EXPECT_THAT(Codes({kDownpour, momentum, rate}, 2), IsEmpty());
  EXPECT_THAT(Codes({kDownpour, momentum, rate}, 8), ElementsAre("momentum_high"));
  EXPECT_THAT(Codes({kDownpour, momentum}, 8), IsEmpty()) << "the default of the rate is for it";
  EXPECT_THAT(Codes({kDownpour, rate, "optimizer.momentum=0"}, 8), IsEmpty());
  EXPECT_THAT(Codes({"algorithm.preset=sync"}, 60), IsEmpty());
  EXPECT_THAT(
      Codes({kDownpour, "optimizer.momentum=0.9", "algorithm.consistency.asynchronous.emulated_delay=16"}, 1),
      ElementsAre("momentum_high"));
  EXPECT_THAT(ExplainJob(Facts({kDownpour, momentum, rate}, 1, 8)),
              AllOf(HasSubstr("staleness_aware"), HasSubstr("optimizer.momentum")));
}

TEST(JobWarningsTest, NamesLearningRatesFarAboveTheBound) {
  struct Row {
    const char* preset;
    int workers;
    const char *fine, *far;  // learning rates
    double bound;
  };
  for (const Row& row : {Row{"downpour", 8, "0.09", "0.11", 0.4 / 8},
                         {"downpour", 60, "0.013", "0.014", 0.4 / 60},
                         {"staleness_aware", 8, "0.05", "0.07", 0.03},
                         {"staleness_aware", 60, "0.05", "0.07", 0.03},
                         {"dana", 60, "0.03", "0.05", 0.02}}) {
    const std::string preset = std::string("algorithm.preset=") + row.preset;
    const auto with = [&](const std::string& rate) {
      return std::vector<std::string>{
          preset,
          "optimizer.momentum=" + std::string(std::string(row.preset) == "staleness_aware" ? "0.9" : "0"),
          "optimizer.learning_rate=" + rate};
    };
    EXPECT_THAT(Codes({preset}, row.workers), IsEmpty()) << row.preset;
    EXPECT_THAT(Codes(with(row.fine), row.workers), IsEmpty()) << row.preset << row.workers;
    EXPECT_THAT(Codes(with(row.far), row.workers), ElementsAre("learning_rate_for_workers"))
        << row.preset << row.workers;
    const auto json = JobToJson(Facts(with(row.far), 1, row.workers))["warnings"][0];
    EXPECT_NEAR(json["bound"].get<double>(), row.bound, 1e-3 * row.bound) << row.preset << row.workers;
  }
  // Without its bound the preset is far above it.
  EXPECT_THAT(Codes({"algorithm.preset=staleness_aware", "algorithm.compensation.step_bound=1000"}, 32),
              ElementsAre("learning_rate_for_workers"));
  EXPECT_THAT(Codes({"algorithm.preset=dana", "algorithm.compensation.none={}"}, 32),
              ElementsAre("learning_rate_for_workers"));
}

TEST(JobWarningsTest, NamesLearningRatesThatDiverge) {
  EXPECT_THAT(Codes({"algorithm.preset=sync", "optimizer.learning_rate=1000"}, 2),
              ElementsAre("learning_rate_high"));
}

TEST(JobWarningsTest, NothingIsSaidOfAPresetAsItIs) {
  for (const Preset& preset : Presets()) {
    for (const int workers : {2, 8, 60, 1000}) {
      // The job is long enough.
      const std::vector<std::string> set = {"algorithm.preset=" + preset.name, "epochs=1000"};
      const auto job = LoadCompleteJob(kCnn, set, workers);
      if (!job.ok()) continue;
      EXPECT_THAT(Codes(set, workers), IsEmpty()) << preset.name << workers;
    }
  }
}

TEST(JobWarningsTest, NamesJobsOfFewRounds) {
  int periods = 0;
  for (const Preset& preset : Presets()) {
    const std::string name = "algorithm.preset=" + preset.name;
    const int64_t period = Facts({name}, 1, 4).period();
    // Each worker makes so many steps.
    const auto steps = [&](int64_t count) { return absl::StrCat("samples=", count * 4 * 32); };
    const auto codes = [&](int64_t count) { return Codes({name, "batch_size=32", steps(count)}, 4); };
    EXPECT_THAT(codes(10 * period), IsEmpty()) << preset.name;
    if (period == 1) {
      EXPECT_THAT(codes(2), IsEmpty()) << preset.name;
      continue;
    }
    ++periods;
    EXPECT_THAT(codes(10 * period - 1), ElementsAre("few_rounds")) << preset.name;
    const auto warning = JobToJson(Facts({name, "batch_size=32", steps(3 * period)}, 1, 4))["warnings"][0];
    EXPECT_DOUBLE_EQ(warning["measured"].get<double>(), 3) << preset.name;
    EXPECT_THAT(warning["advice"].get<std::string>(), HasSubstr("Lower algorithm.contribution."))
        << preset.name;
  }
  EXPECT_GE(periods, 6);
}

TEST(JobWarningsTest, CountsTheRoundsOfEachBudget) {
  const std::string diloco = "algorithm.preset=diloco";
  const std::string steps = "algorithm.contribution.pseudo_gradient.local_steps=500";
  EXPECT_THAT(Codes({diloco, steps, "epochs=1", "batch_size=120"}, 4), ElementsAre("few_rounds"));
  EXPECT_THAT(Codes({diloco, steps, "epochs=40", "batch_size=120"}, 4), IsEmpty());
  EXPECT_THAT(Codes({diloco, steps, "updates=9"}, 4), ElementsAre("few_rounds"));
  EXPECT_THAT(Codes({diloco, steps, "updates=10"}, 4), IsEmpty());
  EXPECT_THAT(Codes({"algorithm.preset=downpour", "algorithm.contribution.gradient.push_period=100",
                     "algorithm.contribution.gradient.fetch_period=100", "updates=20"},
                    4),
              Contains("few_rounds"));
}

TEST(JobFactsTest, CountsASynchronousBudget) {
  const JobFacts facts = Facts({"algorithm.preset=sync", "epochs=2", "batch_size=64"});
  EXPECT_EQ(facts.total_samples(), 120000);
  EXPECT_EQ(facts.total_steps(), 1875);
  EXPECT_EQ(facts.steps_per_worker(), 938);
  EXPECT_EQ(facts.updates(), 938);
}

TEST(JobFactsTest, CountsAnAsynchronousBudget) {
  const JobFacts facts = Facts({"algorithm.preset=downpour", "algorithm.contribution.gradient.push_period=5",
                                "samples=6400", "batch_size=64"});
  EXPECT_EQ(facts.total_steps(), 100);
  EXPECT_EQ(facts.updates(), 20);
}

TEST(JobFactsTest, ABudgetInUpdatesGivesTheSamples) {
  EXPECT_EQ(Facts({"algorithm.preset=sync", "updates=10", "batch_size=32"}).total_samples(), 10 * 2 * 32);
  EXPECT_EQ(Facts({"algorithm.preset=downpour", "updates=10", "batch_size=32"}).total_samples(), 10 * 32);
}

TEST(JobFactsTest, CountsTheUpdatesOfEachMode) {
  // 1,000 minibatches of five workers.
  const auto updates = [](const std::string& consistency) {
    return Facts({"algorithm.preset=downpour", "algorithm.consistency=" + consistency, "samples=64000",
                  "batch_size=64"},
                 1, 5)
        .updates();
  };
  EXPECT_EQ(updates("{grouped:{groups:2}}"), 400);
  EXPECT_EQ(updates("{synchronous:{backup_workers:2}}"), 200) << "all five take part in each";
  EXPECT_EQ(updates("{n_softsync:{n:1}}"), 200);
  EXPECT_EQ(updates("{n_softsync:{n:2}}"), 500);
  EXPECT_EQ(updates("{bounded_staleness:{bound:2}}"), 1000);
  EXPECT_EQ(Facts({"algorithm.preset=hybrid", "updates=10", "batch_size=32"}, 1, 5).total_samples(), 25 * 32);
}

TEST(JobFactsTest, CountsContributionsThatWaitOnTheServers) {
  const auto waiting = [](const std::vector<std::string>& set) {
    const ServerBytes bytes = Facts(set, 1, 5).server(0);
    return bytes.waiting / bytes.weights;
  };
  EXPECT_EQ(waiting({"algorithm.preset=sync"}), 1 + 1) << "the sum, and the answer to all";
  EXPECT_EQ(waiting({"algorithm.preset=hybrid"}), 5 + 1) << "each is scaled by its staleness";
  EXPECT_EQ(waiting({"algorithm.preset=sync", "deterministic=true"}), 5 + 1) << "each may wait for its turn";
  EXPECT_EQ(waiting({"algorithm.preset=easgd_sync"}), 5 + 5 + 1) << "each has its own answer";
  EXPECT_EQ(waiting({"algorithm.preset=softsync", "algorithm.consistency.n_softsync.n=2"}), 2);
  EXPECT_EQ(waiting({"algorithm.preset=downpour", "algorithm.consistency.asynchronous.emulated_delay=7"}), 7);
  EXPECT_EQ(waiting({"algorithm.preset=ssp"}), 0);
  EXPECT_EQ(waiting({"algorithm.preset=sync", "workers=1"}), 0);
}

TEST(JobFactsTest, CountsRoundsOfLocalSteps) {
  const std::vector<std::string> set = {"algorithm.preset=diloco", "epochs=2", "batch_size=64",
                                        "algorithm.contribution.pseudo_gradient.local_steps=10"};
  const JobFacts facts = Facts(set);
  EXPECT_EQ(facts.steps_per_worker(), 938);
  EXPECT_EQ(facts.updates(), 94);
  EXPECT_EQ(facts.wire().per_step(), 2.0 * 1199882 * 4 / 10);
}

TEST(JobFactsTest, CountsTheStateOfWorkers) {
  const auto vectors = [](const std::string& preset) {
    return Facts({"algorithm.preset=" + preset}).worker().algorithm / (1199882.0 * 4);
  };
  EXPECT_EQ(vectors("sync"), 0);
  EXPECT_EQ(vectors("easgd"), 1) << "the difference";
  EXPECT_EQ(vectors("eamsgd"), 3) << "also the momentum, and where it looks ahead to";
  EXPECT_EQ(vectors("dana"), 1) << "the momentum";
  EXPECT_EQ(vectors("gem"), 2) << "the proxy, and the weights of the last exchange";
  EXPECT_EQ(vectors("diloco"), 3) << "AdamW's two, and the weights that were pulled";
}

TEST(JobFactsTest, CountsBytesOnTheWire) {
  const int64_t all = 1199882 * 4;
  const WireBytes gradient = Facts({"algorithm.preset=sync"}).wire();
  EXPECT_EQ(gradient.per_step(), 2.0 * all);
  const WireBytes elastic =
      Facts({"algorithm.preset=easgd", "algorithm.contribution.elastic.communication_period=4"}).wire();
  EXPECT_EQ(elastic.per_step(), 2.0 * all / 4);
}

TEST(JobFactsTest, CountsBytesOfACompressedWire) {
  const WireBytes half = Facts({"algorithm.preset=downpour", "compression.push=BFLOAT16",
                                "compression.pull=FLOAT16", "algorithm.contribution.gradient.push_period=2"})
                             .wire();
  EXPECT_EQ(half.sent, 1199882 * 2);
  EXPECT_EQ(half.received, 1199882 * 2);
  EXPECT_EQ(half.per_step(), 2.0 * 1199882);
  // Four whole blocks and one of 151,306 values, each rounded separately.
  const WireBytes top_k = Facts({"compression.push=TOP_K", "compression.top_k_fraction=0.01"}).wire();
  EXPECT_EQ(top_k.sent, (4 * 2621 + 1513) * 8);
  EXPECT_EQ(top_k.received, 1199882 * 4);
}

TEST(JobFactsTest, CountsBytesOfScaledGroups) {
  // 4 * 262,144 + 151,306 values; the last block has 1183 groups of 128 and 592 of 256.
  const auto sent = [](const std::string& codec) { return Facts({"compression.push=" + codec}).wire().sent; };
  EXPECT_EQ(sent("INT8"), 1199882 + 4 * (4 * 1024 + 592));
  EXPECT_EQ(sent("E2M1"), 1199882 / 2 + 4 * (4 * 2048 + 1183));
  EXPECT_EQ(sent("E3M0"), sent("E2M1"));
}

TEST(JobFactsTest, CountsTheResidualOfErrorFeedback) {
  const auto worker = [](const std::string& codec) { return Facts({"compression.push=" + codec}).worker(); };
  for (const std::string codec : {"TOP_K", "INT8", "E2M1", "E3M0"}) {
    EXPECT_EQ(worker(codec).algorithm - worker("BFLOAT16").algorithm, 1199882 * 4) << codec;
  }
}

TEST(JobFactsTest, CountsServersMemory) {
  const ServerBytes sync =
      Facts({"algorithm.preset=sync", "optimizer.momentum=0.9"}, /*servers=*/2).server(0);
  EXPECT_NEAR(sync.weights, 1199882 * 2, 64);
  EXPECT_EQ(sync.optimizer_state, sync.weights);
  EXPECT_EQ(sync.waiting, 2 * sync.weights);
  const ServerBytes adam = Facts({"algorithm.preset=downpour", "optimizer.kind=ADAM"}).server(0);
  EXPECT_EQ(adam.optimizer_state, 2 * adam.weights);
  EXPECT_EQ(adam.waiting, 0);
  const auto states = [](const std::string& kind, const std::string& momentum) {
    const ServerBytes bytes = Facts({"optimizer.kind=" + kind, "optimizer.momentum=" + momentum}).server(0);
    return bytes.optimizer_state / bytes.weights;
  };
  EXPECT_EQ(states("RMSPROP", "0"), 1);
  EXPECT_EQ(states("RMSPROP", "0.9"), 2);
  const ServerBytes centered =
      Facts({"optimizer.kind=RMSPROP", "optimizer.momentum=0.9", "optimizer.centered=true"}).server(0);
  EXPECT_EQ(centered.optimizer_state, 3 * centered.weights);
  EXPECT_EQ(states("ADADELTA", "0"), 2);
  EXPECT_EQ(states("ADAMW", "0"), 2);
  EXPECT_EQ(states("LARS", "0"), 1);
  EXPECT_EQ(states("LARS", "0.9"), 1);
  EXPECT_EQ(states("LAMB", "0"), 2);
  EXPECT_EQ(Facts({"algorithm.preset=eamsgd"}).server(0).optimizer_state, 0) << "it is on the workers";
}

// docs/sizing.md, "Large models".
TEST(JobFactsTest, BytesOfAParameterDoNotDependOnTheSizeOfTheModel) {
  for (const int64_t parameters : {int64_t{1} << 20, int64_t{1} << 33, int64_t{70'000'000'000}}) {
    const std::string model = absl::StrCat("model={synthetic {parameters: ", parameters, "}}");
    const JobFacts facts = Facts({model, "data={synthetic {samples: 1000000}}", "algorithm.preset=diloco",
                                  "faults.standby=1", "evaluation={}"},
                                 /*servers=*/2, /*workers=*/8);
    const ServerBytes server = facts.server(1);
    EXPECT_EQ(server.parameters, parameters / 2);
    EXPECT_EQ(server.total() - server.standby, 24 * server.parameters);
    EXPECT_EQ(server.standby, 8 * server.parameters);
    EXPECT_EQ(facts.disk(), (3 * 8 + 4) * parameters);
    EXPECT_EQ(facts.memory(), (24 + 8) * parameters + 8 * facts.worker().total());
  }
}

TEST(JobFactsTest, NamesTheBytesThatAMachineLacks) {
  const std::string model = absl::StrCat("model={synthetic {parameters: ", kMaxParameters, "}}");
  const std::vector<std::string> set = {model, "data={synthetic {samples: 1000}}", "algorithm.preset=sync",
                                        "optimizer.momentum=0", "block_kib=4096"};
  EXPECT_THAT(
      DescribeShortages(Facts(set, 1, 1), "."),
      ElementsAre(
          AllOf(HasSubstr("the job needs 17.6 TB of memory, in addition to its data; "),
                HasSubstr(" are free. Use several machines")),
          AllOf(HasSubstr("the job needs 17.6 TB of disk for 3 checkpoints and the final weights in ."),
                HasSubstr(" are free. Choose another --out"))));
  EXPECT_THAT(DescribeShortages(Facts(set, 1, 1), ""), SizeIs(1));
  EXPECT_THAT(DescribeShortages(Facts({"algorithm.preset=sync"}), "."), IsEmpty());
}

TEST(JobFactsTest, RefusesMoreServersThanTheParametersCanBeSplitBetween) {
  const auto facts = JobFacts::Create(Facts({}).job(), 1000000);
  ASSERT_FALSE(facts.ok());
  EXPECT_THAT(std::string(facts.status().message()), HasSubstr("1000000 servers"));
  EXPECT_EQ(JobFacts::Create(Facts({"optimizer.kind=LARS"}).job(), 9).status().message(),
            "optimizer.kind: is LARS, which takes norms over whole tensors: cannot split 8 tensors, which "
            "stay whole, between 9 servers; use 1 to 8, or another optimizer");
}

TEST(ExplainModelTest, HasEveryLayerWithShapesAndTheTotal) {
  const std::string text = ExplainModel(Facts({}));
  EXPECT_THAT(text, AllOf(HasSubstr("conv2d 3x3    1x28x28   32x26x26         320\n"),
                          HasSubstr("max_pool 2x2  64x24x24  64x12x12\n"), HasSubstr("dropout 0.25"),
                          HasSubstr("1,179,776\n"), HasSubstr("1,199,882\n")))
      << text;
}

TEST(ExplainModelTest, DescribesTheStepsOfASyntheticModel) {
  const auto job = LoadCompleteJob("examples/synthetic.textproto", {"model.synthetic.spread=0.5"}, 4);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto facts = JobFacts::Create(*job, 1);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(ExplainModel(*facts),
              AllOf(HasSubstr("100 ms on average, log-normal with sigma 0.5"), HasSubstr("Nothing is"),
                    HasSubstr("layer8  synthetic"), HasSubstr("1,200,000\n")));
  EXPECT_EQ(facts->train_samples(), 64000);
  EXPECT_EQ(facts->test_samples(), 0);
  EXPECT_THAT(ExplainJob(*facts), HasSubstr("synthetic, without content or files: 64,000 samples"));
}

TEST(ExplainModelTest, NamesAProgramsModulesAndItsInitialWeights) {
  v1::Job given;
  given.mutable_model()->set_initial_weights("w.safetensors");
  for (const char* name : {"encoder.fc.weight", "encoder.fc.bias", "head.weight"}) {
    v1::ExternalTensor* const tensor = given.mutable_model()->mutable_external()->add_tensors();
    tensor->set_name(name);
    tensor->add_shape(1000);
  }
  given.mutable_data()->mutable_external()->set_train_samples(500);
  const auto job = CompleteJob(given, {}, 2);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto facts = JobFacts::Create(*job, 1);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(ExplainModel(*facts),
              AllOf(HasSubstr("started with a program"), HasSubstr("Initial weights: those in w.safetensors"),
                    HasSubstr("encoder.fc  external                      2,000\n"), HasSubstr("3,000\n")));
  EXPECT_THAT(ExplainJob(*facts),
              HasSubstr("loaded by the workers' program: 500 samples for training, 0 for tests"));
}

TEST(ExplainJobTest, EpochWithoutItsLastMinibatchIsNamed) {
  const auto job = LoadCompleteJob("examples/drawn_digits.textproto",
                                   {"data.drawn_digits.train_samples=65", "batch_size=64",
                                    "last_minibatch=DROP", "epochs=2", "algorithm.preset=downpour"},
                                   1);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto facts = JobFacts::Create(*job, 1);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(
      DescribeBudget(*facts),
      HasSubstr(
          "2 epochs of 64 of the 65 samples (last_minibatch: DROP), 128 samples in all: 2 steps of 64"));
}

TEST(ExplainJobTest, MergedLastMinibatchIsNamed) {
  const auto budget = [](const std::string& preset, uint64_t workers, const std::string& merge) {
    const auto job = LoadCompleteJob("examples/drawn_digits.textproto",
                                     {"data.drawn_digits.train_samples=130", "batch_size=64", "epochs=2",
                                      merge, absl::StrCat("workers=", workers), "algorithm.preset=" + preset},
                                     1);
    EXPECT_TRUE(job.ok()) << job.status();
    const auto facts = JobFacts::Create(*job, 1);
    EXPECT_TRUE(facts.ok()) << facts.status();
    return std::make_pair(DescribeBudget(*facts), facts->worker().model);
  };
  EXPECT_THAT(
      budget("downpour", 1, "last_minibatch=MERGE").first,
      HasSubstr("2 epochs of 130 samples (last_minibatch: MERGE; the last minibatch of an epoch has 66), 260 "
                "samples in all: 4 steps of 64 on the one worker, about 4 updates"));
  EXPECT_THAT(
      budget("sync", 2, "last_minibatch=MERGE").first,
      HasSubstr("130 samples (last_minibatch: MERGE; the last minibatches of an epoch have up to 65), 260 "
                "samples in all: 2 steps of 64 on each of 2 workers, about 2 updates"));
  EXPECT_GT(budget("sync", 2, "last_minibatch=MERGE").second,
            2 * budget("sync", 2, "last_minibatch=KEEP").second)
      << "the workers have memory for 64 and for 128 samples";
}

TEST(ExplainJobTest, RowsOfATableAreCountedByWorkers) {
  const auto job = LoadCompleteJob("examples/table_csv.textproto", {}, 4);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto facts = JobFacts::Create(*job, 1);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(
      ExplainJob(*facts),
      AllOf(HasSubstr("table: samples of 2 with one of 3 classes, from train.csv; for tests from test.csv."),
            HasSubstr("10 epochs of the table's rows, which a worker counts when it reads them, 16 a"),
            Not(HasSubstr(" 0 samples")), Not(HasSubstr("in the whole job"))));
  const auto json = JobToJson(*facts);
  EXPECT_TRUE(json["budget"]["samples"].is_null());
  EXPECT_EQ(json["budget"]["epochs"], 10);
  v1::Job counted = *job;
  counted.set_samples(3200);
  const auto known = JobFacts::Create(counted, 1);
  EXPECT_THAT(ExplainJob(*known),
              AllOf(HasSubstr("3,200 samples in all: 50 steps"), HasSubstr("in the whole job")));
  EXPECT_TRUE(JobToJson(*known)["budget"]["epochs"].is_null());
}

TEST(ExplainModelTest, ALongModelIsSummarised) {
  const auto job = LoadCompleteJob(kCnn, {}, 1);
  ASSERT_TRUE(job.ok()) << job.status();
  v1::Job longer = *job;
  for (int i = 0; i < 20; ++i) *longer.mutable_model()->add_layers()->mutable_relu() = {};
  const auto facts = JobFacts::Create(longer, 1);
  ASSERT_TRUE(facts.ok()) << facts.status();
  const std::string text = ExplainModel(*facts);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 20) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("conv1"), HasSubstr("15 more layers"), HasSubstr("1,199,882\n"))) << text;
}

TEST(ExplainAlgorithmTest, SpellsThePresetOut) {
  const std::string text = ExplainAlgorithm(Facts({"algorithm.preset=downpour"}));
  EXPECT_THAT(text, AllOf(HasSubstr("the preset \"downpour\""),
                          HasSubstr("algorithm.consistency  { asynchronous { emulated_delay: 0 } }"),
                          HasSubstr("gradient { push_period: 1 fetch_period: 1"), HasSubstr("optimizer")))
      << text;
}

TEST(ExplainWireTest, HasCodecsAndBytes) {
  const std::string plain = ExplainWire(Facts({"algorithm.preset=sync"}));
  EXPECT_THAT(plain,
              AllOf(HasSubstr("compression { push: FLOAT32 pull: FLOAT32 }"),
                    HasSubstr("sends 4.80 MB (FLOAT32) every step, receives 4.80 MB (FLOAT32) every step")));
  const std::string small =
      ExplainWire(Facts({"compression={push:TOP_K top_k_fraction:0.01 pull:BFLOAT16}"}));
  EXPECT_THAT(small, AllOf(HasSubstr("sends 96.0 kB (TOP_K: the largest 1 % of each block; "),
                           HasSubstr("receives 2.40 MB (BFLOAT16)")))
      << small;
  // Without the breaks of lines.
  const auto words = [](const std::string& compression) {
    std::string text = ExplainWire(Facts({"compression={" + compression + "}"}));
    absl::RemoveExtraAsciiWhitespace(&text);
    return text;
  };
  EXPECT_THAT(words("push:E2M1"), HasSubstr("(E2M1: 4 bits a value and a scale for every 128; the rounding "
                                            "error is added to the next gradient)"));
  EXPECT_THAT(words("push:INT8 residual_decay:0.95"),
              HasSubstr("(INT8: 8 bits a value and a scale for every 256; the rounding error, times 0.95, "
                        "is added to the next gradient)"));
  EXPECT_THAT(words("push:TOP_K residual_decay:0.5"),
              HasSubstr("of each block; the rest, times 0.5, is added to the next gradient)"));
}

TEST(ExplainComputationTest, DescribesTheRounding) {
  EXPECT_THAT(ExplainComputation(Facts({})),
              AllOf(HasSubstr("computation { precision: FLOAT32 }"), HasSubstr("Everything is float32.")));
  EXPECT_THAT(ExplainComputation(Facts({"computation.precision=BFLOAT16"})),
              HasSubstr("rounds factors to 8 significant bits; sums and everything else are float32."));
  EXPECT_THAT(ExplainComputation(Facts({"computation.precision=FLOAT16"})),
              HasSubstr("The loss is multiplied by 65,536 at first"));
}

TEST(AlgorithmWordsTest, SaysWhoWaits) {
  EXPECT_THAT(DescribeConsistency(Facts({"algorithm.preset=sync"}, 1, 3)),
              HasSubstr("from each of the 3 workers, so"));
  EXPECT_THAT(DescribeConsistency(Facts({"algorithm.preset=easgd"})), HasSubstr("No worker waits"));
  EXPECT_THAT(DescribeConsistency(Facts({"algorithm.preset=easgd_sync"})), HasSubstr("the same center"));
  const auto words = [](const std::vector<std::string>& set) {
    return DescribeConsistency(Facts(set, 1, 4));
  };
  EXPECT_EQ(words({"algorithm.preset=sync_backup"}),
            "Synchronous with 1 backup worker. Each update uses the contributions of all 4 workers but the "
            "last: later contributions are dropped, and their workers are notified.");
  EXPECT_THAT(words({"algorithm.preset=hybrid"}), AllOf(HasSubstr("Hybrid. Workers are split into 2 groups"),
                                                        HasSubstr("of all members of one group.")));
  EXPECT_THAT(words({"algorithm.preset=hybrid", "algorithm.consistency.grouped.backup_workers=1"}),
              HasSubstr("of all members of one group but the last: later"));
  EXPECT_THAT(words({"algorithm.preset=softsync", "algorithm.consistency.n_softsync.n=2"}),
              AllOf(HasSubstr("2-softsync. No worker waits"), HasSubstr("from every 2 contributions")));
  EXPECT_EQ(words({"algorithm.preset=decoupled_diloco"}),
            "Quorum. The worker that first has 24 steps sends its contribution, and the servers call the "
            "others, which send theirs when their step ends. Each update uses the contributions of all 4 "
            "workers, or those that are in when at least 1 is and a grace has passed: 0.5 of the time that 2 "
            "steps of the fastest worker leave, at most 10 s. Later contributions are dropped, "
            "and their workers are notified.");
  EXPECT_EQ(words({"algorithm.preset=diloco", "algorithm.consistency.quorum.minimum=4"}),
            "Quorum of all. Each update uses the contributions of all 4 workers.");
  EXPECT_THAT(words({"algorithm.preset=diloco", "algorithm.consistency.quorum.minimum=3"}),
              HasSubstr("when at least 3 are. Later"));
  EXPECT_THAT(words({"algorithm.preset=ssp"}), HasSubstr("at most 3 pushes ahead of the slowest"));
  EXPECT_THAT(words({"algorithm.preset=ssp", "algorithm.consistency.bounded_staleness.bound=0"}),
              HasSubstr("no push ahead of the slowest"));
  EXPECT_THAT(words({"algorithm.preset=downpour", "algorithm.consistency.asynchronous.emulated_delay=1"}),
              HasSubstr("applied when 1 later contribution has arrived"));
}

TEST(AlgorithmWordsTest, DescribesContributionsAndTheirPeriods) {
  EXPECT_EQ(DescribeContribution(Facts({"algorithm.preset=downpour"})),
            "The gradient is pushed every step; fresh weights are fetched every step.");
  EXPECT_EQ(DescribeContribution(
                Facts({"algorithm.preset=downpour", "algorithm.contribution.gradient.push_period=5",
                       "algorithm.contribution.gradient.fetch_period=3",
                       "algorithm.contribution.gradient.local_learning_rate=0.01"})),
            "Gradients are added, and the sum is pushed every 5 steps; fresh weights are fetched every 3 "
            "steps. Between fetches each worker moves its own weights by SGD with learning rate 0.01.");
  EXPECT_THAT(DescribeContribution(Facts({"algorithm.preset=easgd"})),
              AllOf(HasSubstr("sends them every 4 steps"), HasSubstr("d = 0.45 * (x - center)")));
  EXPECT_THAT(
      DescribeContribution(Facts(
          {"algorithm.preset=diloco", "algorithm.contribution.pseudo_gradient.local_optimizer.clip_norm=1"})),
      AllOf(HasSubstr("its own weights x by AdamW: beta1 0.9"), HasSubstr("lr 0.002, COSINE."),
            HasSubstr("Its gradients are scaled to a norm of at most 1."),
            HasSubstr("It sends its move, D = x as pulled - x, every 16 steps")));
  EXPECT_EQ(DescribeContribution(Facts({"algorithm.preset=dana"})),
            "Each worker keeps its own momentum, v = 0.9 * v + g, and sends g + 0.9 * v every step; "
            "fresh weights come with the answer.");
  EXPECT_THAT(DescribeContribution(
                  Facts({"algorithm.preset=gem", "algorithm.contribution.energy_matching.energy=2"})),
              HasSubstr("all workers together move it 2 times as far as one with momentum 0.9 would"));
}

TEST(AlgorithmWordsTest, DescribesClipping) {
  EXPECT_EQ(
      DescribeContribution(Facts({"algorithm.preset=downpour", "optimizer.clip_norm=2"})),
      "The gradient is pushed every step; fresh weights are fetched every step. A gradient whose norm is "
      "above 2 is scaled down to it beforehand, so it cannot be sent before all of it is known.");
  EXPECT_THAT(DescribeContribution(Facts({"algorithm.preset=local_sgd", "optimizer.clip_norm=2"})),
              HasSubstr(" D whose norm is above 2 is scaled down"));
}

TEST(AlgorithmWordsTest, SaysHowTheCenterMoves) {
  EXPECT_EQ(DescribeOptimizer(Facts({"optimizer.momentum=0.9", "optimizer.nesterov=true"})),
            "SGD with Nesterov momentum: v = 0.9 * v + g ; w -= lr * (g + 0.9 * v). "
            "Applied by the servers, to the center.");
  EXPECT_THAT(DescribeOptimizer(Facts({"algorithm.preset=easgd"})), HasSubstr("Applied by each worker"));
  EXPECT_THAT(DescribeOptimizer(Facts({"algorithm.preset=eamsgd"})),
              HasSubstr("v = 0.9 * v - lr * gradient(x + 0.9 * v) ; x += v. Applied by each worker"));
  EXPECT_THAT(DescribeOptimizer(Facts({"optimizer.kind=ADAM"})),
              HasSubstr("Adam: beta1 0.9, beta2 0.999, epsilon 1e-08"));
  EXPECT_EQ(DescribeOptimizer(Facts({"optimizer.kind=RMSPROP", "optimizer.momentum=0.5"})),
            "RMSProp: rho 0.99, epsilon 1e-08, momentum 0.5. Applied by the servers, to the center.");
  EXPECT_EQ(DescribeOptimizer(Facts({"optimizer.kind=RMSPROP", "optimizer.centered=true"})),
            "RMSProp, centered: rho 0.99, epsilon 1e-08. Applied by the servers, to the center.");
  EXPECT_EQ(DescribeOptimizer(Facts({"optimizer.kind=ADADELTA"})),
            "AdaDelta: rho 0.9, epsilon 1e-06. Applied by the servers, to the center.");
  EXPECT_EQ(DescribeOptimizer(Facts({"optimizer.kind=ADAMW"})),
            "AdamW: beta1 0.9, beta2 0.999, epsilon 1e-08; w *= 1 - lr * 0.01 first. "
            "Applied by the servers, to the center.");
  EXPECT_EQ(
      DescribeOptimizer(Facts({"optimizer.kind=LARS", "optimizer.weight_decay=0.1"})),
      "LARS: r = 0.001 * |w| / (|g| + 0.1 * |w|), v = 0.9 * v + lr * r * (g + 0.1 * w) ; w -= v, tensor by "
      "tensor. Applied by the servers, to the center.");
  EXPECT_EQ(
      DescribeOptimizer(Facts({"optimizer.kind=LAMB"})),
      "LAMB: beta1 0.9, beta2 0.999, epsilon 1e-06; u = Adam's step ; w -= lr * |w| / |u| * u, tensor by "
      "tensor. Applied by the servers, to the center.");
  EXPECT_THAT(DescribeOptimizer(Facts({"optimizer.weight_decay=0.1", "optimizer.clip_value=2"})),
              HasSubstr("center. Before, g is clipped to +-2. Weight decay: 0.1 * w is added to g."));
}

TEST(AlgorithmWordsTest, DescribesTheSchedule) {
  EXPECT_EQ(DescribeSchedule(Facts({"optimizer.learning_rate=0.05", "optimizer.schedule.decay=CONSTANT"})),
            "stays at 0.05.");
  EXPECT_EQ(
      DescribeSchedule(Facts({"optimizer.learning_rate=0.05", "optimizer.schedule.decay=COSINE", "epochs=1",
                              "optimizer.schedule.warmup=0.1", "optimizer.schedule.final_fraction=0.02"})),
      "rises from 0 to 0.05 over the first 10 % of the budget (6,000 samples), then falls from 0.05 along "
      "half a cosine to 0.001 at the end.");
}

TEST(AlgorithmWordsTest, SaysHowTheLearningRateFollowsTheWorkers) {
  EXPECT_EQ(DescribeWorkerScaling(Facts({})), "");
  EXPECT_EQ(DescribeWorkerScaling(Facts({"optimizer.worker_scaling=LINEAR"}, 1, 4)),
            " Times the workers in training over 4.");
  EXPECT_EQ(DescribeWorkerScaling(Facts({"optimizer.worker_scaling=SQUARE_ROOT"}, 1, 4)),
            " Times the square root of the workers in training over 4.");
}

TEST(AlgorithmWordsTest, SaysEveryDecay) {
  const auto words = [](const std::string& schedule) {
    return DescribeSchedule(Facts({"optimizer.learning_rate=0.05", "optimizer.schedule={" + schedule + "}"}));
  };
  EXPECT_EQ(words("decay:STEP"),
            "begins at 0.05 and is multiplied by 0.1 each time 33.33 % of the budget has been used.");
  EXPECT_THAT(words("decay:STEP warmup:0.1"), HasSubstr("33.33 % of the rest of the budget has been used."));
  EXPECT_EQ(words("decay:EXPONENTIAL"),
            "falls from 0.05 by the same factor in every step to 0.0005 at the end.");
  EXPECT_EQ(words("decay:POLYNOMIAL"), "falls from 0.05 in a straight line to 0 at the end.");
  EXPECT_EQ(words("decay:POLYNOMIAL power:2 final_fraction:0.1"),
            "falls from 0.05 as what is left of the budget to the power of 2 to 0.005 at the end.");
  EXPECT_EQ(words("decay:ONE_CYCLE"),
            "rises from 0.002 to 0.05 over the first 30 % of the budget, then falls, "
            "each along half a cosine, to 0 at the end.");
  EXPECT_THAT(
      words("decay:ONE_CYCLE warmup:0.1"),
      AllOf(HasSubstr("rises from 0 to 0.002 over the first 10 %"),
            HasSubstr("then rises from 0.002 to 0.05 over the first 30 % of the rest of the budget")));
  EXPECT_EQ(words("decay:PLATEAU"),
            "begins at 0.05 and is multiplied by 0.1 whenever the test loss has not fallen by "
            "0.01 % for 11 evaluations in a row.");
  EXPECT_EQ(words("decay:PLATEAU factor:0.5 patience:0 threshold:0 final_fraction:0.1"),
            "begins at 0.05 and is multiplied by 0.5 whenever the test loss has not fallen for 1 "
            "evaluation in a row, down to 0.005.");
}

TEST(AlgorithmWordsTest, SaysTheBudget) {
  EXPECT_EQ(DescribeBudget(Facts({"algorithm.preset=sync", "epochs=5", "batch_size=64"})),
            "5 epochs of 60,000 samples, 300,000 samples in all: 2,344 steps of 64 on each of 2 workers, "
            "about 2,344 updates of the center.");
}

TEST(EvaluationWordsTest, DescribesTheEndOfTrainingAndTheBestWeights) {
  const auto words = [](const std::vector<std::string>& set) { return DescribeEvaluation(Facts(set).job()); };
  EXPECT_EQ(words({}), "After every epoch, and at the end, the evaluator scores the test set.");
  EXPECT_EQ(
      words({"evaluation={every_epochs:0.25 target_accuracy:0.995 target_loss:0.05}"}),
      "Every 0.25 epochs, and at the end, the evaluator scores the test set. Training ends early, and the "
      "job is done, when the test accuracy is at least 99.5 % and the test loss is at most 0.05.");
  EXPECT_EQ(
      words({"evaluation={target_loss:0.05 patience:3 min_improvement:0.001 best_by:ACCURACY}"}),
      "After every epoch, and at the end, the evaluator scores the test set. Training ends early, and the "
      "job is done, when the test loss is at most 0.05, or when the test accuracy has not risen by more than "
      "0.001 for 3 evaluations in a row. The weights with the highest test accuracy are "
      "kept in model-best.safetensors.");
  EXPECT_THAT(words({"evaluation.keep_best=true"}),
              HasSubstr(" The weights with the lowest test loss are kept in model-best.safetensors."));
  EXPECT_EQ(DescribeEvaluation(*LoadCompleteJob("examples/synthetic.textproto", {}, 4)),
            "None: data.synthetic has no samples for tests.");
  EXPECT_THAT(ExplainAlgorithm(Facts({})), HasSubstr("\n  evaluation     After every epoch, and at the end"));
}

class ValidateTest : public ::testing::Test {
 protected:
  int Run(const std::vector<std::string>& args) { return RunValidate(args, {&out_, &err_}); }
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ValidateTest, ExplainsAValidJob) {
  EXPECT_EQ(Run({kCnn, "--set", "algorithm.preset=easgd", "--set", "epochs=3", "--servers=2", "--workers=4"}),
            0);
  EXPECT_EQ(err_.str(), "");
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("job mnist_cnn: valid; 2 servers, 4 workers"),
                                HasSubstr("1,199,882"), HasSubstr("placement"),
                                HasSubstr("memory of each server"), HasSubstr("memory of each worker"),
                                HasSubstr("on the wire"), HasSubstr("who waits"), HasSubstr("3 epochs")));
}

TEST_F(ValidateTest, PrintsTheFiguresAsJson) {
  EXPECT_EQ(Run({kCnn, "--servers=2", "--json"}), 0);
  const nlohmann::json json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["job"], "mnist_cnn");
  EXPECT_EQ(json["placement"].size(), 2u);
}

TEST_F(ValidateTest, PrintsAllErrorsAsJson) {
  EXPECT_EQ(Run({kCnn, "--set", "optimizer.momentum=1.5", "--set", "batch_size=0", "--json"}), 1);
  const nlohmann::json json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["valid"], false);
  ASSERT_EQ(json["errors"].size(), 2u);
  EXPECT_THAT(json["errors"][0].get<std::string>(), HasSubstr("batch_size"));
  EXPECT_THAT(json["errors"][1].get<std::string>(), HasSubstr("optimizer.momentum"));
  EXPECT_EQ(err_.str(), "");
}

TEST_F(ValidateTest, ListsGroupsWithTheirNumbersOfParameters) {
  const std::string set =
      "--set=optimizer={groups { names: '*.bias' weight_decay: 0 } "
      "groups { names: 'conv*' learning_rate_factor: 0.5 }}";
  EXPECT_EQ(Run({kCnn, set}), 0) << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("groups of parameters\n"), HasSubstr("times 0.5")));
  out_.str("");
  EXPECT_EQ(Run({kCnn, set, "--json"}), 0);
  const auto json = nlohmann::ordered_json::parse(out_.str());
  int64_t biases = 0, filters = 0;
  for (const auto& tensor : json["tensors"]) {
    const bool is_bias = absl::EndsWith(tensor["name"].get<std::string>(), ".bias");
    int64_t size = 1;
    for (const int64_t n : tensor["shape"]) size *= n;
    if (is_bias) biases += size;
    if (!is_bias && absl::StartsWith(tensor["name"].get<std::string>(), "conv")) filters += size;
  }
  const auto& groups = json["groups"];
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0]["names"], nlohmann::ordered_json::array({"*.bias"}));
  EXPECT_EQ(groups[0]["weight_decay"], 0);
  EXPECT_FALSE(groups[0].contains("learning_rate_factor"));
  EXPECT_EQ(groups[0]["parameters"], biases);
  EXPECT_EQ(groups[1]["learning_rate_factor"], 0.5);
  EXPECT_EQ(groups[1]["parameters"], filters);
}

TEST_F(ValidateTest, ListsAllErrorsByTheirPaths) {
  EXPECT_EQ(Run({kCnn, "--set", "optimizer.momentum=1.5", "--set", "batch_size=0"}), 1);
  EXPECT_EQ(out_.str(), "");
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("is not valid"), HasSubstr("optimizer.momentum"), HasSubstr("batch_size")));
}

TEST_F(ValidateTest, WritesTheJobWithTheChangesAndEveryDefault) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/job.textproto";
  EXPECT_EQ(Run({kCnn, "--set", "epochs=3", "--workers=8", "--write", path}), 0);
  const absl::StatusOr<v1::Job> job = LoadJob(path);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->epochs(), 3);
  EXPECT_EQ(job->workers(), 8u);
  EXPECT_GT(job->faults().heartbeat_timeout_seconds(), 0);
}

TEST_F(ValidateTest, ReplacesOnlyAFileThatItHasWritten) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/mine.textproto";
  std::ofstream(path) << "# my comment\n" << ReadTextFile(kCnn).value();
  const std::string mine = ReadTextFile(path).value();
  for (const std::string& job : {std::string(kCnn), path}) {
    EXPECT_EQ(Run({job, "--write=" + path}), 1);
    EXPECT_THAT(err_.str(), HasSubstr(path + " exists, and was not written by this command"));
    EXPECT_EQ(ReadTextFile(path).value(), mine);
  }
  std::filesystem::remove(path);
  EXPECT_EQ(Run({kCnn, "--write=" + path}), 0) << err_.str();
  EXPECT_EQ(Run({kCnn, "--set", "epochs=3", "--write=" + path}), 0) << err_.str();
  EXPECT_EQ(LoadJob(path)->epochs(), 3);
}

TEST_F(ValidateTest, NamesAFileThatCannotBeWritten) {
  EXPECT_EQ(Run({kCnn, "--write=/no/such/job.textproto"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("catchment validate: "));
  EXPECT_THAT(err_.str(), HasSubstr("/no/such/job.textproto"));
}

TEST_F(ValidateTest, NamesAMissingFile) {
  EXPECT_EQ(Run({"no/such.textproto"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("no/such.textproto"));
}

TEST_F(ValidateTest, HelpListsAllPresets) {
  EXPECT_EQ(Run({"--help"}), 0);
  for (const Preset& preset : Presets()) EXPECT_THAT(out_.str(), HasSubstr(preset.name));
}

TEST_F(ValidateTest, AWrongCommandLineHasItsOwnExitCode) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(Run({kCnn, "--wokers=2"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("is it --workers?"));
}

}  // namespace
}  // namespace catchment
