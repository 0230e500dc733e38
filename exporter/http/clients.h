// Holds the connected clients. Accepts new clients, closes clients whose time is up, and selects a
// client to replace when all kMaxConnections connections are in use.
//
// Thread: server thread only.
#ifndef EXPORTER_HTTP_CLIENTS_H_
#define EXPORTER_HTTP_CLIENTS_H_

#include <poll.h>

#include <array>
#include <cstddef>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/http/connection.h"
#include "exporter/http/guard.h"
#include "exporter/http/limits.h"
#include "exporter/http/responder.h"

namespace nccl_pulse {

class Clients {
 public:
  using Time = Connection::Time;

  // `guard` (may be null) and `responder` must outlive this object.
  Clients(Guard* guard, Responder* responder, LogFunction log);
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // Appends one entry for poll(2) per connection. Lowers `next` to the earliest deadline.
  void AppendPolled(std::vector<pollfd>* polled, Time* next);
  // Handles the events of these entries. `polled`: the first one.
  void Handle(const pollfd* polled, Time now);
  // Returns the time before which no client may be accepted.
  Time accept_from() const { return accept_from_; }
  // Accepts waiting clients of the listening socket, a few at a time.
  void Accept(int listener, Time now);
  // Call when the guard's verdict or a handler's answer may be ready for a parked request, one that
  // waits for either.
  void AnswerParked(Time now);
  // Closes the client that has been receiving a page for longest, if that is longer than kPageGrace
  // (page_cache.h) or `in_any_case` is true. Returns false if it has closed none.
  bool CutOffSlowest(bool in_any_case);

  // Call when another process takes over: responses in progress are completed, no request is
  // accepted.
  void Leave();
  void CloseAll();

 private:
  void Serve(Connection* connection, short events, Time now);
  bool AcceptInto(Connection* connection, int listener, Time now);
  Connection* SlotForClient(Time now);

  Guard* const guard_;
  Responder& responder_;
  std::array<Connection, kMaxConnections> connections_;
  std::vector<Connection*> polled_;
  Time accept_from_{};
  OneWarning accept_failure_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_CLIENTS_H_
