#include "tests/metrics/hostile_segment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "metrics/header_writer.h"
#include "metrics/lane_writer.h"
#include "metrics/last_calls.h"
#include "metrics/segment_layout.h"
#include "metrics/segment_reader.h"
#include "metrics/shared_bytes.h"
#include "metrics/testing/test_segment.h"

namespace nccl_pulse {
namespace {

static_assert(kSmallChunksOffset >=
                  kHeaderBytes + kNamesBytes + kSmallCommunicators * kRecordStride &&
              kSmallChunksOffset % kChunkBytes == 0);

// Cleaning what is clean changes nothing: the reader's own rule, applied to its result.
bool IsClean(const std::string& text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return text.size() <= 256 && CopyFromShared(text.c_str(), text.size() + 1) == text;
}

std::string CheckCommunicator(const CommunicatorSnapshot& communicator) {
  for (const std::string* text :
       {&communicator.name, &communicator.gpu, &communicator.uuid, &communicator.pci_bus_id}) {
    if (!IsClean(*text)) return "an identity string is not clean";
  }
  const size_t series = communicator.calls.size() + communicator.algorithms.size() +
                        communicator.latencies.size() + communicator.untimed.size() +
                        communicator.uncompleted.size() + communicator.sequences.size();
  // And the calls' overflow, which has no entry.
  if (series > kSeriesPerCommunicator + 1) return "more series than there are entries";
  if (communicator.timed_calls.size() > kTimedCalls) return "more timed calls than entries";
  if (communicator.picked_calls.size() > kMoments) return "more picked calls than entries";
  if (communicator.last_calls_kept > kMostLastCalls) return "a ring that is too large";
  if (communicator.last_calls != nullptr) {
    if (communicator.last_calls->size() > kMostLastCalls) return "more last calls than entries";
    for (const LastCallSnapshot& call : *communicator.last_calls) {
      if (!IsClean(call.op) || !IsClean(call.datatype))
        return "a label of a last call is not clean";
    }
  }
  if (communicator.peer_calls.size() > PeerCallTable::kPeers) return "more peers than entries";
  for (const PeerCallsSnapshot& calls : communicator.peer_calls) {
    if (calls.totals.size() > PeerCalls::kKept) return "more totals than are kept";
    if (!IsClean(calls.datatype)) return "a data type of calls by peer is not clean";
  }
  for (const CallCountSnapshot& calls : communicator.calls) {
    if (!IsClean(calls.op) || !IsClean(calls.datatype)) return "a label of calls is not clean";
  }
  for (const AlgorithmCountSnapshot& algorithm : communicator.algorithms) {
    if (!IsClean(algorithm.op) || !IsClean(algorithm.algo) || !IsClean(algorithm.proto)) {
      return "a label of an algorithm is not clean";
    }
  }
  const auto is_kind = [](LatencyKind kind) {
    return kind >= LatencyKind::kDurationKernel && static_cast<int>(kind) < kLatencyKinds;
  };
  for (const LatencySnapshot& latency : communicator.latencies) {
    if (!IsClean(latency.op) || !is_kind(latency.kind)) return "a latency is of no kind";
  }
  for (const UntimedSnapshot& untimed : communicator.untimed) {
    if (std::string(UntimedReasonName(untimed.reason)) == "unknown") return "an unknown reason";
  }
  for (const auto* calls : {&communicator.timed_calls, &communicator.picked_calls}) {
    for (const TimedCallSnapshot& call : *calls) {
      if (!IsClean(call.op) || !is_kind(call.kind)) return "a timed call is of no kind";
    }
  }
  return communicator.kernel_trust > TrustState::kChecksFailed ? "an unknown trust" : "";
}

}  // namespace

std::vector<uint8_t> MakeSmallSegment() {
  // A chunk more for each communicator's ring.
  TestSegment test(2048, kSmallChunks - 1 - kSmallCommunicators, kLastCallsPerChunk);
  HeaderWriter header(test.segment());
  HeaderWriter::Identity identity;
  identity.pid = 7;
  identity.hostname = "node1";
  identity.job_id = "job";
  header.Identify(identity);
  header.RenewTimes(1700000000, 0);
  for (uint32_t index = 0; index < kSmallCommunicators; ++index) {
    const uint32_t generation =
        test.AddCommunicator(index, 100 + index, static_cast<int>(index), "comm \xe2\x82\xac");
    for (LaneRole role : {LaneRole::kLaunch, LaneRole::kProgress}) {
      LaneWriter lane = test.Writer(index, generation, role);
      lane.lane().launches.publish_sum(5);
      lane.lane().callbacks[1].publish_sum(5);
      lane.lane().network_bytes[1].publish_sum(5);
      lane.lane().network_wait_ns[5].publish_sum(5);
      lane.Count(SeriesKey::Calls(kAllReduceName, 4, kOtherName, true), 3, 300);
      lane.Count(SeriesKey::Algorithm(kAllReduceName, SeriesKey::kTimed, 3, 4), 3, 4);
      lane.Count(SeriesKey::Untimed(kAllReduceName, UntimedReason::kCaptured), 3, 0);
      lane.Count(SeriesKey::Uncompleted(kAllReduceName), 3, 0);
      for (LatencyKind kind : {LatencyKind::kDurationKernel, LatencyKind::kCompletionProxy}) {
        lane.Observe(SeriesKey::Latency(kAllGatherName, 2, kind), 5000, 1, 1);
      }
    }
    for (const bool receives : {false, true}) {
      test.segment().record(index).peer_calls.Add(PeerCalls::Whom(1, receives), 64, kOtherName);
    }
    LastCalls last_calls{};
    last_calls.Begin(test.segment(), test.segment().record(index));
    for (uint32_t call = 0; call < 20; ++call) {
      LastCallFields fields{};
      fields.op = kAllReduceName;
      fields.datatype = kOtherName;
      fields.bytes = call;
      last_calls.Note(fields, call / 2);
      last_calls.NoteLaunch(5000, call);
    }
    for (uint64_t moment = 0; moment < kMoments; ++moment) {
      const auto call = static_cast<uint32_t>(kSetUpCalls + moment);
      test.Record(index).AppendTimedCall({kAllGatherName, LatencyKind::kDurationStream, 2, call, 1,
                                          5000, (moment + 1) * kMomentNs});
    }
    for (uint32_t call = 0; call < kTimedCalls + 3; ++call) {
      test.Record(index).AppendTimedCall({kAllGatherName, LatencyKind::kCompletionProxy, 2, call, 1,
                                          5000, (kMoments + 1) * kMomentNs - 1});
    }
  }
  // The same with fewer places: the geometry's numbers are the segment's own.
  const auto* from = static_cast<const uint8_t*>(test.segment().base());
  std::vector<uint8_t> bytes(kSmallBytes);
  memcpy(bytes.data(), from, kSmallChunksOffset);
  memcpy(bytes.data() + kSmallChunksOffset, from + test.segment().header().chunks_offset,
         kSmallBytes - kSmallChunksOffset);
  const auto set = [&bytes](size_t offset, auto value) {
    memcpy(bytes.data() + offset, &value, sizeof(value));
  };
  set(offsetof(SegmentHeader, total_bytes), uint64_t{kSmallBytes});
  set(offsetof(SegmentHeader, chunks_offset), uint64_t{kSmallChunksOffset});
  set(offsetof(SegmentHeader, communicator_count), kSmallCommunicators);
  set(offsetof(SegmentHeader, chunk_count), kSmallChunks);
  return bytes;
}

GuardedMemory::GuardedMemory(size_t capacity) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t usable = (capacity + 63) / page * page + page;
  mapped_ = usable + page;
  void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) abort();
  base_ = static_cast<uint8_t*>(base);
  guard_ = base_ + usable;
  if (mprotect(guard_, page, PROT_NONE) != 0) abort();
}

