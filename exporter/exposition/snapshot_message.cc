#include "exporter/exposition/snapshot_message.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/protozero.h"
#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/stragglers/mean_lateness.h"
#include "metrics/agreed_call.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {
namespace {

// "PLSE": the first field, always written.
constexpr uint32_t kMark = 0x45534c50;

constexpr char kTooLarge[] = "more than it is given room for";

// `message` is const when writing.
template <typename Fields, typename T>
using In = std::conditional_t<Fields::kWrites, const T, T>;

// Each message's fields are listed once, for writing and reading; snapshots.proto lists them for
// other programs. Fields with default values are left out. Field numbers are never reused.
template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, CallCountSnapshot>& call) {
  fields.Text(1, call.op);
  fields.Number(2, call.size_class);
  fields.Number(3, call.captured);
  fields.Number(4, call.calls);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, TimedCallSnapshot>& call) {
  fields.Text(1, call.op);
  fields.Number(2, call.kind);
  fields.Number(3, call.size_class);
  fields.Number(4, call.call_number);
  fields.Number(5, call.duration_ns);
  fields.Time(6, call.end_realtime_ns);
  fields.Number(7, call.graph);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, LongestWaitSnapshot>& wait) {
  fields.Text(1, wait.op);
  fields.Number(2, wait.longest_ns);
  fields.Number(3, wait.size_class);
  fields.Time(4, wait.counts_until_realtime_ns);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, CallOrderSnapshot::Kind>& kind) {
  fields.Text(1, kind.op);
  fields.Text(2, kind.datatype);
  fields.Number(3, kind.bytes);
  fields.Number(4, kind.is_unlaunched);
  fields.Number(5, kind.root, -1);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, PeerCallsSnapshot>& calls) {
  fields.Number(1, calls.peer, -1);
  fields.Number(2, calls.receives);
  fields.Number(3, calls.calls);
  fields.Numbers(4, calls.totals);
  fields.Text(5, calls.datatype);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, UsualDurationSnapshot>& usual) {
  fields.Number(1, usual.kind);
  fields.Text(2, usual.op);
  fields.Number(3, usual.size_class);
  fields.Number(4, usual.calls);
  fields.Number(5, usual.ns);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, AbandonedCallsSnapshot>& abandoned) {
  fields.Text(1, abandoned.op);
  fields.Number(2, abandoned.calls);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, CommunicatorSnapshot>& comm) {
  fields.Number(1, comm.comm_id);
  fields.Text(2, comm.name);
  fields.Number(3, comm.rank);
  fields.Number(4, comm.nranks);
  fields.Number(5, comm.nnodes);
  fields.Number(6, comm.index);
  fields.Text(7, comm.gpu);
  fields.Text(8, comm.uuid);
  fields.Text(9, comm.pci_bus_id);
  fields.Number(10, comm.finalized);
  fields.Time(11, comm.init_realtime_ns);
  fields.Messages(12, comm.calls);
  fields.Messages(13, comm.timed_calls);
  fields.Text(14, comm.last_call_op);
  fields.Number(15, comm.last_call_size_class);
  fields.Number(16, comm.launches);
  fields.Number(17, comm.has_heartbeat);
  fields.Number(18, comm.launches_completed);
  fields.Time(19, comm.oldest_inflight_realtime_ns);
  fields.Number(20, comm.oldest_launch);
  fields.Number(21, comm.operations_source);
  fields.Time(22, comm.oldest_operation_realtime_ns);
  fields.Number(23, comm.captured);
  fields.Time(24, comm.last_launch_realtime_ns);
  fields.Time(25, comm.last_completion_realtime_ns);
  fields.Number(26, comm.overflowed_operations);
  fields.Number(27, comm.overflowed_calls);
  fields.Number(28, comm.nccl_api_version);
  fields.Number(29, comm.event_mask);
  fields.Number(30, comm.unreported_calls);
  fields.Time(31, comm.unreported_since_realtime_ns);
  fields.Messages(32, comm.longest_waits);
  fields.Number(33, comm.graph_replays);
  fields.Number(34, comm.graph_replays_in_flight);
  fields.Time(35, comm.graph_moved_realtime_ns);
  fields.Number(36, comm.graph_position.captures);
  fields.Number(37, comm.graph_position.followed);
  fields.Number(38, comm.graph_position.graph);
  fields.Number(39, comm.graph_position.passed);
  fields.Number(40, comm.graph_position.stamps);
  fields.Number(41, comm.graph_position.calls_before);
  fields.Number(42, comm.graph_position.calls_until);
  fields.Number(43, comm.graph_position.calls);
  fields.Number(44, comm.graph_position.has_head);
  fields.Number(45, comm.call_order.first);
  fields.Number(46, comm.call_order.in_flight);
  fields.Messages(47, comm.call_order.kinds, CallOrderSnapshot::kMostKinds);
  fields.Bytes(48, comm.call_order.calls, CallOrderSnapshot::kMostCalls);
  fields.Made(49, comm, comm.usual_durations, UsualDurationsOf, kMostUsualDurations);
  fields.Messages(50, comm.picked_calls, kMoments);
  fields.Numbers(52, comm.peers.sends_to);
  fields.Numbers(53, comm.peers.receives_from);
  fields.Number(54, comm.peers.are_known);
  fields.Number(66, comm.peers.is_sending_to, -1);
  fields.Number(68, comm.peers.is_receiving_from, -1);
  fields.Made(51, comm, comm.abandoned_calls, AbandonedCallsOf, kMostAbandoned);
  fields.Number(55, comm.work.state);
  fields.Number(56, comm.work.refutal);
  fields.Number(57, comm.work.are_operations_known);
  fields.Number(58, comm.work.operations);
  fields.Time(59, comm.work.moved_realtime_ns);
  fields.Number(60, comm.driver_error);
  fields.Time(61, comm.driver_error_realtime_ns);
  fields.Time(62, comm.network_moved_realtime_ns);
  fields.Number(63, comm.work.longest_pause_ns);
  fields.Number(64, comm.work.gpu_use);
  fields.Number(65, comm.are_unreported_in_group);
  fields.Number(67, comm.work.is_being_proven);
  fields.Messages(69, comm.peer_calls, PeerCallsSnapshot::kMostPeers);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, PaceWindow>& window) {
  fields.Number(1, window.length_ms);
  fields.Number(2, window.collectives);
  fields.Number(3, window.others);
  fields.Number(4, window.inside_ms);
  fields.Number(5, window.error_ms);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, ProcessSnapshot>& process) {
  fields.Number(1, process.pid);
  fields.Number(2, process.pid_namespace);
  fields.Text(3, process.plugin_version);
  fields.Text(4, process.hostname);
  fields.Text(5, process.global_rank);
  fields.Text(6, process.local_rank);
  fields.Text(7, process.job_id);
  fields.Number(8, process.nccl_api_version);
  fields.Text(9, process.static_labels);
  fields.Number(10, process.event_mask);
  fields.Number(11, process.sampling_exponent, -1);
  fields.Time(12, process.start_realtime_ns);
  fields.Time(13, process.last_poll_realtime_ns);
  fields.Number(14, process.poller);
  fields.Number(15, process.foreign_event_mask);
  fields.Number(16, process.event_mask_changes);
  fields.Number(17, process.end);
  fields.Time(18, process.end_realtime_ns);
  fields.Messages(19, process.communicators);
  fields.Messages(20, process.pace, 2);
  fields.Text(21, process.nccl_environment);
  fields.Number(30, process.run_state);
  fields.Number(40, process.seen_pid);
  fields.Number(41, process.seen_in);
  fields.Number(42, process.user, int64_t{-1});
  fields.Number(43, process.is_from_outside);
  fields.Number(44, process.hang_after_ns);
  fields.Number(45, process.unmeasured_communicators);
}

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, OutsideNote>& note) {
  fields.Number(1, note.comm_id);
  fields.Text(2, note.text);
}

