// PerfettoTrace writes a trace for ui.perfetto.dev, a protobuf message perfetto.protos.Trace:
// tracks with slices, marks (instant events) or counters, and flows (arrows) between events.
//
// The trace is one packet sequence. Its first packet clears the incremental state and declares that
// the trace's clock equals CLOCK_REALTIME, the clock of all events. Each name is written once.
// Events may be added in any order. They are written by time; events of equal time keep the order
// in which they were added. So add nested slices in nesting order.
//
// Source: protos/perfetto/trace/trace_packet.proto and its imports, google/perfetto (main of 2026),
// and perfetto.dev's page on synthetic track events. Field numbers are in perfetto.cc.
//
// Thread: one. Memory: the events, and the file's content.
#ifndef EXPORTER_TIMELINE_PERFETTO_H_
#define EXPORTER_TIMELINE_PERFETTO_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace nccl_pulse {

// Name and arguments of a slice or a mark.
struct TraceEvent {
  using Value = std::variant<bool, int64_t, double, std::string>;

  std::string name;
  std::vector<std::pair<const char*, Value>> notes = {};  // arguments; their names are literals
  std::vector<uint64_t> flows = {};  // ids, not 0; arrows join events of the same id, in time order
};

class PerfettoTrace {
 public:
  using Track = uint64_t;  // 0: none
  enum class Unit { kCount, kBytes, kNone };

  // Adds a track. Tracks of the same parent are shown in the order in which they were added;
  // ui.perfetto.dev sorts the outermost tracks by name. `about`: description of the track.
  Track AddTrack(const std::string& name, Track parent = 0, const std::string& about = "");
  Track AddCounter(const std::string& name, Track parent, Unit unit, const std::string& about = "");

  // Begin and End add a slice; without an end it extends to the end of the trace. Mark adds an
  // instant event, Count a counter's new value. Times are nanoseconds since 1970.
  void Begin(Track track, int64_t time_ns, TraceEvent event);
  void End(Track track, int64_t time_ns);
  void Mark(Track track, int64_t time_ns, TraceEvent event);
  void Count(Track track, int64_t time_ns, double value);

  std::size_t events() const { return events_.size(); }
  // Returns the file's content. Add nothing afterwards.
  std::string Finish();

 private:
  enum class Type { kBegin = 1, kEnd = 2, kMark = 3, kCount = 4 };
  struct Event {
    int64_t time_ns;
    Track track;
    Type type;
    double value;
    TraceEvent what;
  };
  struct TrackInfo {
    std::string name, about;
    Track parent;
    bool is_counter;
    Unit unit;
  };

  std::vector<TrackInfo> tracks_;  // Track N is tracks_[N - 1]
  std::vector<Event> events_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_PERFETTO_H_
