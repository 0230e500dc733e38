#include "tests/exporter/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <utility>

namespace nccl_pulse {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr double kPatienceSeconds = 30;

double Now() { return duration<double>(steady_clock::now().time_since_epoch()).count(); }

// Appends what is there. False at the end of the stream, or when `deadline` has passed (->
// timed_out).
bool ReadSome(int fd, double deadline, std::string* text, bool* timed_out) {
  *timed_out = false;
  pollfd polled = {fd, POLLIN, 0};
  const double left = deadline - Now();
  if (left <= 0 || poll(&polled, 1, static_cast<int>(left * 1000) + 1) <= 0) {
    *timed_out = true;
    return false;
  }
  std::array<char, 65536> buffer;
  const ssize_t size = recv(fd, buffer.data(), buffer.size(), 0);
  if (size <= 0) return false;
  text->append(buffer.data(), static_cast<std::size_t>(size));
  return true;
}

}  // namespace

Client::Client() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

Client::Client(uint16_t port) : Client() { Connect(port); }

bool Client::Connect(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  return connected_;
}

Client::~Client() {
  if (fd_ >= 0) close(fd_);
}

Client::Client(Client&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}

bool Client::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

std::string Client::ReadAll(double seconds, bool* closed) {
  std::string text;
  bool timed_out = false;
  const double deadline = Now() + seconds;
  while (ReadSome(fd_, deadline, &text, &timed_out)) {
  }
  if (closed != nullptr) *closed = !timed_out;
  return text;
}

std::string Client::ReadResponse(bool head_only) {
  std::string text;
  bool timed_out = false;
  const double deadline = Now() + kPatienceSeconds;
  while (true) {
    const std::size_t head_end = text.find("\r\n\r\n");
    if (head_end != text.npos) {
      const std::size_t length = text.find("Content-Length: ");
      const std::size_t body = std::strtoull(text.c_str() + length + 16, nullptr, 10);
      if (text.size() >= head_end + 4 + (head_only ? 0 : body)) return text;
    }
    if (!ReadSome(fd_, deadline, &text, &timed_out)) return text;
  }
}

Response ParseResponse(const std::string& text) {
  Response response;
  const std::size_t head_end = text.find("\r\n\r\n");
  if (text.rfind("HTTP/1.1 ", 0) != 0 || head_end == text.npos) return response;
  response.status = std::atoi(text.c_str() + 9);
  response.head = text.substr(0, head_end + 2);
  response.body = text.substr(head_end + 4);
  return response;
}

Response Get(uint16_t port, std::string_view path, std::string_view method) {
  Client client(port);
  if (!client.connected()) return {};
  client.Send(std::string(method) + " " + std::string(path) +
              " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  return ParseResponse(client.ReadAll(kPatienceSeconds));
}

}  // namespace nccl_pulse
