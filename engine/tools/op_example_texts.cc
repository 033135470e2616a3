#include "engine/tools/op_example_texts.h"

namespace telegrad {

const std::string_view kTensorExamples = R"(
--- const
%0 = param f32 slot=0
%1 = const f32 0.5
%2 = store %0 %1
%3 = sink %2
--- param
%0 = param f32 [2, 3] slot=0
%1 = param f32 [2, 3] slot=1
%2 = store %0 %1
%3 = sink %2
--- iota
%0 = param i32 [4] slot=0
%1 = iota i32 [4]
%2 = store %0 %1
%3 = sink %2
--- var
%0 = param i64 slot=0
%1 = param i64 slot=1
%2 = var i64 %1 id=0 min=0 max=64 multiple=8
%3 = store %0 %2
%4 = sink %3
--- arg
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = arg f32 [4] slot=0
%3 = neg f32 [4] %2
%4 = tuple %3
%5 = call %4 %1
%6 = gettuple f32 [4] %5 n=0
%7 = store %0 %6
%8 = sink %7
--- reshape
%0 = param f32 [6] slot=0
%1 = param f32 [2, 3] slot=1
%2 = reshape f32 [6] %1
%3 = store %0 %2
%4 = sink %3
--- expand
%0 = param f32 [2, 3] slot=0
%1 = param f32 [2, 1] slot=1
%2 = expand f32 [2, 3] %1
%3 = store %0 %2
%4 = sink %3
--- permute
%0 = param f32 [3, 2] slot=0
%1 = param f32 [2, 3] slot=1
%2 = permute f32 [3, 2] %1 axes=[1, 0]
%3 = store %0 %2
%4 = sink %3
--- flip
%0 = param f32 [2, 3] slot=0
%1 = param f32 [2, 3] slot=1
%2 = flip f32 [2, 3] %1 axes=[1]
%3 = store %0 %2
%4 = sink %3
--- pad
%0 = param f32 [6] slot=0
%1 = param f32 [3] slot=1
%2 = pad f32 [6] %1 pairs=[1, 6]
%3 = store %0 %2
%4 = sink %3
--- shrink
%0 = param f32 [2] slot=0
%1 = param f32 [6] slot=1
%2 = shrink f32 [2] %1 pairs=[3, 2]
%3 = store %0 %2
%4 = sink %3
--- cat
%0 = param f32 [5] slot=0
%1 = param f32 [2] slot=1
%2 = param f32 [3] slot=2
%3 = cat f32 [5] %1 %2 axes=[0]
%4 = store %0 %3
%5 = sink %4
--- reduce
%0 = param f32 [2, 1] slot=0
%1 = param f32 [2, 3] slot=1
%2 = reduce f32 [2, 1] %1 kind=add axes=[1]
%3 = store %0 %2
%4 = sink %3
--- gather
%0 = param f32 [4, 3] slot=0
%1 = param f32 [8, 3] slot=1
%2 = param i32 [4] slot=2
%3 = gather f32 [4, 3] %1 %2
%4 = store %0 %3
%5 = sink %4
--- scatter
%0 = param f32 [8, 3] slot=0
%1 = param f32 [8, 3] slot=1
%2 = param i32 [4] slot=2
%3 = param f32 [4, 3] slot=3
%4 = scatter f32 [8, 3] %1 %2 %3 kind=add
%5 = store %0 %4
%6 = sink %5
--- store
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = store %0 %1
%3 = sink %2
--- after
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = store %0 %1
%3 = after f32 [4] %0 %2
%4 = param f32 [4] slot=2
%5 = store %4 %3
%6 = sink %5
--- sink
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = store %0 %1
%3 = sink %2
--- contiguous
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = contiguous f32 [4] %1
%3 = store %0 %2
%4 = sink %3
--- detach
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = detach f32 [4] %1
%3 = store %0 %2
%4 = sink %3
--- tuple
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = tuple %1
%3 = gettuple f32 [4] %2 n=0
%4 = store %0 %3
%5 = sink %4
--- call
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = arg f32 [4] slot=0
%3 = neg f32 [4] %2
%4 = tuple %3
%5 = call %4 %1
%6 = gettuple f32 [4] %5 n=0
%7 = store %0 %6
%8 = sink %7
--- loop
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = arg f32 [4] slot=1
%3 = neg f32 [4] %2
%4 = tuple %3
%5 = const i64 3
%6 = loop %4 %5 %1
%7 = gettuple f32 [4] %6 n=0
%8 = store %0 %7
%9 = sink %8
--- gettuple
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = tuple %1
%3 = gettuple f32 [4] %2 n=0
%4 = store %0 %3
%5 = sink %4
--- copy
%0 = param f32 [4] slot=0 device=1
%1 = param f32 [4] slot=1
%2 = copy f32 [4] %1 devices=[1]
%3 = store %0 %2
%4 = sink %3
--- mstack
%0 = param f32 [4] slot=0 device=1
%1 = param f32 [4] slot=1
%2 = param f32 [4] slot=2 device=1
%3 = mstack f32 [4] %1 %2
%4 = mselect f32 [4] %3 n=1
%5 = store %0 %4
%6 = sink %5
--- mselect
%0 = param f32 [4] slot=0 device=1
%1 = param f32 [4] slot=1
%2 = param f32 [4] slot=2 device=1
%3 = mstack f32 [4] %1 %2
%4 = mselect f32 [4] %3 n=1
%5 = store %0 %4
%6 = sink %5
--- allreduce
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = param f32 [4] slot=2 device=1
%3 = mstack f32 [4] %1 %2
%4 = allreduce f32 [4] %3 kind=add
%5 = mselect f32 [4] %4 n=0
%6 = store %0 %5
%7 = sink %6
--- unshard
%0 = param f32 [8] slot=0
%1 = param f32 [4] slot=1
%2 = param f32 [4] slot=2 device=1
%3 = mstack f32 [4] %1 %2
%4 = unshard f32 [8] %3 axes=[0]
%5 = mselect f32 [8] %4 n=0
%6 = store %0 %5
%7 = sink %6
)";

