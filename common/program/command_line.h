// The command line of a program or of a subcommand: its flags, its positional argument, its help, and the one
// runner that parses it.
//
// A flag is written --name=value or --name value; a switch --name or --name=false. A list flag may be
// repeated. "--" ends the flags. - and _ are equal within a name, and --no-name is --name=false. --help
// prints all flags in their groups, -h the first ones, both for the width of the terminal, and --help=json
// the command line as JSON (CommandLine::ToJson), from which `catchment completion` and `catchment man`
// generate their output.
//
// Errors: InvalidArgument that names the flag and the allowed values; for an unknown flag, the nearest one.
// Threads: an object is used by one thread.
#ifndef CATCHMENT_COMMON_PROGRAM_COMMAND_LINE_H_
#define CATCHMENT_COMMON_PROGRAM_COMMAND_LINE_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/rpc.h"

namespace catchment {

// The value of a switch that may leave the decision to the program.
enum class AutoSwitch { kOff, kOn, kAuto };

class FlagSet {
 public:
  // Declare a flag. `out` has the default until Parse writes to it, and must outlive Parse. `value` is the
  // placeholder of the value in the help: "--out=DIR". A flag with an empty `help` is not listed. -h lists
  // those that are declared first.
  void AddString(const std::string& name, const std::string& value, std::string* out,
                 const std::string& help);
  // Declares one that must be given, with a value that is not empty.
  void AddRequired(const std::string& name, const std::string& value, std::string* out,
                   const std::string& help);
  void AddInt(const std::string& name, const std::string& value, int minimum, int* out,
              const std::string& help);
  // Declares a finite number that is at least 0.
  void AddNumber(const std::string& name, double* out, const std::string& help);
  // Declares a positive number.
  void AddSeconds(const std::string& name, double* out, const std::string& help);
  // Does the same; --name without a value sets `bare`.
  void AddOptionalSeconds(const std::string& name, double bare, double* out, const std::string& help);
  // Declares one whose values `set` reads; it may be repeated. Errors of `set` begin with "--name=value: ".
  void AddParsed(const std::string& name, const std::string& value,
                 std::function<absl::Status(const std::string&)> set, const std::string& help);
  // Declares one that must be one of the choices.
  void AddChoice(const std::string& name, const std::vector<std::string>& choices, std::string* out,
                 const std::string& help);
  void AddSwitch(const std::string& name, bool* out, const std::string& help);
  // Declares --name, --name=auto or --name=false.
  void AddAutoSwitch(const std::string& name, AutoSwitch* out, const std::string& help);
  void AddList(const std::string& name, const std::string& value, std::vector<std::string>* out,
               const std::string& help);

  // Lists the flags that are declared from here on below a heading of their own in the help.
  void BeginGroup(const std::string& heading) { group_ = heading; }

  // Sets what describes a flag that does not exist here, such as "epochs is a field of the job: --set
  // epochs=VALUE", or returns an empty text. `name` has _ in place of -; `value` is empty if there is none.
  void SetAdvice(std::function<std::string(const std::string& name, const std::string& value)> advice) {
    advice_ = std::move(advice);
  }

  // Returns the positional arguments. `args` do not include the name of the program.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& args);
  // Returns an error that names the first required flag without a value.
  absl::Status CheckRequired() const;

  enum class Help { kNone, kShort, kLong, kJson };
  // Returns the help that -h, --help or --help=json has asked for.
  Help help() const { return help_; }
  // Returns what SetAdvice's function says of NAME=VALUE; empty if `word` has another form.
  std::string Advise(const std::string& word) const;

  // Returns a paragraph for each flag, below the headings of the groups: "  --out=DIR    Directory ...".
  std::string Describe(int width) const;
  // Returns what the help of each of the first flags says first.
  std::string DescribeFirst(int width) const;
  // Returns a list of objects with name, value (empty for a switch), bare (the value of --name alone; empty
  // if it needs one), help and group.
  nlohmann::ordered_json ToJson() const;

 private:
  struct Flag {
    std::string name;
    std::string value;  // empty: a switch
    std::string help;
    std::function<absl::Status(const std::string&)> set;
    std::string bare = "";                  // the value of --name alone; empty: a value is needed
    const std::string* required = nullptr;  // the value of a required flag
    std::string group = "";                 // its heading
  };

  void Add(Flag flag);
  const Flag* Find(const std::string& name) const;
  absl::Status Unknown(const std::string& name, const std::string& value) const;

  std::vector<Flag> flags_;
  std::string group_ = "Flags";
  std::function<std::string(const std::string& name, const std::string& value)> advice_;
  Help help_ = Help::kNone;
};

// The arguments and the help text of a program or a subcommand.
struct CommandLine {
  // The positional argument.
  struct Argument {
    std::string name;     // "JOB"; empty: there is none
    std::string example;  // an example of a command line, without the program's name
    std::string* out = nullptr;
    // Returns true if the flags make the argument unnecessary.
    std::function<bool()> optional = [] { return false; };
    std::vector<std::string>* all = nullptr;  // if it is set instead of `out`, there may be several
  };

  std::string name;   // "catchment train"
  std::string usage;  // the help before the list of flags
  std::string notes;  // the help after it
  FlagSet flags;
  Argument argument;
  // Checks the values of flags and argument.
  std::function<absl::Status()> check = [] { return absl::OkStatus(); };

  // Fills the variables of the flags and of the argument. Checks nothing but the flags if --help is given.
  absl::Status Parse(const std::vector<std::string>& args);
  // Returns the help for a terminal of this width: all of it, or what the command does, its usage and first
  // flags.
  std::string Help(bool all, int width) const;
  // Returns an object with name, usage, notes, argument (its placeholder, empty if there is none) and flags.
  nlohmann::ordered_json ToJson() const;
};

// Exit codes of all programs. A signal N that ended a run makes kExitSignal + N. kExitProgramFailed: of a
// worker or an evaluator whose part in the job is done, and whose program failed after that.
enum ExitCode { kExitFailed = 1, kExitUsage = 2, kExitProgramFailed = 4, kExitSignal = 128 };

// Parses `args` and calls `run`, which returns the exit code. Returns that; 0 after printing the help, as
// text or JSON, to `out`; kExitUsage for a wrong command line, and kExitFailed for an error of `run`, after
// printing the error to `err`, with the name of the command in front.
int RunCommandLine(CommandLine* line, const std::vector<std::string>& args, std::ostream* out,
                   std::ostream* err, const std::function<absl::StatusOr<int>()>& run);

// Declares --certs, --tls_ca, --tls_cert, --tls_key and --insecure. Their defaults are the environment's
// CATCHMENT_CERTS, CATCHMENT_TLS_CA, CATCHMENT_TLS_CERT, CATCHMENT_TLS_KEY and CATCHMENT_INSECURE (1).
// --certs replaces the values of the three others that came before it.
void AddSecurityFlags(TlsFiles* tls, bool* insecure, FlagSet* flags);
// Removes these variables from the environment, for child processes with connections of their own.
void ClearSecurityEnvironment();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PROGRAM_COMMAND_LINE_H_
