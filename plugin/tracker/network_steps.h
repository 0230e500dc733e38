// Follows the steps of network operations (ProxyStep): what they moved, and where they waited.
//
// Which steps are counted. NCCL looks at the event mask when an operation is called, and keeps what
// it saw for all of the operation's ProxyOps and steps (docs/nccl-profiler-api.md#event-mask;
// src/plugin/profiler.cc, sub->eActivationMask). An operation that was called while the ProxyStep
// bit was on has all its steps reported, also those after the bit went off. Any other has none. So
// operations are watched as a whole, short and long ones alike, and no edge of a window cuts one.
// The operations that are called while the window is open are a fair share of all, hence bytes per
// watched second is the true rate.
//
// CUDA graphs break that: a captured operation keeps the mask it was captured with for all replays.
// Replays of one graph would be watched always, those of another never. They are left out, unless
// steps are watched always. Their steps get no handle, so NCCL makes one callback for each.
//
// What a step waits for between the states that NCCL reports (docs/nccl-profiler-api.md#network):
//
//   send      start ...  8 --gpu-->  20 --peer-->   9 --wire--> stop
//   receive   start ... 10 --wire--> 11 --flush--> 12 --gpu-->  stop
//
// A step that stops early has waited for what it was waiting for then. One that never stops
// (aborted, or a receive that NCCL began again) is not counted. State 20 comes again and again
// until the network accepts; the first one counts. A step has "moved data" when it is first offered
// to the network (20, or 9) or has arrived (11).
//
// Thread: callbacks any, a step's own one after another; Prepare init or the background thread, one
// at a time. Cost: see step_table.h; a lane's claim for each step's end.
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

  // Makes room for steps; until then all are refused. With `always` those of CUDA graphs count too.
  // False when the kernel refuses memory.
  bool Prepare(bool always);

  // A step of that ProxyOp; its ticket, 0, and counted: it is not followed.
  uint64_t Start(uint64_t proxy_op);
  // It has reached a state (8 to 12, 20). `bytes` null: NCCL passed no arguments.
  void Record(uint64_t ticket, int state, const uint64_t* bytes);
  void Stop(uint64_t ticket);

 private:
  // The next place that nobody needs; when kStepProbes in a row are needed, the last of them.
  uint32_t NextPlace(StepTable& steps, uint64_t* word);
  // Whether the step there may still go on. What NCCL has left behind ends with its operation.
  bool IsNeeded(const StepSlot& slot, uint64_t word);
  // Null, and counted, when the ticket is not of a step that is under way.
  StepSlot* Find(uint64_t ticket, uint64_t* word);
  void Count(const StepTotals& totals);
  void NoteFirstMove(uint64_t proxy_op, uint64_t now_ns);

  Instruments& instruments_;
  CommunicatorTable& communicators_;
  Ordered<StepTable*> steps_;    // never freed once there
  bool watches_graphs_ = false;  // before steps_
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_NETWORK_STEPS_H_
