// A profiler as others write them, which notes each call: what NCCL_PULSE_NEXT_PLUGIN names in
// tests.
#ifndef TESTS_PLUGIN_NEXT_PROFILER_H_
#define TESTS_PLUGIN_NEXT_PROFILER_H_

#include <cstdint>
#include <vector>

namespace nccl_pulse {

enum class NextManner {
  kGood,
  kFailsInit,
  kThrows,
  kStrangeHandles,  // no addresses: as large as tickets
  kNoHandles,
  kScribbles,  // over the descriptor
};

struct NextCall {
  enum What { kInit, kStart, kStop, kRecord, kFinalize } what;
  void* context = nullptr;
  void* handle = nullptr;
  uint64_t type = 0;
  void* parent = nullptr;
  int state = 0;
};

// The library exports this as next_notes.
struct NextNotes {
  NextManner manner = NextManner::kGood;
  int mask = 0;
  bool is_quiet = false;  // counts alone
  uint64_t count = 0;
  int* its_mask = nullptr;  // to which it wrote
  std::vector<NextCall> calls;
};

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_NEXT_PROFILER_H_