const std::string_view kProgramExamples = R"(
--- const__param__index__store
program constant iterations=1 flops=0 bytes=4 arguments=[f32 1 write]
%0 = param f32 [1] slot=0
%1 = const i64 0
%2 = index f32 %0 %1
%3 = const f32 0.5
%4 = store %2 %3
--- load__iota__reduce__reshape__expand
program lanes iterations=1 flops=4 bytes=32 arguments=[f32 4 write, f32 4 read]
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = iota i64 [4]
%3 = index f32 [4] %1 %2
%4 = load f32 [4] %3
%5 = reduce f32 [1] %4 kind=add axes=[0]
%6 = reshape f32 %5
%7 = expand f32 [4] %5
%8 = add f32 [4] %7 %6
%9 = index f32 [4] %0 %2
%10 = store %9 %8
--- buffer__after__range__end
program sum iterations=1 flops=4 bytes=20 arguments=[f32 1 write, f32 4 read]
%0 = param f32 [1] slot=0
%1 = param f32 [4] slot=1
%2 = const i64 0
%3 = const f32 0
%4 = const i64 4
%5 = buffer f32 [1] space=register slot=0
%6 = index f32 %5 %2
%7 = store %6 %3
%8 = range i64 %4 id=0 type=reduce
%9 = index f32 %1 %8
%10 = load f32 %9
%11 = after f32 [1] %5 %7 %8
%12 = index f32 %11 %2
%13 = load f32 %12
%14 = add f32 %13 %10
%15 = store %12 %14
%16 = end %8
%17 = after f32 [1] %5 %16
%18 = index f32 %17 %2
%19 = load f32 %18
%20 = index f32 %0 %2
%21 = store %20 %19
--- var
program variable iterations=1 flops=0 bytes=8 arguments=[i64 1 write]
%0 = param i64 [1] slot=0
%1 = var i64 id=0 min=0 max=0 multiple=1
%2 = index i64 %0 %1
%3 = store %2 %1
--- role__barrier__mbarrier__arrive__wait_phase__shuffle
program threads iterations=1 flops=0 bytes=256 warp=32 arguments=[f32 32 write, f32 32 read]
%0 = const i64 1
%1 = const i64 32
%2 = range i64 %0 id=0 type=group
%3 = range i64 %1 id=1 type=warp
%4 = param f32 [32] slot=0
%5 = param f32 [32] slot=1
%6 = mbarrier i64 [1] slot=0 arrivals=32
%7 = const i64 0
%8 = index i64 %6 %7
%9 = role first=0 count=1
%10 = arrive %8 n=0
%11 = end %9
%12 = wait_phase %8 %7
%13 = index f32 %5 %3
%14 = load f32 %13
%15 = shuffle f32 %14 %7
%16 = barrier scope=workgroup
%17 = index f32 %4 %3
%18 = store %17 %15
%19 = end %3
%20 = end %2
--- copy_async__wait
program copy iterations=1 flops=0 bytes=32 arguments=[f32 4 write, f32 4 read]
%0 = const i64 1
%1 = range i64 %0 id=0 type=group
%2 = range i64 %0 id=1 type=local
%3 = param f32 [4] slot=0
%4 = param f32 [4] slot=1
%5 = buffer f32 [4] space=local slot=0
%6 = const i64 0
%7 = index f32 %5 %6
%8 = index f32 %4 %6
%9 = copy_async %7 %8 rows=1 columns=4 to_stride=4 from_stride=4
%10 = wait %9 n=0
%11 = after f32 [4] %5 %10
%12 = iota i64 [4]
%13 = index f32 [4] %11 %12
%14 = load f32 [4] %13
%15 = index f32 [4] %3 %12
%16 = store %15 %14
%17 = end %2
%18 = end %1
--- mma
program product iterations=1 flops=4096 bytes=1280 warp=32 arguments=[f32 128 write, f16 256 read, f16 128 read]
%0 = const i64 1
%1 = const i64 32
%2 = range i64 %0 id=0 type=group
%3 = range i64 %1 id=1 type=warp
%4 = param f32 [128] slot=0
%5 = param f16 [256] slot=1
%6 = param f16 [128] slot=2
%7 = const i64 8
%8 = const i64 4
%9 = mul i64 %3 %7
%10 = mul i64 %3 %8
%11 = iota i64 [8]
%12 = iota i64 [4]
%13 = add i64 [8] %9 %11
%14 = add i64 [4] %10 %12
%15 = index f16 [8] %5 %13
%16 = load f16 [8] %15
%17 = index f16 [4] %6 %14
%18 = load f16 [4] %17
%19 = const f32 0
%20 = reshape f32 [1] %19
%21 = expand f32 [4] %20
%22 = mma f32 [4] %16 %18 %21 kind=sm80_m16n8k16_f16 a_stride=0 b_stride=0
%23 = index f32 [4] %4 %14
%24 = store %23 %22
%25 = end %3
%26 = end %2
--- load_matrix
program matrices iterations=1 flops=0 bytes=1024 warp=32 arguments=[f16 256 read, f16 256 write]
%0 = const i64 1
%1 = const i64 32
%2 = range i64 %0 id=0 type=group
%3 = range i64 %1 id=1 type=warp
%4 = param f16 [256] slot=0
%5 = param f16 [256] slot=1
%6 = buffer f16 [256] space=local slot=0
%7 = const i64 8
%8 = iota i64 [8]
%9 = mul i64 %3 %7
%10 = add i64 [8] %9 %8
%11 = index f16 [8] %4 %10
%12 = load f16 [8] %11
%13 = index f16 [8] %6 %10
%14 = store %13 %12
%15 = barrier %14 scope=warp
%16 = after f16 [256] %6 %15
%17 = index f16 %16 %9
%18 = load_matrix f16 [8] %17 count=4 transposed=0
%19 = index f16 [8] %5 %10
%20 = store %19 %18
%21 = end %3
%22 = end %2
--- mma_async
program product iterations=1 flops=131072 bytes=16384 warp=32 arguments=[f32 4096 write]
%0 = const i64 1
%1 = const i64 4
%2 = const i64 32
%3 = range i64 %0 id=0 type=group
%4 = range i64 %1 id=1 type=local
%5 = range i64 %2 id=2 type=warp
%6 = param f32 [4096] slot=0
%7 = buffer f16 [1024] space=local slot=0
%8 = buffer f16 [1024] space=local slot=1
%9 = buffer f32 [32] space=register slot=2
%10 = mul i64 %4 %2
%11 = add i64 %10 %5
%12 = const i64 8
%13 = mul i64 %11 %12
%14 = iota i64 [8]
%15 = add i64 [8] %13 %14
%16 = const f32 1
%42 = cast f16 %16
%17 = index f16 [8] %7 %15
%18 = store %17 %42
%19 = index f16 [8] %8 %15
%20 = store %19 %42
%21 = const i64 0
%22 = const f32 0
%23 = iota i64 [32]
%24 = index f32 [32] %9 %23
%25 = store %24 %22
%26 = barrier scope=workgroup
%27 = index f16 %7 %21
%28 = index f16 %8 %21
%30 = mma_async %27 %28 %24 kind=sm90_m64n64k16_f16 a_stride=16 b_stride=64
%31 = wait %30 n=0
%32 = after f32 [32] %9 %31
%33 = index f32 [32] %32 %23
%34 = load f32 [32] %33
%35 = mul i64 %11 %2
%36 = add i64 [32] %35 %23
%37 = index f32 [32] %6 %36
%38 = store %37 %34
%39 = end %5
%40 = end %4
%41 = end %3
)";

}  // namespace telegrad
