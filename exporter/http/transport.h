// Transport encodes and decodes the bytes of one connection: TLS of a server (exporter/web/tls.h)
// or of a client (exporter/web/tls_client.h). A connection without a transport sends plain bytes.
//
// Thread: the connection's. Never blocks.
#ifndef EXPORTER_HTTP_TRANSPORT_H_
#define EXPORTER_HTTP_TRANSPORT_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace nccl_pulse {

class Transport {
 public:
  virtual ~Transport() = default;

  // Like recv(2) and send(2), return the number of bytes, 0 when the peer has ended, or -1. If
  // errno is then EAGAIN, call again after poll_events(), and Send with the same bytes. Any other
  // errno means that the connection has failed.
  virtual ssize_t Receive(char* buffer, std::size_t size) = 0;
  virtual ssize_t Send(const char* data, std::size_t size) = 0;

  // Returns the events to poll for: POLLIN, or the event that the last call with EAGAIN waits for.
  virtual short poll_events() const = 0;
  // True if buffered input can be received, which poll(2) does not report.
  virtual bool has_pending() const = 0;
  // Tells the peer that nothing more will be sent.
  virtual void Finish() = 0;
  // Returns the reason of the failure if it is more precise than errno: "its certificate is not
  // trusted: ..."; else "".
  virtual std::string problem() const { return ""; }
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_TRANSPORT_H_
