// CompositeCall recognizes AlltoAll, Gather and Scatter by their Send and Recv calls.
//
// NCCL implements these as a group of Sends and Recvs, and reports only the parts, without peers
// (docs/nccl-profiler-api.md#groups). It also reports whether a group belongs to one call of the
// application. Only these three operations make several parts in one call. All parts have the same
// size. With n ranks, the order is:
//
//   AlltoAll            Send, Recv, Send, Recv ...   2n parts
//   Gather, its root    Send, then n times Recv
//   Scatter, its root   n times Send, then Recv
//
// Everything else remains Send and Recv, so a name is never a guess:
//   - the application's own groups, even with the same parts;
//   - Gather and Scatter on ranks other than the root, where they are one part;
//   - groups with another number of parts, or with different sizes.
// The number of parts is final when the group is launched.
//
// Thread: launching thread, as LaunchFollower. Cost: about 2 ns a part, except a group's first.
#ifndef PLUGIN_TRACKER_COMPOSITE_CALL_H_
#define PLUGIN_TRACKER_COMPOSITE_CALL_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/name_table.h"
#include "plugin/tracker/thread_groups.h"

namespace nccl_pulse {

class CompositeCall {
 public:
  enum class Part { kSend, kReceive, kOther };

  // Starts anew for a new communicator.
  void Reset() { parts_.store(0); }

  // Adds the next call of the group. `nranks`: of the communicator.
  void Add(uint64_t group, Part part, uint64_t bytes, uint32_t nranks) {
    uint32_t at = parts_.load();
    if (at == 0 || group_.load() != group) {
      at = 0;
      group_.store(group);
      bytes_.store(bytes);
      shapes_.store(ThreadGroups::IsOneCall(group) && nranks > 1 ? kAllShapes : 0);
    }
    const bool is_as_large = bytes == bytes_.load();
    shapes_.store(is_as_large ? shapes_.load() & ShapesWith(part, at, nranks) : 0);
    parts_.store(at + 1);
  }
  // Call when the group is launched. Returns the operation that its `calls` form, or kNoName.
  NameId Finish(uint32_t calls, uint32_t nranks) {
    const uint32_t parts = parts_.load();
    parts_.store(0);
    if (parts != calls) return kNoName;
    const uint32_t shapes = shapes_.load();
    if ((shapes & kAlltoAll) != 0 && parts == 2 * nranks) return kAlltoAllName;
    if ((shapes & kGather) != 0 && parts == nranks + 1) return kGatherName;
    if ((shapes & kScatter) != 0 && parts == nranks + 1) return kScatterName;
    return kNoName;
  }
  // Returns the number of parts so far in the current group.
  uint32_t parts() const { return parts_.load(); }
  // Returns the bytes of each part.
  uint64_t bytes() const { return bytes_.load(); }

  static bool IsName(NameId op) {
    return op == kAlltoAllName || op == kGatherName || op == kScatterName;
  }
  // Returns the number of ranks of an operation with `parts` parts.
  static uint32_t RanksOf(NameId op, uint32_t parts) {
    return op == kAlltoAllName ? parts / 2 : parts - 1;
  }

 private:
  static constexpr uint32_t kAlltoAll = 1;
  static constexpr uint32_t kGather = 2;
  static constexpr uint32_t kScatter = 4;
  static constexpr uint32_t kAllShapes = kAlltoAll | kGather | kScatter;

  // Returns the shapes that have `part` at position `at`.
  static uint32_t ShapesWith(Part part, uint32_t at, uint32_t nranks) {
    if (part == Part::kOther) return 0;
    const bool sends = part == Part::kSend;
    return (sends == (at % 2 == 0) ? kAlltoAll : 0) | (sends == (at == 0) ? kGather : 0) |
           (sends == (at < nranks) ? kScatter : 0);
  }

  Relaxed<uint64_t> group_;  // ThreadGroups::Current
  Relaxed<uint64_t> bytes_;
  Relaxed<uint32_t> parts_;
  Relaxed<uint32_t> shapes_;  // bit set of the shapes that fit the parts so far
};
static_assert(sizeof(CompositeCall) == 24);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMPOSITE_CALL_H_
