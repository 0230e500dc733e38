// Notices when somebody else has changed NCCL's event mask. From 2.31 on NCCL's RAS can, for the
// whole job and at any time ("CONTROL PROFILER_MASK", applied again after each init). Events that
// the plugin relies on may then be missing, and what it would say of them is unknown. KernelCh may
// be on, which slows a job down, and hangs it with CUDA graphs.
//
// The mask is only looked at and never put right: whoever changed it meant to. A change that is
// undone before the next look is not seen. The bits that the plugin switches itself
// (network_window.h) are left out of the comparison.
//
// A process may have several NCCLs, each with a mask of its own, shared by its communicators. The
// address is used while one of them lives, from init to finalize, and only if it lies in a loaded
// library (as in network_window.h).
//
// Thread: Attach and Detach from init and finalize, Look from the background thread; they take a
// lock that no callback takes. Cost: a load a mask. After a fork: left alone in the child.
#ifndef PLUGIN_RUNTIME_MASK_WATCH_H_
#define PLUGIN_RUNTIME_MASK_WATCH_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace nccl_pulse {

// Whether the mask lies in a library's own memory: what is on a stack or a heap, which no NCCL
// does, could vanish before its communicator.
bool LiesInALibrary(const int* mask);

class MaskWatch {
 public:
  // SegmentHeader::foreign_event_mask of a mask without any event: 0 says that nobody changed it.
  static constexpr uint32_t kNoEvents = 1u << 31;  // of no event

  // A communicator lives whose NCCL was given `value`. `switched`: bits that we switch ourselves.
  void Attach(uint64_t context, const int* mask, uint32_t value, uint32_t switched);
  void Detach(uint64_t context);

  struct State {
    uint64_t changes = 0;  // by somebody else, to something that is not ours
    uint32_t foreign = 0;  // the events that all of those still in force have, 0: none is
    // Of the change that this look found, if any.
    bool is_new = false;
    uint32_t ours = 0, now = 0;
  };
  State Look();

 private:
  struct Mask {
    const int* address;
    uint32_t value, switched;
    uint32_t seen;    // at the last look, without what is switched
    bool is_foreign;  // it is not ours
  };
  struct Attached {
    uint64_t context;
    const int* mask;
  };

  std::mutex mutex_;  // guards what follows
  std::vector<Mask> masks_;
  std::vector<Attached> attached_;
  uint64_t changes_ = 0;
};

// What follows from a mask that is `now` where it was to be `ours`, for a person to read.
std::string DescribeMaskChange(uint32_t ours, uint32_t now);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_MASK_WATCH_H_
