// The compute kernel that runs beside collectives: multiply-adds in registers, for a given number
// of rounds.
//
// Written in PTX, so the build needs no CUDA compiler and need not know the GPU's architecture; the
// driver compiles it when it is loaded (Turing and newer). 16 registers: a block of 128 threads per
// multiprocessor keeps its arithmetic busy. It leaves room for NCCL's largest block (640 threads of
// 96 registers), which otherwise could only start between two compute kernels.
#ifndef BENCH_COLLECTIVE_OVERHEAD_COMPUTE_KERNEL_H_
#define BENCH_COLLECTIVE_OVERHEAD_COMPUTE_KERNEL_H_

namespace nccl_pulse::overhead {

inline constexpr unsigned kComputeThreads = 128;  // per block, one block per multiprocessor
inline constexpr unsigned kLayerBlocks = 64;      // per kernel that simulates a layer

// compute(results, rounds): each thread runs four chains of `rounds` multiply-adds that approach a
// fixed point, and stores their sum at its index in `results`.
inline constexpr char kComputePtx[] = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry compute(.param .u64 results, .param .u32 rounds)
{
  .reg .pred %more;
  .reg .f32 %value<4>;
  .reg .f32 %scale;
  .reg .f32 %offset;
  .reg .b32 %left;
  .reg .b32 %thread;
  .reg .b32 %block;
  .reg .b32 %size;
  .reg .b64 %address;
  .reg .b64 %place;

  mov.u32 %thread, %tid.x;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mad.lo.u32 %thread, %block, %size, %thread;
  cvt.rn.f32.u32 %value0, %thread;
  add.f32 %value1, %value0, 0f3F800000;
  add.f32 %value2, %value0, 0f40000000;
  add.f32 %value3, %value0, 0f40400000;
  mov.f32 %scale, 0f3F7FBE77;
  mov.f32 %offset, 0f3F000000;
  ld.param.u32 %left, [rounds];
again:
  fma.rn.f32 %value0, %value0, %scale, %offset;
  fma.rn.f32 %value1, %value1, %scale, %offset;
  fma.rn.f32 %value2, %value2, %scale, %offset;
  fma.rn.f32 %value3, %value3, %scale, %offset;
  sub.u32 %left, %left, 1;
  setp.ne.u32 %more, %left, 0;
  @%more bra again;
  add.f32 %value0, %value0, %value1;
  add.f32 %value2, %value2, %value3;
  add.f32 %value0, %value0, %value2;
  ld.param.u64 %address, [results];
  cvta.to.global.u64 %address, %address;
  mul.wide.u32 %place, %thread, 4;
  add.u64 %address, %address, %place;
  st.global.f32 [%address], %value0;
  ret;
}
)";

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_COMPUTE_KERNEL_H_
