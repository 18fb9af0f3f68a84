#include "cli/doctor/checkup.h"

#include <gnu/libc-version.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/doctor/judge.h"
#include "cli/job/job_facts.h"
#include "cli/job/read_job.h"
#include "cli/local/local_cluster.h"
#include "common/base/atomic_file.h"
#include "common/base/clock.h"
#include "common/base/file_access.h"
#include "common/base/machine.h"
#include "common/base/open_files.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/base/thread_limit.h"
#include "common/base/version.h"
#include "common/net/address.h"
#include "common/net/certificate.h"
#include "common/net/listen.h"
#include "common/net/rpc.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

// The roles, in the order in which the command prefers them for itself.
constexpr const char* kRoles[] = {"operator", "server", "worker", "evaluator"};

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the text of a file that may not exist.
std::string TextOf(const std::string& path) { return ReadFile(path).value_or(""); }

bool IsThisMachine(const std::vector<std::string>& addresses) {
  const std::vector<std::string> own = MachineAddresses();
  return AreLoopback(addresses) || absl::c_any_of(addresses, [&own](const std::string& address) {
           return address == "0.0.0.0" || address == "::" || absl::c_linear_search(own, address);
         });
}

// Opens the port for a moment.
absl::Status TryToListen(const std::string& address) {
  const std::string at = AddressToListenOn(address, Resolve(HostOf(address)));
  return ListenAt(HostOf(at), at.substr(at.rfind(':') + 1)).status();
}

// Writes some megabytes as a checkpoint is written, and deletes them.
absl::StatusOr<double> MeasureWriting(const std::string& directory) {
  constexpr int64_t kMegabytes = 16;
  const std::string megabyte(1'000'000, 'x');
  const std::string path = fs::path(directory) / absl::StrCat(".catchment_doctor.", getpid());
  const SteadyClock clock;
  const double begin = clock.Now();
  const auto file = AtomicFile::Create(path, kMegabytes * static_cast<int64_t>(megabyte.size()));
  absl::Status status = file.status();
  for (int64_t i = 0; i < kMegabytes && status.ok(); ++i)
    status = (*file)->Write(megabyte.data(), megabyte.size());
  if (status.ok()) status = (*file)->Commit();
  const double seconds = clock.Now() - begin;
  RETURN_IF_ERROR(status);
  unlink(path.c_str());
  return 1e6 * kMegabytes / seconds;
}

Finding CheckDirectory(const std::string& path) {
  DirectoryFacts facts{.path = path};
  // Daemons make the directory.
  fs::path existing = path;
  while (!Exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
  facts.existing = existing.empty() ? "." : existing.string();
  const absl::StatusOr<double> rate = MeasureWriting(facts.existing);
  facts.written = rate.status();
  facts.bytes_per_second = rate.value_or(0);
  struct statvfs system = {};
  if (statvfs(facts.existing.c_str(), &system) == 0)
    facts.free_bytes = static_cast<double>(system.f_bavail) * static_cast<double>(system.f_frsize);
  return JudgeDirectory(facts);
}

bool MayOthersRead(const std::string& path) {
  struct stat about = {};
  return stat(path.c_str(), &about) == 0 && (about.st_mode & S_IROTH) != 0;
}

absl::Status CheckUsable(const TlsFiles& files) {
  absl::Status status = ClientCredentials(files).status();
  if (status.ok()) status = CheckIssuer(files.cert, files.ca);
  return status;
}

}  // namespace

Checkup::Checkup(const DoctorOptions& options)
    : options_(options),
      place_(options.master.master.empty() ? MasterPlace() : PlaceOfMaster(options.master)),
      master_(absl::UnavailableError("no master was asked")),
      job_(options.job.empty() ? absl::NotFoundError("") : LoadCompleteJob(options.job, {}, 0)) {
  if (!place_.ok() || place_->address.empty()) return;
  const std::vector<TlsFiles> files = CertificateFiles();
  const TlsFiles tls = files.empty() ? TlsFiles() : files.front();
  secure_ = CheckSecure(place_->address, tls, options.master.insecure);
  if (!secure_.ok()) return;
  absl::StatusOr<JobControl> client = JobControl::Create(place_->address, tls);
  asked_ = absl::Now();
  master_ = client.ok() ? client->GetJob() : client.status();
  answered_ = absl::Now();
  if (!master_.ok() || !master_->ended().empty() || !IsRunDirectory(options.master.master)) return;
  const absl::Status same =
      CheckSameRun(options.master.master, *place_, master_->run_id(), master_->job().name());
  if (same.ok()) return;
  master_ = same;
  place_ = same;
}

