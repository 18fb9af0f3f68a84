#include "cli/doctor/judge.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/open_files.h"
#include "common/base/text.h"
#include "common/net/address.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

// The compute capability of the oldest devices that the kernels run on.
constexpr int kMinCapability = 8;
// Without a job, the number of workers for which a server's limit of open files must suffice.
constexpr int64_t kUsualWorkers = 100;
constexpr double kLittleMemory = 1e9;
constexpr absl::Duration kExpiresSoon = absl::Hours(48);
constexpr double kSlowBytesPerSecond = 10e6;
constexpr double kLittleSpace = 1e9;

constexpr char kNewCertificates[] =
    "Make new certificates with deploy/make_certs.sh DIR HOST... (docs/security.md, \"Mutual TLS\").";
// New certificates are valid from an hour before they were made.
constexpr absl::Duration kCertificateTolerance = absl::Hours(1);
constexpr absl::Duration kClockTolerance = absl::Seconds(1);
constexpr char kSetTheClock[] =
    "Set the clocks of all machines with a time service, such as chrony or systemd-timesyncd.";

std::string ToMinutes(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

std::string Sentence(absl::string_view text) {
  return absl::StrCat(text, text.empty() || text.back() == '.' ? "" : ".");
}

bool HasAny(const std::vector<std::string>& some, const std::vector<std::string>& of) {
  return absl::c_any_of(some, [&of](const std::string& one) { return absl::c_linear_search(of, one); });
}

Finding JudgeCertificate(const CertificateFacts& facts, absl::Time now) {
  const Certificate& certificate = facts.certificate;
  if (!facts.usable.ok()) return Fail(std::string(facts.usable.message()), kNewCertificates);
  if (now < certificate.valid_from) {
    return Fail(absl::StrCat(facts.file, " is not valid before ", ToMinutes(certificate.valid_from),
                             ", and by this machine's clock it is ", ToMinutes(now)),
                absl::StrCat("The clock of this machine, or of the one that made the certificate, is wrong. ",
                             kSetTheClock));
  }
  if (now > certificate.valid_until) {
    return Fail(
        absl::StrCat(facts.file, " has expired: it was valid until ", ToMinutes(certificate.valid_until),
                     ", and by this machine's clock it is ", ToMinutes(now)),
        kNewCertificates);
  }
  if (!facts.role.empty() && !absl::c_linear_search(certificate.roles, facts.role)) {
    return Fail(absl::StrCat(facts.file, " names ",
                             certificate.roles.empty()
                                 ? "no role"
                                 : absl::StrCat("the role ", absl::StrJoin(certificate.roles, ", ")),
                             " and not ", facts.role),
                kNewCertificates);
  }
  if (!facts.wrong_host.empty()) {
    return Fail(absl::StrCat(facts.file, " is not valid for ", facts.wrong_host),
                absl::StrCat("Make certificates that name it: deploy/make_certs.sh DIR ", facts.wrong_host));
  }
  if (facts.is_key_public) {
    return Warn(absl::StrCat("every user of this machine can read the key of ", facts.file),
                "Remove that permission with `chmod o-r`, "
                "and make a new key if other people have accounts on this machine.");
  }
  if (certificate.valid_until - now < kExpiresSoon) {
    return Warn(absl::StrCat(facts.file, " expires soon: ", ToMinutes(certificate.valid_until)),
                kNewCertificates);
  }
  return Ok("");
}

}  // namespace

Finding JudgeProcessor(const ProcessorFacts& facts) {
  std::string text = absl::StrCat("kernels use ", facts.instructions, "; ");
  if (facts.available < facts.of_machine) {
    absl::StrAppend(&text, facts.available, " of ", Plural(facts.of_machine, "processor"),
                    ", limited by this process's affinity or cgroup quota");
  } else {
    absl::StrAppend(&text, Plural(facts.available, "processor"));
  }
  if (facts.limited_by.empty()) return Ok(text);
  return Warn(text, absl::StrCat("Unset DNNL_MAX_CPU_ISA, which is ", facts.limited_by,
                                 ", so that the kernels use all instructions of the processor."));
}

