// Wakes a thread that waits in poll(2), through a pair of datagram sockets. Alternatives fail in a
// job: eventfds of a process cannot be distinguished (metrics/shared_descriptor.h), a pipe may
// raise SIGPIPE, and a stream socket stays readable once the job has closed its other end.
//
// Thread: Signal on any thread; Open before there is a second thread; Close on the owner's.
#ifndef EXPORTER_HTTP_WAKE_H_
#define EXPORTER_HTTP_WAKE_H_

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Wake {
 public:
  Wake() = default;
  ~Wake() { Close(); }
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;

  // Returns false, with errno, if the system refuses.
  bool Open();
  // Returns the descriptor to poll for POLLIN: readable after Signal(), until Clear().
  int fd() const { return reader_.get(); }
  // Never waits. If the socket is full, the signal is dropped: the reader wakes anyway.
  void Signal() const;
  void Clear() const;
  void Close();

 private:
  SharedDescriptor reader_;
  SharedDescriptor writer_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_WAKE_H_
