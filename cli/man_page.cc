#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/command_tables.h"
#include "common/base/version.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kUsage[] = R"(catchment man

Prints the manual page of catchment, catchment_server and catchment_worker, as troff.

Examples:
  catchment man | man -l -
  catchment man > ~/.local/share/man/man1/catchment.1
)";

constexpr char kNotes[] = "\nExit code: 0: done; 2: wrong command line.\n";

constexpr char kDescription[] =
    "train neural networks on parameter servers, with asynchronous or synchronous SGD";

// Returns the text for troff: no character of it is an escape, and no line a request.
std::string Escaped(absl::string_view text) {
  std::string escaped = absl::StrReplaceAll(
      text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"`", "\\(ga"}, {"~", "\\(ti"}, {"^", "\\(ha"}});
  return absl::StartsWith(escaped, ".") ? absl::StrCat("\\&", escaped) : escaped;
}

// Returns lines of help: those that are indented, below a line that ends with a colon, stay as they are, and
// the others fill paragraphs. The first paragraph begins with `first`.
std::string Body(absl::string_view text, absl::string_view first) {
  std::string body;
  absl::string_view previous;
  bool verbatim = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const bool indented = absl::StartsWith(line, " ");
    if (verbatim && !indented) absl::StrAppend(&body, ".EE\n.RE\n");
    if (!verbatim && indented && absl::EndsWith(previous, ":")) {
      absl::StrAppend(&body, ".RS 2\n.EX\n");
      verbatim = true;
    }
    verbatim = verbatim && indented;
    if (previous.empty() && !line.empty()) absl::StrAppend(&body, body.empty() ? first : ".PP\n");
    previous = line;
    const absl::string_view shown =
        verbatim ? absl::StripPrefix(line, "  ") : absl::StripLeadingAsciiWhitespace(line);
    if (!line.empty()) absl::StrAppend(&body, Escaped(shown), "\n");
  }
  return body;
}

std::string FlagEntry(const Json& flag) {
  const std::string name = flag["name"], value = flag["value"], bare = flag["bare"], help = flag["help"];
  std::string head = absl::StrCat("\\fB", Escaped("--" + name), "\\fR");
  if (!value.empty()) {
    const std::string given = absl::StrCat("=\\fI", Escaped(value), "\\fR");
    absl::StrAppend(&head, bare.empty() ? given : absl::StrCat("[", given, "]"));
  }
  return absl::StrCat(".TP\n", head, "\n", Escaped(help), "\n");
}

std::string Section(const Json& command) {
  const std::string usage = command["usage"], notes = command["notes"];
  const size_t end = usage.find('\n');
  std::string text = absl::StrCat(".SS ", Escaped(usage.substr(0, end)), "\n", Body(usage.substr(end), ""));
  std::string group;
  for (const Json& flag : command["flags"]) {
    const std::string heading = flag.value("group", "Flags");
    if (heading != group) absl::StrAppend(&text, ".PP\n", Escaped(heading), ":\n");
    group = heading;
    text += FlagEntry(flag);
  }
  return text + Body(notes, ".PP\n");
}

}  // namespace

std::string ManPage(const std::string& description, const std::string& version, const Commands& commands) {
  std::string list, sections;
  for (const Json& command : commands) {
    const std::string name = command["name"];
    absl::StrAppend(&list, ".TP\n\\fB", Escaped(name), "\\fR\n", Escaped(SummaryOf(command)), ".\n");
    sections += Section(command);
  }
  return absl::StrCat(
      ".TH CATCHMENT 1 \"\" \"catchment ", Escaped(version), "\"\n.SH NAME\ncatchment \\- ",
      Escaped(description),
      "\n.SH SYNOPSIS\n\\fBcatchment\\fR \\fISUBCOMMAND\\fR [\\fIargument\\fR] [\\fIflags\\fR]\n"
      ".SH DESCRIPTION\nA flag is written \\fB\\-\\-name=value\\fR or \\fB\\-\\-name value\\fR, a switch "
      "\\fB\\-\\-name\\fR or \\fB\\-\\-name=false\\fR. The programs and subcommands are\n",
      list, ".SH COMMANDS\n", sections);
}

int RunMan(const std::vector<std::string>& args, const std::function<Commands()>& commands,
           const Streams& streams) {
  CommandLine line{.name = "catchment man", .usage = kUsage, .notes = kNotes};
  return RunCommandLine(&line, args, streams.out, streams.err, [&] {
    *streams.out << ManPage(kDescription, BuildVersion(), commands());
    return 0;
  });
}

}  // namespace catchment
