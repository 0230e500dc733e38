// GraphPosition says which stamp of a communicator's CUDA graphs the GPU passed last, and how many
// of the graphs are followed. A stamp is a one-thread kernel that the plugin adds to a captured
// graph; a graph is followed if stamps report its replays (plugin/cuda/graph_stamps.h). The
// position is packed into two words of the communicator's record.
//
//   captures   bit  63      48 47      32 31    16 15     8 7      0
//                   | followed | captures | graph  | stamps | passed |
//   calls      bit  63      63 62     42 41    21 20      0
//                   | has head |  total |  until | before  |
//
// Values that do not fit are saturated, except `graph`: 1 follows kMost.
//
// Thread: plain data.
#ifndef METRICS_GRAPH_POSITION_H_
#define METRICS_GRAPH_POSITION_H_

#include <algorithm>
#include <cstdint>

namespace nccl_pulse {

struct GraphPosition {
  static constexpr uint32_t kMost = 0xffff;  // limit of `captures` and `followed`
  static constexpr uint32_t kMostCalls = 0x1fffff;

  // Graphs captured with calls of the communicator, and how many of them are followed: their
  // replays are counted, with all their calls.
  uint32_t captures = 0, followed = 0;
  // Number, among those captures, of the graph whose stamp was passed last, from 1; 0: none.
  uint32_t graph = 0;
  uint32_t passed = 0, stamps = 0;  // number of that stamp, from 1; number of stamps in the graph
  // The communicator's calls in one replay of that graph: before that stamp, before the next one,
  // and in total.
  uint32_t calls_before = 0, calls_until = 0, calls = 0;
  bool has_head = false;  // the graph's first stamp precedes all other nodes of the graph

  uint64_t PackCaptures() const {
    return uint64_t{std::min(followed, kMost)} << 48 | uint64_t{std::min(captures, kMost)} << 32 |
           uint64_t{graph == 0 ? 0 : (graph - 1) % kMost + 1} << 16 | uint64_t{stamps & 0xff} << 8 |
           (passed & 0xff);
  }
  uint64_t PackCalls() const {
    return uint64_t{has_head} << 63 | uint64_t{std::min(calls, kMostCalls)} << 42 |
           uint64_t{std::min(calls_until, kMostCalls)} << 21 | std::min(calls_before, kMostCalls);
  }
  static GraphPosition Of(uint64_t captures, uint64_t calls) {
    const auto part = [](uint64_t bits, int shift, uint32_t mask) {
      return static_cast<uint32_t>(bits >> shift) & mask;
    };
    GraphPosition position;
    position.followed = part(captures, 48, kMost);
    position.captures = part(captures, 32, kMost);
    position.graph = part(captures, 16, kMost);
    position.stamps = part(captures, 8, 0xff);
    position.passed = part(captures, 0, 0xff);
    position.has_head = calls >> 63 != 0;
    position.calls = part(calls, 42, kMostCalls);
    position.calls_until = part(calls, 21, kMostCalls);
    position.calls_before = part(calls, 0, kMostCalls);
    return position;
  }
};

}  // namespace nccl_pulse

#endif  // METRICS_GRAPH_POSITION_H_
