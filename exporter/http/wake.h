// Wakes a thread that waits in poll(2): a pair of connected sockets. Not an eventfd: those of a
// process cannot be told from each other (metrics/shared_descriptor.h); not a pipe, which may raise
// SIGPIPE; and not a stream, whose end is readable for ever when the job has closed the other one.
//
// Thread: Signal any; Open before there is a second thread; Close by its owner.
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

  // False, with errno, when the system refuses.
  bool Open();
  // Readable after Signal(), until Clear().
  int fd() const { return reader_.get(); }
  // Never waits. Where the socket is full, there is enough to wake for.
  void Signal() const;
  void Clear() const;
  void Close();

 private:
  SharedDescriptor reader_;
  SharedDescriptor writer_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_WAKE_H_
