#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "cli/job/commands.h"
#include "common/job/text_format.h"
#include "common/program/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using testing::HasSubstr;

class ExamplesTest : public testing::Test {
 protected:
  ExamplesTest()
      : directory_(testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
  }

  int Run(const std::vector<std::string>& args) { return RunExamples(args, {&out_, &err_}); }

  const std::string directory_;
  std::ostringstream out_, err_;
};

TEST_F(ExamplesTest, WritesEachFileAsTheProjectHasIt) {
  ASSERT_EQ(Run({directory_}), 0) << err_.str();
  int compared = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("examples")) {
    const std::string path = entry.path();
    if (!absl::EndsWith(path, ".textproto") && !absl::EndsWith(path, ".py")) continue;
    EXPECT_EQ(*ReadTextFile(directory_ + path.substr(path.find('/'))), *ReadTextFile(path)) << path;
    ++compared;
  }
  EXPECT_GT(compared, 20);
  EXPECT_EQ(access((directory_ + "/fetch_mnist.sh").c_str(), X_OK), 0);
  EXPECT_EQ(Run({directory_}), 0) << "the same files may be there; " << err_.str();
}

TEST_F(ExamplesTest, KeepsFilesThatDiffer) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ + "/mnist_mlp.textproto") << "epochs: 1";
  EXPECT_EQ(Run({directory_}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr(directory_ + "/mnist_mlp.textproto exists with different content"));
  EXPECT_EQ(*ReadTextFile(directory_ + "/mnist_mlp.textproto"), "epochs: 1");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/fetch_mnist.sh"));
}

}  // namespace
}  // namespace catchment
