// Tells which of AlltoAll, Gather and Scatter the Send and Recv of a group are.
//
// NCCL makes these of calls to Send and Recv, and reports those (docs/nccl-profiler-api.md#groups).
// It reports the peer of none of them, but whether their group is that of one call of the
// application. One such call makes several of Send and Recv only for these three, and for each in
// an order of its own; n ranks, all parts of one size:
//
//   AlltoAll            Send, Recv, Send, Recv ...   2n parts
//   Gather, its root    Send, then n times Recv
//   Scatter, its root   n times Send, then Recv
//
// Everything else stays Send and Recv: groups of the user's, even if they do the same; Gather and
// Scatter on other ranks, which are one part there; what has another number of parts, or sizes that
// differ. So a name is never a guess. That there is no further part is known when the group is
// launched.
//
// Thread: launching thread, as LaunchFollower. Cost: about 2 ns a part, from a group's second on.
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

  // A new communicator's.
  void Reset() { parts_.store(0); }

  // The next call of the group; `nranks` of the communicator.
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
  // Its group is launched, and had so many calls: what it was, kNoName: no such operation.
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
  // Since the last Finish, of one group.
  uint32_t parts() const { return parts_.load(); }
  // Of each part.
  uint64_t bytes() const { return bytes_.load(); }

  static bool IsName(NameId op) {
    return op == kAlltoAllName || op == kGatherName || op == kScatterName;
  }
  // Ranks that such an operation of so many parts has.
  static uint32_t RanksOf(NameId op, uint32_t parts) {
    return op == kAlltoAllName ? parts / 2 : parts - 1;
  }

 private:
  static constexpr uint32_t kAlltoAll = 1;
  static constexpr uint32_t kGather = 2;
  static constexpr uint32_t kScatter = 4;
  static constexpr uint32_t kAllShapes = kAlltoAll | kGather | kScatter;

  // Those that have such a part at that place.
  static uint32_t ShapesWith(Part part, uint32_t at, uint32_t nranks) {
    if (part == Part::kOther) return 0;
    const bool sends = part == Part::kSend;
    return (sends == (at % 2 == 0) ? kAlltoAll : 0) | (sends == (at == 0) ? kGather : 0) |
           (sends == (at < nranks) ? kScatter : 0);
  }

  Relaxed<uint64_t> group_;  // ThreadGroups::Current
  Relaxed<uint64_t> bytes_;
  Relaxed<uint32_t> parts_;
  Relaxed<uint32_t> shapes_;  // that the parts so far fit
};
static_assert(sizeof(CompositeCall) == 24);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMPOSITE_CALL_H_
