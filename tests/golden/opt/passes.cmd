$ telegrad-opt --passes=algebra tests/golden/opt/row_sum.uop
%0 = param f32 [2, 1] slot=1
%1 = param f32 [2, 3] slot=0
%2 = reduce f32 [2, 1] %1 kind=add axes=[1]
%3 = store %0 %2
%4 = sink %3
$ telegrad-opt --passes=algebra,schedule tests/golden/opt/row_sum.uop
--- kernel0(slot1, slot0): writes slot 1
%0 = param f32 [2] slot=0
%1 = const i64 2
%2 = range i64 %1 id=0 type=loop
%3 = index f32 %0 %2
%4 = param f32 [6] slot=1
%5 = const i64 3
%6 = mul i64 %2 %5
%7 = range i64 %5 id=1 type=reduce
%8 = add i64 %6 %7
%9 = index f32 %4 %8
%10 = load f32 %9
%11 = reduce f32 %10 %7 kind=add axes=[]
%12 = store %3 %11
%13 = end %12 %2
%14 = sink %13
$ telegrad-opt --passes=mulacc,strength tests/golden/opt/multiply_add.uop
%0 = param f32 [16] slot=0
%1 = const i64 16
%2 = range i64 %1 id=0 type=loop
%3 = index f32 %0 %2
%4 = param f32 [16] slot=1
%5 = index f32 %4 %2
%6 = load f32 %5
%7 = param f32 [2] slot=2
%8 = const i64 3
%9 = shr i64 %2 %8
%10 = index f32 %7 %9
%11 = load f32 %10
%12 = mulacc f32 %6 %11 %6
%13 = store %3 %12
%14 = end %13 %2
%15 = sink %14
$ telegrad-opt --passes=mulacc --dump-after=- tests/golden/opt/multiply_add.uop
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
# after mulacc
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
$ telegrad-opt --passes=prove,canonicalize --piece=1 tests/golden/opt/two_programs.uop
[stderr]
telegrad-opt: canonicalize: works on graphs of the level tensor|kernel|program, got a program of the level program
[exit 1]
$ telegrad-opt --passes=prove tests/golden/opt/two_programs.uop
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
$ telegrad-opt --passes=schedule --disable=collapse tests/golden/opt/arange.uop
--- kernel0(slot0): writes slot 0
%0 = param i32 [6] slot=0
%1 = const i64 6
%2 = range i64 %1 id=0 type=loop
%3 = index i32 %0 %2
%4 = const i64 4
%5 = range i64 %1 id=1 type=reduce
%6 = add i64 %2 %5
%7 = cmplt bool %4 %6
%8 = const i32 3
%9 = const i32 0
%10 = where i32 %7 %8 %9
%11 = reduce i32 %10 %5 kind=add axes=[]
%12 = store %3 %11
%13 = end %12 %2
%14 = sink %13
