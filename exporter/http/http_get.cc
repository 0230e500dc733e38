#include "exporter/http/http_get.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exporter/http/gzip.h"

namespace nccl_pulse {
namespace {

using Time = std::chrono::steady_clock::time_point;

// The largest answer, as it comes and unpacked.
constexpr std::size_t kMostBytes = std::size_t{512} << 20;
constexpr std::chrono::seconds kNotSaid{-1};

// Closed when the object is destroyed.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }

  // False if `end` came first; errno is ETIMEDOUT then.
  bool Wait(short events, Time end) const {
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd polled = {fd_, events, 0};
      const int result = poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
      if (result > 0) return true;
      if (result < 0 && errno == EINTR) continue;
      if (result == 0) errno = ETIMEDOUT;
      return false;
    }
  }

  bool Connect(const sockaddr* address, socklen_t size, Time end) const {
    if (connect(fd_, address, size) == 0) return true;
    if (errno != EINPROGRESS && errno != EAGAIN) return false;
    if (!Wait(POLLOUT, end)) return false;
    int problem = 0;
    socklen_t problem_size = sizeof(problem);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &problem, &problem_size);
    errno = problem;
    return problem == 0;
  }

 private:
  const int fd_;
};

std::string Reason(int error) { return std::generic_category().message(error); }

std::unique_ptr<Socket> ConnectToPath(const std::string& path, Time end, std::string* error) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    *error = "the path is too long for a socket";
    return nullptr;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  auto socket =
      std::make_unique<Socket>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket->Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address), end)) {
    *error = Reason(errno);
    return nullptr;
  }
  return socket;
}

std::unique_ptr<Socket> ConnectToHost(const std::string& host, const std::string& port, Time end,
                                      std::string* error) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (problem != 0) {
    *error = gai_strerror(problem);
    return nullptr;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    auto socket = std::make_unique<Socket>(
        ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket->fd() >= 0 && socket->Connect(each->ai_addr, each->ai_addrlen, end)) return socket;
    *error = Reason(errno);
  }
  return nullptr;
}

std::unique_ptr<Socket> ConnectTo(std::string_view endpoint, Time end, std::string* host,
                                  std::string* error) {
  if (absl::ConsumePrefix(&endpoint, "unix:")) {
    *host = "localhost";
    return ConnectToPath(std::string(endpoint), end, error);
  }
  absl::ConsumePrefix(&endpoint, "http://");
  endpoint = endpoint.substr(0, endpoint.find('/'));
  const std::size_t colon = endpoint.rfind(':');
  std::string_view name = colon == endpoint.npos ? "" : endpoint.substr(0, colon);
  const std::string port(colon == endpoint.npos ? endpoint : endpoint.substr(colon + 1));
  int number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) {
    *error = absl::StrCat("\"", endpoint, "\" is neither host:port nor unix:/path");
    return nullptr;
  }
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  *host = name.empty() ? "localhost" : std::string(name);
  return ConnectToHost(*host, port, end, error);
}

// The value of a header, without spaces around it, or "". `head` is in lower case.
std::string_view Header(std::string_view head, std::string_view name) {
  const std::string start = absl::StrCat("\r\n", name, ":");
  const std::size_t at = head.find(start);
  if (at == head.npos) return "";
  const std::string_view rest = head.substr(at + start.size());
  return absl::StripAsciiWhitespace(rest.substr(0, rest.find("\r\n")));
}

// A number of seconds, or `otherwise` for anything else, such as a date.
std::chrono::seconds Seconds(std::string_view text, std::chrono::seconds otherwise) {
  constexpr int64_t kMost = 1000000000;
  int64_t seconds = 0;
  if (!absl::SimpleAtoi(text, &seconds) || seconds < 0) return otherwise;
  return std::chrono::seconds(std::min(seconds, kMost));
}

// The bytes as they are.
class PlainTransport : public Transport {
 public:
  explicit PlainTransport(int fd) : fd_(fd) {}
  ssize_t Receive(char* buffer, std::size_t size) override { return recv(fd_, buffer, size, 0); }
  ssize_t Send(const char* data, std::size_t size) override {
    events_ = POLLIN;
    return send(fd_, data, size, MSG_NOSIGNAL);
  }
  short poll_events() const override { return events_; }
  bool has_pending() const override { return false; }
  void Finish() override {}

