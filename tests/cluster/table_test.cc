// Real daemons on a user's files: whatever the kind of file, the same rows train the same weights, and real
// targets are met.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/job/job_text.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = TestDirectory() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// Rows of two numbers and a class of three: which of 0, x and y is the largest.
std::string ClassRows(int count, uint64_t seed) {
  Random random(seed);
  std::string text = "x,y,class\n";
  for (int i = 0; i < count; ++i) {
    const double x = random.Uniform(-1, 1), y = random.Uniform(-1, 1);
    absl::StrAppend(&text, x, ",", y, ",", x > y ? (x > 0 ? 1 : 0) : (y > 0 ? 2 : 0), "\n");
  }
  return text;
}

std::string ClassJob(const std::string& data) {
  return absl::StrCat(R"(
      model { layers { dense { units: 16 } } layers { relu {} } layers { dense { units: 3 } } }
      device: CPU
      deterministic: true
      workers: 2
      batch_size: 16
      epochs: 4
      algorithm { preset: "sync" }
      optimizer { learning_rate: 0.5 }
      )",
                      data);
}

std::string Csv() {
  return absl::StrCat(
      "data { table { directory: '", TestDirectory(),
      "' train: 'train.csv' test: 'test.csv' shape: 2 classes: 3 mean: 0.5 deviation: [2, 3] } }");
}

// Returns the summary.
nlohmann::json Train(const std::string& name, const std::string& job,
                     std::map<std::string, std::vector<float>>* weights, int servers = 2) {
  TestCluster cluster({.job = job, .servers = servers, .directory = TestDirectory() + "/" + name});
  EXPECT_TRUE(cluster.Start(2));
  EXPECT_TRUE(cluster.AwaitOrderlyEnd()) << cluster.LastWords();
  *weights = cluster.Tensors();
  return cluster.Summary();
}

std::string Pack(const std::string& job, const std::string& out) {
  const Finished finished = RunToEnd({Runfile("cli/catchment"), "pack", WriteFile("job.textproto", job),
                                      "--out=" + out, "--rows_per_shard=70"});
  EXPECT_EQ(finished.end.exit_code, 0) << finished.output;
  return finished.output;
}

TEST(TableTest, RowsOfCsvAndOfPackedShardsTrainTheSameBits) {
  WriteFile("train.csv", ClassRows(200, 1));
  WriteFile("test.csv", ClassRows(100, 2));
  std::map<std::string, std::vector<float>> csv, packed;
  const nlohmann::json summary = Train("csv", ClassJob(Csv()), &csv);
  EXPECT_GT(summary.value("test_accuracy", 0.0), 0.8) << summary.dump(2);
  const std::string data = Pack(ClassJob(Csv()), TestDirectory() + "/shards");
  EXPECT_TRUE(std::filesystem::exists(TestDirectory() + "/shards/train-00002.shard")) << data;
  const nlohmann::json of_shards = Train("packed", ClassJob(data), &packed);
  EXPECT_EQ(LargestDifference(csv, packed), 0);
  EXPECT_EQ(summary["test_accuracy"], of_shards["test_accuracy"]);
}

// With two workers and minibatches of 16, one of 65 rows would be left over.
TEST(TableTest, MergedLastMinibatchesTrainEveryRow) {
  WriteFile("train.csv", ClassRows(65, 1));
  WriteFile("test.csv", ClassRows(100, 2));
  const std::string job =
      absl::StrReplaceAll(ClassJob(Csv() + " last_minibatch: MERGE"),
                          {{"layers { relu {} }", "layers { batch_norm {} } layers { relu {} }"}});
  std::map<std::string, std::vector<float>> weights;
  for (const char* preset : {"sync", "downpour"}) {
    const nlohmann::json summary =
        Train(preset, absl::StrReplaceAll(job, {{"\"sync\"", absl::StrCat("'", preset, "'")}}), &weights);
    EXPECT_EQ(summary["samples"], 4 * 65) << summary.dump(2);
    EXPECT_EQ(summary["updates"], 4 * (std::string(preset) == "sync" ? 2 : 4)) << summary.dump(2);
    EXPECT_GT(summary.value("test_accuracy", 0.0), 0.6) << summary.dump(2);
  }
}

