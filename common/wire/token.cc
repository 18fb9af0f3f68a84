#include "common/wire/token.h"

#include <glog/logging.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

namespace catchment {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kTokenBytes = 16;

}  // namespace

std::string NewTokenKey() {
  std::string key(kKeyBytes, '\0');
  // The kernel returns requests of up to 256 bytes in full.
  PCHECK(getrandom(key.data(), key.size(), 0) == static_cast<ssize_t>(key.size()))
      << "cannot get random bits from the system";
  return key;
}

std::string RegistrationToken(absl::string_view key, uint64_t incarnation) {
  unsigned char message[sizeof(incarnation)];
  for (unsigned char& byte : message) {
    byte = static_cast<unsigned char>(incarnation);
    incarnation >>= 8;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), message, sizeof(message), digest,
             &size) != nullptr);
  return std::string(reinterpret_cast<const char*>(digest), kTokenBytes);
}

bool IsTokenOf(absl::string_view key, uint64_t incarnation, absl::string_view token) {
  const std::string expected = RegistrationToken(key, incarnation);
  return token.size() == expected.size() &&
         CRYPTO_memcmp(token.data(), expected.data(), expected.size()) == 0;
}

}  // namespace catchment
