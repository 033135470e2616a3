$ telegrad-opt --list-moves
VECTORIZE rN AMOUNT: the innermost iterations become lanes
UPCAST rN AMOUNT: iterations are computed together in registers
UNROLL rN AMOUNT: iterations of a reduction are written out
THREAD rN: workers share the iterations
OUTER rN: the loop is moved outside of the others so far
PEEL rN AMOUNT: the first iterations become a separate loop
LOCAL rN AMOUNT axis N: threads of a workgroup share the iterations
GROUP rN: what is left of the range becomes workgroups
TENSORCORE rN AMOUNT: iterations become those of a matrix instruction
STAGE rN AMOUNT [ring N]: a product's operands go through local memory
BLOCK rN AMOUNT: a reduction is computed in blocks, a loop in parts
SEPARATE: each reduction gets separate ranges
JOIN rN rM: two ranges become the second one of them
$ telegrad-opt --passes=schedule,lower --vector-bytes=16 tests/golden/opt/row_sum.uop
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
$ telegrad-opt --passes=schedule,lower --vector-bytes=16 --moves=none tests/golden/opt/row_sum.uop
--- kernel0(slot1, slot0): writes slot 1
program kernel0 iterations=1 flops=6 bytes=32 arguments=[f32 2 write, f32 6 read]
%0 = param f32 [2] slot=0
%1 = const i64 2
%2 = param f32 [6] slot=1
%3 = const i64 3
%4 = const i64 0
%5 = buffer f32 [1] space=register slot=0
%6 = const f32 0
%7 = range i64 %1 id=0 type=loop
%8 = index f32 %0 %7
%9 = mul i64 %7 %3
%10 = after f32 [1] %5 %7
%11 = index f32 %10 %4
%12 = store %11 %6
%13 = range i64 %3 id=1 type=reduce
%14 = add i64 %9 %13
%15 = index f32 %2 %14
%16 = load f32 %15
%17 = after f32 [1] %10 %12 %13
%18 = index f32 %17 %4
%19 = load f32 %18
%20 = add f32 %16 %19
%21 = store %18 %20
%22 = end %13
%23 = after f32 [1] %10 %22
%24 = index f32 %23 %4
%25 = load f32 %24
%26 = store %8 %25
%27 = end %7
$ telegrad-opt --passes=schedule,lower --moves=TURN tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: --moves: moves: "TURN": there is no such move; see telegrad-opt --list-moves
[exit 2]
$ telegrad-opt --passes=schedule,lower --moves=SEPARATE tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: peel: move SEPARATE: nothing was peeled
[exit 1]
$ telegrad-opt --search=1 --passes=schedule tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: --search: this program has no device to measure on
[exit 1]
$ telegrad-opt --passes=schedule,lower --target=invented tests/golden/opt/row_sum.uop
--- kernel0(slot1, slot0): writes slot 1
# moves: LOCAL r0 2 axis 0, GROUP r0
program kernel0 iterations=1 flops=6 bytes=32 warp=48 arguments=[f32 2 write, f32 6 read]
%0 = const i32 1
%1 = range i32 %0 id=3 type=group
%2 = const i32 2
%3 = range i32 %2 id=2 type=local
%4 = param f32 [2] slot=0
%5 = param f32 [6] slot=1
%6 = buffer f32 [1] space=register slot=0
%7 = const f32 0
%8 = const i32 3
%9 = const i32 0
%10 = index f32 %4 %3
%11 = mul i32 %3 %8
%12 = after f32 [1] %6 %3
%13 = index f32 %12 %9
%14 = store %13 %7
%15 = range i32 %8 id=1 type=reduce
%16 = add i32 %15 %11
%17 = index f32 %5 %16
%18 = load f32 %17
%19 = after f32 [1] %12 %14 %15
%20 = index f32 %19 %9
%21 = load f32 %20
%22 = add f32 %18 %21
%23 = store %20 %22
%24 = end %15
%25 = after f32 [1] %12 %24
%26 = index f32 %25 %9
%27 = load f32 %26
%28 = store %10 %27
%29 = end %3
%30 = end %1
$ telegrad-opt --passes=lower '--moves=UPCAST r1 2, THREAD r0, THREAD r1' tests/golden/opt/transposed.uop
# moves: UPCAST r1 2, THREAD r0, THREAD r1
program piece0 iterations=12 flops=0 bytes=192 arguments=[f32 24 write, f32 24 read]
%0 = param f32 [24] slot=0
%1 = const i64 4
%2 = param f32 [24] slot=1
%3 = const i64 3
%4 = const i64 2
%5 = const i64 8
%6 = const i64 12
%7 = const i64 1
%8 = range i64 %6 id=5 type=thread
%9 = floordiv i64 %8 %3
%10 = floormod i64 %8 %3
%11 = mul i64 %8 %4
%12 = mul i64 %10 %5
%13 = add i64 %9 %12
%14 = index f32 %2 %13
%15 = load f32 %14
%16 = index f32 %0 %11
%17 = store %16 %15
%18 = add i64 %13 %1
%19 = index f32 %2 %18
%20 = load f32 %19
%21 = add i64 %11 %7
%22 = index f32 %0 %21
%23 = store %22 %20
%24 = end %8
$ telegrad-opt --passes=lower '--moves=THREAD r0, THREAD r0' tests/golden/opt/transposed.uop
[stderr]
telegrad-opt: moves: move THREAD r0: workers share the range already
[exit 1]
