// Validates the syntax of bcrypt hashes. Cannot compute them.
//
// Thread: any, no state.
#ifndef EXPORTER_WEB_BCRYPT_HASH_H_
#define EXPORTER_WEB_BCRYPT_HASH_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccl_pulse {

inline constexpr std::size_t kBcryptHashBytes = 60;

// A password takes 4 s at this cost of the hash, and each further step would double that.
inline constexpr int kMaxBcryptCost = 16;

// True if `hash` is $2a$, $2b$ or $2y$ with a cost of 4 to kMaxBcryptCost. Otherwise returns false,
// with the reason, which does not repeat the hash.
bool IsBcryptHash(std::string_view hash, std::string* reason);

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_BCRYPT_HASH_H_
