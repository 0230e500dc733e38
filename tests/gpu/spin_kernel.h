// A GPU kernel that does not end: one thread that looks at a flag in the host's memory.
//
// PTX, so that neither a compiler nor the architecture needs to be known when this is built; the
// driver translates it (Turing and newer). It gives up after a time, so that the GPU always comes
// back.
#ifndef TESTS_GPU_SPIN_KERNEL_H_
#define TESTS_GPU_SPIN_KERNEL_H_

namespace nccl_pulse {

// spin(flag, limit_ns): until flag[0] (32 bits) is not 0, or limit_ns have passed on the GPU's
// clock. Where it has to wait it sets flag[1] to 1.
inline constexpr char kSpinPtx[] = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry spin(.param .u64 flag, .param .u64 limit_ns)
{
  .reg .pred %again;
  .reg .b32 %value;
  .reg .b64 %address;
  .reg .b64 %limit;
  .reg .b64 %begin;
  .reg .b64 %now;

  ld.param.u64 %address, [flag];
  ld.param.u64 %limit, [limit_ns];
  cvta.to.global.u64 %address, %address;
  mov.u64 %begin, %globaltimer;
look:
  ld.volatile.global.u32 %value, [%address];
  setp.ne.u32 %again, %value, 0;
  @%again bra done;
  st.volatile.global.u32 [%address+4], 1;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %again, %now, %limit;
  @%again bra look;
done:
  ret;
}
)";

}  // namespace nccl_pulse

#endif  // TESTS_GPU_SPIN_KERNEL_H_