std::string DriverVersion(const std::string& text) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ..."
  for (const absl::string_view word : absl::StrSplit(text.substr(0, text.find('\n')), ' ')) {
    if (absl::c_count(word, '.') > 0 && absl::ascii_isdigit(word[0])) return std::string(word);
  }
  return "of an unknown version";
}

Finding JudgeCuda(const CudaFacts& facts) {
  if (absl::IsNotFound(facts.opened)) {
    if (facts.driver.empty()) return Ok("none: workers compute on the processor");
    return Warn(absl::StrCat("there is an NVIDIA driver (", facts.driver, "), and no plugin at ",
                             facts.plugin, ": workers compute on the processor"),
                "Put libcatchment_cuda.so in the directory of catchment_worker, or set "
                "$CATCHMENT_CUDA_PLUGIN to its path.");
  }
  if (!facts.opened.ok()) {
    return Warn(std::string(facts.opened.message()),
                "Until the plugin can be opened, workers compute on the processor.");
  }
  if (!facts.devices.ok()) {
    const std::string text =
        absl::StrCat("plugin ", facts.plugin, ", and no device: ", facts.devices.status().message());
    if (facts.driver.empty()) return Ok(text);
    return Warn(
        text,
        "Until then workers compute on the processor: docs/troubleshooting.md, \"When a GPU is not used\".");
  }
  std::vector<std::string> devices, old;
  for (const CudaDevice& device : *facts.devices) {
    devices.push_back(Describe(device));
    if (device.capability_major < kMinCapability) old.push_back(device.name);
  }
  const std::string text = absl::StrCat(absl::StrJoin(devices, "; "),
                                        facts.driver.empty() ? "" : absl::StrCat("; driver ", facts.driver));
  if (old.size() < devices.size()) return Ok(text);
  return Warn(text, absl::StrFormat("The kernels need compute capability %d.0: workers compute on the "
                                    "processor unless there is another device.",
                                    kMinCapability));
}

std::string LineOfHost(const std::string& hosts_file, const std::string& name) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(hosts_file, '\n')) {
    ++number;
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() > 1 && absl::c_linear_search(words, name))
      return absl::StrCat("line ", number, " of /etc/hosts");
  }
  return "";
}

Finding JudgeHostName(const HostFacts& facts) {
  if (facts.addresses.empty()) {
    return Warn(absl::StrCat("this machine's own name, ", facts.name, ", has no address"),
                "Add it to /etc/hosts or DNS, or write addresses instead of names in --servers.");
  }
  const std::string line = LineOfHost(facts.hosts_file, facts.name);
  const std::string text = absl::StrCat(facts.name, " is ", absl::StrJoin(facts.addresses, ", "),
                                        line.empty() ? "" : absl::StrCat(" (", line, ")"));
  if (AreLoopback(facts.addresses) && !IsLocalHost(facts.name)) {
    return Warn(absl::StrCat(text, ", which other machines cannot reach"),
                "A server with this name listens on all interfaces. Check that the name resolves to this "
                "machine's network address on the other machines, or correct /etc/hosts.");
  }
  if (!HasAny(facts.addresses, facts.machine_addresses)) {
    return Warn(absl::StrCat(text, ", and this machine has no such address, only ",
                             absl::StrJoin(facts.machine_addresses, ", ")),
                "Correct /etc/hosts or DNS: a server cannot listen at its own name.");
  }
  return Ok(text);
}

