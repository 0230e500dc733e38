// NetworkSteps follows the steps of network operations (ProxyStep): bytes moved, and waits.
//
// Sampling. NCCL reads the event mask when an operation is called, and keeps it for all of the
// operation's ProxyOps and steps (docs/nccl-profiler-api.md#event-mask; src/plugin/profiler.cc,
// sub->eActivationMask). An operation called while the ProxyStep bit is on reports all its steps,
// even after the bit is off. Any other operation reports none. So each operation is watched as a
// whole or not at all. Operations called while the bit is on are a fair sample, so bytes per
// watched second is the true rate.
//
// CUDA graphs break this: a captured operation keeps its mask for all replays, so replays of one
// graph would always be watched, and replays of another graph never. Replays are left out unless
// steps are always watched. Their steps get no handle, so NCCL makes one callback for each.
//
// The states of a step, by NCCL's numbers (docs/nccl-profiler-api.md#network). Each arrow names the
// wait that begins with the state on its left:
//
//   send      start ...  8 --gpu-->  20 --peer-->   9 --wire--> stop
//   receive   start ... 10 --wire--> 11 --flush--> 12 --gpu-->  stop
//
// A step that stops early ends its current wait. A step that never stops (aborted, or a receive
// that NCCL began again) is not counted. State 20 repeats until the network accepts; the first one
// counts. A step has "moved data" when it is first offered to the network (20, or 9) or has arrived
// (11).
//
// Thread: callbacks on any thread, those of one step in order. Prepare: init or the background
// thread, one at a time. Cost: see step_table.h; a lane's claim for each step's end.
#ifndef PLUGIN_TRACKER_NETWORK_STEPS_H_
#define PLUGIN_TRACKER_NETWORK_STEPS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/tracker/communicator_table.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/step_table.h"

namespace nccl_pulse {

class NetworkSteps {
 public:
  NetworkSteps(Instruments& instruments, CommunicatorTable& communicators)
      : instruments_(instruments), communicators_(communicators), steps_(nullptr) {}

  // Allocates the table; before that all steps are refused. `always`: steps of CUDA graphs also
  // count. Returns false if the kernel refuses memory.
  bool Prepare(bool always);

  // Starts a step of `proxy_op`. Returns its ticket, or counts the refusal and returns 0.
  uint64_t Start(uint64_t proxy_op);
  // Records a state (8 to 12, 20). `bytes` is null if NCCL passed no arguments.
  void Record(uint64_t ticket, int state, const uint64_t* bytes);
  void Stop(uint64_t ticket);

 private:
  // Returns a free place of the ring, or a place of the reserve.
  uint32_t NextSlot(StepTable& steps, uint64_t* word);
  // True if the step may still be in progress. A step that NCCL left behind ends with its
  // operation.
  bool IsNeeded(const StepSlot& slot, uint64_t word);
  // Returns null, and counts the event as ignored, if the ticket's step is not in progress.
  StepSlot* Find(uint64_t ticket, uint64_t* word);
  void Count(const StepTotals& totals);
  void NoteFirstMove(uint64_t proxy_op, uint64_t now_ns);

  Instruments& instruments_;
  CommunicatorTable& communicators_;
  Ordered<StepTable*> steps_;    // null until Prepare; then never freed
  bool watches_graphs_ = false;  // steps of CUDA graphs also count; written before steps_
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_NETWORK_STEPS_H_
