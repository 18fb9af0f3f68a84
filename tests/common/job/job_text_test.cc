#include "common/job/job_text.h"

#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

v1::Job MakeJob(const std::vector<std::string>& overrides = {}) {
  v1::Job job;
  EXPECT_TRUE(ParseText("model { layers { flatten {} } layers { dropout { rate: 0.5 } } "
                        "layers { dense { units: 10 } } } data { mnist { directory: \"/a\" } }",
                        "test", "", &job)
                  .ok());
  const absl::Status status = ApplyOverrides(overrides, &job);
  EXPECT_TRUE(status.ok()) << status;
  const auto filled = FillDefaultsAndValidate(job);
  EXPECT_TRUE(filled.ok()) << filled.status();
  return filled.value_or(v1::Job());
}

TEST(JobText, ReadsBackAsTheSameJob) {
  const v1::Job job = MakeJob({"algorithm.preset=easgd", "workers=7", "optimizer.learning_rate=0.1234567"});
  v1::Job again;
  ASSERT_TRUE(ParseText(JobText(job), "text", "", &again).ok());
  EXPECT_EQ(again.SerializeAsString(), job.SerializeAsString());
}

TEST(JobFingerprint, IsTheSameForTheSameJob) {
  EXPECT_EQ(JobFingerprint(MakeJob()), JobFingerprint(MakeJob()));
  EXPECT_EQ(JobFingerprint(MakeJob()), JobFingerprint(MakeJob({"data.mnist.directory=/b"})));
  EXPECT_EQ(JobFingerprint(MakeJob()), JobFingerprint(MakeJob({"data.loader_threads=5"})));
}

TEST(JobFingerprint, ChangesWithEveryField) {
  const uint64_t plain = JobFingerprint(MakeJob());
  for (const char* change :
       {"name=x", "batch_size=32", "epochs=2", "seed=2", "device=CPU", "checkpoint.keep=3",
        "evaluation.every_epochs=2", "faults.non_finite_limit=2", "optimizer.momentum=0.5",
        "model.layers[1].dropout.rate=0", "data.drawn_digits={}"}) {
    EXPECT_NE(JobFingerprint(MakeJob({change})), plain) << change;
  }
}

TEST(DescribeResumeConflict, BudgetWorkersAlgorithmAndPlaceMayChange) {
  EXPECT_EQ(DescribeResumeConflict(MakeJob(), MakeJob()), "");
  EXPECT_EQ(DescribeResumeConflict(
                MakeJob(), MakeJob({"epochs=9", "workers=5", "algorithm.preset=easgd",
                                    "optimizer.learning_rate=0.3", "batch_size=32", "data.mnist.directory=/b",
                                    "data.loader_threads=5", "checkpoint.keep=7"})),
            "");
}

TEST(DescribeResumeConflict, NamesWhatDiffers) {
  EXPECT_EQ(DescribeResumeConflict(MakeJob(), MakeJob({"model.layers[1].dropout.rate=0.25"})),
            "model.layers[1]: saved { name: \"dropout1\" dropout { rate: 0.5 } }, now { name: \"dropout1\" "
            "dropout { rate: 0.25 } }");
  EXPECT_EQ(
      DescribeResumeConflict(MakeJob(), MakeJob({"data.drawn_digits={}", "seed=2"})),
      "data: saved { mnist { } }, now { drawn_digits { train_samples: 20000 test_samples: 4000 seed: 1 } }\n"
      "seed: saved 1, now 2; the order of the samples follows from it");
  EXPECT_THAT(DescribeResumeConflict(MakeJob(),
                                     MakeJob({"model={synthetic { parameters: 5 }}", "data.synthetic={}"})),
              HasSubstr("model.synthetic: saved { }, now { parameters: 5 step_ms: 100 spread: 0 }\n"));
  v1::Job external = MakeJob();
  external.mutable_model()->mutable_external()->add_tensors()->set_name("a");
  EXPECT_EQ(DescribeResumeConflict(MakeJob(), external),
            "model.external: the saved job's tensors have other names or shapes than this job's");
  v1::Job longer = MakeJob();
  longer.mutable_model()->add_layers()->mutable_relu();
  EXPECT_EQ(DescribeResumeConflict(MakeJob(), longer), "model.layers: saved 3 layers, now 4");
}

}  // namespace
}  // namespace catchment
