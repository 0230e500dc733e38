#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/fleet/hostile_dump.h"

// The input as it is, which finds what a reader of bytes can stumble over; and laid over an honest
// dump from a place on that it names, which reaches what a dump can say.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {  // NOLINT
  static const std::string kHonest = nccl_pulse::HonestPickle(0);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string wrong = nccl_pulse::ReadAndCheck(input);
  if (wrong.empty() && size > 2) {
    std::string laid = kHonest;
    laid.replace((data[0] | data[1] << 8) % laid.size(), size - 2, input.substr(2));
    wrong = nccl_pulse::ReadAndCheck(laid);
  }
  if (wrong.empty()) return 0;
  fprintf(stderr, "%s\n", wrong.c_str());
  abort();
}
