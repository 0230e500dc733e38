// Checks and maps, read-only, the memory that another process handed over.
//
// Before mapping it checks three things. The memory is a memfd (shared memory on tmpfs, not a file,
// a pipe or huge pages). It is sealed against shrinking and growing, so that no page can vanish
// under a reader (SIGBUS). It is no larger than a segment can be. Before each read it finds the
// parts that are backed by memory, so that reading allocates nothing. metrics/segment_reader.h
// checks the contents.
//
// The mapping is not inherited by a fork (MADV_DONTFORK); the descriptor is closed by the child.
//
// Thread: server thread only. Cost: some system calls to map, two to read, and the reader's copy.
#ifndef EXPORTER_NODE_PEERS_PEER_SEGMENT_H_
#define EXPORTER_NODE_PEERS_PEER_SEGMENT_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "exporter/diagnosis/facts/rejection.h"
#include "metrics/shared_descriptor.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

class PeerSegment {
 public:
  PeerSegment() = default;
  ~PeerSegment() { Close(); }
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;

  // Takes the descriptor, even if the memory is rejected. `snapshot` gets the current contents.
  bool Map(SharedDescriptor* memory, ProcessSnapshot* snapshot, Rejection* reason,
           std::string* error);
  // Returns false, with the reason, if the segment is damaged or too large for a process
  // (page_share.h). Releases the memory after reading, so that only one segment at a time is
  // resident here.
  bool Read(ProcessSnapshot* snapshot, Rejection* reason, std::string* error,
            const ReadWish& wish = {}) const;
  bool IsSameMemory(const FileIdentity& identity) const {
    return base_ != nullptr && identity == memory_.identity();
  }
  bool IsSameMemory(const PeerSegment& other) const {
    return other.base_ != nullptr && IsSameMemory(other.memory_.identity());
  }
  // True if the descriptor's number was reused, so that the segment can no longer be read.
  bool IsLost() const { return memory_.is_lost(); }
  void Close();

 private:
  SharedDescriptor memory_;
  const void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_PEER_SEGMENT_H_
