// A process' communicators: a place for each that exists at the same time. Finds the one that an
// event belongs to.
//
// A place outlives its communicators: a ticket names it by index, and says which of them it is
// about (ticket.h). A finalized communicator is kept for ten minutes, so that whoever scrapes sees
// its last numbers. It gives way earlier when there is no place left, or fewer series than a
// further communicator may want; the one that was finalized longest ago goes first, and gives its
// last calls up before where a live one has no room for them. Its calls live
// on in the process' sums (RecordWriter::Recycle).
//
// Thread: Add, Finish, Close, MakeRoom by one caller at a time (the runtime's lock); the rest any.
// Cost: finding one touches one cache line of the table.
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
  const char* gpu;
  const char* uuid;
  const char* pci_bus_id;
  int64_t realtime_ns;
  int api_version;      // of the NCCL that makes it
  uint32_t event_mask;  // that it was given
  // NCCL has the profiler's context of this communicator there. It is never dereferenced. Null: not
  // known.
  const void* context_at = nullptr;
};

// What a ticket of an operation, or of a child of its, names.
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

  // Its context's ticket, 0: no room (more than kMaxCommunicators at the same time, or memory was
  // refused). `has_sight`: events are to tell which of its launches completed.
  uint64_t Add(const CommunicatorIdentity& identity, bool has_sight);
  // Events with that context are stale from now on; null: they are already. Whoever ends it then
  // settles it, and calls Finish.
  Communicator* Close(uint64_t context);
  void Finish(Communicator& communicator);

  // Finalized communicators give way, the oldest first, until there is room for the series of a
  // further one.
  void MakeRoom();
  // Whether that would do anything. Any thread.
  bool WantsRoom() const;

  // ---- finding ----

  // Null, and counted, when the context is not of a live communicator of this process.
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
  // Null communicator when the ticket is not of an operation (or child) that this process gave out.
  OperationRef FindOperation(uint64_t ticket, TicketKind kind) {
    OperationRef ref{};
    ref.place = Ticket::Operation(ticket);
    if (!instruments_.IsOwn(ticket, kind) || ref.place >= kOperationSlots) return ref;
    Communicator& communicator = At(ticket);
    // A place that was never used has no parts. Acquire: a made-up ticket may come without the
    // context that published them.
    ref.parts = communicator.parts.acquire();
    if (ref.parts == nullptr) return ref;
    ref.communicator = &communicator;
    ref.generation = Ticket::Generation(ticket);
    ref.child = Ticket::Child(ticket);
    return ref;
  }
  // The parts that a kernel channel's ticket of this process names; null: a made-up one.
  CommunicatorParts* FindChannel(uint64_t ticket) {
    // Acquire: as in FindOperation.
    CommunicatorParts* const parts = At(ticket).parts.acquire();
    const bool is_sound = parts != nullptr && parts->channels != nullptr &&
                          Ticket::Operation(ticket) < kOperationSlots &&
                          Ticket::Child(ticket) < kMaxChannels;
    return __builtin_expect(is_sound, 1) ? parts : nullptr;
  }
  // The place that any ticket names; always within the table.
  Communicator& At(uint64_t ticket) { return places_[Ticket::Communicator(ticket)]; }
  const Communicator& At(uint64_t ticket) const { return places_[Ticket::Communicator(ticket)]; }

  Communicator& place(uint32_t index) { return places_[index]; }  // within the table

  // All places that were ever used. Acquire: sees what is there.
  Communicator* begin() { return places_; }
  Communicator* end() { return places_ + used_.acquire(); }

 private:
  // Counts why.
  [[gnu::cold, gnu::noinline]] void Refuse(uint64_t context);
  bool Allocate(Communicator& communicator);
  int FindRecordToUse();
  static bool IsReadyForNext(const Communicator& communicator);
  Communicator* OldestFinalized(bool with_last_calls = false);
  void RecycleExpired();
  void MakeRoomForLastCalls();
  bool Recycle(Communicator& communicator);

  Communicator places_[kMaxCommunicators]{};
  Instruments& instruments_;
  Ordered<uint32_t> used_;       // one past the highest place ever used
  Relaxed<uint32_t> finalized_;  // records that could be recycled; changed under init lock
  uint32_t live_ = 0;            // init lock
  uint32_t made_ = 0;            // init lock; n-th communicator of the process
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMMUNICATOR_TABLE_H_
