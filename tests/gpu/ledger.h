// What the program did, in its own books: the truth that the metrics are held against.
//
// Thread: a CommunicatorLedger belongs to one thread at a time.
#ifndef TESTS_GPU_LEDGER_H_
#define TESTS_GPU_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

namespace nccl_pulse {

const char* DatatypeName(int datatype);  // as NCCL's profiler interface spells it
uint64_t DatatypeBytes(int datatype);

struct CallCount {
  uint64_t calls = 0;
  uint64_t to_self = 0;  // of the calls: Send or Recv whose peer is the rank itself
  uint64_t replays = 0;  // how many times a graph ran captured ones
};

struct CommunicatorLedger {
  std::string name;  // "": none was given
  int rank = 0;
  int nranks = 0;
  bool destroyed = false;
  // op, datatype, bytes of one call, captured
  std::map<std::tuple<std::string, std::string, uint64_t, bool>, CallCount> calls;
  // Kernel launches that these calls can make, those of graphs left out: a group makes one at
  // least, and no more than it has calls.
  uint64_t launches_min = 0;
  uint64_t launches_max = 0;
  bool blocking = true;
  // Broadcasts, where NCCL reports nothing of them but the call, as far as the plugin cannot tell
  // what becomes of them either. It follows those that are alone in their group, and the groups of
  // which something else is reported, but neither those of a non-blocking communicator.
  uint64_t untold_broadcasts = 0;   // that no duration, and no sample, is of: also those in groups
  uint64_t unseen_launches = 0;     // of launches_min
  uint64_t broadcast_launches = 0;  // of launches_min, unseen where nothing is followed
  bool ends_unseen = false;         // the last group holds one that is not followed

  CallCount& Call(const char* op, int datatype, uint64_t count, bool captured) {
    CallCount& entry =
        calls[{op, DatatypeName(datatype), count * DatatypeBytes(datatype), captured}];
    ++entry.calls;
    return entry;
  }
  // `alone`: without ncclGroupStart.
  void Launch(uint64_t calls_in_group, uint64_t broadcasts, bool alone) {
    ++launches_min;
    launches_max += calls_in_group;
    const bool is_nothing_else = broadcasts == calls_in_group;
    const bool is_followed = blocking && (alone || !is_nothing_else);
    if (!blocking || !alone) untold_broadcasts += broadcasts;
    if (is_nothing_else) ++broadcast_launches;
    if (is_nothing_else && !is_followed) ++unseen_launches;
    ends_unseen = broadcasts != 0 && !is_followed;
  }

  std::string ToJson() const;
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_LEDGER_H_
