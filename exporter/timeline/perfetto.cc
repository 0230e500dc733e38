#include "exporter/timeline/perfetto.h"

#include <algorithm>
#include <map>
#include <type_traits>

#include "exporter/base/protozero.h"

namespace nccl_pulse {
namespace {

using protozero::pbf_writer;

// Field numbers and enum values: google/perfetto, protos/perfetto/.
namespace trace_field {  // trace/trace.proto
constexpr uint32_t kPacket = 1;
}
namespace packet_field {  // trace/trace_packet.proto
constexpr uint32_t kClockSnapshot = 6, kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11,
                   kInternedData = 12, kSequenceFlags = 13, kTimestampClockId = 58,
                   kTrackDescriptor = 60, kFirstOnSequence = 87;
constexpr uint32_t kStateCleared = 1, kNeedsState = 2;  // SequenceFlags
}  // namespace packet_field
namespace clock_field {  // trace/clock_snapshot.proto
constexpr uint32_t kClocks = 1, kPrimaryClock = 2;
constexpr uint32_t kId = 1, kTimestamp = 2;         // of a clock
constexpr uint32_t kRealtime = 1, kTraceFile = 11;  // common/builtin_clock.proto
}  // namespace clock_field
namespace track_field {  // trace/track_event/track_descriptor.proto
constexpr uint32_t kUuid = 1, kName = 2, kParent = 5, kCounter = 8, kChildOrdering = 11,
                   kSiblingOrderRank = 12, kDescription = 14, kSiblingMerge = 15;
constexpr int32_t kExplicit = 3;   // ChildTracksOrdering
constexpr int32_t kNotMerged = 2;  // SiblingMergeBehavior
}  // namespace track_field
namespace counter_field {  // trace/track_event/counter_descriptor.proto
constexpr uint32_t kUnit = 3;
constexpr int32_t kCount = 2, kSizeBytes = 3;
}  // namespace counter_field
namespace event_field {  // trace/track_event/track_event.proto
constexpr uint32_t kCategories = 3, kAnnotations = 4, kType = 9, kNameId = 10, kTrack = 11,
                   kDoubleValue = 44, kFlows = 47;
}
namespace annotation_field {  // trace/track_event/debug_annotation.proto
constexpr uint32_t kNameId = 1, kBool = 2, kInt = 4, kDouble = 5, kString = 6;
}
namespace interned_field {  // trace/interned_data/interned_data.proto
constexpr uint32_t kCategories = 1, kEventNames = 2, kAnnotationNames = 3;
constexpr uint32_t kId = 1, kName = 2;  // of each of these
}  // namespace interned_field

// Any value but 0.
constexpr uint32_t kSequence = 1;
constexpr char kCategory[] = "nccl";
constexpr uint64_t kCategoryId = 1;

// Names already written, and names that the next packet must include.
class Names {
 public:
  uint64_t IdOf(uint32_t field, const std::string& name) {
    const auto [found, is_new] = ids_.try_emplace({field, name});
    if (is_new) {
      found->second = ++last_[field];
      fresh_.push_back({field, found->second, &found->first.second});
    }
    return found->second;
  }
  void WriteFresh(pbf_writer* packet) {
    if (fresh_.empty()) return;
    pbf_writer interned(*packet, packet_field::kInternedData);
    for (const Fresh& each : fresh_) {
      pbf_writer entry(interned, each.field);
      entry.add_uint64(interned_field::kId, each.id);
      entry.add_string(interned_field::kName, *each.name);
    }
    fresh_.clear();
  }

