// The kernel that fills placeholders: up to kCopies runs of bytes in one launch, the table of runs passed by value.
// It is what `nvcc -ptx -arch=compute_80` makes of the source below; the driver compiles it for the device when it is
// loaded.
//
// struct Segment { const char* source; char* target; unsigned long long bytes; };
// struct Table { Segment segments[64]; };
// extern "C" __global__ void __launch_bounds__(256) flambeau_copy(const __grid_constant__ Table table) {
//   const Segment s = table.segments[blockIdx.y];
//   const unsigned long long first = blockIdx.x * 256ull + threadIdx.x, step = gridDim.x * 256ull;
//   unsigned long long done = 0;
//   const unsigned long long both = (unsigned long long)s.source | (unsigned long long)s.target;
//   if (both % 16 == 0) {
//     const unsigned long long count = s.bytes / 16;
//     for (unsigned long long i = first; i < count; i += step) ((uint4*)s.target)[i] = ((const uint4*)s.source)[i];
//     done = count * 16;
//   } else if (both % 4 == 0) {
//     const unsigned long long count = s.bytes / 4;
//     for (unsigned long long i = first; i < count; i += step) ((unsigned*)s.target)[i] = ((const
//     unsigned*)s.source)[i]; done = count * 4;
//   }
//   for (unsigned long long i = done + first; i < s.bytes; i += step) s.target[i] = s.source[i];
// }
#pragma once

namespace flambeau {

constexpr int kCopies = 64;

inline constexpr char kCopyKernel[] = R"ptx(
.version 7.0
.target sm_80
.address_size 64
.visible .entry flambeau_copy(
 .param .align 8 .b8 flambeau_copy_param_0[1536]
)
.maxntid 256, 1, 1
{
 .reg .pred  %p<9>;
 .reg .b16  %rs<2>;
 .reg .b32  %r<14>;
 .reg .b64  %rd<46>;
 mov.b64  %rd25, flambeau_copy_param_0;
 mov.u32  %r1, %ctaid.y;
 mul.wide.u32  %rd27, %r1, 24;
 add.s64  %rd28, %rd25, %rd27;
 ld.param.u64  %rd1, [%rd28+16];
 mov.u32  %r2, %ctaid.x;
 mul.wide.u32  %rd29, %r2, 256;
 mov.u32  %r3, %tid.x;
 cvt.u64.u32  %rd30, %r3;
 add.s64  %rd2, %rd29, %rd30;
 mov.u32  %r4, %nctaid.x;
 mul.wide.u32  %rd3, %r4, 256;
 ld.param.u64  %rd4, [%rd28+8];
 ld.param.u64  %rd5, [%rd28];
 or.b64   %rd6, %rd4, %rd5;
 and.b64   %rd31, %rd6, 15;
 setp.eq.s64  %p1, %rd31, 0;
 @%p1 bra  $L__BB0_6;
 and.b64   %rd33, %rd6, 3;
 setp.ne.s64  %p2, %rd33, 0;
 mov.u64  %rd44, 0;
 @%p2 bra  $L__BB0_10;
 shr.u64  %rd7, %rd1, 2;
 setp.ge.u64  %p3, %rd2, %rd7;
 @%p3 bra  $L__BB0_5;
 cvta.to.global.u64  %rd8, %rd5;
 cvta.to.global.u64  %rd9, %rd4;
 mov.u64  %rd42, %rd2;
$L__BB0_4:
 shl.b64  %rd34, %rd42, 2;
 add.s64  %rd35, %rd8, %rd34;
 ld.global.u32  %r5, [%rd35];
 add.s64  %rd36, %rd9, %rd34;
 st.global.u32  [%rd36], %r5;
 add.s64  %rd42, %rd42, %rd3;
 setp.lt.u64  %p4, %rd42, %rd7;
 @%p4 bra  $L__BB0_4;
$L__BB0_5:
 and.b64   %rd44, %rd1, -4;
 bra.uni  $L__BB0_10;
$L__BB0_6:
 shr.u64  %rd13, %rd1, 4;
 setp.ge.u64  %p5, %rd2, %rd13;
 @%p5 bra  $L__BB0_9;
 cvta.to.global.u64  %rd14, %rd4;
 cvta.to.global.u64  %rd15, %rd5;
 mov.u64  %rd43, %rd2;
$L__BB0_8:
 shl.b64  %rd37, %rd43, 4;
 add.s64  %rd38, %rd15, %rd37;
 add.s64  %rd39, %rd14, %rd37;
 ld.global.v4.u32  {%r6, %r7, %r8, %r9}, [%rd38];
 st.global.v4.u32  [%rd39], {%r6, %r7, %r8, %r9};
 add.s64  %rd43, %rd43, %rd3;
 setp.lt.u64  %p6, %rd43, %rd13;
 @%p6 bra  $L__BB0_8;
$L__BB0_9:
 and.b64   %rd44, %rd1, -16;
$L__BB0_10:
 add.s64  %rd45, %rd44, %rd2;
 setp.ge.u64  %p7, %rd45, %rd1;
 @%p7 bra  $L__BB0_13;
 cvta.to.global.u64  %rd21, %rd5;
 cvta.to.global.u64  %rd22, %rd4;
$L__BB0_12:
 add.s64  %rd40, %rd21, %rd45;
 ld.global.u8  %rs1, [%rd40];
 add.s64  %rd41, %rd22, %rd45;
 st.global.u8  [%rd41], %rs1;
 add.s64  %rd45, %rd45, %rd3;
 setp.lt.u64  %p8, %rd45, %rd1;
 @%p8 bra  $L__BB0_12;
$L__BB0_13:
 ret;
}
)ptx";

}  // namespace flambeau
