#include "exporter/web/bcrypt_hash.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kSettingBytes = 7;  // "$2b$10$"

bool IsBase64(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '/'; }

}  // namespace

bool IsBcryptHash(std::string_view hash, std::string* reason) {
  if (hash.size() < kSettingBytes || hash.substr(0, 2) != "$2" ||
      (hash[2] != 'a' && hash[2] != 'b' && hash[2] != 'y') || hash[3] != '$' ||
      !absl::ascii_isdigit(hash[4]) || !absl::ascii_isdigit(hash[5]) || hash[6] != '$') {
    *reason =
        "not a bcrypt hash: one begins with $2a$, $2b$ or $2y$ and a cost (htpasswd -nB USER)";
    return false;
  }
  if (hash.size() != kBcryptHashBytes ||
      !std::all_of(hash.begin() + kSettingBytes, hash.end(), IsBase64)) {
    *reason = absl::StrCat("not a bcrypt hash: one has ", kBcryptHashBytes,
                           " characters, of which those "
                           "behind the cost are letters, digits, '.' and '/'; this one has ",
                           hash.size());
    return false;
  }
  const int cost = (hash[4] - '0') * 10 + (hash[5] - '0');
  if (cost < 4 || cost > kMaxBcryptCost) {
    *reason = absl::StrCat("bcrypt with a cost of ", cost, "; it may be 4 to ", kMaxBcryptCost);
    return false;
  }
  return true;
}

}  // namespace nccl_pulse