 private:
  struct Fresh {
    uint32_t field;
    uint64_t id;
    const std::string* name;
  };
  std::map<std::pair<uint32_t, std::string>, uint64_t> ids_;
  std::map<uint32_t, uint64_t> last_;
  std::vector<Fresh> fresh_;
};

uint64_t TimeOf(int64_t time_ns) { return time_ns < 0 ? 0 : static_cast<uint64_t>(time_ns); }

void WriteTime(int64_t time_ns, pbf_writer* packet) {
  packet->add_uint64(packet_field::kTimestamp, TimeOf(time_ns));
  packet->add_uint32(packet_field::kTimestampClockId, clock_field::kRealtime);
  packet->add_uint32(packet_field::kSequenceId, kSequence);
}

void WriteFirst(int64_t time_ns, Names* names, pbf_writer* trace) {
  pbf_writer packet(*trace, trace_field::kPacket);
  WriteTime(time_ns, &packet);
  packet.add_uint32(packet_field::kSequenceFlags, packet_field::kStateCleared);
  packet.add_bool(packet_field::kFirstOnSequence, true);
  names->IdOf(interned_field::kCategories, kCategory);
  names->WriteFresh(&packet);
  pbf_writer snapshot(packet, packet_field::kClockSnapshot);
  // The file's own clock, which shows Unix time. With CLOCK_REALTIME itself, trace_processor (v58)
  // would search a conversion from CLOCK_BOOTTIME, which is not known for other hosts, and report
  // dropped events.
  snapshot.add_enum(clock_field::kPrimaryClock, clock_field::kTraceFile);
  for (const uint32_t id : {clock_field::kTraceFile, clock_field::kRealtime}) {
    pbf_writer clock(snapshot, clock_field::kClocks);
    clock.add_uint32(clock_field::kId, id);
    clock.add_uint64(clock_field::kTimestamp, TimeOf(time_ns));
  }
}

void WriteValue(const TraceEvent::Value& value, pbf_writer* annotation) {
  std::visit(
      [annotation](const auto& known) {
        using T = std::decay_t<decltype(known)>;
        if constexpr (std::is_same_v<T, bool>) {
          annotation->add_bool(annotation_field::kBool, known);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          annotation->add_int64(annotation_field::kInt, known);
        } else if constexpr (std::is_same_v<T, double>) {
          annotation->add_double(annotation_field::kDouble, known);
        } else {
          annotation->add_string(annotation_field::kString, known);
        }
      },
      value);
}

}  // namespace

PerfettoTrace::Track PerfettoTrace::AddTrack(const std::string& name, Track parent,
                                             const std::string& about) {
  tracks_.push_back({name, about, parent, false, Unit::kNone});
  return tracks_.size();
}

PerfettoTrace::Track PerfettoTrace::AddCounter(const std::string& name, Track parent, Unit unit,
                                               const std::string& about) {
  tracks_.push_back({name, about, parent, true, unit});
  return tracks_.size();
}

void PerfettoTrace::Begin(Track track, int64_t time_ns, TraceEvent event) {
  events_.push_back({time_ns, track, Type::kBegin, 0, std::move(event)});
}
void PerfettoTrace::End(Track track, int64_t time_ns) {
  events_.push_back({time_ns, track, Type::kEnd, 0, {}});
}
void PerfettoTrace::Mark(Track track, int64_t time_ns, TraceEvent event) {
  events_.push_back({time_ns, track, Type::kMark, 0, std::move(event)});
}
void PerfettoTrace::Count(Track track, int64_t time_ns, double value) {
  events_.push_back({time_ns, track, Type::kCount, value, {}});
}

std::string PerfettoTrace::Finish() {
  std::stable_sort(events_.begin(), events_.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  std::string text;
  pbf_writer trace(text);
  Names names;
  WriteFirst(events_.empty() ? 0 : events_.front().time_ns, &names, &trace);
  for (std::size_t i = 0; i < tracks_.size(); ++i) {
    const TrackInfo& info = tracks_[i];
    pbf_writer packet(trace, trace_field::kPacket);
    packet.add_uint32(packet_field::kSequenceId, kSequence);
    pbf_writer track(packet, packet_field::kTrackDescriptor);
    track.add_uint64(track_field::kUuid, i + 1);
    track.add_string(track_field::kName, info.name);
    if (info.parent != 0) track.add_uint64(track_field::kParent, info.parent);
    track.add_enum(track_field::kChildOrdering, track_field::kExplicit);
    track.add_int32(track_field::kSiblingOrderRank, static_cast<int32_t>(i));
    if (!info.about.empty()) track.add_string(track_field::kDescription, info.about);
    track.add_enum(track_field::kSiblingMerge, track_field::kNotMerged);
    if (!info.is_counter) continue;
    pbf_writer counter(track, track_field::kCounter);
    if (info.unit == Unit::kNone) continue;
    counter.add_enum(counter_field::kUnit,
                     info.unit == Unit::kBytes ? counter_field::kSizeBytes : counter_field::kCount);
  }
  for (const Event& each : events_) {
    pbf_writer packet(trace, trace_field::kPacket);
    WriteTime(each.time_ns, &packet);
    packet.add_uint32(packet_field::kSequenceFlags, packet_field::kNeedsState);
    {
      pbf_writer event(packet, packet_field::kTrackEvent);
      event.add_enum(event_field::kType, static_cast<int32_t>(each.type));
      event.add_uint64(event_field::kTrack, each.track);
      if (each.type == Type::kCount) event.add_double(event_field::kDoubleValue, each.value);
      if (each.type == Type::kBegin || each.type == Type::kMark) {
        event.add_uint64(event_field::kCategories, kCategoryId);
        event.add_uint64(event_field::kNameId,
                         names.IdOf(interned_field::kEventNames, each.what.name));
      }
      for (const auto& [name, value] : each.what.notes) {
        pbf_writer annotation(event, event_field::kAnnotations);
        annotation.add_uint64(annotation_field::kNameId,
                              names.IdOf(interned_field::kAnnotationNames, name));
        WriteValue(value, &annotation);
      }
      for (const uint64_t flow : each.what.flows) event.add_fixed64(event_field::kFlows, flow);
    }
    names.WriteFresh(&packet);
  }
  return text;
}

}  // namespace nccl_pulse
