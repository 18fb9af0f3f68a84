#include "common/net/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

struct OpensslDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
  // Its elements belong to others.
  void operator()(STACK_OF(X509) * certificates) const { sk_X509_free(certificates); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using OpensslPtr = std::unique_ptr<T, OpensslDeleter>;

OpensslPtr<BIO> Reader(const std::string& text) {
  return OpensslPtr<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Returns the next certificate; null after the last one.
OpensslPtr<X509> Next(BIO* reader) {
  OpensslPtr<X509> certificate(PEM_read_bio_X509(reader, nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

// Returns the certificates of a file, at least one.
absl::StatusOr<std::vector<OpensslPtr<X509>>> ReadAll(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const OpensslPtr<BIO> reader = Reader(text);
  std::vector<OpensslPtr<X509>> certificates;
  while (OpensslPtr<X509> certificate = Next(reader.get())) certificates.push_back(std::move(certificate));
  if (certificates.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " has no certificate"));
  return certificates;
}

absl::Time ToTime(const ASN1_TIME* time) {
  tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? absl::FromTM(parts, absl::UTCTimeZone()) : absl::InfinitePast();
}

std::vector<std::string> RolesOf(X509* certificate) {
  const OpensslPtr<GENERAL_NAMES> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> roles;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    absl::string_view text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                           ASN1_STRING_length(uri));
    if (absl::ConsumePrefix(&text, kRoleUri)) roles.emplace_back(text);
  }
  return roles;
}

}  // namespace

absl::StatusOr<Certificate> ReadCertificate(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<OpensslPtr<X509>> read, ReadAll(path));
  X509* const certificate = read.front().get();
  return Certificate{ToTime(X509_get0_notBefore(certificate)), ToTime(X509_get0_notAfter(certificate)),
                     RolesOf(certificate)};
}

absl::Status CheckIssuer(const std::string& cert, const std::string& ca) {
  ASSIGN_OR_RETURN(const std::vector<OpensslPtr<X509>> chain, ReadAll(cert));
  ASSIGN_OR_RETURN(const std::vector<OpensslPtr<X509>> authorities, ReadAll(ca));
  const OpensslPtr<X509_STORE> store(X509_STORE_new());
  for (const OpensslPtr<X509>& authority : authorities) X509_STORE_add_cert(store.get(), authority.get());
  const OpensslPtr<STACK_OF(X509)> intermediates(sk_X509_new_null());
  for (const OpensslPtr<X509>& one : chain) sk_X509_push(intermediates.get(), one.get());
  const OpensslPtr<X509_STORE_CTX> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), intermediates.get());
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME);
  const bool issued = X509_verify_cert(context.get()) == 1;
  const std::string why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  ERR_clear_error();
  if (issued) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(cert, " is not from an authority in ", ca, " (", why, ")"));
}

absl::StatusOr<bool> IsValidFor(const std::string& cert, const std::string& host) {
  ASSIGN_OR_RETURN(const std::vector<OpensslPtr<X509>> read, ReadAll(cert));
  X509* const certificate = read.front().get();
  const bool valid = X509_check_ip_asc(certificate, host.c_str(), 0) == 1 ||
                     X509_check_host(certificate, host.data(), host.size(), 0, nullptr) == 1;
  ERR_clear_error();
  return valid;
}

bool IsKeyOf(const std::string& key, const std::string& cert) {
  const OpensslPtr<BIO> key_reader = Reader(key);
  const OpensslPtr<X509> certificate = Next(Reader(cert).get());
  const OpensslPtr<EVP_PKEY> private_key(
      PEM_read_bio_PrivateKey(key_reader.get(), nullptr, nullptr, nullptr));
  const bool match = certificate != nullptr && private_key != nullptr &&
                     X509_check_private_key(certificate.get(), private_key.get()) == 1;
  ERR_clear_error();
  return match;
}

}  // namespace catchment