template <typename Set>
struct Top {
  uint64_t mark = 0;
  uint32_t version = 0;
  int64_t written_realtime_ns = 0;
  int64_t hang_after_ns = 0;
  Set* set = nullptr;
  std::vector<uint64_t> rejected;
};

template <typename Fields>
void FieldsOf(Fields& fields, In<Fields, Top<In<Fields, SnapshotSet>>>& top) {
  fields.Number(1, top.mark);
  fields.Number(2, top.version);
  fields.Number(3, top.written_realtime_ns);
  fields.Number(4, top.hang_after_ns);
  fields.Text(6, top.set->server_labels);
  fields.Numbers(7, top.rejected);
  fields.Messages(8, top.set->processes);
  fields.Messages(9, top.set->ended);
  fields.Number(10, top.set->unread_processes);
  fields.Messages(11, top.set->outside_notes);
}

// Returns a - b modulo 2^64, safe for hostile numbers: the reader adds modulo 2^64.
int64_t Difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

class Writer {
 public:
  static constexpr bool kWrites = true;

  Writer(std::string* text, int64_t now_ns) : out_(*text), now_ns_(now_ns) {}
  Writer(Writer& parent, uint32_t field) : out_(parent.out_, field), now_ns_(parent.now_ns_) {}

  void Text(uint32_t field, const std::string& text) {
    if (!text.empty()) out_.add_string(field, text);
  }
  void Bytes(uint32_t field, const std::string& bytes, std::size_t /*most*/) { Text(field, bytes); }
  template <typename T>
  void Number(uint32_t field, T value, T otherwise = T{}) {
    if (value == otherwise) return;
    if constexpr (std::is_enum_v<T>) {
      out_.add_uint64(field, static_cast<uint64_t>(value));
    } else if constexpr (std::is_signed_v<T>) {
      out_.add_sint64(field, value);
    } else {
      out_.add_uint64(field, value);
    }
  }
  void Time(uint32_t field, int64_t time_ns) {
    if (time_ns != 0) out_.add_sint64(field, Difference(now_ns_, time_ns));
  }
  void Numbers(uint32_t field, const std::vector<uint64_t>& numbers) {
    out_.add_packed_uint64(field, numbers.begin(), numbers.end());
  }
  template <typename T>
  void Messages(uint32_t field, const std::vector<T>& messages, std::size_t /*most*/ = 0) {
    for (const T& each : messages) {
      Writer writer(*this, field);
      FieldsOf(writer, each);
    }
  }

