#include "exporter/web/bcrypt.h"

#include <bcrypt.h>
#include <openssl/mem.h>

#include <array>

namespace nccl_pulse {
namespace {

constexpr std::size_t kPrefixBytes = 4;  // "$2b$"

static_assert(kBcryptHashBytes == BCRYPT_OUTPUT_SIZE - 1);

}  // namespace

bool MatchesBcrypt(const std::string& hash, std::string_view password) {
  if (password.find('\0') != password.npos) return false;
  const std::string phrase(password);
  // For $2a$ the library takes a precaution that no other implementation has.
  std::string setting = hash;
  setting[2] = 'b';
  std::array<uint8_t, BCRYPT_OUTPUT_SIZE> output{};
  alignas(16) std::array<char, BCRYPT_SCRATCH_SIZE> scratch;
  crypt_bcrypt_rn(phrase.c_str(), phrase.size(), setting.c_str(), setting.size(), output.data(),
                  output.size(), scratch.data(), scratch.size());
  return CRYPTO_memcmp(output.data() + kPrefixBytes, hash.data() + kPrefixBytes,
                       kBcryptHashBytes - kPrefixBytes) == 0;
}

}  // namespace nccl_pulse
