// MaskMonitor detects changes of NCCL's event mask by another tool. From 2.31 on NCCL's RAS can
// change it for the whole job at any time ("CONTROL PROFILER_MASK", applied again after each init).
// Events that the plugin needs may then be missing, so the state of the job's work is unknown.
// KernelCh may be on, which slows a job down, and can hang it with CUDA graphs.
//
// The mask is only read, never restored: the change was intended. A change that is undone before
// the next poll is not seen. Bits that the plugin switches itself (network_window.h) are not
// compared.
//
// A process may have several NCCLs, each with its own mask, shared by its communicators. A mask is
// read only while one of these communicators lives, from init to finalize, and only if it is in a
// loaded library (as in network_window.h).
//
// Thread: Attach and Detach from init and finalize, Look from the background thread; they take a
// lock that no callback takes. Cost: a load per mask. A forked child does not use it.
#ifndef PLUGIN_RUNTIME_MASK_MONITOR_H_
#define PLUGIN_RUNTIME_MASK_MONITOR_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace nccl_pulse {

// True if the mask is in a library's own memory. A mask on a stack or a heap could vanish before
// its communicator (no known NCCL has its mask there).
bool LiesInALibrary(const int* mask);

class MaskMonitor {
 public:
  // Value of State::foreign if the changed masks have no event in common, because 0 means that no
  // mask is changed. No event has this bit.
  static constexpr uint32_t kNoEvents = 1u << 31;

  // Adds a communicator. `context`: its ticket. `value`: the mask that the plugin requested.
  // `switched`: bits of it that the plugin switches on and off.
  void Attach(uint64_t context, const int* mask, uint32_t value, uint32_t switched);
  void Detach(uint64_t context);

  struct State {
    uint64_t changes = 0;  // number of changes by other tools so far
    uint32_t foreign = 0;  // events common to all changed masks; 0: no mask is changed
    // The change that this poll found, if is_new: from the plugin's mask to the current one.
    bool is_new = false;
    uint32_t ours = 0, now = 0;
  };
  // Compares all masks with the plugin's.
  State Look();

 private:
  struct Mask {
    const int* address;
    uint32_t value, switched;
    uint32_t seen;    // value at the last poll, without `switched`
    bool is_foreign;  // another tool has changed it
  };
  struct Attached {
    uint64_t context;
    const int* mask;
  };

  std::mutex mutex_;  // guards the fields below
  std::vector<Mask> masks_;
  std::vector<Attached> attached_;
  uint64_t changes_ = 0;
};

// Returns a log line about the consequences of a change from `ours` to `now`.
std::string DescribeMaskChange(uint32_t ours, uint32_t now);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_MASK_MONITOR_H_
