// The command line of one subcommand: flags that it declares, and positional arguments.
//
// A flag is written --name=value or --name value; a switch --name or --name=false. A list flag may be given
// any number of times. "--" ends the flags. --help (or -h) is known everywhere. Both - and _ do within a
// name.
//
// Errors: InvalidArgument that names the flag, what is allowed, and for an unknown flag the nearest one.
// Threads: none; made, filled and dropped by one.
#ifndef CATCHMENT_CLI_FLAGS_H_
#define CATCHMENT_CLI_FLAGS_H_

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc.h"

namespace catchment {

class FlagSet {
 public:
  // The pointers must outlive Parse, which writes to them; until then they hold the defaults. `value` stands
  // for the value in the help text: "--out=DIR". An empty `help` hides a flag from it.
  void AddString(const std::string& name, const std::string& value, std::string* out,
                 const std::string& help);
  void AddInt(const std::string& name, const std::string& value, int minimum, int* out,
              const std::string& help);
  // Positive.
  void AddSeconds(const std::string& name, double* out, const std::string& help);
  // The same, and --name alone sets `bare`.
  void AddOptionalSeconds(const std::string& name, double bare, double* out, const std::string& help);
  void AddSwitch(const std::string& name, bool* out, const std::string& help);
  void AddList(const std::string& name, const std::string& value, std::vector<std::string>* out,
               const std::string& help);

  // Returns the positional arguments. `args` are without the program's and the subcommand's names.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& args);

  bool help() const { return help_; }
  bool IsSet(const std::string& name) const { return set_.count(name) > 0; }

  // One flag after another: "  --out=DIR    where ...", wrapped at 100 columns.
  std::string Describe() const;

 private:
  struct Flag {
    std::string name;
    std::string value;  // empty: a switch
    std::string help;
    std::function<absl::Status(const std::string&)> set;
    std::string bare = "";  // what --name alone sets; empty: it needs a value
  };

  const Flag* Find(const std::string& name) const;
  absl::Status Unknown(const std::string& name) const;

  std::vector<Flag> flags_;
  std::set<std::string> set_;
  bool help_ = false;
};

// Declares the flags of a command that connects to servers with mutual TLS.
inline void AddTlsFlags(TlsFiles* tls, FlagSet* flags) {
  flags->AddString("tls_ca", "FILE", &tls->ca, "PEM file of the authority (mutual TLS).");
  flags->AddString("tls_cert", "FILE", &tls->cert, "PEM file of this side's certificate.");
  flags->AddString("tls_key", "FILE", &tls->key, "PEM file of its key.");
}

}  // namespace catchment

#endif  // CATCHMENT_CLI_FLAGS_H_
