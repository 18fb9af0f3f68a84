#include "common/program/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/program/screen_text.h"

namespace catchment {
namespace {

constexpr int kHelpColumn = 28;
constexpr int kHelpWidth = 80;  // where there is no terminal
constexpr size_t kFirstFlags = 10;

absl::Status BadValue(const std::string& name, const std::string& got, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=", got, ": ", reason));
}

bool IsFlag(const std::string& arg) { return arg.size() > 1 && arg[0] == '-'; }

}  // namespace

void FlagSet::Add(Flag flag) {
  flag.group = group_;
  flags_.push_back(std::move(flag));
}

void FlagSet::AddString(const std::string& name, const std::string& value, std::string* out,
                        const std::string& help) {
  Add({name, value, help, [out](const std::string& text) {
         *out = text;
         return absl::OkStatus();
       }});
}

void FlagSet::AddRequired(const std::string& name, const std::string& value, std::string* out,
                          const std::string& help) {
  AddString(name, value, out, absl::StrCat(help, " Required."));
  flags_.back().required = out;
}

void FlagSet::AddInt(const std::string& name, const std::string& value, int minimum, int* out,
                     const std::string& help) {
  Add({name, value, help, [=](const std::string& text) {
         int parsed = 0;
         if (!absl::SimpleAtoi(text, &parsed) || parsed < minimum) {
           return BadValue(name, text, absl::StrCat("takes a whole number, at least ", minimum));
         }
         *out = parsed;
         return absl::OkStatus();
       }});
}

void FlagSet::AddNumber(const std::string& name, double* out, const std::string& help) {
  Add({name, "NUMBER", help, [=](const std::string& text) {
         double parsed = 0;
         if (!absl::SimpleAtod(text, &parsed) || !std::isfinite(parsed) || parsed < 0) {
           return BadValue(name, text, "takes a number, at least 0");
         }
         *out = parsed;
         return absl::OkStatus();
       }});
}

void FlagSet::AddSeconds(const std::string& name, double* out, const std::string& help) {
  Add({name, "SECONDS", help, [=](const std::string& text) {
         double parsed = 0;
         if (!absl::SimpleAtod(text, &parsed) || !std::isfinite(parsed) || parsed <= 0) {
           return BadValue(name, text, "takes a positive number of seconds");
         }
         *out = parsed;
         return absl::OkStatus();
       }});
}

void FlagSet::AddOptionalSeconds(const std::string& name, double bare, double* out, const std::string& help) {
  AddSeconds(name, out, help);
  flags_.back().bare = absl::StrCat(bare);
}

void FlagSet::AddParsed(const std::string& name, const std::string& value,
                        std::function<absl::Status(const std::string&)> set, const std::string& help) {
  Add({name, value, help, [name, set = std::move(set)](const std::string& text) {
         const absl::Status status = set(text);
         return status.ok() ? status : BadValue(name, text, std::string(status.message()));
       }});
}

void FlagSet::AddChoice(const std::string& name, const std::vector<std::string>& choices, std::string* out,
                        const std::string& help) {
  Add({name, absl::StrJoin(choices, "|"), help, [=](const std::string& text) {
         if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
           return absl::InvalidArgumentError(
               absl::StrCat("--", name, "=", text, " is not ", absl::StrJoin(choices, " or ")));
         }
         *out = text;
         return absl::OkStatus();
       }});
}

void FlagSet::AddSwitch(const std::string& name, bool* out, const std::string& help) {
  Add({name, "", help, [=](const std::string& text) {
         return absl::SimpleAtob(text, out) ? absl::OkStatus() : BadValue(name, text, "takes true or false");
       }});
}

void FlagSet::AddAutoSwitch(const std::string& name, AutoSwitch* out, const std::string& help) {
  Add({name, "auto", help, [=](const std::string& text) {
         bool on = false;
         if (text == "auto") {
           *out = AutoSwitch::kAuto;
         } else if (absl::SimpleAtob(text, &on)) {
           *out = on ? AutoSwitch::kOn : AutoSwitch::kOff;
         } else {
           return BadValue(name, text, "takes auto, true or false");
         }
         return absl::OkStatus();
       }});
  flags_.back().bare = "true";
}

void FlagSet::AddList(const std::string& name, const std::string& value, std::vector<std::string>* out,
                      const std::string& help) {
  Add({name, value, help, [out](const std::string& text) {
         out->push_back(text);
         return absl::OkStatus();
       }});
}

const FlagSet::Flag* FlagSet::Find(const std::string& name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status FlagSet::Unknown(const std::string& name, const std::string& value) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string nearest = NearestName(name, names);
  // A flag that begins alike is meant rather than anything else.
  const bool near = absl::StartsWith(nearest, name) || absl::StartsWith(name, nearest);
  const bool asks = advice_ && (nearest.empty() || !near);
  const std::string advice = asks ? advice_(name, value) : "";
  if (!advice.empty()) return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name, ": ", advice));
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name,
                   nearest.empty() ? "; --help lists them" : absl::StrCat("; is it --", nearest, "?")));
}