TEST(TableTest, TheExampleTrains) {
  WriteFile("train.csv", ClassRows(400, 1));
  WriteFile("test.csv", ClassRows(100, 2));
  absl::StatusOr<v1::Job> job = LoadJob(Runfile("examples/table_csv.textproto"));
  ASSERT_TRUE(job.ok()) << job.status();
  job->mutable_data()->mutable_table()->set_directory(TestDirectory());
  job->set_device(v1::CPU);
  std::map<std::string, std::vector<float>> weights;
  const nlohmann::json summary = Train("run", JobText(*job), &weights);
  EXPECT_GT(summary.value("test_accuracy", 0.0), 0.85) << summary.dump(2);
}

TEST(TableTest, PackTakesAFolderWithoutShards) {
  WriteFile("train.csv", ClassRows(20, 1));
  WriteFile("test.csv", ClassRows(20, 1));
  Pack(ClassJob(Csv()), TestDirectory() + "/shards");
  const Finished again = RunToEnd({Runfile("cli/catchment"), "pack", TestDirectory() + "/job.textproto",
                                   "--out=" + TestDirectory() + "/shards"});
  EXPECT_EQ(again.end.exit_code, 1);
  EXPECT_THAT(again.output, HasSubstr(".shard already; choose another directory"));
}

// y = 2 a - 3 b + 1, without noise: the weights are found, and there is a loss, but no accuracy.
TEST(TableTest, RealTargetsAreMet) {
  Random random(3);
  std::string rows;
  for (int i = 0; i < 256; ++i) {
    const double a = random.Uniform(-1, 1), b = random.Uniform(-1, 1);
    absl::StrAppend(&rows, a, ",", b, ",", 2 * a - 3 * b + 1, "\n");
  }
  WriteFile("rows.csv", rows);
  std::map<std::string, std::vector<float>> weights;
  const nlohmann::json summary =
      Train("run",
            absl::StrCat(R"(model { layers { dense { units: 1 } } loss { kind: MEAN_SQUARED_ERROR } }
                             device: CPU workers: 2 batch_size: 16 epochs: 40
                             algorithm { preset: "sync" } optimizer { learning_rate: 0.2 }
                             data { table { shape: 2 targets: 1 train: 'rows.csv' test: 'rows.csv' directory: ')",
                         TestDirectory(), "' } }"),
            &weights, 1);
  EXPECT_NEAR(weights["dense1.weight"][0], 2, 1e-3);
  EXPECT_NEAR(weights["dense1.weight"][1], -3, 1e-3);
  EXPECT_NEAR(weights["dense1.bias"][0], 1, 1e-3);
  EXPECT_LT(summary.value("test_loss", 1.0), 1e-6);
  EXPECT_TRUE(summary["test_accuracy"].is_null()) << summary.dump(2);
  std::ifstream metrics(TestDirectory() + "/run/out/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    EXPECT_TRUE(nlohmann::json::parse(line)["train_accuracy"].is_null()) << line;
    EXPECT_TRUE(nlohmann::json::parse(line)["test_accuracy"].is_null()) << line;
  }
}

TEST(TableTest, AWorkerNamesTheRowThatItCannotTake) {
  WriteFile("train.csv", "x,y,class\n0.5,0.25,1\n0.5,0.25,7\n");
  WriteFile("test.csv", ClassRows(20, 1));
  TestCluster cluster({.job = ClassJob(Csv())});
  ASSERT_TRUE(cluster.StartServers());
  const Finished finished = RunToEnd(cluster.WorkerCommand());
  EXPECT_EQ(finished.end.exit_code, 1);
  EXPECT_THAT(finished.output,
              HasSubstr("row 3 of " + TestDirectory() + "/train.csv has label 7; data.table.classes is 3"));
}

}  // namespace
}  // namespace catchment
