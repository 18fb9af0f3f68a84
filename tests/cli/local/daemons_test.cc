#include <filesystem>
#include <fstream>

#include "cli/local/local_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DaemonsTest : public ::testing::Test {
 protected:
  DaemonsTest()
      : root_(fs::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "cli");
  }
  std::string Put(const std::string& path) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "#!/bin/sh\n";
    fs::permissions(root_ / path, fs::perms::owner_all);
    return root_ / path;
  }

  const fs::path root_;
};

TEST_F(DaemonsTest, AreFoundBesideTheCommand) {
  const std::string server = Put("cli/catchment_server");
  const std::string worker = Put("cli/catchment_worker");
  Put("server/catchment_server");
  const auto found = FindDaemons(root_ / "cli");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->server, server);
  EXPECT_EQ(found->worker, worker);
}

TEST_F(DaemonsTest, AreFoundWhereBazelPutsThem) {
  const std::string server = Put("server/catchment_server");
  const std::string worker = Put("worker/catchment_worker");
  const auto found = FindDaemons(root_ / "cli");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->server, server);
  EXPECT_EQ(found->worker, worker);
}

TEST_F(DaemonsTest, AnErrorNamesEveryPlaceLookedAt) {
  Put("server/catchment_server");
  const auto found = FindDaemons(root_ / "cli");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(std::string(found.status().message()),
              AllOf(HasSubstr((root_ / "cli/catchment_worker").string()),
                    HasSubstr((root_ / "worker/catchment_worker").string())));
}

TEST_F(DaemonsTest, AFileThatCannotBeExecutedIsNotADaemon) {
  fs::permissions(Put("cli/catchment_server"), fs::perms::owner_read);
  Put("cli/catchment_worker");
  EXPECT_FALSE(FindDaemons(root_ / "cli").ok());
}

TEST(OwnDirectoryTest, HoldsThisProgram) {
  const auto directory = OwnDirectory();
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE(fs::exists(fs::path(*directory) / "daemons_test")) << *directory;
}

}  // namespace
}  // namespace catchment
