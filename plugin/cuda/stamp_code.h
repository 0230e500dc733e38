// The code of a stamp (graph_stamps.h), as PTX: building it needs no CUDA compiler. When it is
// loaded, the driver translates it for its GPU (Volta or newer).
//
//   stamp(slot, number)   passages[number] += 1, then one store of {passages, time} to `slot`
//
// The counter is in GPU memory, because an atomic add to host memory is a round trip over the bus,
// and several executables of one capture may pass at the same time. The GPU does not wait for the
// store of 16 bytes. If two executables pass within a fraction of a microsecond, the older store
// may arrive last; the count then reads one too low until the next passage.
#ifndef PLUGIN_CUDA_STAMP_CODE_H_
#define PLUGIN_CUDA_STAMP_CODE_H_

namespace nccl_pulse {

// Number of counters in `passages`, and of slots in a context.
inline constexpr int kStampSlots = 4096;

inline constexpr char kStampFunction[] = "nccl_pulse_stamp";
inline constexpr char kStampPtx[] = R"(
.version 6.3
.target sm_70
.address_size 64

.global .align 8 .u64 passages[4096];

.visible .entry nccl_pulse_stamp(.param .u64 slot, .param .u32 number)
{
  .reg .b32 %index;
  .reg .b64 %address;
  .reg .b64 %counter;
  .reg .b64 %count;
  .reg .b64 %now;

  ld.param.u64 %address, [slot];
  ld.param.u32 %index, [number];
  mov.u64 %counter, passages;
  mad.wide.u32 %counter, %index, 8, %counter;
  cvta.to.global.u64 %address, %address;
  atom.global.relaxed.gpu.add.u64 %count, [%counter], 1;
  add.u64 %count, %count, 1;
  mov.u64 %now, %globaltimer;
  st.global.v2.u64 [%address], {%count, %now};
  ret;
}
)";

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STAMP_CODE_H_