 private:
  const int fd_;
  short events_ = POLLOUT;
};

// After a call that returned -1: waits until it may be repeated. False if it has failed.
bool WaitFor(const Socket& socket, const Transport& transport, Time end, std::string* error) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) {
    const std::string reason = Reason(errno);
    *error = transport.problem();
    if (error->empty()) *error = reason;
    return false;
  }
  if (socket.Wait(transport.poll_events(), end)) return true;
  *error = errno == ETIMEDOUT ? "it accepts connections, but does not answer" : Reason(errno);
  return false;
}

// Everything that comes until the server closes the connection.
bool Ask(const Socket& socket, Transport& transport, const std::string& request, Time end,
         std::string* text, std::string* error) {
  // Smaller than any socket's buffer.
  ssize_t size;
  while ((size = transport.Send(request.data(), request.size())) < 0) {
    if (!WaitFor(socket, transport, end, error)) return false;
  }
  if (size != static_cast<ssize_t>(request.size())) {
    *error = "the request could not be sent";
    return false;
  }
  while (text->size() < kMostBytes) {
    std::array<char, 65536> buffer;
    size = transport.Receive(buffer.data(), buffer.size());
    if (size == 0) break;
    if (size > 0) {
      text->append(buffer.data(), size);
    } else if (!WaitFor(socket, transport, end, error)) {
      return false;
    }
  }
  return true;
}

// `again`: after how long to ask again. Negative: the server does not say.
bool Parse(const std::string& text, HttpAnswer* answer, std::chrono::seconds* again,
           std::string* error) {
  const std::size_t head_end = text.find("\r\n\r\n");
  const std::string_view status_line = std::string_view(text).substr(0, text.find("\r\n"));
  if (head_end == text.npos || !absl::StartsWith(status_line, "HTTP/1.") ||
      !absl::SimpleAtoi(status_line.substr(std::min<std::size_t>(9, status_line.size()), 3),
                        &answer->status)) {
    *error = "the answer is not HTTP";
    return false;
  }
  const std::string head = absl::AsciiStrToLower(std::string_view(text).substr(0, head_end));
  answer->body = text.substr(head_end + 4);
  // A truncated page must not pass for a whole one.
  std::size_t length = 0;
  if (absl::SimpleAtoi(Header(head, "content-length"), &length) && answer->body.size() < length) {
    *error = "the answer ended too early";
    return false;
  }
  if (Header(head, "content-encoding") == "gzip") {
    std::optional<std::string> unpacked = GunzipAtMost(answer->body, kMostBytes);
    if (!unpacked.has_value()) {
      *error = "the answer cannot be unpacked";
      return false;
    }
    answer->body = *std::move(unpacked);
  }
  answer->age = Seconds(Header(head, "age"), std::chrono::seconds(0));
  *again = answer->status == 503 ? Seconds(Header(head, "retry-after"), kNotSaid) : kNotSaid;
  return true;
}

}  // namespace

bool HttpGet(std::string_view endpoint, std::string_view path, std::chrono::milliseconds patience,
             HttpAnswer* answer, std::string* error, const HttpAccess& access) {
  const Time end = std::chrono::steady_clock::now() + patience;
  for (bool is_first = true;; is_first = false) {
    std::string host;
    const std::unique_ptr<Socket> socket = ConnectTo(endpoint, end, &host, error);
    if (socket == nullptr) return false;
    std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", host,
                                       "\r\nAccept-Encoding: gzip\r\nConnection: close\r\n");
    if (!access.authorization.empty()) {
      absl::StrAppend(&request, "Authorization: ", access.authorization, "\r\n");
    }
    request += "\r\n";
    const std::unique_ptr<Transport> transport =
        access.secure ? access.secure(socket->fd(), host)
                      : std::make_unique<PlainTransport>(socket->fd());
    std::string text;
    std::chrono::seconds again = kNotSaid;
    if (!Ask(*socket, *transport, request, end, &text, error) ||
        !Parse(text, answer, &again, error)) {
      return false;
    }
    if (!is_first || again == kNotSaid || std::chrono::steady_clock::now() + again >= end) {
      return true;
    }
    std::this_thread::sleep_for(again);
  }
}

}  // namespace nccl_pulse
