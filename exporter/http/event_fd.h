// A signal from one thread to another that poll(2) can wait for: an eventfd.
//
// Thread: Signal any; Open before there is a second thread; Close in the child of a fork, too.
#ifndef EXPORTER_HTTP_EVENT_FD_H_
#define EXPORTER_HTTP_EVENT_FD_H_

#include <chrono>

#include "exporter/node/shared_descriptor.h"

namespace nccl_pulse {

class EventFd {
 public:
  ~EventFd() { Close(); }

  // False, with errno, when the system refuses. The caller holds a ForkGuard.
  bool Open();
  int fd() const { return descriptor_.get(); }
  // Cannot fail: the counter is far from full.
  void Signal() const;
  // Takes the signals that have come.
  void Clear() const { ClearEvent(fd()); }
  // Leaves the signal. False when none came in time.
  bool Wait(std::chrono::milliseconds patience) const;
  // Async-signal-safe.
  void Close() { descriptor_.Close(); }

  // The same for an eventfd that another object owns.
  static void ClearEvent(int fd);

 private:
  SharedDescriptor descriptor_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_EVENT_FD_H_
