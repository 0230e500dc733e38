// The clients that are connected: which is let in, whose time is up, and which gives way when all
// places are taken.
//
// Thread: the server's.
#ifndef EXPORTER_HTTP_CLIENTS_H_
#define EXPORTER_HTTP_CLIENTS_H_

#include <poll.h>

#include <array>
#include <cstddef>
#include <vector>

#include "exporter/base/log_level.h"
#include "exporter/base/one_warning.h"
#include "exporter/http/connection.h"
#include "exporter/http/guard.h"
#include "exporter/http/limits.h"
#include "exporter/http/responder.h"

namespace nccl_pulse {

class Clients {
 public:
  using Time = Connection::Time;

  // Both must outlive this object; `guard` may be null.
  Clients(Guard* guard, Responder* responder, LogFunction log);
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // For poll(2): one entry for each connection, in an order that Handle knows. Lowers `next` to the
  // first deadline.
  void AppendPolled(std::vector<pollfd>* polled, Time* next);
  // `polled` points at what AppendPolled appended.
  void Handle(const pollfd* polled, Time now);
  // No client is to be accepted before.
  Time accept_from() const { return accept_from_; }
  void Accept(int listener, Time now);
  // The guard has come to a verdict, or a handler to an answer, about one of them at least.
  void AnswerParked(Time now);
  // Of those that are being sent a page, closes the one that has taken longest. False when there is
  // none, or, unless `in_any_case`, none that has taken kPageGrace.
  bool CutOffSlowest(bool in_any_case);

  // Another process serves from now on: what is being sent is sent, and that is all.
  void Leave();
  void CloseAll();

 private:
  void Serve(Connection* connection, short events, Time now);
  bool AcceptInto(Connection* connection, int listener, Time now);
  Connection* PlaceForClient(Time now);

  Guard* const guard_;
  Responder& responder_;
  std::array<Connection, kMaxConnections> connections_;
  std::vector<Connection*> polled_;
  Time accept_from_{};
  OneWarning accept_failure_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_CLIENTS_H_
