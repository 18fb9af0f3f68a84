// `catchment watch` beside a job of real daemons, as a browser sees it.
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::Not;

class WatchTest : public testing::Test {
 protected:
  // Starts the command, and waits for its address.
  void Watch(const std::string& master) {
    absl::StatusOr<Process> process = Process::Start(
        {"watch", {Runfile("cli/catchment"), "watch", master, "--port=0"}, TestDirectory() + "/watch.log"});
    ASSERT_TRUE(process.ok()) << process.status();
    command_ = std::make_unique<Process>(*std::move(process));
    ASSERT_TRUE(Await([&] { return absl::StrContains(command_->Output(), "?token=") || command_->Poll(); }));
    const std::string output = command_->Output(), host = "http://127.0.0.1:", query = "?token=";
    const size_t at = output.find(host), token = output.find(query);
    ASSERT_NE(at, std::string::npos) << output;
    port_ = atoi(output.c_str() + at + host.size());
    token_ = output.substr(token, output.find('\n', token) - token);
  }

  std::string Get(const std::string& path, int status = 200) {
    const HttpAnswer answer = HttpGet(port_, path);
    EXPECT_EQ(answer.status, status) << path;
    return answer.body;
  }
  std::string Content() { return Get("/content" + token_); }

  std::unique_ptr<Process> command_;
  int port_ = 0;
  std::string token_;
};

TEST_F(WatchTest, ShowsAJobThatLosesAWorkerToItsEndAndThenItsReport) {
  TestCluster cluster(
      {SmallJob("downpour", "workers: 2 batch_size: 32 epochs: 1000000 evaluation { every_epochs: 1 }"),
       /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(4000));
  ASSERT_TRUE(
      cluster.AwaitStatus("a score", [](const v1::JobStatus& status) { return status.test_samples() > 0; }));
  Watch(cluster.out_dir());
  const std::string page = Get("/" + token_);
  EXPECT_THAT(page, HasSubstr("content" + token_));
  EXPECT_THAT(page, Not(HasSubstr("http"))) << "the page needs nothing from elsewhere";
  ASSERT_TRUE(Await([&] { return absl::StrContains(Content(), "Accuracy</text>"); }));
  EXPECT_THAT(Content(), HasSubstr("<dt>workers</dt><dd>2 of 2"));
  cluster.Kill(cluster.worker(1));
  ASSERT_TRUE(Await([&] { return absl::StrContains(Content(), "<dt>workers</dt><dd>1 of 2"); }));
  EXPECT_THAT(Content(), HasSubstr("class=\"outcome TRAINING\""));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  ASSERT_TRUE(Await([&] { return absl::StrContains(Content(), "class=\"outcome STOPPED\""); }));
  command_->Signal(SIGINT);
  ASSERT_TRUE(command_->WaitFor(kPatience));
  EXPECT_EQ(command_->Poll()->exit_code, 0);
}

TEST_F(WatchTest, PageNeedsItsToken) {
  TestCluster cluster({SmallJob("sync", "workers: 1 batch_size: 32 epochs: 1000000")});
  ASSERT_TRUE(cluster.StartMaster());
  Watch(cluster.master());
  for (const char* path :
       {"/", "/content", "/report", "/?token=", "/content?token=0123456789abcdef0123456789abcdef"})
    EXPECT_THAT(Get(path, 403), HasSubstr("`catchment watch` printed"));
  EXPECT_THAT(Content(), HasSubstr("waiting for workers"));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

TEST_F(WatchTest, RefusesATakenPortAndADirectoryWithoutARun) {
  TestCluster cluster({SmallJob("sync", "workers: 1 batch_size: 32 epochs: 1000000")});
  ASSERT_TRUE(cluster.StartMaster());
  const std::string port = cluster.master().substr(cluster.master().rfind(':') + 1);
  const Finished taken = RunToEnd({Runfile("cli/catchment"), "watch", cluster.master(), "--port=" + port});
  EXPECT_EQ(taken.end.exit_code, 1);
  EXPECT_THAT(taken.output, HasSubstr("cannot listen on 127.0.0.1:" + port));
  const Finished nothing = RunToEnd({Runfile("cli/catchment"), "watch", TestDirectory()});
  EXPECT_EQ(nothing.end.exit_code, 3);
  EXPECT_THAT(nothing.output, HasSubstr(TestDirectory()));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

}  // namespace
}  // namespace catchment
