#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/command_tables.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kUsage[] = R"(catchment completion bash|zsh

Prints a script that completes subcommands, flags and their values, for catchment, catchment_server and
catchment_worker.

Examples:
  source <(catchment completion bash)
  catchment completion bash > ~/.local/share/bash-completion/completions/catchment
  catchment completion zsh > ~/.zfunc/_catchment
)";

constexpr char kNotes[] = "\nExit code: 0: done; 2: wrong command line.\n";

constexpr char kProgram[] = "catchment";

std::string NameOf(const Json& command) { return command["name"]; }

// Returns true if it is a subcommand rather than a program.
bool IsSubcommand(const Json& command) { return absl::StrContains(NameOf(command), ' '); }

std::string SubcommandOf(const Json& command) {
  return std::string(absl::StripPrefix(NameOf(command), absl::StrCat(kProgram, " ")));
}

// Returns the names of the programs, that of the command first.
std::string Programs(const Commands& commands) {
  std::string names = kProgram;
  for (const Json& command : commands) {
    if (!IsSubcommand(command)) absl::StrAppend(&names, " ", NameOf(command));
  }
  return names;
}

std::string Subcommands(const Commands& commands) {
  std::vector<std::string> names;
  for (const Json& command : commands) {
    if (IsSubcommand(command)) names.push_back(SubcommandOf(command));
  }
  return absl::StrJoin(names, " ");
}

// Returns the text in single quotes, for both shells.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Returns the word of _catchment_kind for a kind.
std::string BashKind(const ValueKind& kind) {
  const std::string words = absl::StrJoin(kind.words, " ");
  switch (kind.kind) {
    case ValueKind::kFile:
      return "file";
    case ValueKind::kDirectory:
      return "directory";
    case ValueKind::kSwitch:
    case ValueKind::kWords:
      return absl::StrCat(kind.is_optional ? "optional " : "words ", words);
    case ValueKind::kList:
      return "list " + words;
    case ValueKind::kFields:
      return "fields " + words;
    case ValueKind::kAnything:
      return kind.is_optional ? "optional" : "anything";
  }
  return "";
}

constexpr char kBashHead[] =
    R"(# Completion of catchment's programs for bash; `catchment completion bash` has made it.
# Use: source <(catchment completion bash)

# _catchment_flags COMMAND: its flags, those with a value with "=".
# _catchment_kind COMMAND [FLAG]: what the value of the flag is, or the command's argument.
)";

constexpr char kBashFunction[] = R"~(
_catchment() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[0]##*/} first=1 flag='' prefix='' kind
  COMPREPLY=()
  if [[ $command == catchment ]]; then
    if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $previous == help ]]; }; then
      mapfile -t COMPREPLY < <(compgen -W "$_catchment_subcommands" -- "$word")
      return
    fi
    command+=" ${COMP_WORDS[1]}"
    first=2
  fi
  # Bash cuts --out=DIR into --out, = and DIR, unless "=" is not in COMP_WORDBREAKS.
  if [[ $word == = ]]; then
    flag=$previous word=''
  elif [[ $previous == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $word == --*=* ]]; then
    flag=${word%%=*} prefix=${word%%=*}= word=${word#*=}
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_catchment_flags "$command")" -- "$word")
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
    return
  elif [[ $previous == --* ]] && ((COMP_CWORD > first)); then
    kind=$(_catchment_kind "$command" "--$(tr - _ <<<"${previous#--}")")
    [[ -z $kind || $kind == optional* ]] || flag=$previous
  fi
  [[ -z $flag ]] || flag=--$(tr - _ <<<"${flag#--}")
  kind=$(_catchment_kind "$command" "$flag")
  case $kind in
    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    directory) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    list*)
      compopt -o nospace
      [[ $word != *,* ]] || prefix+=${word%,*},
      mapfile -t COMPREPLY < <(compgen -W "${kind#* }" -- "${word##*,}")
      ;;
    fields*) compopt -o nospace; mapfile -t COMPREPLY < <(compgen -W "${kind#* }" -- "$word") ;;
    words* | optional*) mapfile -t COMPREPLY < <(compgen -W "${kind#* }" -- "$word") ;;
  esac
  [[ -z $prefix ]] || COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
}
)~";

}  // namespace

std::string BashCompletion(const Commands& commands) {
  std::string flags_of, kind_of;
  std::map<std::string, std::vector<std::string>> by_kind;
  for (const Json& command : commands) {
    std::vector<std::string> flags = {"--help"};
    const std::string argument = command["argument"];
    if (!argument.empty()) by_kind[BashKind(KindOfPlaceholder(argument))].push_back(NameOf(command) + " ");
    for (const Json& flag : command["flags"]) {
      const std::string name = absl::StrCat("--", std::string(flag["name"]));
      const ValueKind kind = KindOfFlag(flag);
      flags.push_back(kind.is_optional ? name : name + "=");
      by_kind[BashKind(kind)].push_back(absl::StrCat(NameOf(command), " ", name));
    }
    absl::StrAppend(&flags_of, "    ", Quoted(NameOf(command)), ") echo ", Quoted(absl::StrJoin(flags, " ")),
                    " ;;\n");
  }
  for (const auto& [kind, keys] : by_kind) {
    std::vector<std::string> patterns;
    for (const std::string& key : keys) patterns.push_back(Quoted(key));
    absl::StrAppend(&kind_of, "    ", absl::StrJoin(patterns, " | \\\n    "), ")\n      echo ", Quoted(kind),
                    " ;;\n");
  }
  return absl::StrCat(kBashHead, "_catchment_subcommands=",
                      Quoted(absl::StrCat(Subcommands(commands), " help --help --version")),
                      "\n_catchment_flags() {\n  case $1 in\n", flags_of,
                      "  esac\n}\n_catchment_kind() {\n  case \"$1 $2\" in\n", kind_of, "  esac\n}\n",
                      kBashFunction, "\ncomplete -F _catchment ", Programs(commands), "\n");
}

