// Runs `catchment doctor` on this machine, whatever it is: tests look at the checks whose subject they make
// themselves.
#include "cli/doctor/doctor.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/net/scripted_master.h"

namespace catchment {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Examination {
  int exit_code = 0;
  std::map<std::string, nlohmann::json> findings;  // by check

  std::string verdict(const std::string& check) { return findings[check].value("verdict", "absent"); }
  std::string text(const std::string& check) { return findings[check].value("text", ""); }
  std::string remedy(const std::string& check) { return findings[check].value("remedy", ""); }
};

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    for (const char* variable : {"CATCHMENT_MASTER", "CATCHMENT_CERTS"}) unsetenv(variable);
  }

  int Run(const std::vector<std::string>& args) {
    out_.str("");
    err_.str("");
    return RunDoctor(args, paths_, {&out_, &err_});
  }

  Examination Examine(std::vector<std::string> args) {
    args.push_back("--json");
    Examination result;
    result.exit_code = Run(args);
    for (const nlohmann::json& finding : nlohmann::json::parse(out_.str())) {
      result.findings[finding["check"]] = finding;
      EXPECT_THAT(finding["verdict"], AnyOf("ok", "warn", "fail"));
      EXPECT_EQ(finding["remedy"].empty() || finding["remedy"] == "", finding["verdict"] == "ok") << finding;
    }
    return result;
  }

  // Makes certificates for localhost.
  std::string MakeCertificates() const {
    const std::string directory = folder_ + "/certs";
    EXPECT_EQ(std::system(absl::StrCat("bash deploy/make_certs.sh ", directory, " >/dev/null").c_str()), 0);
    return directory;
  }

  std::string folder_;
  DataPaths paths_;
  std::ostringstream out_, err_;
};

TEST_F(DoctorTest, EveryLineHasAVerdictAndOnlyThisMachineIsChecked) {
  const int code = Run({});
  EXPECT_THAT(code, AnyOf(0, 1));
  std::istringstream lines(out_.str());
  int checks = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == ' ') continue;
    EXPECT_THAT(line.substr(0, 6), AnyOf("ok    ", "warn  ", "fail  "));
    ++checks;
  }
  EXPECT_GE(checks, 10);
  for (const char* check :
       {"processor", "cuda", "memory", "open files", "host name", "ports", "clock", "data"})
    EXPECT_THAT(out_.str(), HasSubstr(std::string("  ") + check + " "));
  EXPECT_THAT(out_.str(), Not(HasSubstr("certificates  ")));
}

TEST_F(DoctorTest, MasterThatAnswersIsNamedWithItsVersion) {
  ScriptedMaster master;
  master.get_job.EditReply([](v1::GetJobReply* reply) {
    reply->mutable_job()->set_name("digits");
    reply->set_build(BuildVersion());
    reply->set_unix_seconds(absl::ToDoubleSeconds(absl::Now() - absl::Seconds(40) - absl::UnixEpoch()));
  });
  Examination found = Examine({master.address()});
  EXPECT_EQ(found.verdict("ports"), "ok");
  EXPECT_THAT(found.text("ports"), HasSubstr("job digits"));
  EXPECT_THAT(found.text("version"), HasSubstr("as the master"));
  EXPECT_EQ(found.verdict("clock"), "warn");
  EXPECT_THAT(found.text("clock"), HasSubstr("ahead of the master's"));
}

TEST_F(DoctorTest, PortOfAProcessThatIsNotAMasterFailsAndAFreeOneDoesNot) {
  grpc::ServerBuilder builder;
  int port = 0;
  v1::MasterService::Service stranger;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&stranger);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string address = absl::StrCat("127.0.0.1:", port);
  Examination found = Examine({address});
  EXPECT_EQ(found.verdict("ports"), "fail");
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.text("ports"), HasSubstr("no server can listen on " + address));
  server->Shutdown();
  server.reset();
  found = Examine({address});
  EXPECT_EQ(found.verdict("ports"), "ok");
  EXPECT_THAT(found.text("ports"), HasSubstr(address + " is free"));
}

TEST_F(DoctorTest, AddressInANetworkNeedsCertificates) {
  Examination found = Examine({"192.0.2.1:7000"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.verdict("ports"), "fail");
  EXPECT_THAT(found.remedy("ports"), HasSubstr("--certs=DIR"));
}

TEST_F(DoctorTest, DirectoryWithoutAMasterFails) {
  Examination found = Examine({folder_});
  EXPECT_EQ(found.verdict("ports"), "fail");
  EXPECT_THAT(found.text("ports"), HasSubstr("no master uses this --out"));
}

TEST_F(DoctorTest, CertificatesAreValidUntilTheirFilesAreMixed) {
  const std::string certs = MakeCertificates();
  Examination found = Examine({"localhost:0", "--certs=" + certs});
  EXPECT_EQ(found.verdict("certificates"), "ok") << found.text("certificates");
  EXPECT_THAT(found.text("certificates"), HasSubstr("operator, server, worker, evaluator: valid until"));
  std::filesystem::copy_file(certs + "/server.key", certs + "/worker.key",
                             std::filesystem::copy_options::overwrite_existing);
  found = Examine({"--certs=" + certs});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.verdict("certificates"), "fail");
  EXPECT_THAT(found.text("certificates"), HasSubstr("are not a matching key and certificate"));
}

