// Dump is the content of one PyTorch Flight Recorder dump: the process groups of its rank, and the
// rank's calls in them with their states. Nothing is compared or diagnosed here.
//
// Source: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp (fields and
// formats), ProcessGroupNCCL.cpp (numbers, coalesced calls),
// torch/distributed/flight_recorder/components (PyTorch's own reader), PyTorch 2.4 to 2.9.
//
//   collective_seq_id  counts a group's collectives, the same on all of its ranks. Coalesced calls
//                      share one number, and end with an entry `coalesced` that has their state
//   p2p_seq_id         counts Sends and Recvs of this rank in the group
//   state              `scheduled` means only "not completed", unless PyTorch was asked to time
//                      calls (TORCH_NCCL_ENABLE_TIMING)
//   retired            PyTorch's watchdog has seen the call end. A call from which NCCL has not
//                      returned is `completed`, but neither retired nor enqueued
//   pg_status          each group's last enqueued and completed numbers, of either of these
//                      counters; its keys are not group names (see ReadStatus in dump.cc)
//
// Thread: any, no state. Cost: linear in the bytes. Memory: Values::kMostBytes during the read,
// then 24 bytes per kept collective.
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

#include "exporter/diagnosis/facts/rank_view.h"
#include "metrics/snapshot.h"

namespace nccl_pulse::flight_recorder {

inline constexpr std::size_t kMostGroups = 65536;     // per rank
inline constexpr std::size_t kMostCalls = 1'000'000;  // per dump

// A process group.
struct Group {
  std::string name, desc;      // desc: the application's description
  std::vector<int32_t> ranks;  // job ranks, by rank in the group
};

// Common holds the groups and kinds of calls that many dumps share, each once, and limits the
// memory of all dumps together.
class Common {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

  explicit Common(std::size_t most_bytes = kMostBytes) : most_bytes_(most_bytes) {}

  // Counts memory that a dump keeps. FindGroup and KindIndex count their own.
  void Count(std::size_t bytes) { bytes_ += bytes; }
  bool is_full() const { return bytes_ > most_bytes_; }

  using Kind = CallOrderSnapshot::Kind;  // operation, data type and size of a call

  // Returns the index of this kind, and adds it if it is new.
  uint32_t KindIndex(Kind kind);
  const Kind& KindOf(uint32_t index) const { return kinds_[index]; }
  // Returns the group with this name and ranks ("[0, 4, 8]"), and adds it if it is new. Both are
  // needed: PyTorch gives the parts of a split group the same name. Returns null if `ranks` is no
  // list of ranks.
  const Group* FindGroup(std::string_view name, std::string_view desc, std::string_view ranks);

 private:
  std::vector<Kind> kinds_;
  std::map<std::tuple<std::string, std::string, uint64_t>, uint32_t> kind_indices_;
  std::map<std::pair<std::string, std::string>, Group> groups_;
  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
};

enum class State : uint8_t { kScheduled, kStarted, kCompleted };

// A collective, or several that were coalesced into one.
struct Collective {
  uint64_t number = 0;  // collective_seq_id
  uint32_t kind = 0;    // index in `Common`
  State state = State::kScheduled;
  int64_t created_ns = 0;  // 0: not known
};

// Incomplete Sends and Recvs with one peer.
struct OpenPeer {
  std::vector<uint32_t> kinds;  // indices in `Common`, in call order
  State oldest_state = State::kScheduled;
  int64_t oldest_ns = 0, newest_ns = 0;  // when the first and the last were called; 0: not known
};

// A process group of the rank, and the rank's calls in it.
struct Membership {
  const Group* group = nullptr;
  // Numbers from pg_status, if it is known which of its statuses is this group's.
  std::optional<int64_t> enqueued, completed;

  // All incomplete collectives and the last completed ones, in call order.
  std::vector<Collective> collectives;
  uint64_t last_collective = 0;       // number of the newest one known to be called; 0: none
  std::map<int32_t, OpenPeer> peers;  // by rank in the group
  bool are_peers_known = true;        // `peers` has all incomplete Sends and Recvs
  int64_t last_completion_ns = 0;     // 0: not known
};

struct Dump {
  int32_t rank = 0;  // in the job
  std::string file;  // path, for messages
  std::vector<Membership> groups;
  bool has_started = false;    // the dump can contain the state `started`
  bool is_only_open = false;   // the dump leaves out completed calls
  bool is_from_first = false;  // the dump has the rank's first call, or the rank has made none
  // Times are nanoseconds since 1970.
  int64_t newest_ns = 0;  // newest time in the dump; 0: none
  // The shortest timeout of a call that had not completed, at most the default threshold of a hang.
  int64_t timeout_ns = kDefaultHangAfterNs;
  int64_t oldest_call_ns = 0;  // when the oldest call in the dump was made; 0: not known
  // When `pulse capture` read the calls; else when the file was written, if that was less than
  // `timeout_ns` after `newest_ns`. 0: not known.
  int64_t written_ns = 0;
};

enum class Parsed : uint8_t {
  kDump,
  kDamaged,        // or of an unknown version; `error` has the reason
  kSomethingElse,  // neither a pickle nor JSON
};

// Parses a file's content. The caller sets `dump->rank` and `dump->file`.
Parsed ParseDump(std::string_view bytes, Common* common, Dump* dump, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_DUMP_H_
