// Entrance supplies the server's event loop (server_loop.h) with a listening socket, which may be
// closed and opened again, and with events other than clients' to handle on the same thread. In an
// endpoint these are from other processes of the node (exporter/endpoint/endpoint_loop.cc).
//
// Thread: server thread only.
#ifndef EXPORTER_HTTP_ENTRANCE_H_
#define EXPORTER_HTTP_ENTRANCE_H_

#include <poll.h>

#include <chrono>
#include <vector>

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Entrance {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Entrance() = default;

  // Returns the listening socket; -1 if no client is accepted. Connected clients then get only the
  // responses in progress.
  virtual int listener() const = 0;
  // Returns the time before which no client may be accepted.
  virtual Time accept_from() const = 0;
  // Returns the time at which Handle must be called even without an event.
  virtual Time next() const = 0;
  // Appends entries for poll(2). `may_work`: false if the CPU budget is spent.
  virtual void AppendPolled(std::vector<pollfd>* polled, bool may_work) = 0;
  // Handles the events of these entries. `polled`: the first one.
  virtual void Handle(const pollfd* polled, Time now) = 0;
  virtual void Close() = 0;
};

// An entrance without other events: a socket that listens as long as the loop runs.
class ListeningSocket : public Entrance {
 public:
  SharedDescriptor* descriptor() { return &descriptor_; }

  int listener() const override { return descriptor_.get(); }
  Time accept_from() const override { return {}; }
  Time next() const override { return Time::max(); }
  void AppendPolled(std::vector<pollfd>*, bool) override {}
  void Handle(const pollfd*, Time) override {}
  void Close() override { descriptor_.Close(); }

 private:
  SharedDescriptor descriptor_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_ENTRANCE_H_