TEST_F(DoctorTest, CertificateOfAnotherRoleHostOrAuthorityFails) {
  const std::string certs = MakeCertificates();
  Examination found = Examine({"127.0.0.2:0", "--certs=" + certs});
  EXPECT_THAT(found.text("certificates"), HasSubstr("server.crt is not valid for 127.0.0.2"));
  for (const char* suffix : {".crt", ".key"}) {
    std::filesystem::copy_file(certs + "/worker" + suffix, certs + "/operator" + suffix,
                               std::filesystem::copy_options::overwrite_existing);
  }
  found = Examine({"--certs=" + certs});
  EXPECT_THAT(found.text("certificates"), HasSubstr("operator.crt names the role worker and not operator"));
  std::filesystem::create_directories(folder_ + "/others");
  const std::string others = folder_ + "/others";
  EXPECT_EQ(std::system(absl::StrCat("bash deploy/make_certs.sh ", others, " >/dev/null").c_str()), 0);
  std::filesystem::copy_file(others + "/ca.crt", certs + "/ca.crt",
                             std::filesystem::copy_options::overwrite_existing);
  found = Examine({"--certs=" + certs});
  EXPECT_THAT(found.text("certificates"), HasSubstr("is not from an authority in"));
}

TEST_F(DoctorTest, KeyThatEveryUserCanReadIsAWarning) {
  const std::string certs = MakeCertificates();
  chmod((certs + "/worker.key").c_str(), 0644);
  Examination found = Examine({"--certs=" + certs});
  EXPECT_EQ(found.verdict("certificates"), "warn");
  EXPECT_THAT(found.text("certificates"), HasSubstr("can read the key of " + certs + "/worker.crt"));
}

TEST_F(DoctorTest, DirectoryWithoutCertificatesFails) {
  Examination found = Examine({"--certs=" + folder_});
  EXPECT_EQ(found.verdict("certificates"), "fail");
  EXPECT_THAT(found.remedy("certificates"), HasSubstr("deploy/make_certs.sh " + folder_));
  found = Examine({"--certs=" + folder_ + "/none"});
  EXPECT_THAT(found.text("certificates"), HasSubstr("cannot read " + folder_ + "/none"));
}

TEST_F(DoctorTest, FilesThatAreGivenOneByOneMustBeComplete) {
  Examination found = Examine({"--tls_ca=ca.crt"});
  EXPECT_EQ(found.verdict("certificates"), "fail");
  EXPECT_THAT(found.remedy("certificates"), HasSubstr("--tls_cert and --tls_key"));
  const std::string certs = MakeCertificates();
  found = Examine({"--tls_ca=" + certs + "/ca.crt", "--tls_cert=" + certs + "/worker.crt",
                   "--tls_key=" + certs + "/worker.key"});
  EXPECT_EQ(found.verdict("certificates"), "ok") << found.text("certificates");
  EXPECT_THAT(found.text("certificates"), HasSubstr("worker: valid until"));
}

TEST_F(DoctorTest, MeasuresDirectoriesAndLeavesThemEmpty) {
  Examination found = Examine({"--out=" + folder_, "--checkpoint_dir=" + folder_ + "/a/b"});
  EXPECT_THAT(found.text("out"), HasSubstr("writes and syncs"));
  EXPECT_THAT(found.text("checkpoint_dir"), HasSubstr("/a/b does not exist yet; in " + folder_ + ": writes"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(DoctorTest, DirectoryThatCannotBeWrittenFails) {
  // Even root cannot write there.
  Examination found = Examine({"--out=/proc/catchment", "--checkpoint_dir=/dev/null/x"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.verdict("out"), "fail");
  EXPECT_THAT(found.text("out"), HasSubstr("/proc"));
  EXPECT_EQ(found.verdict("checkpoint_dir"), "fail");
}

TEST_F(DoctorTest, DataAreSearchedAsWorkersDo) {
  Examination found = Examine({});
  EXPECT_EQ(found.verdict("data"), "warn");
  EXPECT_THAT(found.remedy("data"), HasSubstr("CATCHMENT_DATA"));
  std::filesystem::create_directories(folder_ + "/mnist");
  std::ofstream(folder_ + "/mnist/train-images-idx3-ubyte") << "x";
  found = Examine({"--data=" + folder_});
  EXPECT_THAT(found.remedy("data"), HasSubstr(folder_ + "/mnist"));
}

TEST_F(DoctorTest, JobsDataAndMemoryAreChecked) {
  Examination found = Examine({"--job=examples/drawn_digits.textproto"});
  EXPECT_EQ(found.verdict("job"), "ok");
  EXPECT_EQ(found.verdict("data"), "ok");
  EXPECT_THAT(found.text("data"), HasSubstr("for training"));
  EXPECT_THAT(found.text("memory"), HasSubstr("for a worker"));
  found = Examine({"--job=examples/mnist_cnn.textproto"});
  EXPECT_EQ(found.verdict("data"), "fail");
  EXPECT_EQ(found.exit_code, 1);
  found = Examine({"--job=/no/job"});
  EXPECT_EQ(found.verdict("job"), "fail");
  EXPECT_THAT(found.remedy("job"), HasSubstr("/no/job"));
}

TEST_F(DoctorTest, ExitCodeIsTwoForAWrongCommandLine) {
  EXPECT_EQ(Run({"http://a:1"}), 2);
  EXPECT_EQ(Run({"a:1", "b:2"}), 2);
  EXPECT_EQ(Run({"--frobnicate"}), 2);
  EXPECT_EQ(Run({"--help"}), 0);
}

}  // namespace
}  // namespace catchment
