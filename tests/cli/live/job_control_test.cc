#include "cli/live/job_control.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/net/scripted_master.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobControlTest : public ::testing::Test {
 protected:
  JobControlTest() {
    master_.get_status.EditReply([](v1::JobStatus* status) {
      status->set_job("digits");
      status->set_run_id(7);
      status->add_workers()->set_host("\x1b[2Jnode0");
      status->add_events("a\rb");
      status->add_events("a\nE20261125 b\u202e\u009b");
    });
    master_.stop.SetHandler([](const v1::StopRequest& request, auto*) {
      return absl::FailedPreconditionError("got: " + request.reason());
    });
  }
  std::string Address() const { return master_.address(); }
  void SetRunId(uint64_t run_id) {
    master_.get_status.EditReply([run_id](v1::JobStatus* status) { status->set_run_id(run_id); });
  }
  // Returns the run that each request to stop means.
  std::vector<uint64_t> Stopped() const {
    std::vector<uint64_t> runs;
    for (const v1::StopRequest& request : master_.stop.requests()) runs.push_back(request.run_id());
    return runs;
  }
  JobControl Client() const { return *JobControl::Create(Address(), {}); }

  ScriptedMaster master_;
};

TEST_F(JobControlTest, GetsTheStatus) {
  JobControl client = Client();
  const auto status = client.GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->job(), "digits");
}

TEST_F(JobControlTest, ControlCharactersOfMembersDoNotReachTheTerminal) {
  JobControl client = Client();
  const auto status = client.GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->workers(0).host(), "\\x1b[2Jnode0");
  EXPECT_EQ(status->events(0), "a\\x0db");
  EXPECT_EQ(status->events(1), "a\\nE20261125 b\\u202e\\u009b") << "an event is one line";
  EXPECT_THAT(std::string(client.Stop("\x1b[2J\u202e").message()), HasSubstr("got: \\x1b[2J\\u202e"));
}

TEST_F(JobControlTest, SendsTheReasonAndReturnsTheMastersErrorWithItsAddress) {
  JobControl client = Client();
  EXPECT_EQ(client.Stop("enough"), absl::FailedPreconditionError("master at " + Address() + ": got: enough"));
}

TEST_F(JobControlTest, AMasterThatIsNotThereIsNamed) {
  JobControl client = Client();
  master_.Shutdown();
  const auto status = client.GetStatus();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.status().message()), HasSubstr("master at " + Address()));
}

TEST_F(JobControlTest, CallsFailAfterDisconnecting) {
  JobControl client = Client();
  ASSERT_TRUE(client.GetStatus().ok());
  client.Disconnect();
  EXPECT_TRUE(absl::IsUnavailable(client.GetStatus().status()));
  EXPECT_TRUE(absl::IsUnavailable(client.Stop("enough")));
}

class RunCertificatesTest : public ::testing::Test {
 protected:
  RunCertificatesTest()
      : run_(::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(run_);
    Write("master.address", "10.0.0.1:7000\n");
  }

  void Write(const std::string& name, const std::string& text = "") const {
    const std::filesystem::path path = run_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // Returns the directory of certificates that a command about the run uses.
  std::string Found(const TlsFiles& given = {}, bool insecure = false) const {
    MasterFlags flags = {run_, given, insecure};
    FindCertificates(&flags);
    return flags.tls.certs;
  }

  const std::string run_;
};

TEST_F(RunCertificatesTest, AreThoseOfTheNewestJobInTheDirectory) {
  EXPECT_EQ(Found(), "");
  Write("certs/operator.crt");
  EXPECT_EQ(Found(), run_ + "/certs");
  const auto made = std::filesystem::last_write_time(run_ + "/certs/operator.crt");
  for (const int job : {9, 10, 7}) {
    const std::string file = absl::StrCat("certs.", job, "/operator/operator.crt");
    Write(file);
    std::filesystem::last_write_time(run_ + "/" + file, made + std::chrono::seconds(100 - job));
  }
  EXPECT_EQ(Found(), run_ + "/certs.7/operator");
  MasterFlags flags = {run_, {}, false};
  EXPECT_THAT(std::string(CheckMasterFlags(&flags).message()), HasSubstr("/certs.7/operator/ca.crt"));
}

TEST_F(RunCertificatesTest, AreNotUsedInPlaceOfOthersNorWithoutANetwork) {
  Write("certs.1/operator/operator.crt");
  EXPECT_EQ(Found(TlsFiles{.certs = "given"}), "given");
  EXPECT_EQ(Found(TlsFiles{.ca = "given"}), "");
  EXPECT_EQ(Found({}, /*insecure=*/true), "");
  Write("master.address", "unix:/run/catchment/server-0\n");
  EXPECT_EQ(Found(), "");
}

TEST(JobControlCreateTest, RefusesTlsFilesThatCannotBeRead) {
  const auto client = JobControl::Create("127.0.0.1:1", {"/no/ca", "/no/cert", "/no/key"});
  ASSERT_FALSE(client.ok());
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("--tls_ca=/no/ca"));
}

class DirectoryOfAMaster : public JobControlTest {
 protected:
  DirectoryOfAMaster() : files_(Directory()) {
    files_.WriteRun(7);
    files_.WriteAddress(Address());
  }
  static std::string Directory() {
    const std::string path =
        ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(path);
    return path;
  }
  JobControl ClientOfDirectory() const {
    return *JobControl::Create(MasterFlags{.master = Directory(), .insecure = true});
  }

  const MasterAddressFile files_;
};

TEST_F(DirectoryOfAMaster, ItsRunIsShownAndStopped) {
  JobControl client = ClientOfDirectory();
  EXPECT_EQ(client.address(), Address());
  EXPECT_TRUE(client.GetStatus().ok());
  EXPECT_THAT(std::string(client.Stop("enough").message()), HasSubstr("got: enough"));
  EXPECT_THAT(Stopped(), ElementsAre(7));
}

// The master was killed, and another job has its address.
TEST_F(DirectoryOfAMaster, AnotherRunAtItsAddressIsNeitherShownNorStopped) {
  SetRunId(8);
  JobControl client = ClientOfDirectory();
  for (const absl::Status& status : {client.GetStatus().status(), client.Stop("enough")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("is that of another run"), HasSubstr("digits"),
                                                     HasSubstr(Directory() + "/master.address")));
  }
  EXPECT_THAT(Stopped(), IsEmpty());
}

TEST_F(DirectoryOfAMaster, ARunThatWasStartedAgainInItIsStopped) {
  JobControl client = ClientOfDirectory();
  ASSERT_TRUE(client.GetStatus().ok());
  files_.WriteRun(9);
  SetRunId(9);
  EXPECT_TRUE(client.GetStatus().ok());
  EXPECT_THAT(std::string(client.Stop("enough").message()), HasSubstr("got: enough"));
  EXPECT_THAT(Stopped(), ElementsAre(9));
}

}  // namespace
}  // namespace catchment
