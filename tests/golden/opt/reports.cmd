$ telegrad-opt --passes=mulacc --counts --times=false tests/golden/opt/multiply_add.uop
%0 = param f32 [16] slot=0
%1 = const i64 16
%2 = range i64 %1 id=0 type=loop
%3 = index f32 %0 %2
%4 = param f32 [16] slot=1
%5 = index f32 %4 %2
%6 = load f32 %5
%7 = param f32 [2] slot=2
%8 = const i64 8
%9 = floordiv i64 %2 %8
%10 = index f32 %7 %9
%11 = load f32 %10
%12 = mulacc f32 %6 %11 %6
%13 = store %3 %12
%14 = end %13 %2
%15 = sink %14
[stderr]
      hits     misses  rule
         1          0  engine/rules/decompositions.cc  (x * y) + z -> mulacc(x, y, z) on float
$ telegrad-opt --explain=mulacc tests/golden/opt/multiply_add.uop
%13 = add f32 %12 %6
  engine/rules/decompositions.cc  (x * y) + z -> mulacc(x, y, z) on float
      matches, giving %17 (mulacc)
$ telegrad-opt --explain=strength --node=%9 tests/golden/opt/multiply_add.uop
%9 = floordiv i64 %2 %8
  engine/rules/decompositions.cc  x / c0 -> computed on signed if (0 < c0) & ((c0 & (c0 - 1)) == 0)
      matches, giving %18 (shr)
  rows for other ops: 1
$ telegrad-opt --explain=mulacc --node=%12 tests/golden/opt/multiply_add.uop
%12 = mul f32 %6 %11
  engine/rules/decompositions.cc  (x * y) + z -> mulacc(x, y, z) on float
      expected (x * y) + z, found %12 (mul)
$ telegrad-opt --passes=algebra,schedule,lower --eval --seed=7 tests/golden/opt/row_sum.uop
--- kernel0(slot1, slot0): writes slot 1
# moves: PEEL r1 2, SEPARATE, VECTORIZE r2 2, THREAD r0, OUTER r0
program kernel0 iterations=2 flops=2 bytes=32 arguments=[f32 2 write, f32 6 read]
%0 = param f32 [2] slot=0
%1 = const i64 2
%2 = param f32 [6] slot=1
%3 = const i64 3
%4 = iota i64 [2]
%5 = range i64 %1 id=4 type=thread
%6 = index f32 %0 %5
%7 = mul i64 %5 %3
%8 = add i64 %7 %1
%9 = index f32 %2 %8
%10 = load f32 %9
%11 = add i64 [2] %7 %4
%12 = index f32 [2] %2 %11
%13 = load f32 [2] %12
%14 = reduce f32 [1] %13 kind=add axes=[0]
%15 = reshape f32 %14
%16 = add f32 %10 %15
%17 = store %6 %16
%18 = end %5
[stderr]
eval: after the input: run
eval: after algebra: equal
eval: after legalize: equal
eval: after collapse: equal
eval: after sign-masks: equal
eval: after mask-scores: equal
eval: after scores: equal
eval: after window-sums: equal
eval: after scale-sums: equal
eval: after byte-products: equal
eval: after round-products: equal
eval: after exchange-sums: equal
eval: after split-reductions: equal
eval: after channels-last: equal
eval: after store-shape: equal
eval: after kernels: kernels, not run
eval: after derive: kernels, not run
eval: after windows: kernels, not run
eval: after gated-indices: kernels, not run
eval: after limit: kernels, not run
eval: after online: kernels, not run
eval: after decompose: kernels, not run
eval: after separate-ranges: kernels, not run
eval: after order-sums: kernels, not run
eval: after split-ranges: kernels, not run
eval: after pieces: kernels, not run
eval: after merge-ranges: kernels, not run
eval: after peel: kernels, not run
eval: after moves: kernels, not run
eval: after stage: kernels, not run
eval: after share: kernels, not run
eval: after runtime-ends: kernels, not run
eval: after runtime-tails: kernels, not run
eval: after inner-loops: kernels, not run
eval: after expand: kernels, not run
eval: after gate: kernels, not run
eval: after narrow-indices: kernels, not run
eval: after linearize: equal
eval: after prove: equal
$ telegrad-opt --eval tests/golden/opt/two_programs.uop
--- first(temporary0, slot0): adds
program first iterations=1 flops=4 bytes=32 arguments=[f32 4 write, f32 4 read]
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = const f32 1
%3 = iota i64 [4]
%4 = index f32 [4] %1 %3
%5 = load f32 [4] %4
%6 = add f32 [4] %5 %2
%7 = index f32 [4] %0 %3
%8 = store %7 %6
--- second(slot1, temporary0): copies
program second iterations=1 flops=0 bytes=32 arguments=[f32 4 write, f32 4 read]
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = iota i64 [4]
%3 = index f32 [4] %1 %2
%4 = load f32 [4] %3
%5 = index f32 [4] %0 %2
%6 = store %5 %4
[stderr]
eval: after the input: run
