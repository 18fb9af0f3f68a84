#include "worker/data/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "glog/logging.h"
#include "tests/worker/data/idx_files.h"
#include "tests/worker/data/jpeg_files.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

class StageTest : public testing::Test {
 protected:
  StageTest()
      : directory_(fs::path(TestDirectory()).lexically_normal()),
        disk_(directory_ + "/disk"),
        data_(directory_ + "/data") {
    fs::remove_all(directory_);
    fs::create_directories(disk_);
    fs::create_directories(data_ + "/b");
    files_ = {WriteFile(data_, "a", "first"), WriteFile(data_ + "/b", "c", std::string(100'000, 'x')),
              WriteFile(data_, "empty", "")};
  }

  absl::StatusOr<std::unique_ptr<Stage>> Copy(bool stopped = false) const {
    return Stage::Copy(disk_, files_, clock_, [stopped] { return stopped; });
  }
  std::unique_ptr<Stage> MustCopy() const {
    absl::StatusOr<std::unique_ptr<Stage>> stage = Copy();
    CHECK(stage.ok()) << stage.status();
    return *std::move(stage);
  }
  // Stages in a process that is killed then, and returns the root.
  std::string CopyAndDie() const {
    const pid_t child = fork();
    if (child == 0) {
      MustCopy().release();
      _exit(0);
    }
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (const fs::directory_entry& entry : fs::directory_iterator(Own())) {
      if (entry.is_directory()) return entry.path();
    }
    ADD_FAILURE() << "no copies were left";
    return "";
  }
  void ExpectCopies(const std::string& root) const {
    for (const std::string& file : files_) EXPECT_EQ(ReadAll(root + file), ReadAll(file)) << file;
  }
  std::string Own() const { return absl::StrCat(disk_, "/catchment-stage-", geteuid()); }
  bool IsClean() const { return fs::is_empty(disk_); }

  const std::string directory_, disk_, data_;
  const SteadyClock clock_;
  std::vector<std::string> files_;
};

TEST_F(StageTest, IsSharedAndRemovedByTheLastUser) {
  std::unique_ptr<Stage> one = MustCopy();
  ExpectCopies(one->root());
  struct stat about;
  ASSERT_EQ(stat(Own().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  const fs::file_time_type time = fs::last_write_time(one->root() + files_[0]);
  std::unique_ptr<Stage> two = MustCopy();
  EXPECT_EQ(two->root(), one->root());
  EXPECT_EQ(fs::last_write_time(one->root() + files_[0]), time) << "not copied again";
  one.reset();
  ExpectCopies(two->root());
  two.reset();
  EXPECT_TRUE(IsClean());
}

TEST_F(StageTest, IsMadeOnceByManyAtATime) {
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([this] {
        const std::unique_ptr<Stage> stage = MustCopy();
        ExpectCopies(stage->root());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(IsClean());
  }
}

TEST_F(StageTest, FilesThatHaveChangedAreCopiedAgain) {
  const std::unique_ptr<Stage> before = MustCopy();
  WriteFile(data_, "a", "second");
  const std::unique_ptr<Stage> after = MustCopy();
  EXPECT_NE(before->root(), after->root());
  EXPECT_EQ(ReadAll(before->root() + files_[0]), "first");
  ExpectCopies(after->root());
}

TEST_F(StageTest, UsesTheCopiesOfAProcessThatWasKilled) {
  const std::string root = CopyAndDie();
  struct stat left, used;
  ASSERT_EQ(stat((root + files_[0]).c_str(), &left), 0);
  std::unique_ptr<Stage> stage = MustCopy();
  EXPECT_EQ(stage->root(), root);
  ASSERT_EQ(stat((root + files_[0]).c_str(), &used), 0);
  EXPECT_EQ(used.st_ino, left.st_ino);
  stage.reset();
  EXPECT_TRUE(IsClean());
}

TEST_F(StageTest, BeginsAgainAfterAProcessThatWasKilledWhileItCopied) {
  const std::string root = CopyAndDie();
  fs::rename(root, root + ".part");
  fs::resize_file(root + ".part" + files_[1], 10);
  const std::unique_ptr<Stage> stage = MustCopy();
  EXPECT_EQ(stage->root(), root);
  ExpectCopies(root);
  EXPECT_FALSE(fs::exists(root + ".part"));
}

TEST_F(StageTest, CopiesThatAreCutShortAreMadeAgain) {
  const std::string root = CopyAndDie();
  fs::resize_file(root + files_[1], 10);
  const std::unique_ptr<Stage> stage = MustCopy();
  ExpectCopies(stage->root());
}

TEST_F(StageTest, SaysWhyItCannotCopy) {
  fs::remove_all(disk_);
  EXPECT_EQ(Copy().status().message(), disk_ + " is not a directory; create it");
  fs::create_directories(disk_);
  fs::create_directories(Own());
  fs::permissions(Own(), fs::perms::all);
  EXPECT_EQ(Copy().status().message(),
            Own() + " is not a private directory of this user; remove it, or choose another --stage");
  fs::remove_all(Own());
  fs::create_directory_symlink(data_, Own());
  EXPECT_THAT(std::string(Copy().status().message()), HasSubstr("is not a private directory of this user"));
  fs::remove(Own());
  files_.push_back(data_ + "/none");
  EXPECT_THAT(std::string(Copy().status().message()), HasSubstr("cannot examine " + data_ + "/none: "));
  files_.back() = data_ + "/b";
  EXPECT_THAT(std::string(Copy().status().message()), HasSubstr("cannot copy " + data_ + "/b: "));
  EXPECT_FALSE(fs::exists(Own()) && !fs::is_empty(Own())) << "nothing is left";
}

TEST_F(StageTest, NeedsRoomForTheData) {
  files_.push_back(WriteFile(data_, "large", ""));
  std::error_code error;
  fs::resize_file(files_.back(), uintmax_t{8} << 40, error);
  if (error) GTEST_SKIP() << "this file system has no sparse files of 8 TB: " << error.message();
  const absl::Status status = Copy().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(" free, and the data have 8.80 TB"));
}

TEST_F(StageTest, EndsWhenItIsAskedTo) {
  EXPECT_EQ(Copy(/*stopped=*/true).status().code(), absl::StatusCode::kCancelled);
}

v1::Job ImageJob(const std::string& train, const std::string& test) {
  v1::Job job;
  v1::ImageFolder* const folder = job.mutable_data()->mutable_image_folder();
  folder->set_train(train);
  folder->set_test(test);
  folder->set_classes(3);
  folder->set_size(16);
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_dense()->set_units(3);
  job.set_batch_size(2);
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.value_or(job);
}

TEST_F(StageTest, ImagesAreReadFromTheCopies) {
  WriteImageFolder(data_ + "/train", {});
  WriteImageFolder(data_ + "/test", {.images = 1});
  const v1::Job job = ImageJob(data_ + "/train", data_ + "/test");
  const auto files = ListFilesInUse(job.data(), /*test=*/false, {});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->size(), 12u);
  EXPECT_EQ(ListFilesInUse(job.data(), /*test=*/true, {})->size(), 3u);
  files_ = *files;
  const std::unique_ptr<Stage> stage = MustCopy();
  WriteFile(data_ + "/train/class_0000", "image_000000.jpg", "damaged since");
  std::vector<float> image(3 * 16 * 16);
  EXPECT_FALSE(LoadData(job, {}).ok());
  const absl::StatusOr<DataSets> staged = LoadData(job, {.staged = stage->root()});
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_EQ(staged->train.size(), 12);
  EXPECT_TRUE(staged->train.ReadInput(0, std::nullopt, image.data()).ok());
  EXPECT_TRUE(staged->test.ReadInput(0, std::nullopt, image.data()).ok()) << "not copied";
}

TEST_F(StageTest, OnlyFilesThatStayInUseAreWorthACopy) {
  v1::Data data;
  data.mutable_table()->add_train(WriteFile(data_, "1.shard", ""));
  data.mutable_table()->add_test(WriteFile(data_, "2.shard", ""));
  EXPECT_THAT(*ListFilesInUse(data, /*test=*/false, {}), testing::ElementsAre(data_ + "/1.shard"));
  EXPECT_THAT(*ListFilesInUse(data, /*test=*/true, {}), testing::ElementsAre(data_ + "/2.shard"));
  data.mutable_table()->set_train(0, WriteFile(data_, "1.csv", ""));
  EXPECT_TRUE(ListFilesInUse(data, /*test=*/false, {})->empty());
  data.mutable_mnist();
  EXPECT_TRUE(ListFilesInUse(data, /*test=*/false, {})->empty());
}

TEST(StagedPathTest, IsTheOriginalWhereThereIsNoCopy) {
  const std::string root = TestDirectory();
  fs::create_directories(root + "/a");
  EXPECT_EQ(StagedPath({}, "/a"), "/a");
  EXPECT_EQ(StagedPath({.staged = root}, "/a"), root + "/a");
  EXPECT_EQ(StagedPath({.staged = root}, "/none"), "/none");
}

}  // namespace
}  // namespace catchment
