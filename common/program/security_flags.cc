#include "common/program/security_flags.h"

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace catchment {
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
