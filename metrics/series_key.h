// SeriesKey packs the key of a series (a histogram, or a pair of counters) of a communicator into
// 64 bits, so that one compare-and-swap enters it. It is never 0: bit 63 is always set.
//
//   bits      63  39:32         31:24  23:16           15:8         7:0        cells {a, b}
//   ---------------------------------------------------------------------------------------------
//              1  kCalls        op     size class      datatype     captured   calls, bytes
//              1  kAlgorithm    op     untimed reason  algorithm    protocol   operations, last
//                                                                              sequence number + 1
//              1  kLatency      op     size class      LatencyKind  -          a histogram chunk
//              1  kUntimed      op     untimed reason  -            -          operations
//              1  kUncompleted  op     -               -            -          operations
//              1  kReplayed     op     size class      -            -          operations, bytes
//              1  kComposite    op     size class      -            captured   operations, -
//
// op, datatype, algorithm and protocol are indices into the name table. kCalls and kLatency have
// the user's tag in bits 47:40, numbered by user_tags.h; 0: none.
//
// The untimed reason is the reason why these operations have no duration (UntimedReason), or
// kTimed. If it is known when the operation is counted, it is part of the kAlgorithm key, at no
// cost for the callback. If it is known later, or there is no algorithm, a kUntimed series counts
// the operation. A reader adds both kinds.
//
// Thread: pure functions.
#ifndef METRICS_SERIES_KEY_H_
#define METRICS_SERIES_KEY_H_

#include <cstdint>

#include "metrics/kinds.h"

namespace nccl_pulse {

enum class SeriesKind : uint8_t {
  kCalls = 1,
  kAlgorithm = 2,  // operations by algorithm and protocol
  kLatency = 3,
  kUntimed = 4,      // operations without a duration
  kUncompleted = 5,  // operations with network or kernel activity but no observed end
  kReplayed = 6,     // executed by replays of CUDA graphs
  kComposite = 7,    // AlltoAll, Gather, Scatter; kCalls has the Send and Recv that they consist of
};

struct SeriesKey {
  // Used in place of an UntimedReason if the operations have durations.
  static constexpr UntimedReason kTimed{0};

  // ---- one for each kind ----

  static constexpr uint64_t Calls(uint32_t op, uint32_t size_class, uint32_t datatype,
                                  bool captured) {
    return Pack(SeriesKind::kCalls, op, size_class, datatype, captured ? 1 : 0);
  }
  static constexpr uint64_t Algorithm(uint32_t op, UntimedReason untimed, uint32_t algorithm,
                                      uint32_t protocol) {
    return Pack(SeriesKind::kAlgorithm, op, static_cast<uint32_t>(untimed), algorithm, protocol);
  }
  static constexpr uint64_t Latency(uint32_t op, uint32_t size_class, LatencyKind kind) {
    return Pack(SeriesKind::kLatency, op, size_class, static_cast<uint32_t>(kind), 0);
  }
  static constexpr uint64_t Untimed(uint32_t op, UntimedReason reason) {
    return Pack(SeriesKind::kUntimed, op, static_cast<uint32_t>(reason), 0, 0);
  }
  static constexpr uint64_t Uncompleted(uint32_t op) {
    return Pack(SeriesKind::kUncompleted, op, 0, 0, 0);
  }
  static constexpr uint64_t Replayed(uint32_t op, uint32_t size_class) {
    return Pack(SeriesKind::kReplayed, op, size_class, 0, 0);
  }

  static constexpr uint64_t Composite(uint32_t op, uint32_t size_class, bool captured) {
    return Pack(SeriesKind::kComposite, op, size_class, 0, captured ? 1 : 0);
  }
  // Adds the user's tag to a key of calls or latencies.
  static constexpr uint64_t WithTag(uint64_t key, uint32_t user_tag) {
    return key | uint64_t{user_tag & 0xff} << 40;
  }

  // ---- of any kind ----

  static constexpr SeriesKind Kind(uint64_t key) {
    return static_cast<SeriesKind>(key >> 32 & 0xff);
  }
  static constexpr uint32_t Op(uint64_t key) { return key >> 24 & 0xff; }
  static constexpr uint32_t UserTag(uint64_t key) { return key >> 40 & 0xff; }

  // ---- of kinds that have the field; not checked: a reader trusts none of them ----

  static constexpr int SizeClass(uint64_t key) { return static_cast<int>(key >> 16 & 0xff); }
  static constexpr uint32_t UntimedReasonOf(uint64_t key) { return key >> 16 & 0xff; }
  static constexpr uint32_t Datatype(uint64_t key) { return key >> 8 & 0xff; }
  static constexpr uint32_t AlgorithmOf(uint64_t key) { return key >> 8 & 0xff; }
  static constexpr uint32_t LatencyKindOf(uint64_t key) { return key >> 8 & 0xff; }
  static constexpr bool IsCaptured(uint64_t key) { return (key & 0xff) != 0; }
  static constexpr uint32_t Protocol(uint64_t key) { return key & 0xff; }

  // Returns the overflow key that replaces `key` if the budget of series is used up. It keeps the
  // kind of latency and the untimed reason, and loses operation and size. Not for kCalls, which
  // overflow into fixed cells of the lane, nor for kComposite, whose parts are counted anyway.
  // `overflow_op`, `overflow_size`: name and size class of overflow series.
  static constexpr uint64_t Overflow(uint64_t key, uint32_t overflow_op, uint32_t overflow_size) {
    switch (Kind(key)) {
      case SeriesKind::kAlgorithm:
        return Algorithm(overflow_op, static_cast<UntimedReason>(UntimedReasonOf(key)), overflow_op,
                         overflow_op);
      case SeriesKind::kLatency:
        return Latency(overflow_op, overflow_size, static_cast<LatencyKind>(LatencyKindOf(key)));
      case SeriesKind::kUntimed:
        return Untimed(overflow_op, static_cast<UntimedReason>(UntimedReasonOf(key)));
      case SeriesKind::kUncompleted:
        return Uncompleted(overflow_op);
      case SeriesKind::kReplayed:
        return Replayed(overflow_op, overflow_size);
      default:
        return Calls(overflow_op, overflow_size, overflow_op, false);
    }
  }

  // For tests of readers: packs any bits.
  static constexpr uint64_t Pack(SeriesKind kind, uint32_t op, uint32_t byte2, uint32_t byte1,
                                 uint32_t byte0) {
    return uint64_t{1} << 63 | uint64_t{static_cast<uint8_t>(kind)} << 32 |
           uint64_t{op & 0xff} << 24 | uint64_t{byte2 & 0xff} << 16 | uint64_t{byte1 & 0xff} << 8 |
           (byte0 & 0xff);
  }
};

}  // namespace nccl_pulse

#endif  // METRICS_SERIES_KEY_H_
