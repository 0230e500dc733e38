// A client for the tests of the HTTP endpoint, down to the socket: it can send anything, or
// nothing.
#ifndef TESTS_EXPORTER_HTTP_CLIENT_H_
#define TESTS_EXPORTER_HTTP_CLIENT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse {

// A connection to 127.0.0.1, closed with the object.
class Client {
 public:
  Client();  // not connected yet, but it has its descriptor
  explicit Client(uint16_t port);
  ~Client();
  Client(Client&& other) noexcept;
  Client(const Client&) = delete;

  bool Connect(uint16_t port);
  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  // False once the server has closed the connection. Raises no signal.
  bool Send(std::string_view bytes);
  // What comes until the server closes, at most for `seconds`. `closed` (may be null): whether it
  // did.
  std::string ReadAll(double seconds, bool* closed = nullptr);
  // One response on a connection that stays open.
  std::string ReadResponse(bool head_only = false);

 private:
  int fd_;
  bool connected_ = false;
};

struct Response {
  int status = 0;  // 0: no response
  std::string head;
  std::string body;
};

Response ParseResponse(const std::string& text);

// One request on a connection of its own.
Response Get(uint16_t port, std::string_view path, std::string_view method = "GET");

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_HTTP_CLIENT_H_