bool Checkup::has_certificates() const {
  const TlsFiles& given = options_.master.tls;
  return !given.certs.empty() || !given.ca.empty() || !CheckComplete(given).ok();
}

std::vector<TlsFiles> Checkup::CertificateFiles() const {
  const TlsFiles& given = options_.master.tls;
  if (given.certs.empty()) return has_certificates() ? std::vector{given} : std::vector<TlsFiles>();
  std::vector<TlsFiles> files;
  for (const char* const role : kRoles) {
    if (!Exists(absl::StrCat(given.certs, "/", role, ".crt"))) continue;
    FillTlsFiles(role, &files.emplace_back(given));
  }
  return files;
}

std::optional<Finding> Checkup::CheckProcessor() {
  return JudgeProcessor({.instructions = CpuInstructionSet(),
                         .limited_by = Variable("DNNL_MAX_CPU_ISA"),
                         .available = AvailableProcessors(),
                         .of_machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))});
}

std::optional<Finding> Checkup::CheckSystem() {
  utsname system = {};
  const std::string kernel = uname(&system) == 0 ? absl::StrCat(", Linux ", system.release) : "";
  return Ok(absl::StrCat("glibc ", gnu_get_libc_version(), kernel));
}

std::optional<Finding> Checkup::CheckCuda() {
  constexpr char kDriver[] = "/proc/driver/nvidia/version";
  const absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  CudaFacts facts;
  facts.driver = Exists(kDriver) ? DriverVersion(TextOf(kDriver)) : "";
  facts.plugin = daemons.ok() ? CudaPluginPath(fs::path(daemons->worker).parent_path()) : CudaPluginPath();
  const absl::StatusOr<const CatchmentCudaPlugin*> plugin = OpenCudaPlugin(facts.plugin);
  facts.opened = plugin.status();
  if (plugin.ok()) facts.devices = ListCudaDevices(**plugin);
  return JudgeCuda(facts);
}

std::optional<Finding> Checkup::CheckPrograms() {
  const absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (daemons.ok()) return Ok(absl::StrCat(daemons->server, ", ", daemons->worker));
  return Fail(std::string(daemons.status().message()),
              "Unpack the whole bundle, or install the wheel, in one place.");
}

std::optional<Finding> Checkup::CheckHostName() {
  const std::string name = HostName();
  return JudgeHostName({name, Resolve(name), MachineAddresses(), TextOf("/etc/hosts")});
}

std::optional<Finding> Checkup::CheckAddress() {
  AddressFacts facts;
  if (!place_.ok()) {
    return Fail(std::string(place_.status().message()), "Name a running job's --out, or HOST:PORT.");
  }
  facts.address = place_->address;
  facts.secure = secure_;
  facts.job = master_;
  const bool is_unix = absl::StartsWith(place_->address, "unix:");
  if (facts.address.empty()) {
    facts.listening = TryToListen("127.0.0.1:0");
  } else {
    const std::string host = HostOf(place_->address);
    facts.addresses = is_unix ? std::vector{host} : Resolve(host);
    facts.is_here = !is_unix && IsThisMachine(facts.addresses);
    if (facts.is_here && !master_.ok()) facts.listening = TryToListen(place_->address);
  }
  return JudgeAddress(facts);
}

std::optional<Finding> Checkup::CheckVersion() {
  return JudgeVersion(BuildVersion(), master_.ok() ? std::optional(*master_) : std::nullopt);
}

std::optional<Finding> Checkup::CheckClock() {
  timex kernel = {};
  const int state = adjtimex(&kernel);
  ClockFacts facts{.now = absl::Now(), .has_certificates = has_certificates()};
  if (state >= 0) facts.synchronized = state != TIME_ERROR && (kernel.status & STA_UNSYNC) == 0;
  if (master_.ok() && master_->unix_seconds() > 0) {
    // The master answered at some moment between the two.
    facts.error = (answered_ - asked_) / 2;
    facts.of_master = absl::UnixEpoch() + absl::Seconds(master_->unix_seconds()) - (asked_ + facts.error);
  }
  return JudgeClock(facts);
}

