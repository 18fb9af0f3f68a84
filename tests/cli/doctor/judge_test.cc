#include "cli/doctor/judge.h"

#include <climits>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const absl::Time kNow = absl::FromCivil(absl::CivilSecond(2026, 11, 26, 12, 0, 0), absl::UTCTimeZone());

void ExpectOk(const Finding& finding, const std::string& text) {
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text << finding.remedy;
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_THAT(finding.remedy, IsEmpty());
}
// Every other verdict has a remedy, a sentence.
void ExpectBad(const Finding& finding, Verdict verdict, const std::string& text, const std::string& remedy) {
  EXPECT_EQ(finding.verdict, verdict) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
  EXPECT_THAT(finding.remedy, Not(IsEmpty()));
}
void ExpectWarn(const Finding& finding, const std::string& text, const std::string& remedy) {
  ExpectBad(finding, Verdict::kWarn, text, remedy);
}
void ExpectFail(const Finding& finding, const std::string& text, const std::string& remedy) {
  ExpectBad(finding, Verdict::kFail, text, remedy);
}

TEST(JudgeProcessorTest, NamesInstructionsAndProcessors) {
  ExpectOk(JudgeProcessor({.instructions = "AVX2", .available = 4, .of_machine = 4}), "AVX2; 4 processors");
}

TEST(JudgeProcessorTest, QuotaIsNamed) {
  ExpectOk(JudgeProcessor({.instructions = "AVX2", .available = 1, .of_machine = 64}), "1 of 64 processors");
}

TEST(JudgeProcessorTest, LimitOfOneDnnIsAWarning) {
  ExpectWarn(JudgeProcessor({"AVX2", "AVX2", 4, 4}), "AVX2", "Unset DNNL_MAX_CPU_ISA");
}

TEST(JudgeCudaTest, MachineWithoutPluginAndDriverIsInOrder) {
  ExpectOk(JudgeCuda({.plugin = "/p", .opened = absl::NotFoundError("no")}), "on the processor");
}

TEST(JudgeCudaTest, DriverWithoutPluginIsAWarning) {
  ExpectWarn(JudgeCuda({.driver = "535.1", .plugin = "/p", .opened = absl::NotFoundError("no")}),
             "no plugin at /p", "CATCHMENT_CUDA_PLUGIN");
}

TEST(JudgeCudaTest, PluginThatCannotBeOpenedIsAWarning) {
  ExpectWarn(JudgeCuda({.plugin = "/p", .opened = absl::FailedPreconditionError("cuBLAS is missing")}),
             "cuBLAS is missing", "on the processor");
}

TEST(JudgeCudaTest, DeviceThatIsNotThereIsAWarningOnlyWithADriver) {
  CudaFacts facts{.plugin = "/p", .devices = absl::FailedPreconditionError("no device")};
  ExpectOk(JudgeCuda(facts), "no device");
  facts.driver = "535.1";
  ExpectWarn(JudgeCuda(facts), "no device", "on the processor");
}

TEST(JudgeCudaTest, DeviceThatIsTooOldIsAWarning) {
  CudaFacts facts{.driver = "535.1", .devices = std::vector<CudaDevice>{{"V100", uint64_t{16} << 30, 7, 0}}};
  ExpectWarn(JudgeCuda(facts), "V100, 16 GiB", "8.0");
  facts.devices->push_back({"H100", uint64_t{80} << 30, 9, 0});
  ExpectOk(JudgeCuda(facts), "H100, 80 GiB, compute capability 9.0; driver 535.1");
}

