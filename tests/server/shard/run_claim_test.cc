#include "server/shard/run_claim.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kInstance = 7;

v1::ShardCommand CommandOf(uint64_t run_id, const std::string& job, const std::string& master,
                           uint64_t server_instance = kInstance) {
  v1::ShardCommand command;
  command.mutable_run()->set_id(run_id);
  command.mutable_run()->set_job(job);
  command.mutable_run()->set_master(master);
  command.set_server_instance(server_instance);
  return command;
}

TEST(RunClaim, FirstRunThatCommandsHasTheServer) {
  RunClaim claim(kInstance);
  EXPECT_EQ(claim.run().id(), 0u);
  EXPECT_TRUE(claim.Admit(CommandOf(1, "a", "m:1")).ok());
  EXPECT_EQ(claim.run().id(), 1u);
  EXPECT_TRUE(claim.Admit(CommandOf(1, "a", "m:1")).ok());
  const absl::Status other = claim.Admit(CommandOf(2, "b", "n:1"));
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(other.message()),
            "this server belongs to run 0000000000000001 of job 'a' (master at m:1), and refuses run "
            "0000000000000002 of job 'b' (master at n:1): give each job servers of its own");
  EXPECT_THAT(std::string(claim.Admit(CommandOf(3, "a", "m:1")).message()),
              HasSubstr(": restart the server"));
  EXPECT_EQ(claim.run().id(), 1u);
}

TEST(RunClaim, CommandForAnotherProcessClaimsNothing) {
  RunClaim claim(kInstance);
  EXPECT_EQ(claim.Admit(CommandOf(1, "a", "m:1", kInstance + 1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(claim.Admit(CommandOf(1, "a", "m:1", 0)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(claim.Admit(CommandOf(0, "a", "m:1")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(claim.run().id(), 0u);
}

TEST(RunClaim, PeersMustBelongToTheRun) {
  RunClaim claim(kInstance);
  EXPECT_THAT(std::string(claim.Check(1, "the worker").message()),
              HasSubstr("and this server to no run yet"));
  EXPECT_FALSE(claim.Check(0, "the worker").ok()) << "0 is not the id of a run";
  ASSERT_TRUE(claim.Claim(CommandOf(1, "a", "m:1").run()).ok());
  EXPECT_TRUE(claim.Check(1, "the worker").ok());
  EXPECT_FALSE(claim.Check(0, "the worker").ok());
  EXPECT_EQ(claim.Check(2, "the worker").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(std::string(claim.Check(2, "the worker").message()),
            "the worker belongs to run 0000000000000002, and this server to run 0000000000000001 of job 'a' "
            "(master at m:1); ask the master for the job, and register again");
}

}  // namespace
}  // namespace catchment