std::string FlagSet::Advise(const std::string& word) const {
  const size_t equals = word.find('=');
  std::error_code error;
  // A file or a directory may have such a name.
  const bool is_path = absl::StrContains(word, '/') || std::filesystem::exists(word, error);
  if (!advice_ || equals == std::string::npos || equals == 0 || is_path) return "";
  return advice_(word.substr(0, equals), word.substr(equals + 1));
}

absl::StatusOr<std::vector<std::string>> FlagSet::Parse(const std::vector<std::string>& args) {
  std::vector<std::string> positional;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--") {
      positional.insert(positional.end(), args.begin() + i + 1, args.end());
      break;
    }
    if (!IsFlag(args[i])) {
      positional.push_back(args[i]);
      continue;
    }
    const size_t equals = args[i].find('=');
    std::string name = args[i].substr(0, equals);
    name.erase(0, name.compare(0, 2, "--") == 0 ? 2 : 1);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "help" || name == "h") {
      help_ = equals != std::string::npos && args[i].substr(equals + 1) == "json" ? Help::kJson
              : name == "h"                                                       ? Help::kShort
                                                                                  : Help::kLong;
      continue;
    }
    const Flag* flag = Find(name);
    if (flag == nullptr && equals == std::string::npos && absl::StartsWith(name, "no_")) {
      const Flag* const negated = Find(name.substr(3));
      if (negated != nullptr && (negated->value.empty() || negated->bare == "true")) {
        RETURN_IF_ERROR(negated->set("false"));
        continue;
      }
    }
    if (flag == nullptr) {
      const bool next = equals == std::string::npos && i + 1 < args.size() && !IsFlag(args[i + 1]);
      return Unknown(name, equals != std::string::npos ? args[i].substr(equals + 1)
                           : next                      ? args[i + 1]
                                                       : "");
    }
    std::string value = flag->bare.empty() ? "true" : flag->bare;
    if (equals != std::string::npos) {
      value = args[i].substr(equals + 1);
    } else if (!flag->value.empty() && flag->bare.empty()) {
      if (i + 1 == args.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " needs a value: --", name, "=", flag->value));
      }
      value = args[++i];
    }
    RETURN_IF_ERROR(flag->set(value));
  }
  return positional;
}

absl::Status FlagSet::CheckRequired() const {
  for (const Flag& flag : flags_) {
    if (flag.required == nullptr || !flag.required->empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", flag.name, "=", flag.value, " is required"));
  }
  return absl::OkStatus();
}

namespace {

std::string FlagEntry(const std::string& name, const std::string& value, bool has_bare,
                      const std::string& help, int width) {
  std::string head = absl::StrCat("  --", name);
  absl::StrAppend(&head, has_bare ? "[" : "", value.empty() ? "" : "=", value, has_bare ? "]" : "");
  head.resize(std::max<size_t>(head.size() + 2, kHelpColumn), ' ');
  if (width < 2 * kHelpColumn) return WrapLines(head + help, width) + "\n";
  return HangingParagraph(head, help, kHelpColumn, width);
}

// Returns what the text says first, as a sentence.
std::string FirstOf(const std::string& text) {
  const size_t end = std::min({text.find(". "), text.find("; "), text.find(": ")});
  return end == std::string::npos ? text : text.substr(0, end) + ".";
}

}  // namespace

std::string FlagSet::Describe(int width) const {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const Flag& flag : flags_) {
    if (flag.help.empty()) continue;
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == flag.group; });
    if (group == groups.end()) group = groups.insert(groups.end(), {flag.group, ""});
    group->second += FlagEntry(flag.name, flag.value, !flag.bare.empty(), flag.help, width);
  }
  std::string text;
  for (const auto& [heading, entries] : groups) absl::StrAppend(&text, "\n", heading, ":\n", entries);
  return text;
}

std::string FlagSet::DescribeFirst(int width) const {
  std::string text;
  size_t listed = 0, all = 0;
  for (const Flag& flag : flags_) {
    if (flag.help.empty() || ++all > kFirstFlags) continue;
    ++listed;
    text += FlagEntry(flag.name, flag.value, !flag.bare.empty(), FirstOf(flag.help), width);
  }
  if (all == 0) return "";
  return absl::StrCat(all > listed ? absl::StrCat("\nFlags, ", listed, " of ", all) : "\nFlags", ":\n", text);
}

nlohmann::ordered_json FlagSet::ToJson() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Flag& flag : flags_) {
    if (flag.help.empty()) continue;
    list.push_back({{"name", flag.name},
                    {"value", flag.value},
                    {"bare", flag.bare},
                    {"help", flag.help},
                    {"group", flag.group}});
  }
  return list;
}