std::optional<Finding> Checkup::CheckCertificates() {
  if (!has_certificates()) return std::nullopt;
  const std::vector<TlsFiles> files = CertificateFiles();
  const std::string& directory = options_.master.tls.certs;
  if (files.empty() && access(directory.c_str(), X_OK) != 0) {
    return Fail(std::string(absl::ErrnoToStatus(errno, "cannot read " + directory).message()),
                "Name an existing directory that this user may read.");
  }
  if (files.empty()) {
    return Fail(absl::StrCat("there is no certificate in ", directory, " (", kRoles[0], ".crt, ", kRoles[1],
                             ".crt, ...)"),
                absl::StrCat("Make them with deploy/make_certs.sh ", directory, " HOST..."));
  }
  if (absl::Status status = CheckComplete(files[0]); !status.ok())
    return Fail("some of the certificate's files are not given", absl::StrCat(status.message(), "."));
  const std::string host = place_.ok() && !place_->address.empty() ? HostOf(place_->address) : "";
  std::vector<CertificateFacts> facts;
  facts.push_back({.file = files[0].ca, .certificate = ReadCertificate(files[0].ca).value_or(Certificate())});
  facts[0].usable = ReadCertificate(files[0].ca).status();
  for (const TlsFiles& one : files) {
    CertificateFacts& of = facts.emplace_back();
    of.file = one.cert;
    of.usable = CheckUsable(one);
    of.certificate = ReadCertificate(one.cert).value_or(Certificate());
    of.role = directory.empty() && !of.certificate.roles.empty() ? of.certificate.roles[0]
                                                                 : fs::path(one.cert).stem().string();
    of.is_key_public = MayOthersRead(one.key);
    if (of.role == "server" && !host.empty() && host != "unix" && !IsValidFor(one.cert, host).value_or(true))
      of.wrong_host = host;
  }
  return JudgeCertificates(facts, absl::Now());
}

std::optional<Finding> Checkup::CheckOpenFiles() {
  RaiseOpenFiles();  // as daemons do
  return JudgeOpenFiles(OpenFilesLimit(), job_.ok() ? job_->workers() : 0, /*servers=*/1);
}

std::optional<Finding> Checkup::CheckThreads() {
  // A server, a worker and an evaluator; the job's others may be on other machines.
  ClusterPlan plan;
  plan.threads = AvailableProcessors();
  return JudgeThreads(FindThreadRoom(), ThreadsOf(plan));
}

std::optional<Finding> Checkup::CheckMemory() {
  MemoryFacts facts{.free = FreeMemory(), .limit = MemoryLimit()};
  if (job_.ok()) {
    const absl::StatusOr<JobFacts> job = JobFacts::Create(*job_, /*servers=*/1);
    if (job.ok()) facts.server = job->server(0).total();
    if (job.ok()) facts.worker = job->worker().total();
  }
  return JudgeMemory(facts);
}

std::optional<Finding> Checkup::CheckJob() {
  if (options_.job.empty()) return std::nullopt;
  if (job_.ok()) return Ok(absl::StrCat(options_.job, ": job ", job_->name(), " is valid"));
  return Fail(absl::StrCat(options_.job, " is not valid"),
              absl::StrCat("Correct it: ", OneLine(job_.status().message())));
}

std::optional<Finding> Checkup::CheckData() {
  if (!job_.ok()) {
    return JudgeDataSets({{"MNIST", LoadMnist({}, options_.data).status()},
                          {"CIFAR-10", LoadCifar10({}, options_.data).status()}});
  }
  if (job_->data().has_external()) return Ok("the job's program loads its data");
  const absl::StatusOr<DataSets> sets = LoadData(*job_, options_.data);
  if (!sets.ok()) return Fail("the job's data cannot be loaded", std::string(sets.status().message()));
  return Ok(absl::StrCat("the job's ", Plural(sets->train.size(), "sample"), " for training and ",
                         Count(sets->test.size()), " for tests"));
}

std::optional<Finding> Checkup::CheckCheckpoints() {
  if (options_.checkpoint_dir.empty()) return std::nullopt;
  return CheckDirectory(options_.checkpoint_dir);
}

std::optional<Finding> Checkup::CheckOutput() {
  if (options_.out.empty()) return std::nullopt;
  return CheckDirectory(options_.out);
}

}  // namespace catchment
