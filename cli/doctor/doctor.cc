#include "cli/doctor/doctor.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/base/terminal.h"
#include "cli/doctor/checkup.h"
#include "cli/doctor/judge.h"
#include "cli/live/job_control.h"
#include "common/base/text.h"
#include "common/net/address.h"
#include "common/program/command_line.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment doctor [HOST:PORT|DIR] [flags]

Checks whether this machine can run the daemons of a job. Prints a line for each check, ok, warn or fail,
followed by the remedy. HOST:PORT is the address of a running master, or the address on this machine for a
future one. DIR is the --out of a running job. Default: $CATCHMENT_MASTER; without one, only this machine is
checked. It needs no privileges, and writes only a file of 16 MB into each named directory, which it deletes.

Examples:
  catchment doctor
  catchment doctor --job=job.textproto --out=out
  catchment doctor node0:7000 --certs=certs --checkpoint_dir=/shared/checkpoints
  catchment doctor --json | jq '.[] | select(.verdict != "ok")'
)";

constexpr char kNotes[] =
    "\nExit code: 0: no check failed, though some may warn; 1: some failed; 2: wrong command line.\n";

constexpr size_t kTextColumn = 20;
constexpr int kWidest = 110;

struct Check {
  const char* name;
  std::optional<Finding> (Checkup::*run)();
};

constexpr Check kChecks[] = {
    {"version", &Checkup::CheckVersion},
    {"programs", &Checkup::CheckPrograms},
    {"processor", &Checkup::CheckProcessor},
    {"system", &Checkup::CheckSystem},
    {"cuda", &Checkup::CheckCuda},
    {"memory", &Checkup::CheckMemory},
    {"open files", &Checkup::CheckOpenFiles},
    {"threads", &Checkup::CheckThreads},
    {"host name", &Checkup::CheckHostName},
    {"ports", &Checkup::CheckAddress},
    {"certificates", &Checkup::CheckCertificates},
    {"clock", &Checkup::CheckClock},
    {"job", &Checkup::CheckJob},
    {"data", &Checkup::CheckData},
    {"checkpoint_dir", &Checkup::CheckCheckpoints},
    {"out", &Checkup::CheckOutput},
};

struct NamedFinding {
  std::string check;
  Finding finding;
};

CommandLine MakeCommandLine(DoctorOptions* o) {
  CommandLine line{.name = "catchment doctor", .usage = kUsage, .notes = kNotes};
  line.flags.AddString(
      "job", "JOB", &o->job,
      "Job file whose data, memory and files are checked. Default: looks for MNIST and CIFAR-10.");
  line.flags.AddString("data", "DIR", &o->data.catchment_data,
                       "Directory with a subdirectory for each data set. Default: $CATCHMENT_DATA.");
  line.flags.AddString("checkpoint_dir", "DIR", &o->checkpoint_dir,
                       "Directory whose write speed for checkpoints is measured.");
  line.flags.AddString("out", "DIR", &o->out, "Output directory, measured likewise.");
  line.flags.AddSwitch("json", &o->json,
                       "Prints a JSON list of objects with check, verdict, text and remedy.");
  AddMasterFlags(&o->master, &line);
  line.argument.optional = [] { return true; };
  line.check = [o] {
    FindCertificates(&o->master);
    std::string* const master = &o->master.master;
    return master->empty() || IsRunDirectory(*master) ? absl::OkStatus() : TidyAddress(master);
  };
  return line;
}

std::string NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "";
}

std::string ToText(const std::vector<NamedFinding>& findings) {
  std::string text;
  for (const auto& [check, finding] : findings) {
    std::string head = NameOf(finding.verdict);
    head.resize(6, ' ');
    head += check;
    head.resize(kTextColumn + 2, ' ');
    text += HangingParagraph(head, OneLine(finding.text), kTextColumn + 2, ProseColumns(kWidest));
    if (finding.remedy.empty()) continue;
    const std::string indent(kTextColumn + 2, ' ');
    text += HangingParagraph(indent, OneLine(finding.remedy), kTextColumn + 2, ProseColumns(kWidest));
  }
  return text;
}

std::string ToJson(const std::vector<NamedFinding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [check, finding] : findings) {
    list.push_back({{"check", check},
                    {"verdict", NameOf(finding.verdict)},
                    {"text", OneLine(finding.text)},
                    {"remedy", OneLine(finding.remedy)}});
  }
  return list.dump(2) + "\n";
}

int Examine(const DoctorOptions& options, const Streams& streams) {
  Checkup checkup(options);
  std::vector<NamedFinding> findings;
  bool failed = false;
  for (const Check& check : kChecks) {
    std::optional<Finding> finding = (checkup.*check.run)();
    if (!finding.has_value()) continue;
    failed = failed || finding->verdict == Verdict::kFail;
    findings.push_back({check.name, *std::move(finding)});
  }
  *streams.out << (options.json ? ToJson(findings) : ToText(findings));
  return failed ? kExitFailed : 0;
}

}  // namespace

int RunDoctor(const std::vector<std::string>& args, const DataPaths& paths, const Streams& streams) {
  DoctorOptions options;
  options.data = paths;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&] { return Examine(options, streams); });
}

}  // namespace catchment