  // Writes a list that is computed, not stored in the message.
  template <typename Message, typename T>
  void Made(uint32_t field, const Message& message, const std::vector<T>& /*there*/,
            std::vector<T> (*make)(const Message&), std::size_t /*most*/) {
    Messages(field, make(message));
  }

 private:
  protozero::pbf_writer out_;
  const int64_t now_ns_;
};

struct TooLarge {};
struct TooSlow {};

// Thrown if a list has more elements than possible.
struct TooMany : std::exception {};

// The remaining memory and CPU time.
class Room {
 public:
  Room(uint64_t bytes, const WorkBudget::Share* share) : bytes_(bytes), share_(share) {}
  // Counts every field: overwritten ones take no memory.
  void CountField() {
    constexpr uint64_t kFieldsBetweenLooks = 4096;
    if (++fields_ % kFieldsBetweenLooks == 0 && share_ != nullptr && share_->IsOver()) {
      throw TooSlow();
    }
  }
  void Take(uint64_t bytes) {
    if (bytes > bytes_) throw TooLarge();
    bytes_ -= bytes;
  }
  void Give(uint64_t bytes) { bytes_ += bytes; }
  uint64_t left() const { return bytes_; }

 private:
  uint64_t bytes_;
  uint64_t fields_ = 0;
  const WorkBudget::Share* const share_;
};

class Reader {
 public:
  static constexpr bool kWrites = false;

  Reader(protozero::data_view data, int64_t now_ns, Room* room)
      : in_(data), now_ns_(now_ns), room_(room) {}

  // Fields are in the order of FieldsOf, except from other writers. So one call usually reads all.
  template <typename T>
  void Read(T& message) {
    Next();
    while (here_ != kEnd) {
      is_any_read_ = false;
      FieldsOf(*this, message);
      if (is_any_read_) continue;
      in_.skip();
      Next();
    }
  }

  void Text(uint32_t field, std::string& text) {
    if (!Is(field, protozero::pbf_wire_type::length_delimited)) return;
    const protozero::data_view view = in_.get_view();
    room_->Take(view.size());
    const bool is_plain = std::all_of(view.data(), view.data() + view.size(),
                                      [](char c) { return c >= 0x20 && c < 0x7f; });
    if (is_plain) {
      text.assign(view.data(), view.size());
    } else {
      text = CopyFromShared(view.data(), view.size());
    }
    Next();
  }
  // Does not make the bytes printable: their users check each byte.
  void Bytes(uint32_t field, std::string& bytes, std::size_t most) {
    if (!Is(field, protozero::pbf_wire_type::length_delimited)) return;
    const protozero::data_view view = in_.get_view();
    if (view.size() > most) throw TooMany();
    room_->Take(view.size());
    bytes.assign(view.data(), view.size());
    Next();
  }
  template <typename T>
  void Number(uint32_t field, T& value, T /*otherwise*/ = T{}) {
    if (!Is(field, protozero::pbf_wire_type::varint)) return;
    if constexpr (std::is_signed_v<T> && !std::is_enum_v<T>) {
      value = static_cast<T>(in_.get_sint64());
    } else {
      value = static_cast<T>(in_.get_uint64());
    }
    Next();
  }
  void Time(uint32_t field, int64_t& time_ns) {
    if (!Is(field, protozero::pbf_wire_type::varint)) return;
    time_ns = Difference(now_ns_, in_.get_sint64());
    Next();
  }
  void Numbers(uint32_t field, std::vector<uint64_t>& numbers) {
    if (!Is(field, protozero::pbf_wire_type::length_delimited)) return;
    for (const uint64_t number : in_.get_packed_uint64()) {
      room_->Take(sizeof(number));
      numbers.push_back(number);
    }
    Next();
  }
  template <typename T>
  void Messages(uint32_t field, std::vector<T>& messages, std::size_t most = SIZE_MAX) {
    for (; Is(field, protozero::pbf_wire_type::length_delimited); Next()) {
      const protozero::data_view view = in_.get_view();
      if (messages.size() >= most) throw TooMany();
      if (messages.size() == messages.capacity()) {
        // A vector has both copies while it grows. Elements that do not follow each other, from a
        // hostile writer, double it.
        const std::size_t before = messages.size();
        const std::size_t more = std::min(std::max(before, NextWith(field) + 1), most - before);
        room_->Take((before + more) * sizeof(T));
        messages.reserve(before + more);
        room_->Give(before * sizeof(T));
      }
      Reader(view, now_ns_, room_).Read(messages.emplace_back());
    }
  }
  template <typename Message, typename T>
  void Made(uint32_t field, const Message& /*message*/, std::vector<T>& messages,
            std::vector<T> (* /*make*/)(const Message&), std::size_t most) {
    Messages(field, messages, most);
  }

