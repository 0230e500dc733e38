// Simulated time, and streams on it: what the driver's functions and NCCL's share.
#ifndef TESTS_BENCH_FAKE_FAKE_STREAM_H_
#define TESTS_BENCH_FAKE_FAKE_STREAM_H_

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace fake_gpu {

inline constexpr int kMaxRanks = 8;

inline thread_local bool simulated = false;
inline thread_local double now_us = 0;
inline thread_local double noise = 1;
inline thread_local uint32_t random_state = 0;

inline double OwnSpeed() {
  const char* share = std::getenv("FAKE_OWN");
  if (share == nullptr) return 1;
  const uint32_t mixed = static_cast<uint32_t>(getpid()) * 2654435761u;
  return 1 + atof(share) * (static_cast<double>(mixed >> 8) / (1 << 23) - 1);
}

inline void DrawNoise() {
  random_state = random_state * 1664525u + 1013904223u;
  noise = 1 + (static_cast<double>(random_state >> 8) / (1 << 24) - 0.5) * 0.01;
}

struct Graph {
  double length_us = 0;
  std::function<void()> data;  // of the last operation
};

struct Stream {
  double free_at_us = 0;
  Graph* capture = nullptr;
};

inline void Occupy(Stream& stream, double length_us) {
  constexpr double kEnqueueUs = 2;
  now_us += kEnqueueUs;
  stream.free_at_us = std::max(stream.free_at_us, now_us) + length_us;
}

inline bool Misbehaves(const char* how) {
  const char* asked = std::getenv("FAKE_NCCL");
  return asked != nullptr && strcmp(asked, how) == 0;
}

inline thread_local bool receive_was_set = false;

}  // namespace fake_gpu

#endif  // TESTS_BENCH_FAKE_FAKE_STREAM_H_
