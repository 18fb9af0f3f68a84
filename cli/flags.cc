#include "cli/flags.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/nearest_name.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr int kHelpColumn = 28;
constexpr int kHelpWidth = 100;

absl::Status BadValue(const std::string& name, const std::string& got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=", got, ": takes ", allowed));
}

bool IsFlag(const std::string& arg) { return arg.size() > 1 && arg[0] == '-'; }

}  // namespace

void FlagSet::AddString(const std::string& name, const std::string& value, std::string* out,
                        const std::string& help) {
  flags_.push_back({name, value, help, [out](const std::string& text) {
                      *out = text;
                      return absl::OkStatus();
                    }});
}

void FlagSet::AddInt(const std::string& name, const std::string& value, int minimum, int* out,
                     const std::string& help) {
  flags_.push_back({name, value, help, [=](const std::string& text) {
                      int parsed = 0;
                      if (!absl::SimpleAtoi(text, &parsed) || parsed < minimum) {
                        return BadValue(name, text, absl::StrCat("a whole number, at least ", minimum));
                      }
                      *out = parsed;
                      return absl::OkStatus();
                    }});
}

void FlagSet::AddSeconds(const std::string& name, double* out, const std::string& help) {
  flags_.push_back({name, "SECONDS", help, [=](const std::string& text) {
                      double parsed = 0;
                      if (!absl::SimpleAtod(text, &parsed) || !std::isfinite(parsed) || parsed <= 0) {
                        return BadValue(name, text, "a positive number of seconds");
                      }
                      *out = parsed;
                      return absl::OkStatus();
                    }});
}

void FlagSet::AddOptionalSeconds(const std::string& name, double bare, double* out, const std::string& help) {
  AddSeconds(name, out, help);
  flags_.back().bare = absl::StrCat(bare);
}

void FlagSet::AddSwitch(const std::string& name, bool* out, const std::string& help) {
  flags_.push_back({name, "", help, [=](const std::string& text) {
                      return absl::SimpleAtob(text, out) ? absl::OkStatus()
                                                         : BadValue(name, text, "true or false");
                    }});
}

void FlagSet::AddList(const std::string& name, const std::string& value, std::vector<std::string>* out,
                      const std::string& help) {
  flags_.push_back({name, value, help, [out](const std::string& text) {
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

absl::Status FlagSet::Unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string nearest = NearestName(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name,
                   nearest.empty() ? "; --help lists them" : absl::StrCat("; is it --", nearest, "?")));
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
      help_ = true;
      continue;
    }
    const Flag* flag = Find(name);
    if (flag == nullptr) return Unknown(name);
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
    if (absl::Status status = flag->set(value); !status.ok()) return status;
    set_.insert(name);
  }
  return positional;
}

std::string FlagSet::Describe() const {
  std::string text;
  for (const Flag& flag : flags_) {
    if (flag.help.empty()) continue;
    std::string head = absl::StrCat("  --", flag.name);
    if (!flag.bare.empty()) {
      absl::StrAppend(&head, "[=", flag.value, "]");
    } else if (!flag.value.empty()) {
      absl::StrAppend(&head, "=", flag.value);
    }
    head.resize(std::max<size_t>(head.size() + 2, kHelpColumn), ' ');
    text += HangingParagraph(head, flag.help, kHelpColumn, kHelpWidth);
  }
  return text;
}

}  // namespace catchment
