// Intern returns one pointer for equal strings.
//
// NCCL passes function, datatype, algorithm and protocol names as literals of libnccl: a name has
// the same pointer for the life of the process. A plugin may rely on that, so a replay must do the
// same.
//
// Thread: any (a mutex). Cost: a hash lookup; memory is never freed.
#ifndef BENCH_REPLAY_INTERN_H_
#define BENCH_REPLAY_INTERN_H_

#include <string_view>

namespace nccl_pulse {

// Returns a NUL-terminated copy of `text`, valid until the process ends.
const char* Intern(std::string_view text);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_INTERN_H_
