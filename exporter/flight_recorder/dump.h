// What one dump of PyTorch's Flight Recorder says, as data: the process groups of its rank, and which
// calls of them it has, in which state. Nothing is compared and nobody is judged here.
//
// Facts: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp (fields and forms),
// ProcessGroupNCCL.cpp (numbers, coalesced calls), torch/distributed/flight_recorder/components
// (how PyTorch's own tool reads them), PyTorch 2.4 to 2.9.
//
//   collective_seq_id  counts a group's collectives, the same on all of its ranks; calls that were
//                      coalesced share one, and end with an entry `coalesced`, whose state is theirs
//   p2p_seq_id         counts Send and Recv of this rank in the group
//   state              `scheduled` says no more than "not completed", unless PyTorch was asked to time
//                      calls (TORCH_NCCL_ENABLE_TIMING)
//   retired            the watchdog has seen the call end. A call that NCCL has not returned from is
//                      `completed`, and neither retired nor enqueued
//   pg_status          the last number that was enqueued and completed, whichever counter it is of; its
//                      keys are no names of groups (see NameStatus in dump.cc)
//
// Thread: any, no state. Cost: linear in the bytes. Memory: Values::kMostBytes while it is read, then 32
// bytes a call that is kept.
#ifndef EXPORTER_FLIGHT_RECORDER_DUMP_H_
#define EXPORTER_FLIGHT_RECORDER_DUMP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "exporter/diagnosis/rank_view.h"
#include "metrics/snapshot.h"

namespace nccl_pulse::flight_recorder {

inline constexpr std::size_t kMostGroups = 65536;     // of one rank
inline constexpr std::size_t kMostCalls = 1'000'000;  // of one dump

struct Group {
  std::string name, desc;
  std::vector<int32_t> ranks;  // of the job, by their number in the group
};

// What many dumps have in common, kept once, and what all of them together may take in memory.
class Common {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

  explicit Common(std::size_t most_bytes = kMostBytes) : most_bytes_(most_bytes) {}

  // Counts memory that a dump keeps. Groups and kinds are counted by the functions below.
  void Count(std::size_t bytes) { bytes_ += bytes; }
  bool is_full() const { return bytes_ > most_bytes_; }

  using Kind = CallOrderSnapshot::Kind;

  uint32_t KindIndex(Kind kind);
  const Kind& KindOf(uint32_t index) const { return kinds_[index]; }
  // By name and ranks: PyTorch gives the parts of a group that is split the same name. Null: `ranks` is
  // no list of ranks as a dump has it.
  const Group* FindGroup(std::string_view name, std::string_view desc, std::string_view ranks);

 private:
  std::vector<Kind> kinds_;
  std::map<std::tuple<std::string, std::string, uint64_t>, uint32_t> kind_indices_;
  std::map<std::pair<std::string, std::string>, Group> groups_;
  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
};

enum class State : uint8_t { kScheduled, kStarted, kCompleted };

// A collective, or those that were coalesced into one.
struct Collective {
  uint64_t number = 0;
  uint32_t kind = 0;  // of `Common`
  State state = State::kScheduled;
  int64_t created_ns = 0;  // 0: not known
};

// Send and Recv with one peer that have not completed.
struct OpenPeer {
  std::vector<uint32_t> kinds;  // in the order of their calls
  State oldest_state = State::kScheduled;
  int64_t oldest_ns = 0, newest_ns = 0;
};

// A process group of the rank, and what the rank has called there.
struct Membership {
  const Group* group = nullptr;
  // Of pg_status, where it is known to be this group's.
  std::optional<int64_t> enqueued, completed;

  // In order: those that have not completed, and of the others the last ones.
  std::vector<Collective> collectives;
  uint64_t last_collective = 0;       // that is known to have been called; 0: none
  std::map<int32_t, OpenPeer> peers;  // by their number in the group
  bool are_peers_known = true;
  int64_t last_completion_ns = 0;  // 0: not known
};

struct Dump {
  int32_t rank = 0;  // of the job
  std::string file;  // as people know it
  std::vector<Membership> groups;
  bool has_started = false;    // a state `started` would be known
  bool is_only_open = false;   // completed calls were left out
  bool is_from_first = false;  // the first call ever is among them, or there was none
  int64_t newest_ns = 0;       // of all times in it, 0: it has none
};

enum class Parsed : uint8_t {
  kDump,
  kDamaged,        // or of another kind: `error` says what is wrong
  kSomethingElse,  // neither a pickle nor JSON
};

// The content of a file. `dump->rank` and `dump->file` are the caller's.
Parsed ParseDump(std::string_view bytes, Common* common, Dump* dump, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_DUMP_H_
