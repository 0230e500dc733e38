// Where the clients of a loop come in: a listening socket, which may come and go, and whatever else
// decides about it on the same thread. An endpoint's is its node (exporter/endpoint).
//
// Thread: the server's.
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

  // -1: nobody is let in. Clients that are already there are then sent their answers, and no more.
  virtual int listener() const = 0;
  // No client is to be accepted before.
  virtual Time accept_from() const = 0;
  // Returns when Handle has something to do without an event.
  virtual Time next() const = 0;
  // For poll(2). `may_work`: false when it has spent its budget of processor time.
  virtual void AppendPolled(std::vector<pollfd>* polled, bool may_work) = 0;
  // `polled` points at what AppendPolled appended.
  virtual void Handle(const pollfd* polled, Time now) = 0;
  virtual void Close() = 0;
};

// One socket that listens as long as the loop runs.
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
