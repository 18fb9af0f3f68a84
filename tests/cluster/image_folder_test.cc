// Real daemons on a folder of JPEG images: the same weights with any number of loader threads and from staged
// copies, errors of images and classes, and what metrics say of reading.
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"
#include "tests/worker/data/jpeg_files.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Job(int threads, const std::string& train = "train") {
  return absl::StrCat(R"(
      model {
        layers { conv2d { filters: 8 kernel_size: 5 stride: 2 } } layers { relu {} }
        layers { global_average_pool {} } layers { dense { units: 3 } }
      }
      data {
        image_folder { directory: ')",
                      TestDirectory(), "' train: '", train, R"(' test: 'test' classes: 3 size: 24 }
        augmentation { random_resized_crop {} flip: true }
        loader_threads: )",
                      threads, R"(
      }
      device: CPU
      deterministic: true
      workers: 2
      batch_size: 8
      epochs: 3
      algorithm { preset: "sync" }
      optimizer { learning_rate: 0.05 }
      )");
}

// Returns a path as messages have it.
std::string Normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

class ImageFolderClusterTest : public testing::Test {
 protected:
  ImageFolderClusterTest() {
    WriteImageFolder(TestDirectory() + "/train", {.images = 20});
    WriteImageFolder(TestDirectory() + "/test", {.images = 5, .seed = 2});
  }
};

struct Trained {
  std::map<std::string, std::vector<float>> model;
  nlohmann::json summary;
  std::string last_words;
};

Trained Train(const std::string& name, const std::string& job, const std::vector<std::string>& flags = {}) {
  TestCluster cluster({.job = job, .directory = TestDirectory() + "/" + name});
  EXPECT_TRUE(cluster.StartServers());
  for (int i = 0; i < 2; ++i) cluster.StartWorker(flags);
  EXPECT_TRUE(cluster.AwaitOrderlyEnd()) << cluster.LastWords();
  return {cluster.Tensors(), cluster.Summary(), cluster.LastWords()};
}

TEST_F(ImageFolderClusterTest, LoaderThreadsAndStagingChangeNoBit) {
  const std::string disk = TestDirectory() + "/disk";
  std::filesystem::create_directories(disk);
  const Trained one = Train("one", Job(1)), three = Train("three", Job(3));
  const Trained staged = Train("staged", Job(2), {"--stage=" + disk});
  EXPECT_EQ(LargestDifference(one.model, three.model), 0);
  EXPECT_EQ(LargestDifference(one.model, staged.model), 0);
  EXPECT_THAT(staged.last_words, HasSubstr("the data are read from " + Normal(disk)));
  EXPECT_TRUE(std::filesystem::is_empty(disk)) << "the last worker removes the copies";
  EXPECT_EQ(one.summary["samples"], 180);
  EXPECT_GT(one.summary["bytes_read"], 180 * 300);
  EXPECT_EQ(one.summary["bytes_read"], three.summary["bytes_read"]);
  EXPECT_GT(one.summary["read_seconds"], 0);
}

TEST_F(ImageFolderClusterTest, WithoutACopyTrainingReadsTheOriginals) {
  const Trained trained = Train("run", Job(2), {"--stage=" + TestDirectory() + "/none"});
  EXPECT_EQ(trained.summary["samples"], 180);
  EXPECT_THAT(trained.last_words,
              HasSubstr("is not a directory; create it; the data are read where they are"));
}

TEST_F(ImageFolderClusterTest, ImagesThatCannotBeUsedAreNamedBeforeTraining) {
  const std::string cut = TestDirectory() + "/train/class_0001/image_000003.jpg";
  std::filesystem::resize_file(cut, 200);
  const std::string lost = TestDirectory() + "/train/class_0002/lost.jpg";
  std::filesystem::create_symlink("nowhere.jpg", lost);
  TestCluster cluster({.job = Job(2)});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(cluster.AwaitExit(cluster.worker(i), 1));
    EXPECT_THAT(cluster.worker(i).Output(), HasSubstr(Normal(cut) + ": is damaged ("));
    EXPECT_THAT(cluster.worker(i).Output(), HasSubstr(Normal(lost) + " is a symbolic link to nothing"));
  }
  EXPECT_THAT(cluster.server(0).Output(), Not(HasSubstr("training with")));
  cluster.KillAll();
}

// A missing file is not a membership that the master or a server does not know.
TEST_F(ImageFolderClusterTest, AnImageThatIsLostEndsItsReadersAndTheJobAfterACheckpoint) {
  std::string job = Job(2);
  job.replace(job.find("epochs: 3"), 9, "epochs: 1000000 checkpoint { every_seconds: 3600 }");
  TestCluster cluster({.job = job});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  cluster.StartEvaluator();
  ASSERT_TRUE(cluster.AwaitTrained(200));
  const std::string image = "/class_0001/image_000003.jpg";
  std::filesystem::remove(TestDirectory() + "/test" + image);
  ASSERT_TRUE(cluster.AwaitExit(cluster.evaluator(0), 1));
  std::filesystem::remove(TestDirectory() + "/train" + image);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(cluster.AwaitExit(cluster.worker(i), 1));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 1));
  EXPECT_THAT(cluster.evaluator(0).Output(), HasSubstr("/test/class_0001/image_000003.jpg: No such file"));
  for (Process* process : {&cluster.worker(0), &cluster.worker(1), &cluster.evaluator(0)})
    EXPECT_THAT(process->Output(), Not(HasSubstr("registering again")));
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "FAILED");
  EXPECT_THAT(std::string(summary["reason"]), HasSubstr("/train/class_0001/image_000003.jpg: No such file"));
  EXPECT_GT(summary["last_checkpoint"], 0);
}

// It waits until samples are assigned, because the first worker may be the wrong one.
TEST_F(ImageFolderClusterTest, AWorkerWithOtherClassesIsRefused) {
  const std::string other = TestDirectory() + "/other";
  std::filesystem::create_directories(other);
  for (const char* part : {"/train", "/test"}) {
    std::filesystem::copy(TestDirectory() + part, other + part, std::filesystem::copy_options::recursive);
    std::filesystem::rename(other + part + "/class_0001", other + part + "/class_000x");
  }
  std::string job = Job(1);
  job.erase(job.find("directory: '"), job.find("' train") + 1 - job.find("directory: '"));
  TestCluster cluster({.job = job});
  ASSERT_TRUE(cluster.StartServers());
  setenv("CATCHMENT_DATA", TestDirectory().c_str(), 1);
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitStatus("a worker", [](const v1::JobStatus& s) { return s.workers_size() == 1; }));
  setenv("CATCHMENT_DATA", other.c_str(), 1);
  Process& refused = cluster.StartWorker({});
  ASSERT_TRUE(cluster.AwaitOutput(refused, "waits, because it has classes of other names than worker 0 ("));
  setenv("CATCHMENT_DATA", TestDirectory().c_str(), 1);
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitExit(refused, 1));
  EXPECT_THAT(refused.Output(), HasSubstr("has classes of other names than worker 0 ("));
  cluster.KillAll();
}

}  // namespace
}  // namespace catchment
