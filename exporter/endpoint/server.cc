#include "exporter/endpoint/server.h"

#include <utility>

#include "exporter/endpoint/server_thread.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

Server::Server(ServerThread* thread, uint16_t port, std::string address)
    : thread_(thread), port_(port), address_(std::move(address)) {}

std::unique_ptr<Server> Server::Start(ServerOptions options, std::string* error) {
  auto thread = std::make_unique<ServerThread>(std::move(options));
  if (!thread->Open(error)) return nullptr;
  const uint16_t port = thread->node().port();
  std::string address = thread->node().address();
  if (!thread->Start(error)) return nullptr;
  return std::unique_ptr<Server>(new Server(thread.release(), port, std::move(address)));
}

Server::~Server() { Stop(); }

void Server::Stop() {
  if (thread_ == nullptr) return;
  if (thread_->Stop()) delete thread_;
  thread_ = nullptr;
}

void Server::SayGoodbye() {
  if (thread_ != nullptr) thread_->SayGoodbye();
}

void Server::PrepareFork() { ForkGuard::Lock(); }
void Server::ParentAfterFork() { ForkGuard::Unlock(); }
void Server::ResetAfterFork() {
  ForkGuard::ResetInChild();
  SharedDescriptor::CloseAllInChild();
}

}  // namespace nccl_pulse
