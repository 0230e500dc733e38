// What a bcrypt hash looks like, without the means to compute one.
//
// Thread: any, no state.
#ifndef EXPORTER_WEB_BCRYPT_HASH_H_
#define EXPORTER_WEB_BCRYPT_HASH_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccl_pulse {

inline constexpr std::size_t kBcryptHashBytes = 60;

// Above it one password takes seconds, and each doubles that.
inline constexpr int kMaxBcryptCost = 16;

// False, with what is wrong in `reason`, when `hash` is not one of $2a$, $2b$ or $2y$ with a cost
// of 4 to kMaxBcryptCost. The hash itself is not repeated.
bool IsBcryptHash(std::string_view hash, std::string* reason);

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_BCRYPT_HASH_H_
