// bcrypt, as htpasswd -B and Prometheus' exporters use it.
//
// Thread: any, no state.
#ifndef EXPORTER_WEB_BCRYPT_H_
#define EXPORTER_WEB_BCRYPT_H_

#include <string>
#include <string_view>

#include "exporter/web/bcrypt_hash.h"

namespace nccl_pulse {

// Whether `password` is the one of `hash`, which IsBcryptHash took. Only its first 72 bytes count,
// as everywhere with bcrypt; one with a zero byte matches no hash.
// Cost: 2^cost times 60 us: 60 ms at 10, which is usual. 10 KiB of memory.
bool MatchesBcrypt(const std::string& hash, std::string_view password);

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_BCRYPT_H_