TEST(DriverVersionTest, IsReadFromTheKernelsText) {
  EXPECT_EQ(DriverVersion(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15\nGCC 12.2.0"),
            "535.104.05");
  EXPECT_EQ(DriverVersion(""), "of an unknown version");
}

TEST(JudgeHostNameTest, NameOfANetworkAddressIsInOrder) {
  ExpectOk(JudgeHostName({"node0", {"10.0.0.1"}, {"127.0.0.1", "10.0.0.1"}, ""}), "node0 is 10.0.0.1");
}

TEST(JudgeHostNameTest, LoopbackAddressOfDebiansInstallerIsAWarning) {
  ExpectWarn(JudgeHostName({"node0",
                            {"127.0.1.1"},
                            {"127.0.0.1", "10.0.0.1"},
                            "127.0.0.1 localhost\n# node0\n127.0.1.1\tnode0.site node0 # installer\n"}),
             "node0 is 127.0.1.1 (line 3 of /etc/hosts)", "listens on all interfaces");
}

TEST(JudgeHostNameTest, NameWithoutAddressIsAWarning) {
  ExpectWarn(JudgeHostName({"node0", {}, {"10.0.0.1"}, ""}), "node0, has no address", "/etc/hosts");
}

TEST(JudgeHostNameTest, AddressOfAnotherMachineIsAWarning) {
  ExpectWarn(JudgeHostName({"node0", {"10.0.0.9"}, {"10.0.0.1"}, "10.0.0.9 node0"}),
             "no such address, only 10.0.0.1", "Correct /etc/hosts");
}

TEST(LineOfHostTest, IsOfAWholeName) {
  EXPECT_EQ(LineOfHost("127.0.1.1 node01\n10.0.0.1 node0", "node0"), "line 2 of /etc/hosts");
  EXPECT_EQ(LineOfHost("# 10.0.0.1 node0\n", "node0"), "");
  EXPECT_EQ(LineOfHost("node0", "node0"), "") << "a line without an address";
}

AddressFacts Address() {
  return {.address = "node0:7000", .addresses = {"10.0.0.1"}, .job = absl::UnavailableError("refused")};
}

TEST(JudgeAddressTest, MasterThatAnswersIsNamed) {
  AddressFacts facts = Address();
  facts.job = v1::GetJobReply();
  facts.job->mutable_job()->set_name("digits");
  facts.job->add_servers("node0:7000");
  ExpectOk(JudgeAddress(facts), "a master answers at node0:7000: job digits, 1 server");
  facts.job->set_ended("done");
  ExpectOk(JudgeAddress(facts), "its job has ended: done");
}

TEST(JudgeAddressTest, FreePortOfThisMachineIsInOrder) {
  AddressFacts facts = Address();
  facts.is_here = true;
  ExpectOk(JudgeAddress(facts), "node0:7000 is free");
}

TEST(JudgeAddressTest, PortThatAnotherProcessHasFails) {
  AddressFacts facts = Address();
  facts.is_here = true;
  facts.listening = absl::UnavailableError("Address already in use; choose another port");
  ExpectFail(JudgeAddress(facts), "Address already in use", "`ss -ltnp`");
  EXPECT_THAT(JudgeAddress(facts).remedy, HasSubstr("refused"));
}

TEST(JudgeAddressTest, MachineThatDoesNotAnswerFails) {
  ExpectFail(JudgeAddress(Address()), "refused", "firewall");
}

TEST(JudgeAddressTest, UnknownNameFails) {
  AddressFacts facts = Address();
  facts.addresses.clear();
  ExpectFail(JudgeAddress(facts), "node0:7000 has no address", "DNS");
}

TEST(JudgeAddressTest, AddressThatNeedsCertificatesFails) {
  AddressFacts facts = Address();
  facts.secure = absl::FailedPreconditionError("give all processes --certs=DIR");
  ExpectFail(JudgeAddress(facts), "refuse the address node0:7000", "give all processes --certs=DIR.");
}

TEST(JudgeAddressTest, WithoutAnAddressAPortIsOpened) {
  ExpectOk(JudgeAddress({.job = absl::UnavailableError("")}), "ports can be opened");
  ExpectFail(JudgeAddress({.job = absl::UnavailableError(""), .listening = absl::UnavailableError("denied")}),
             "denied", "Permit");
}

v1::GetJobReply ReplyOf(const std::string& build, uint32_t protocol) {
  v1::GetJobReply reply;
  reply.set_build(build);
  reply.set_protocol_version(protocol);
  return reply;
}

TEST(JudgeVersionTest, OtherProtocolFailsAndOtherBuildIsAWarning) {
  constexpr uint32_t kOurs = 7;
  ExpectOk(JudgeVersion("0.1.0", std::nullopt), "0.1.0");
  ExpectOk(JudgeVersion("0.1.0", ReplyOf("0.1.0", kOurs)), "0.1.0, as the master");
  ExpectWarn(JudgeVersion("0.1.0", ReplyOf("0.1.1", kOurs)), "the master's is 0.1.1", "same version");
  ExpectFail(JudgeVersion("0.1.0", ReplyOf("0.2.0", kOurs + 1)), "the master's is 0.2.0", "same version");
}

TEST(JudgeClockTest, ClockWithoutATimeServiceIsAWarningWithCertificates) {
  ExpectOk(JudgeClock({.now = kNow, .synchronized = true, .has_certificates = true}),
           "2026-11-26 12:00 UTC; set by a time service");
  ExpectOk(JudgeClock({.now = kNow, .synchronized = false}), "2026-11-26 12:00 UTC");
  ExpectOk(JudgeClock({.now = kNow, .has_certificates = true}), "2026-11-26 12:00 UTC");
  ExpectWarn(JudgeClock({.now = kNow, .synchronized = false, .has_certificates = true}), "not synchronized",
             "chrony");
}

TEST(JudgeClockTest, ClockIsComparedWithTheMasters) {
  const auto judge = [](double of_master, double error, bool has_certificates) {
    return JudgeClock({.now = kNow,
                       .synchronized = true,
                       .has_certificates = has_certificates,
                       .of_master = absl::Seconds(of_master),
                       .error = absl::Seconds(error)});
  };
  ExpectOk(judge(0.02, 0.01, true), "20 ms behind the master's; set by a time service");
  ExpectOk(judge(-0.5, 0, false), "500 ms ahead of the master's");
  ExpectWarn(judge(-30, 0.01, false), "30 s ahead of the master's", "logs");
  ExpectOk(judge(30, 29.5, false), "behind");  // may be half a second
  ExpectWarn(judge(4000, 1, false), "behind the master's", "chrony");
  ExpectFail(judge(4000, 1, true), "behind the master's", "more than an hour");
}

TEST(JudgeOpenFilesTest, LimitBelowThatOfTheJobFails) {
  ExpectOk(JudgeOpenFiles(INT64_MAX, 100000, 1), "no limit");
  ExpectOk(JudgeOpenFiles(1024, 100, 1), "at most 1,024");
  ExpectFail(JudgeOpenFiles(1024, 600, 1), "600 workers", "ulimit -Hn");
}

TEST(JudgeOpenFilesTest, SmallLimitIsAWarningWithoutAJob) {
  ExpectWarn(JudgeOpenFiles(100, 0, 1), "at most 100", "ulimit -Hn");
}

TEST(JudgeThreadsTest, LimitThatLeavesTooFewForAJobFails) {
  ExpectOk(JudgeThreads({}, 1000), "no limit");
  const ThreadRoom room = {.limit = 100, .used = 40, .source = "/sys/fs/cgroup/pids.max"};
  ExpectOk(JudgeThreads(room, 60), "at most 100 (/sys/fs/cgroup/pids.max), of which 40 are in use");
  ExpectFail(JudgeThreads(room, 61), "need about 61", "ulimit -u");
}

TEST(JudgeMemoryTest, LittleMemoryIsAWarningAndTooLittleForTheJobFails) {
  ExpectOk(JudgeMemory({.free = 8'000'000'000, .limit = INT64_MAX}), "8.00 GB free");
  ExpectWarn(JudgeMemory({.free = 500'000'000, .limit = 600'000'000}), "of a cgroup's limit of 600 MB",
             "raise the limit");
  ExpectFail(
      JudgeMemory(
          {.free = 8'000'000'000, .limit = INT64_MAX, .server = 6'000'000'000, .worker = 3'000'000'000}),
      "6.00 GB for a server and 3.00 GB for a worker", "batch_size");
  ExpectOk(JudgeMemory({.limit = INT64_MAX}), "not known");
}

TEST(JudgeDataSetsTest, NoDataSetIsAWarningAndADamagedOneFails) {
  const absl::Status missing = absl::NotFoundError("Looked in: nowhere. Fetch them");
  ExpectOk(JudgeDataSets({{"A", absl::OkStatus()}, {"B", missing}}), "A; no files of B");
  ExpectWarn(JudgeDataSets({{"A", missing}, {"B", missing}}), "no files of A, B",
             "Looked in: nowhere. Fetch them.");
  ExpectFail(JudgeDataSets({{"A", absl::OkStatus()}, {"B", absl::DataLossError("Delete it")}}),
             "B cannot be used", "Delete it.");
}

CertificateFacts WorkersCertificate() {
  return {.file = "certs/worker.crt",
          .role = "worker",
          .certificate = {kNow - absl::Hours(1), kNow + absl::Hours(24 * 30), {"worker"}}};
}

TEST(JudgeCertificatesTest, ValidOnesAreNamedWithTheFirstThatExpires) {
  CertificateFacts authority = WorkersCertificate();
  authority.role = "";
  authority.certificate.roles.clear();
  ExpectOk(JudgeCertificates({authority, WorkersCertificate()}, kNow),
           "worker: valid until 2026-12-26 12:00 UTC");
}

TEST(JudgeCertificatesTest, OneThatIsNotValidYetFailsWithBothTimes) {
  CertificateFacts facts = WorkersCertificate();
  facts.certificate.valid_from = kNow + absl::Minutes(5);
  const Finding finding = JudgeCertificates({facts}, kNow);
  ExpectFail(finding, "certs/worker.crt is not valid before 2026-11-26 12:05 UTC", "clock");
  EXPECT_THAT(finding.text, HasSubstr("it is 2026-11-26 12:00 UTC"));
}

TEST(JudgeCertificatesTest, ExpiredOneFails) {
  CertificateFacts facts = WorkersCertificate();
  facts.certificate.valid_until = kNow - absl::Minutes(1);
  ExpectFail(JudgeCertificates({facts}, kNow), "has expired", "deploy/make_certs.sh");
}

TEST(JudgeCertificatesTest, OneThatExpiresSoonIsAWarning) {
  CertificateFacts facts = WorkersCertificate();
  facts.certificate.valid_until = kNow + absl::Hours(3);
  ExpectWarn(JudgeCertificates({facts}, kNow), "expires soon: 2026-11-26 15:00 UTC", "deploy/make_certs.sh");
}

TEST(JudgeCertificatesTest, OneOfAnotherRoleFails) {
  CertificateFacts facts = WorkersCertificate();
  facts.role = "server";
  ExpectFail(JudgeCertificates({facts}, kNow), "names the role worker and not server",
             "deploy/make_certs.sh");
  facts.certificate.roles.clear();
  ExpectFail(JudgeCertificates({facts}, kNow), "names no role and not server", "deploy/make_certs.sh");
}

TEST(JudgeCertificatesTest, ServersOneForAnotherHostFails) {
  CertificateFacts facts = WorkersCertificate();
  facts.wrong_host = "node9";
  ExpectFail(JudgeCertificates({facts}, kNow), "is not valid for node9", "deploy/make_certs.sh DIR node9");
}

TEST(JudgeCertificatesTest, FilesThatCannotBeUsedFailAndAPublicKeyIsAWarning) {
  CertificateFacts facts = WorkersCertificate();
  facts.is_key_public = true;
  ExpectWarn(JudgeCertificates({facts}, kNow), "every user of this machine can read the key", "chmod o-r");
  CertificateFacts unusable = WorkersCertificate();
  unusable.usable = absl::InvalidArgumentError("are not a matching key and certificate");
  ExpectFail(JudgeCertificates({facts, unusable}, kNow), "are not a matching key", "deploy/make_certs.sh");
}

DirectoryFacts FastDirectory() {
  return {.path = "out", .existing = "out", .bytes_per_second = 100e6, .free_bytes = 50e9};
}

TEST(JudgeDirectoryTest, RateAndSpaceAreNamed) {
  ExpectOk(JudgeDirectory(FastDirectory()), "out: writes and syncs 100 MB/s, 50.0 GB free");
  DirectoryFacts facts = FastDirectory();
  facts.existing = ".";
  ExpectOk(JudgeDirectory(facts), "out does not exist yet; in .: writes");
}

TEST(JudgeDirectoryTest, DirectoryWithoutRightsFails) {
  DirectoryFacts facts = FastDirectory();
  facts.written = absl::PermissionDeniedError("Permission denied");
  ExpectFail(JudgeDirectory(facts), "out: Permission denied", "write there");
}

TEST(JudgeDirectoryTest, SlowOrFullFileSystemIsAWarning) {
  DirectoryFacts facts = FastDirectory();
  facts.bytes_per_second = 2e6;
  ExpectWarn(JudgeDirectory(facts), "2.00 MB/s", "faster file system");
  facts = FastDirectory();
  facts.free_bytes = 1e6;
  ExpectWarn(JudgeDirectory(facts), "1.00 MB free", "Delete files");
}

}  // namespace
}  // namespace catchment