 private:
  static constexpr uint32_t kEnd = 0;  // not a valid field

  void Next() {
    here_ = in_.next() ? in_.tag_and_type() : kEnd;
    if (here_ != kEnd) room_->CountField();
  }

  // Returns how many of the next fields in a row have this tag.
  std::size_t NextWith(uint32_t field) const {
    protozero::pbf_reader ahead = in_;
    std::size_t count = 0;
    for (; ahead.next() && ahead.tag() == field; ++count) ahead.skip();
    return count;
  }

  bool Is(uint32_t field, protozero::pbf_wire_type type) {
    if (here_ != protozero::tag_and_type(field, type)) return false;
    is_any_read_ = true;
    return true;
  }

  protozero::pbf_reader in_;
  const int64_t now_ns_;
  Room* const room_;
  uint32_t here_ = kEnd;  // tag and type of the current field
  bool is_any_read_ = false;
};

// The fields that are needed to read the rest.
struct Start {
  uint64_t mark = 0;
  uint32_t version = 0;
  int64_t written_realtime_ns = 0;
};

Start ReadStart(protozero::data_view data) try {
  using protozero::pbf_wire_type;
  Start start;
  protozero::pbf_reader in(data);
  while (in.next()) {
    const bool is_number = in.wire_type() == pbf_wire_type::varint;
    if (is_number && in.tag() == 1) {
      start.mark = in.get_uint64();
    } else if (is_number && in.tag() == 2) {
      start.version = in.get_uint32();
    } else if (is_number && in.tag() == 3) {
      start.written_realtime_ns = in.get_sint64();
    } else {
      break;  // these come first
    }
  }
  return start;
} catch (const protozero::exception&) {
  return {};  // not a message
}

}  // namespace

std::string WriteSnapshots(const SnapshotSet& set, int64_t now_realtime_ns, int64_t hang_after_ns) {
  const Top<const SnapshotSet> top{kMark,
                                   kSnapshotMessageVersion,
                                   now_realtime_ns,
                                   hang_after_ns,
                                   &set,
                                   {set.rejected.begin(), set.rejected.end()}};
  std::string text;
  Writer writer(&text, now_realtime_ns);
  FieldsOf(writer, top);
  return text;
}

int64_t WrittenRealtimeNs(std::string_view text) {
  return ReadStart({text.data(), text.size()}).written_realtime_ns;
}

bool ReadSnapshots(std::string_view text, std::optional<int64_t> written_realtime_ns,
                   uint64_t most_bytes, SnapshotMessage* message, std::string* error,
                   const WorkBudget::Share* share) {
  *message = SnapshotMessage();
  Room room(most_bytes, share);
  try {
    const protozero::data_view data(text.data(), text.size());
    const Start start = ReadStart(data);
    if (start.mark != kMark) {
      *error = "something else than NCCL Pulse's snapshots";
      return false;
    }
    if (start.version != kSnapshotMessageVersion) {
      *error = absl::StrCat("version ", start.version, " of the snapshots; this program knows ",
                            kSnapshotMessageVersion);
      return false;
    }
    Top<SnapshotSet> top;
    top.set = &message->set;
    Reader(data, written_realtime_ns.value_or(start.written_realtime_ns), &room).Read(top);
    for (std::size_t i = 0; i < message->set.rejected.size() && i < top.rejected.size(); ++i) {
      message->set.rejected[i] = top.rejected[i];
    }
    message->written_realtime_ns = top.written_realtime_ns;
    message->hang_after_ns = top.hang_after_ns;
    message->bytes = most_bytes - room.left();
    return true;
  } catch (const TooLarge&) {
    *error = kTooLarge;
  } catch (const TooSlow&) {
    *error = "snapshots that take too long to read";
  } catch (const std::exception&) {
    *error = "damaged snapshots";
  }
  *message = SnapshotMessage();
  return false;
}

}  // namespace nccl_pulse
