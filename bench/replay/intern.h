// One pointer for equal strings.
//
// NCCL passes function, datatype, algorithm and protocol names as literals of libnccl: the same
// name is the same pointer for the life of the process. A plugin may rely on that, so a replay has
// to offer it too.
//
// Thread: any (a mutex). Cost: a hash lookup; memory is never given back.
#ifndef BENCH_REPLAY_INTERN_H_
#define BENCH_REPLAY_INTERN_H_

#include <string_view>

namespace nccl_pulse {

// NUL-terminated copy of `text`, valid until the process ends.
const char* Intern(std::string_view text);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_INTERN_H_
