// Another process' segment: the memory that it handed over, checked and mapped read-only.
//
// Before it is mapped, it is checked that it is a memfd (shared memory on tmpfs, not a file, a pipe
// or huge pages), that it is sealed against shrinking and growing, so that no page can vanish under
// a reader (SIGBUS), and that it is no larger than a segment can be. Before each read it is checked
// which parts have memory behind them, so that reading allocates nothing here. What it holds is
// checked by metrics/segment_reader.h.
//
// The mapping is not inherited by a fork (MADV_DONTFORK); the descriptor is closed by the child.
//
// Thread: the server's. Cost: some system calls to map, two of them to read, and the reader's copy.
#ifndef EXPORTER_NODE_PEER_SEGMENT_H_
#define EXPORTER_NODE_PEER_SEGMENT_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "exporter/diagnosis/rejection.h"
#include "metrics/shared_descriptor.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

class PeerSegment {
 public:
  PeerSegment() = default;
  ~PeerSegment() { Close(); }
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;

  // Takes the descriptor, also when it refuses it. The snapshot is what it holds now.
  bool Map(SharedDescriptor* memory, ProcessSnapshot* snapshot, Rejection* reason,
           std::string* error);
  // False, with the reason: damaged, or more than a process may have (page_share.h). What was read
  // does not stay resident: however many there are, one segment at a time is in memory here.
  bool Read(ProcessSnapshot* snapshot, Rejection* reason, std::string* error,
            const ReadWish& wish = {}) const;
  bool IsSameMemory(const FileIdentity& identity) const {
    return base_ != nullptr && identity == memory_.identity();
  }
  bool IsSameMemory(const PeerSegment& other) const {
    return other.base_ != nullptr && IsSameMemory(other.memory_.identity());
  }
  // The descriptor is somebody else's by now: it cannot be read any more.
  bool IsLost() const { return memory_.is_lost(); }
  void Close();

 private:
  SharedDescriptor memory_;
  const void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEER_SEGMENT_H_