Finding JudgeAddress(const AddressFacts& facts) {
  if (facts.address.empty())
    return facts.listening.ok() ? Ok("ports can be opened")
                                : Fail(std::string(facts.listening.message()),
                                       "Permit this process to listen; no server can start without a port.");
  if (facts.addresses.empty()) {
    return Fail(absl::StrCat("the name in ", facts.address, " has no address"),
                "Correct the name, or add it to /etc/hosts or DNS.");
  }
  if (!facts.secure.ok()) {
    return Fail(absl::StrCat("daemons refuse the address ", facts.address), Sentence(facts.secure.message()));
  }
  if (facts.job.ok() && !facts.job->ended().empty())
    return Ok(
        absl::StrCat("a master answers at ", facts.address, "; its job has ended: ", facts.job->ended()));
  if (facts.job.ok()) {
    return Ok(absl::StrCat("a master answers at ", facts.address, ": job ", facts.job->job().name(), ", ",
                           Plural(facts.job->servers_size(), "server"), ", ",
                           Plural(facts.job->job().workers(), "worker")));
  }
  if (!facts.is_here) {
    return Fail(std::string(facts.job.status().message()),
                "Start the master there, and check that no firewall blocks its port.");
  }
  if (facts.listening.ok())
    return Ok(absl::StrCat(facts.address, " is free: no master runs there, and a server can listen"));
  return Fail(absl::StrCat("no server can listen on ", facts.address, ": ", facts.listening.message()),
              absl::StrCat("`ss -ltnp` shows the process that uses the port. It did not answer as a master: ",
                           Sentence(facts.job.status().message())));
}

Finding JudgeVersion(const std::string& build, const std::optional<v1::GetJobReply>& master) {
  if (!master.has_value() || !master->ended().empty()) return Ok(build);
  const std::string text = absl::StrCat(build, "; the master's is ", master->build());
  if (absl::Status status =
          CheckProtocolVersion("the master", master->protocol_version(), master->build(), "this machine");
      !status.ok()) {
    return Fail(text, absl::StrCat("Install the same version on all machines: ", Sentence(status.message())));
  }
  if (build == master->build()) return Ok(absl::StrCat(build, ", as the master"));
  return Warn(text, "Install the same version on all machines, although these two are compatible.");
}

Finding JudgeClock(const ClockFacts& facts) {
  std::string text = ToMinutes(facts.now);
  if (facts.of_master.has_value()) {
    const absl::Duration apart = absl::AbsDuration(*facts.of_master);
    const absl::Duration certain = apart - facts.error;
    const char* const where =
        *facts.of_master < absl::ZeroDuration() ? " ahead of the master's" : " behind the master's";
    absl::StrAppend(&text, "; ", Duration(absl::ToDoubleSeconds(apart)), where);
    if (facts.has_certificates && certain >= kCertificateTolerance) {
      return Fail(text, absl::StrCat("Certificates are refused if clocks differ by more than an hour. ",
                                     kSetTheClock));
    }
    if (certain >= kClockTolerance) {
      return Warn(text, absl::StrCat("Times in the logs of this machine do not match those of the master's. ",
                                     kSetTheClock));
    }
  }
  if (facts.synchronized.value_or(false)) return Ok(absl::StrCat(text, "; set by a time service"));
  if (!facts.synchronized.has_value() || !facts.has_certificates) return Ok(text);
  return Warn(absl::StrCat(text, "; not synchronized by a time service, as far as the kernel knows"),
              absl::StrCat("Certificates are refused if clocks differ by more than an hour. ", kSetTheClock));
}

Finding JudgeOpenFiles(int64_t limit, int64_t workers, int64_t servers) {
  const bool is_unlimited = limit == std::numeric_limits<int64_t>::max();
  const std::string text = is_unlimited ? "no limit" : absl::StrCat("at most ", Count(limit));
  const int64_t expected = workers > 0 ? workers : kUsualWorkers;
  const int64_t needed = OpenFilesNeeded(expected, servers, /*master=*/true);
  if (needed <= limit) return Ok(text);
  const std::string reason =
      absl::StrCat(text, "; a master with ", Plural(expected, "worker"), " needs about ", Count(needed));
  const std::string remedy =
      absl::StrCat("A server has the same limit as this command: ", kOpenFilesRemedy, ".");
  return workers > 0 ? Fail(reason, remedy) : Warn(reason, remedy);
}

