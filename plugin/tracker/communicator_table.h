// CommunicatorTable holds a process' communicators, and finds the communicator of an event.
//
// Each communicator has a place of the table. Places are reused, so a ticket, the handle that NCCL
// gets instead of a pointer, contains a place's index and its generation (ticket.h).
//
// A finalized communicator is kept for at least ten minutes, so that scrapers see its last numbers.
// The communicator finalized longest ago is evicted earlier if no place is left, or too few series
// for another communicator. Only its list of last calls is freed if that is all that a live
// communicator needs. Counts of evicted communicators remain in the process' sums
// (RecordWriter::Recycle).
//
// Thread: Add, Finish, Close, MakeRoom by one caller at a time (the runtime's lock); the rest by
// any thread. Cost: a lookup touches one cache line of the table.
#ifndef PLUGIN_TRACKER_COMMUNICATOR_TABLE_H_
#define PLUGIN_TRACKER_COMMUNICATOR_TABLE_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

struct CommunicatorIdentity {
  uint64_t comm_id;
  const char* name;  // may be null
  int rank, nranks, nnodes;
  const char* gpu;  // its index
  const char* uuid;
  const char* pci_bus_id;
  int64_t realtime_ns;  // time of the communicator's init
  int api_version;      // of its NCCL
  uint32_t event_mask;  // given to NCCL
  // Where NCCL stores this communicator's profiler context. Never dereferenced. Null: not known.
  const void* context_at = nullptr;
};

// The target of a ticket of an operation, or of its child.
struct OperationRef {
  Communicator* communicator;  // null: not a ticket of this process
  CommunicatorParts* parts;
  uint32_t generation, child, place;

  OperationSlot& slot() const { return parts->ring.slot(place); }
};

class CommunicatorTable {
 public:
  explicit CommunicatorTable(Instruments& instruments);

  // ---- life of a communicator ----

  // Adds a communicator. Returns its context's ticket, or 0 without room (more than
  // kMaxCommunicators, or memory was refused). `has_sight`: a thread polls launches, so CUDA events
  // may follow them.
  uint64_t Add(const CommunicatorIdentity& identity, bool has_sight);
  // Makes events with this context stale. Returns the communicator, or null if it was closed
  // before. The caller then counts its open operations (SettleAll) and calls Finish.
  Communicator* Close(uint64_t context);
  void Finish(Communicator& communicator);

  // Evicts finalized communicators, the oldest first, until there is room for the series of another
  // one.
  void MakeRoom();
  // True if MakeRoom would evict a communicator. Any thread.
  bool WantsRoom() const;

  // ---- finding ----

  // Returns null, and counts the event as ignored, if the context does not belong to a live
  // communicator of this process.
  Communicator* Find(uint64_t context) {
    Communicator& communicator = At(context);
    // Acquire: sees the communicator as Add made it.
    const uint64_t valid = communicator.context.acquire();
    if (__builtin_expect(valid != context || context == 0, 0)) {
      Refuse(context);
      return nullptr;
    }
    return &communicator;
  }
  // Returns a null communicator if this process did not issue the ticket for an operation or its
  // child.
  OperationRef FindOperation(uint64_t ticket, TicketKind kind) {
    OperationRef ref{};
    ref.place = Ticket::Operation(ticket);
    if (!instruments_.IsOwn(ticket, kind) || ref.place >= kOperationSlots) return ref;
    Communicator& communicator = At(ticket);
    // A place that was never used has no parts. Acquire: sees the parts as Add made them. The
    // load of a valid ticket's context ensured that; a forged ticket comes without one.
    ref.parts = communicator.parts.acquire();
    if (ref.parts == nullptr) return ref;
    ref.communicator = &communicator;
    ref.generation = Ticket::Generation(ticket);
    ref.child = Ticket::Child(ticket);
    return ref;
  }
  // Returns the parts for a kernel channel's ticket of this process. Returns null if the ticket is
  // forged.
  CommunicatorParts* FindChannel(uint64_t ticket) {
    // Acquire: as in FindOperation.
    CommunicatorParts* const parts = At(ticket).parts.acquire();
    const bool is_sound = parts != nullptr && parts->channels != nullptr &&
                          Ticket::Operation(ticket) < kOperationSlots &&
                          Ticket::Child(ticket) < kMaxChannels;
    return __builtin_expect(is_sound, 1) ? parts : nullptr;
  }
  // Returns the place in a ticket, even of an invalid one: always within the table.
  Communicator& At(uint64_t ticket) { return slots_[Ticket::Communicator(ticket)]; }
  const Communicator& At(uint64_t ticket) const { return slots_[Ticket::Communicator(ticket)]; }

  Communicator& place(uint32_t index) { return slots_[index]; }  // within the table

  // All places that were ever used. Acquire: sees their content.
  Communicator* begin() { return slots_; }
  Communicator* end() { return slots_ + used_.acquire(); }

 private:
  // Counts the event as ignored, by reason.
  [[gnu::cold, gnu::noinline]] void Refuse(uint64_t context);
  bool Allocate(Communicator& communicator);
  int FindRecordToUse();
  static bool IsReadyForNext(const Communicator& communicator);
  Communicator* OldestFinalized(bool with_last_calls = false);
  void RecycleExpired();
  void MakeRoomForLastCalls();
  bool Recycle(Communicator& communicator);

  Communicator slots_[kMaxCommunicators]{};
  Instruments& instruments_;
  Ordered<uint32_t> used_;       // one past the highest place ever used
  Relaxed<uint32_t> finalized_;  // records that could be recycled; changed under init lock
  uint32_t live_ = 0;            // init lock
  uint32_t made_ = 0;            // init lock; communicators that the process has added so far
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMMUNICATOR_TABLE_H_