GuardedMemory::~GuardedMemory() { munmap(base_, mapped_); }

std::string ReadAndCheck(const uint8_t* base, size_t bytes) {
  ProcessSnapshot snapshot;
  std::string error;
  const ReadWish wish{ReadWish::LastCalls::kOfUnfinished, 0, INT64_MAX};
  if (!ReadSegment(base, bytes, &snapshot, &error, {}, nullptr, wish)) {
    if (error.empty()) return "refused without a word";
    return IsClean(error) ? "" : "the error is not clean";
  }
  for (const std::string* text :
       {&snapshot.plugin_version, &snapshot.hostname, &snapshot.global_rank, &snapshot.local_rank,
        &snapshot.job_id, &snapshot.timing}) {
    if (!IsClean(*text)) return "a string of the process is not clean";
  }
  if (snapshot.communicators.size() != snapshot.communicators_used ||
      snapshot.communicators_used > snapshot.communicator_limit) {
    return "more communicators than there are places";
  }
  size_t histograms = 0;
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    std::string wrong = CheckCommunicator(communicator);
    if (!wrong.empty()) return wrong;
    histograms += communicator.latencies.size();
  }
  return histograms * kChunkBytes > bytes ? "more histograms than the segment has room for" : "";
}

}  // namespace nccl_pulse
