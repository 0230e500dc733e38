// Checks bcrypt passwords, as created by htpasswd -B and used by Prometheus' exporters.
//
// Thread: any, no state.
#ifndef EXPORTER_WEB_BCRYPT_H_
#define EXPORTER_WEB_BCRYPT_H_

#include <string>
#include <string_view>

#include "exporter/web/bcrypt_hash.h"

namespace nccl_pulse {

// True if `password` matches `hash`, which IsBcryptHash must have accepted. bcrypt uses only the
// first 72 bytes of a password. A password with a zero byte matches no hash. Takes 60 us times 2 to
// the power of the hash's cost: 60 ms at the usual cost, 10. Memory: 10 KiB.
bool MatchesBcrypt(const std::string& hash, std::string_view password);

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_BCRYPT_H_
