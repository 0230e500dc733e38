#include "plugin/cuda/work_reader.h"

#include "plugin/cuda/work_proof.h"

namespace nccl_pulse {

bool WorkMapping::Map(const CudaDriver& driver, const WorkDriver& work,
                      const WorkCandidate& candidate) {
  allocation_ = candidate.allocation;
  bytes_ = candidate.bytes;
  offset_ = candidate.offset;
  CudaAccess access;
  if (driver.context_get_device(&access.device) == kCudaSuccess &&
      work.reserve_addresses(&address_, bytes_, 0, 0, 0) == kCudaSuccess) {
    is_mapped_ = work.map(address_, bytes_, 0, allocation_, 0) == kCudaSuccess;
    if (is_mapped_ && work.set_access(address_, bytes_, &access, 1) == kCudaSuccess) return true;
  } else {
    address_ = 0;
  }
  Unmap(work);
  return false;
}

void WorkMapping::Unmap(const WorkDriver& work) {
  if (is_mapped_) work.unmap(address_, bytes_);
  if (address_ != 0) work.free_addresses(address_, bytes_);
  if (allocation_ != kCudaNoAllocation) work.release_allocation(allocation_);
  *this = {};
}

void WorkReader::Open(const CudaDriver& driver, const WorkDriver& work, CudaContext context,
                      uint64_t id) {
  driver_ = &driver;
  work_ = &work;
  context_ = context;
  id_ = id;
  is_failed_ = !Enter() || work.stream_create(&stream_, kCudaNonBlockingStream) != kCudaSuccess ||
               work.host_allocate(&memory_, kWorkBlockBytes, 0) != kCudaSuccess;
}

bool WorkReader::Enter() { return EnterContext(*driver_, context_, id_) == kCudaSuccess; }

WorkReader::Copy WorkReader::Fail() {
  is_failed_ = true;
  user_ = kNobody;
  return Copy::kFailed;
}

WorkReader::Copy WorkReader::Begin(uint32_t user, CudaAddress block, uint64_t now_ns) {
  if (is_failed_ || !Enter() ||
      work_->copy_to_host(memory_, block, kWorkBlockBytes, stream_) != kCudaSuccess) {
    return Fail();
  }
  user_ = user;
  begun_ns_ = now_ns;
  // A query takes about a microsecond.
  constexpr int kLooks = 50;
  Copy copy = Copy::kWaiting;
  for (int i = 0; i < kLooks && copy == Copy::kWaiting; ++i) copy = Look();
  return copy;
}

WorkReader::Copy WorkReader::Look() {
  const int result = Enter() ? work_->stream_query(stream_) : kCudaInvalidContext;
  if (result == kCudaNotReady) return Copy::kWaiting;
  if (result != kCudaSuccess) return Fail();
  user_ = kNobody;
  return Copy::kDone;
}

}  // namespace nccl_pulse
