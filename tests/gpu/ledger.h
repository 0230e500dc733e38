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
  // Of launches_min, those of groups of nothing but Broadcasts, which newer NCCLs do not report;
  // and whether the last group holds one: it may be launched behind what is reported of the group.
  uint64_t broadcast_launches = 0;
  bool ends_with_broadcast = false;

  CallCount& Call(const char* op, int datatype, uint64_t count, bool captured) {
    CallCount& entry =
        calls[{op, DatatypeName(datatype), count * DatatypeBytes(datatype), captured}];
    ++entry.calls;
    return entry;
  }
  void Launch(uint64_t calls_in_group, uint64_t broadcasts) {
    ++launches_min;
    launches_max += calls_in_group;
    if (broadcasts == calls_in_group) ++broadcast_launches;
    ends_with_broadcast = broadcasts != 0;
  }

  std::string ToJson() const;
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_LEDGER_H_
