// X.509 certificates in PEM files.
//
// Threads: all functions are thread-safe.
#ifndef CATCHMENT_COMMON_NET_CERTIFICATE_H_
#define CATCHMENT_COMMON_NET_CERTIFICATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace catchment {

// Prefix of the subject alternative names with which a certificate names its owner's roles:
// "catchment:role/server".
inline constexpr char kRoleUri[] = "catchment:role/";

struct Certificate {
  absl::Time valid_from;
  absl::Time valid_until;
  std::vector<std::string> roles;  // without kRoleUri: "server"
};

// Returns the first certificate of a PEM file. Errors: those of ReadFile; InvalidArgument if there is none.
absl::StatusOr<Certificate> ReadCertificate(const std::string& path);

// Returns FailedPrecondition unless one of the authorities in the PEM file `ca` has issued the first
// certificate of the PEM file `cert`, possibly through others in that file. Times of validity do not count.
// Errors: those of ReadCertificate.
absl::Status CheckIssuer(const std::string& cert, const std::string& ca);

// Returns true if the certificate is valid for a host, a name or an address. Errors: those of
// ReadCertificate.
absl::StatusOr<bool> IsValidFor(const std::string& cert, const std::string& host);

// Returns true if `key` is the private key of `cert`, both the content of PEM files.
bool IsKeyOf(const std::string& key, const std::string& cert);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_CERTIFICATE_H_
