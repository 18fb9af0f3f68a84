#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/job/commands.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

using testing::HasSubstr;

class PackTest : public testing::Test {
 protected:
  PackTest()
      : directory_(testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }

  // Writes the job file of a model with ten outputs.
  std::string Job(const std::string& data) const {
    return Write("job.textproto",
                 "model { layers { flatten {} } layers { dense { units: 10 } } } batch_size: 1 " + data);
  }

  int Pack(const std::vector<std::string>& args) {
    out_.str("");
    err_.str("");
    return RunPack(args, {}, {&out_, &err_});
  }

  // Returns the data that a job with the printed `data` loads.
  DataSets Packed(const std::string& loss = "") const {
    v1::Job job;
    EXPECT_TRUE(ParseText("model { layers { flatten {} } layers { dense { units: 10 } } " + loss +
                              " } batch_size: 1 " + out_.str(),
                          "printed", "", &job)
                    .ok());
    const auto complete = FillDefaultsAndValidate(job);
    EXPECT_TRUE(complete.ok()) << complete.status() << out_.str();
    auto sets = LoadData(*complete, {});
    EXPECT_TRUE(sets.ok()) << sets.status();
    return *std::move(sets);
  }

  const std::string directory_;
  std::ostringstream out_, err_;
};

std::vector<float> Values(const Dataset& data, int64_t index) {
  std::vector<float> values(data.input_shape().size());
  data.CopyInput(index, values.data());
  return values;
}

TEST_F(PackTest, ImagesStayBytesAndLookTheSame) {
  const std::string job =
      Job("data { drawn_digits { train_samples: 25 test_samples: 7 } augmentation { flip: true } }");
  const std::string out = directory_ + "/shards";
  ASSERT_EQ(Pack({job, "--out=" + out, "--rows_per_shard=10"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("# 25 rows for training, 7 for tests."));
  EXPECT_THAT(out_.str(), HasSubstr("flip: true"));
  EXPECT_EQ(std::filesystem::file_size(out + "/train-00002.shard"),
            64 + 62 * 64 + 5 * 4);  // 5 x 784 bytes, padded
  const DataSets sets = Packed();
  v1::Job given;
  given.mutable_data()->mutable_drawn_digits()->set_train_samples(25);
  given.mutable_data()->mutable_drawn_digits()->set_test_samples(7);
  given.mutable_data()->mutable_drawn_digits()->set_seed(1);
  const auto drawn = LoadData(given, {});
  ASSERT_TRUE(drawn.ok());
  ASSERT_EQ(sets.train.size(), 25);
  ASSERT_EQ(sets.test.size(), 7);
  for (int i = 0; i < 25; ++i) {
    EXPECT_EQ(sets.train.label(i), drawn->train.label(i));
    const std::vector<float> got = Values(sets.train, i), want = Values(drawn->train, i);
    for (size_t j = 0; j < want.size(); ++j) ASSERT_NEAR(got[j], want[j], 1e-6) << i << " " << j;
  }
}

TEST_F(PackTest, TargetsAndNormalizationGoAlong) {
  Write("a.csv", "1,2,0,0,0,0,0,0,0,0,0,7\n3,4,0,0,0,0,0,0,0,0,0,8\n");
  const std::string job =
      Write("job.textproto",
            "model { layers { dense { units: 10 } } loss { kind: MEAN_SQUARED_ERROR } } batch_size: 1 "
            "data { table { shape: 2 targets: 10 train: 'a.csv' directory: '" +
                directory_ + "' mean: 1 deviation: [2, 4] } }");
  ASSERT_EQ(Pack({job, "--out=" + directory_}), 0) << err_.str();
  const DataSets sets = Packed("loss { kind: MEAN_SQUARED_ERROR }");
  EXPECT_EQ(sets.test.size(), 0);
  EXPECT_THAT(Values(sets.train, 1), testing::ElementsAre(1, 0.75f));
  std::vector<float> targets(10);
  sets.train.CopyTargets(1, targets.data());
  EXPECT_EQ(targets[9], 8);
}

TEST_F(PackTest, RefusesWrongCommandLinesAndExistingShards) {
  const std::string job = Job("data { drawn_digits { train_samples: 5 test_samples: 5 } }");
  EXPECT_EQ(Pack({job}), 2);
  EXPECT_EQ(Pack({"--out=" + directory_}), 2);
  EXPECT_EQ(Pack({job, "--out=" + directory_, "--rows_per_shard=0"}), 2);
  EXPECT_EQ(Pack({"none.textproto", "--out=" + directory_}), 1);
  ASSERT_EQ(Pack({job, "--out=" + directory_}), 0) << err_.str();
  EXPECT_EQ(Pack({job, "--out=" + directory_}), 1);
  EXPECT_THAT(err_.str(), HasSubstr(".shard already; choose another directory, or delete its shards"));
  EXPECT_EQ(Pack({"--help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("--rows_per_shard=N"));
}

}  // namespace
}  // namespace catchment
