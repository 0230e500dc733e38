// How the bytes of one connection are encoded on their way: by the agent's TLS
// (exporter/web/tls.h), or by a client's (exporter/web/tls_client.h). A job's server has no
// transport and sends them as they are.
//
// Thread: the server's. Nothing here blocks.
#ifndef EXPORTER_HTTP_TRANSPORT_H_
#define EXPORTER_HTTP_TRANSPORT_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace nccl_pulse {

class Transport {
 public:
  virtual ~Transport() = default;

  // As recv(2) and send(2): bytes, 0 at the client's end, or -1. With errno EAGAIN it is to be
  // called again when poll_events() have come, Send with the same bytes; else the connection has
  // failed.
  virtual ssize_t Receive(char* buffer, std::size_t size) = 0;
  virtual ssize_t Send(const char* data, std::size_t size) = 0;

  // poll(2) has to wait for this: POLLIN, or whatever the last call that returned EAGAIN needs.
  virtual short poll_events() const = 0;
  // Something can be received that poll(2) does not know of.
  virtual bool has_pending() const = 0;
  // Tells the client that nothing more will be sent.
  virtual void Finish() = 0;
  // Why it has failed, where it knows more than errno says: "its certificate is not trusted: ..."
  virtual std::string problem() const { return ""; }
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_TRANSPORT_H_
