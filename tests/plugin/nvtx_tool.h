// What the tests' tool for NVTX (libnvtx_tool.so) was told.
#ifndef TESTS_PLUGIN_NVTX_TOOL_H_
#define TESTS_PLUGIN_NVTX_TOOL_H_

#include <cstdint>

inline constexpr char kNvtxTool[] = "tests/plugin/libnvtx_tool.so";
inline constexpr uint32_t kNvtxToolEvents = 1 << 16;

struct NvtxToolEvent {
  char kind;  // '(' push, ')' pop, '.' mark, '?' something wrong
  int depth;  // of its thread, outside of this range
  uint64_t thread;
  char name[112];  // not of a pop
};

// Through dlsym: the first kNvtxToolEvents.
using NvtxToolEventsFunction = const NvtxToolEvent* (*)(uint32_t* count, const char** domain);

#endif  // TESTS_PLUGIN_NVTX_TOOL_H_
