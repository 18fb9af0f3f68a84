#include "cli/doctor/doctor.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/doctor/checkup.h"
#include "cli/doctor/finding.h"
#include "cli/job_control.h"
#include "common/address.h"
#include "common/command_line.h"
#include "common/text.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment doctor [HOST:PORT|DIR] [flags]

Checks whether this machine can run the daemons of a job, and prints a line for each check: ok, warn or fail, and below it
what to do. HOST:PORT is the address of the master: one that runs, or one that a server is to have here. DIR is the --out of
a running job. Default: $CATCHMENT_MASTER; without one, only this machine is checked. Needs no rights; writes nothing but a
file of 16 MB in each directory that is named, which it deletes.

Examples:
  catchment doctor
  catchment doctor --job=job.textproto --out=out
  catchment doctor node0:7000 --certs=certs --checkpoint_dir=/shared/checkpoints
  catchment doctor --json | jq '.[] | select(.verdict != "ok")'
)";

constexpr char kNotes[] =
    "\nExit code: 0: no check has failed, but some may warn; 1: some have failed; 2: wrong command line.\n";

constexpr size_t kTextColumn = 20;
constexpr int kWidth = 110;

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
  line.flags.AddString("job", "JOB", &o->job,
                       "A job file: checks its data, and the memory and files that it needs. Default: looks "
                       "for MNIST and CIFAR-10.");
  line.flags.AddString("data", "DIR", &o->data.catchment_data,
                       "The directory with a directory for each data set. Default: $CATCHMENT_DATA.");
  line.flags.AddString("checkpoint_dir", "DIR", &o->checkpoint_dir,
                       "Measures how fast checkpoints can be written there.");
  line.flags.AddString("out", "DIR", &o->out, "Does the same with the directory for all output.");
  line.flags.AddSwitch("json", &o->json,
                       "Prints a JSON list of objects with check, verdict, text and remedy.");
  AddMasterFlags(&o->master, &line);
  line.argument.optional = [] { return true; };
  line.check = [o] {
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
    text += HangingParagraph(head, OneLine(finding.text), kTextColumn + 2, kWidth);
    if (finding.remedy.empty()) continue;
    const std::string indent(kTextColumn + 2, ' ');
    text += HangingParagraph(indent, OneLine(finding.remedy), kTextColumn + 2, kWidth);
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