Finding JudgeThreads(const ThreadRoom& room, int64_t needed) {
  if (room.source.empty()) return Ok("no limit");
  const std::string text = absl::StrCat("at most ", Count(room.limit), " (", room.source, "), of which ",
                                        Count(room.used), " are in use");
  if (needed <= room.left()) return Ok(text);
  return Fail(absl::StrCat(text, "; a job's processes need about ", Count(needed)),
              absl::StrCat("Processes and threads count: ", kThreadsRemedy, "."));
}

Finding JudgeMemory(const MemoryFacts& facts) {
  if (facts.free == 0) return Ok("not known: /proc/meminfo cannot be read");
  const auto free = static_cast<double>(facts.free);
  std::string text = absl::StrCat(Bytes(free), " free");
  if (facts.limit != std::numeric_limits<int64_t>::max())
    absl::StrAppend(&text, ", of a cgroup's limit of ", Bytes(static_cast<double>(facts.limit)));
  const auto needed = static_cast<double>(facts.server + facts.worker);
  if (needed > 0) {
    absl::StrAppend(&text, "; the job needs ", Bytes(static_cast<double>(facts.server)), " for a server and ",
                    Bytes(static_cast<double>(facts.worker)), " for a worker, in addition to its data");
  }
  if (needed > free) {
    return Fail(text,
                "Use a smaller batch_size or more servers (`catchment validate` shows the "
                "memory of each), or raise the limit.");
  }
  if (free >= kLittleMemory) return Ok(text);
  return Warn(text, "End other processes, or raise the limit of the container or job.");
}

Finding JudgeDataSets(const std::vector<DataSetFacts>& sets) {
  std::vector<std::string> found, missing;
  for (const DataSetFacts& set : sets) {
    if (!set.loaded.ok() && !absl::IsNotFound(set.loaded)) {
      return Fail(absl::StrCat(set.name, " cannot be used"), Sentence(set.loaded.message()));
    }
    (set.loaded.ok() ? found : missing).push_back(set.name);
  }
  const std::string absent = absl::StrCat("no files of ", absl::StrJoin(missing, ", "));
  if (found.empty() && !sets.empty()) return Warn(absent, Sentence(sets.front().loaded.message()));
  return Ok(absl::StrCat(absl::StrJoin(found, ", "), missing.empty() ? "" : absl::StrCat("; ", absent)));
}

Finding JudgeCertificates(const std::vector<CertificateFacts>& files, absl::Time now) {
  Finding worst;
  std::vector<std::string> roles;
  absl::Time until = absl::InfiniteFuture();
  for (const CertificateFacts& file : files) {
    Finding finding = JudgeCertificate(file, now);
    if (finding.verdict > worst.verdict) worst = std::move(finding);
    until = std::min(until, file.certificate.valid_until);
    if (!file.role.empty()) roles.push_back(file.role);
  }
  if (worst.verdict != Verdict::kOk) return worst;
  return Ok(absl::StrCat(absl::StrJoin(roles, ", "), ": valid until ", ToMinutes(until)));
}

Finding JudgeDirectory(const DirectoryFacts& facts) {
  const std::string where = facts.path == facts.existing
                                ? facts.path
                                : absl::StrCat(facts.path, " does not exist yet; in ", facts.existing);
  if (!facts.written.ok()) {
    return Fail(absl::StrCat(where, ": ", facts.written.message()),
                "Let the user that runs the daemons write there, or name another directory.");
  }
  const std::string text = absl::StrCat(where, ": writes and syncs ", Bytes(facts.bytes_per_second), "/s, ",
                                        Bytes(facts.free_bytes), " free");
  if (facts.free_bytes < kLittleSpace)
    return Warn(text, "Delete files, or name a directory on another file system: checkpoints need space.");
  if (facts.bytes_per_second >= kSlowBytesPerSecond) return Ok(text);
  return Warn(text,
              "Checkpoints would take long: name a directory on a faster file system, "
              "or write fewer (checkpoint.every_seconds).");
}

}  // namespace catchment
