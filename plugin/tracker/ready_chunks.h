// ReadyChunks keeps chunks of the shared segment populated, so that callbacks need no system call.
// A chunk is memory for one histogram, or for the counters of a lane.
//
// A callback without a ready chunk loses its count, so chunks are made ready in advance:
//   - a reserve, larger than eight communicators with sixteen kinds of operations each need;
//   - six for each unused communicator (the counters of two lanes and four histograms), because a
//     job may create all communicators first and then use them at once;
//   - one for each called kind of operation without a histogram (two with kernel timing: duration
//     and completion). A kind is called long before its first operation ends;
//   - as many as callbacks missed, because a job with one surprise will have another.
// The background thread and finalize settle whole communicators, and call KeepToSettle before each.
//
// Thread: init, finalize and the background thread; extra calls are harmless. Cost: Expect reads
// every series of every communicator, some microseconds each; a new chunk takes one system call.
#ifndef PLUGIN_TRACKER_READY_CHUNKS_H_
#define PLUGIN_TRACKER_READY_CHUNKS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/communicator_table.h"
#include "plugin/tracker/instruments.h"

namespace nccl_pulse {

class ReadyChunks {
 public:
  static constexpr uint32_t kLeast = 192;     // the reserve
  static constexpr uint32_t kOfNewcomer = 6;  // for each unused communicator

  explicit ReadyChunks(Instruments& instruments)
      : instruments_(instruments), expected_(0), refused_until_ns_(0) {}

  // Computes how many chunks communicators will need.
  void Expect(CommunicatorTable& communicators);
  // Makes the expected chunks ready, and more for `newcomers` new communicators. Returns false if
  // the kernel refuses memory, or did in the last second.
  bool Keep(uint32_t newcomers);
  // Makes chunks ready for settling a communicator.
  void KeepToSettle();

 private:
  uint32_t ExpectedOf(const Communicator& communicator) const;

  Instruments& instruments_;
  Relaxed<uint32_t> expected_;
  Relaxed<uint64_t> refused_until_ns_;  // until then, only init requests chunks: memory was refused
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_READY_CHUNKS_H_