absl::Status CommandLine::Parse(const std::vector<std::string>& args) {
  ASSIGN_OR_RETURN(const std::vector<std::string> words, flags.Parse(args));
  if (flags.help() != FlagSet::Help::kNone) return absl::OkStatus();
  for (const std::string& word : words) {
    if (const std::string advice = flags.Advise(word); !advice.empty())
      return absl::InvalidArgumentError(absl::StrCat(word, ": ", advice));
  }
  if (argument.name.empty() && !words.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("accepts only flags, but got '", words.front(), "'; see --help"));
  }
  if (words.size() > 1 && argument.all == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("takes one ", argument.name, ", but got also ", words[1]));
  }
  if (!words.empty() && argument.all != nullptr) {
    *argument.all = words;
  } else if (!words.empty()) {
    *argument.out = words.front();
  } else if (!argument.name.empty() && !argument.optional()) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes ", argument.all == nullptr ? "one " : "at least one ", argument.name,
                     ", for example: ", name, " ", argument.example));
  }
  RETURN_IF_ERROR(flags.CheckRequired());
  return check();
}

std::string CommandLine::Help(bool all, int width) const {
  if (all) return FillHelp(usage, width) + flags.Describe(width) + FillHelp(notes, width);
  const std::vector<std::string> paragraphs = absl::StrSplit(usage, "\n\n");
  const std::string purpose =
      paragraphs.size() > 1 ? "\n" + FirstOf(absl::StrReplaceAll(paragraphs[1], {{"\n", " "}})) : "";
  const std::string example =
      argument.name.empty() ? "" : absl::StrCat("\nExample:\n  ", name, " ", argument.example, "\n");
  return absl::StrCat(FillHelp(absl::StrCat(absl::StripSuffix(paragraphs[0], "\n"), "\n", purpose), width),
                      FillHelp(example, width), flags.DescribeFirst(width), "\n",
                      WrapLines(absl::StrCat("All flags, examples and exit codes: ", name, " --help"), width),
                      "\n");
}

nlohmann::ordered_json CommandLine::ToJson() const {
  return {{"name", name},
          {"usage", usage},
          {"notes", notes},
          {"argument", argument.name},
          {"flags", flags.ToJson()}};
}

int RunCommandLine(CommandLine* line, const std::vector<std::string>& args, std::ostream* out,
                   std::ostream* err, const std::function<absl::StatusOr<int>()>& run) {
  const absl::Status parsed = line->Parse(args);
  if (const FlagSet::Help help = line->flags.help(); help != FlagSet::Help::kNone) {
    const int columns = TerminalSize(STDOUT_FILENO).columns;
    const int width = columns > 0 ? columns : kHelpWidth;
    *out << (help == FlagSet::Help::kJson ? line->ToJson().dump(2) + "\n"
                                          : line->Help(help == FlagSet::Help::kLong, width))
         << std::flush;
    return 0;
  }
  const absl::StatusOr<int> exit_code = parsed.ok() ? run() : parsed;
  if (exit_code.ok()) return *exit_code;
  *err << line->name << ": " << EscapeControls(exit_code.status().message()) << std::endl;
  return parsed.ok() ? kExitFailed : kExitUsage;
}

namespace {

struct TlsFlag {
  const char* name;
  const char* variable;  // of the environment
  std::string TlsFiles::*file;
  const char* help;
};

constexpr TlsFlag kTlsFlags[] = {
    {"tls_ca", "CATCHMENT_TLS_CA", &TlsFiles::ca,
     "PEM file of the authority that issued both sides' certificates (mutual TLS)."},
    {"tls_cert", "CATCHMENT_TLS_CERT", &TlsFiles::cert, "PEM file of this side's certificate."},
    {"tls_key", "CATCHMENT_TLS_KEY", &TlsFiles::key, "PEM file of the certificate's private key."},
};

constexpr char kCertsVariable[] = "CATCHMENT_CERTS";
constexpr char kInsecureVariable[] = "CATCHMENT_INSECURE";

std::string FromEnvironment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

void AddSecurityFlags(TlsFiles* tls, bool* insecure, FlagSet* flags) {
  tls->certs = FromEnvironment(kCertsVariable);
  flags->BeginGroup("TLS");
  flags->AddParsed(
      "certs", "DIR",
      [tls](const std::string& directory) {
        *tls = TlsFiles{.certs = directory};
        return absl::OkStatus();
      },
      "Directory with the files of mutual TLS, as made by deploy/make_certs.sh, instead of the three flags "
      "below: ca.crt, and the .crt and .key of this process's role. Default: $CATCHMENT_CERTS.");
  for (const TlsFlag& flag : kTlsFlags) {
    tls->*flag.file = FromEnvironment(flag.variable);
    flags->AddString(flag.name, "FILE", &(tls->*flag.file),
                     absl::StrCat(flag.help, " Default: $", flag.variable, "."));
  }
  *insecure = FromEnvironment(kInsecureVariable) == "1";
  flags->AddSwitch(
      "insecure", insecure,
      "Allows connections over a network without TLS: everyone who reaches a port can then read, "
      "change and end the job. Default: $CATCHMENT_INSECURE is 1.");
}

void ClearSecurityEnvironment() {
  unsetenv(kCertsVariable);
  for (const TlsFlag& flag : kTlsFlags) unsetenv(flag.variable);
  unsetenv(kInsecureVariable);
}

}  // namespace catchment
