// Tickets are the handles that NCCL gets for events and contexts, instead of pointers.
//
// NCCL stops handles twice, stops handles of operations that ended long ago, and passes handles and
// contexts of other processes (PXN). A pointer could not be checked. A ticket contains the index of
// a place, and the generation of that place when the ticket was issued. A ticket that does not
// match is counted and ignored. Nothing is dereferenced because of a ticket alone.
//
//   bit  63        51 50  47 46      39 38          19 18       10 9            0
//        | process   | kind | child    | generation    | operation | communicator |
//          13          4      8          20              9           10
//
// `process` is a hash of the pid and a random number, never 0. One in 8191 other processes has the
// same hash. For proxy operations, the pid in the event excludes them. `kind` is never 0 either, so a
// ticket is never NULL. `generation` wraps after 2^20 uses of an operation slot.
//
// Thread: pure functions. Cost: shifts.
#ifndef PLUGIN_TRACKER_TICKET_H_
#define PLUGIN_TRACKER_TICKET_H_

#include <cstdint>

namespace nccl_pulse {

enum class TicketKind : uint32_t {
  kContext = 1,         // a communicator
  kApiCall = 2,         // CollApi or P2pApi; child: 1 if captured; generation: serial of the call
  kOperation = 3,       // Coll or P2p
  kProxyOp = 4,         // child: number within the operation, at most 255
  kKernelChannel = 5,   // child: channel
  kGroup = 6,           // GroupApi; child: 1 if captured into a CUDA graph (or a Group before API
                        // v5). Otherwise its end is awaited; generation: of the context; operation:
                        // 1 for a group of one call
  kLaunch = 7,          // child: index of its pair of timing events; operation: running number;
                        // generation: of the context
  kCapturedLaunch = 9,  // a launch followed by a stamp; generation: of the context
  kProxyStep = 8,       // operation and communicator together: place in the step table
};

class Ticket {
 public:
  static constexpr int kCommunicatorBits = 10;
  static constexpr int kOperationBits = 9;
  static constexpr int kGenerationBits = 20;
  static constexpr int kChildBits = 8;
  static constexpr int kKindBits = 4;
  static constexpr int kProcessBits = 13;
  static constexpr uint32_t kGenerationMask = (1u << kGenerationBits) - 1;
  static constexpr uint32_t kMaxChild = (1u << kChildBits) - 1;

  static constexpr uint64_t Pack(uint32_t process, TicketKind kind, uint32_t child,
                                 uint32_t generation, uint32_t operation, uint32_t communicator) {
    uint64_t bits = process;
    bits = bits << kKindBits | static_cast<uint32_t>(kind);
    bits = bits << kChildBits | child;
    bits = bits << kGenerationBits | generation;
    bits = bits << kOperationBits | operation;
    return bits << kCommunicatorBits | communicator;
  }

  static constexpr uint32_t Communicator(uint64_t ticket) {
    return Field(ticket, 0, kCommunicatorBits);
  }
  static constexpr uint32_t Operation(uint64_t ticket) {
    return Field(ticket, kOperationShift, kOperationBits);
  }
  static constexpr uint32_t Generation(uint64_t ticket) {
    return Field(ticket, kGenerationShift, kGenerationBits);
  }
  static constexpr uint32_t Child(uint64_t ticket) {
    return Field(ticket, kChildShift, kChildBits);
  }
  static constexpr TicketKind Kind(uint64_t ticket) {
    return static_cast<TicketKind>(Field(ticket, kKindShift, kKindBits));
  }
  static constexpr uint32_t Process(uint64_t ticket) {
    return Field(ticket, kKindShift + kKindBits, kProcessBits);
  }

  // A network step's ticket has its place in the fields of operation and communicator together.
  static constexpr uint32_t kStepMask = (1u << (kCommunicatorBits + kOperationBits)) - 1;
  static constexpr uint64_t PackStep(uint32_t process, uint32_t generation, uint32_t place) {
    return Pack(process, TicketKind::kProxyStep, 0, generation, place >> kCommunicatorBits,
                place & ((1u << kCommunicatorBits) - 1));
  }
  static constexpr uint32_t Step(uint64_t ticket) {
    return static_cast<uint32_t>(ticket) & kStepMask;
  }

  // Returns a launch's ticket, with process, generation and communicator of its context.
  static constexpr uint64_t OfLaunch(uint64_t context, uint32_t child, uint32_t operation) {
    constexpr uint64_t kOtherKind =
        static_cast<uint64_t>(TicketKind::kContext) ^ static_cast<uint64_t>(TicketKind::kLaunch);
    return (context ^ kOtherKind << kKindShift) | uint64_t{child} << kChildShift |
           uint64_t{operation} << kOperationShift;
  }
  // Returns an operation's ticket. `first`: Communicator::first_ticket.
  static constexpr uint64_t OfOperation(uint64_t first, uint32_t generation, uint32_t operation) {
    return first | uint64_t{generation} << kGenerationShift |
           uint64_t{operation} << kOperationShift;
  }

  // True if the ticket identifies an operation of the communicator with this first_ticket.
  static constexpr bool IsOfOperation(uint64_t ticket, uint64_t first) {
    constexpr uint64_t kOfEach = (uint64_t{1} << kChildShift) - (uint64_t{1} << kOperationShift);
    return ((ticket ^ first) & ~kOfEach) == 0;
  }
  // Returns a kernel channel's ticket. `operation`: ticket of its operation.
  static constexpr uint64_t OfKernelChannel(uint64_t operation, uint32_t channel) {
    constexpr uint64_t kOtherKind = static_cast<uint64_t>(TicketKind::kOperation) ^
                                    static_cast<uint64_t>(TicketKind::kKernelChannel);
    return (operation ^ kOtherKind << kKindShift) | uint64_t{channel} << kChildShift;
  }

  // Returns process and kind, for one comparison.
  static constexpr uint64_t Issuer(uint64_t ticket) { return ticket >> kKindShift; }
  static constexpr uint32_t MakeIssuer(uint32_t process, TicketKind kind) {
    return process << kKindBits | static_cast<uint32_t>(kind);
  }

 private:
  static constexpr int kOperationShift = kCommunicatorBits;
  static constexpr int kGenerationShift = kOperationShift + kOperationBits;
  static constexpr int kChildShift = kGenerationShift + kGenerationBits;
  static constexpr int kKindShift = kChildShift + kChildBits;

  static constexpr uint32_t Field(uint64_t ticket, int shift, int width) {
    return static_cast<uint32_t>(ticket >> shift & ((uint64_t{1} << width) - 1));
  }
};
static_assert(Ticket::kCommunicatorBits + Ticket::kOperationBits + Ticket::kGenerationBits +
                  Ticket::kChildBits + Ticket::kKindBits + Ticket::kProcessBits ==
              64);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_TICKET_H_