namespace {

// Returns a description for _arguments: the first sentence, without characters that end it.
std::string ZshText(const std::string& help) {
  const std::string first(absl::StripSuffix(help.substr(0, help.find(". ")), "."));
  return absl::StrReplaceAll(first, {{"\\", "\\\\"}, {"[", "("}, {"]", ")"}, {":", "\\:"}});
}

std::string ZshAction(const ValueKind& kind) {
  switch (kind.kind) {
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kDirectory:
      return "_files -/";
    case ValueKind::kSwitch:
    case ValueKind::kWords:
      return absl::StrCat("(", absl::StrJoin(kind.words, " "), ")");
    case ValueKind::kList:
      return "_catchment_list";
    case ValueKind::kFields:
      return "_catchment_fields";
    case ValueKind::kAnything:
      return " ";
  }
  return "";
}

// Returns the arguments of _arguments for a command.
std::string ZshArguments(const Json& command) {
  std::vector<std::string> specs = {"'(- *)--help[Prints the help]'"};
  for (const Json& flag : command["flags"]) {
    const ValueKind kind = KindOfFlag(flag);
    const std::string placeholder = absl::StrReplaceAll(std::string(flag["value"]), {{":", "\\:"}});
    const std::string name = absl::StrCat("*--", std::string(flag["name"]));
    const std::string text = absl::StrCat("[", ZshText(flag["help"]), "]");
    if (kind.kind == ValueKind::kSwitch) {
      specs.push_back(Quoted(absl::StrCat(name, text)));
    } else if (kind.is_optional) {
      specs.push_back(Quoted(absl::StrCat(name, "=-", text, "::", placeholder, ":", ZshAction(kind))));
    } else {
      specs.push_back(Quoted(absl::StrCat(name, "=", text, ":", placeholder, ":", ZshAction(kind))));
    }
  }
  const std::string argument = command["argument"];
  if (!argument.empty()) {
    specs.push_back(Quoted(absl::StrCat("*:", absl::StrReplaceAll(argument, {{":", "\\:"}}), ":",
                                        ZshAction(KindOfPlaceholder(argument)))));
  }
  return absl::StrJoin(specs, " \\\n        ");
}

}  // namespace

std::string ZshCompletion(const Commands& commands) {
  std::string described, cases, programs;
  for (const Json& command : commands) {
    const std::string arguments = absl::StrCat("_arguments -S \\\n        ", ZshArguments(command), " ;;\n");
    if (!IsSubcommand(command)) {
      absl::StrAppend(&programs, "    ", NameOf(command), ")\n      ", arguments);
      continue;
    }
    absl::StrAppend(&described, "    ",
                    Quoted(absl::StrCat(SubcommandOf(command), ":",
                                        absl::StrReplaceAll(SummaryOf(command), {{":", "\\:"}}))),
                    "\n");
    absl::StrAppend(&cases, "    ", SubcommandOf(command), ")\n      ", arguments);
  }
  return absl::StrCat("#compdef ", Programs(commands), R"(
# Completion of catchment's programs for zsh; `catchment completion zsh` has made it.
# Use: source <(catchment completion zsh), after compinit, or write it to a file _catchment in a directory of $fpath.

_catchment_list() {
  compset -P '*,'
  compadd "$@" -S '' -- )",
                      absl::StrJoin(KindOfPlaceholder("A,B,...").words, " "), R"(
}

_catchment_fields() {
  compadd "$@" -S '' -- )",
                      absl::StrJoin(KindOfPlaceholder("PATH=VALUE").words, " "), R"(
}

_catchment_command() {
  local -a subcommands=(
)",
                      described, R"(  )
  if ((CURRENT == 2)); then
    _describe -t commands subcommand subcommands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
)",
                      cases, R"(  esac
}

_catchment() {
  case ${words[1]:t} in
    catchment) _catchment_command ;;
)",
                      programs, R"(  esac
}

if [[ $funcstack[1] == _catchment ]]; then
  _catchment "$@"
else
  compdef _catchment )",
                      Programs(commands), "\nfi\n");
}

int RunCompletion(const std::vector<std::string>& args, const std::function<Commands()>& commands,
                  const Streams& streams) {
  std::string shell;
  CommandLine line{.name = "catchment completion", .usage = kUsage, .notes = kNotes};
  line.argument = {"bash|zsh", "bash", &shell};
  line.check = [&shell] {
    if (shell == "bash" || shell == "zsh") return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("completes in bash and zsh, not in ", shell));
  };
  return RunCommandLine(&line, args, streams.out, streams.err, [&] {
    *streams.out << (shell == "bash" ? BashCompletion(commands()) : ZshCompletion(commands()));
    return 0;
  });
}

}  // namespace catchment
