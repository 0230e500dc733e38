// Keeps pages of the segment ready for callbacks.
//
// A callback that finds no page ready loses what it would have counted there, so pages are ready
// before they are wanted:
//   - a reserve, larger than what eight communicators take with sixteen kinds of operations each;
//   - six for each communicator that has not begun (the counters of two lanes and four histograms):
//     a job may make all of them first and then use them at once;
//   - one for each kind of operation that was called and has no histogram yet (two with kernel
//     timing: duration and completion). A kind is called long before the first of its operations
//     has ended;
//   - as many again as callbacks missed: a job that was surprising once will be again.
// The background thread and finalize settle whole communicators; they look before each of them.
//
// Thread: init, finalize and the background thread; once too often is harmless. Cost: Expect looks
// at every series of every communicator, some microseconds each; a page that is made takes one
// system call.
#ifndef PLUGIN_TRACKER_READY_PAGES_H_
#define PLUGIN_TRACKER_READY_PAGES_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/communicator_table.h"
#include "plugin/tracker/instruments.h"

namespace nccl_pulse {

class ReadyPages {
 public:
  // So many are ready at least, and so many more for each communicator that has not begun.
  static constexpr uint32_t kLeast = 192;
  static constexpr uint32_t kOfNewcomer = 6;

  explicit ReadyPages(Instruments& instruments)
      : instruments_(instruments), expected_(0), refused_until_ns_(0) {}

  // Looks at what communicators will want.
  void Expect(CommunicatorTable& communicators);
  // Makes so many pages ready, with those of `newcomers` further communicators. False when the
  // kernel refuses memory.
  bool Keep(uint32_t newcomers);
  // Before a communicator is settled.
  void KeepToSettle();

 private:
  uint32_t ExpectedOf(const Communicator& communicator) const;

  Instruments& instruments_;
  Relaxed<uint32_t> expected_;
  Relaxed<uint64_t> refused_until_ns_;  // the kernel has no memory for further pages
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_READY_PAGES_H_
