// One client's connection: its descriptor, what it has sent, and what is still to be sent to it.
//
// Thread: the server's.
#ifndef EXPORTER_HTTP_CONNECTION_H_
#define EXPORTER_HTTP_CONNECTION_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "exporter/http/http.h"
#include "exporter/http/transport.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class State {
    kFree,     // no client
    kReading,  // waiting for a request, or the rest of one
    kParked,   // its request waits for the guard's verdict, or for an answer that is being made
    kWriting,  // sending the response
    kDraining  // response sent, discarding what the client still sends: closing at once would make
               // the kernel reset the connection, and the client lose the response
  };

  bool in_use() const { return state_ != State::kFree; }
  State state() const { return state_; }
  int fd() const { return descriptor_.get(); }
  short poll_events() const;
  // Returns when it is closed if nothing changes.
  Time deadline() const;
  // From when on it may be closed in favour of a new client.
  Time replaceable_from() const;
  // The body that is being sent, if any.
  const std::shared_ptr<const std::string>& body() const { return body_; }

  void Open(int fd, Time now);
  // Right after Open(), where the bytes do not travel as they are.
  void SetTransport(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }
  void Close();

  // Receives what has come, once. False when the connection has ended or failed.
  bool Receive(Time now);
  // The next request whose head is whole, if the input has one; it stays there until it is
  // consumed. kBad also when the head is too long.
  ParseResult NextRequest(HttpRequest* request);
  const std::string& input() const { return input_; }
  void Consume(std::size_t bytes) { input_.erase(0, bytes); }
  bool head_too_long() const;

  // Keeps a request until it can be answered. Parking it again does not lengthen its time.
  void Park(const HttpRequest& request, Time now);
  const HttpRequest& parked() const { return parked_; }

  // Starts a response; `keep_alive` false ends the connection after it.
  void Respond(std::string head, std::shared_ptr<const std::string> body, bool keep_alive,
               Time now);
  // The response that is being sent, if any, is the last one.
  void EndAfterResponse() { keep_alive_ = false; }
  // Sends what the socket takes. False when the connection has ended or failed.
  bool Send(Time now);

 private:
  void Enter(State state, Time now);
  ssize_t ReceiveSome(char* buffer, std::size_t size);
  ssize_t SendSome();

  SharedDescriptor descriptor_;
  std::unique_ptr<Transport> transport_;
  State state_ = State::kFree;
  Time since_;  // when the state was entered
  std::string input_;
  HttpRequest parked_;
  std::size_t drained_bytes_ = 0;
  std::string head_;
  std::shared_ptr<const std::string> body_;
  std::size_t sent_bytes_ = 0;  // of head and body together
  bool keep_alive_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_CONNECTION_H_
