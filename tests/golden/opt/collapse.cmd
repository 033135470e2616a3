$ telegrad-opt --passes=collapse tests/golden/opt/arange.uop
%0 = param i32 [6] slot=0
%1 = iota i64 [6]
%2 = reshape i64 [6, 1] %1
%3 = const i64 1
%4 = add i64 [6, 1] %2 %3
%5 = cast i32 [6, 1] %4
%6 = const i32 3
%7 = mul i32 [6, 1] %5 %6
%8 = reshape i32 [6] %7
%9 = store %0 %8
%10 = sink %9
$ telegrad-opt --passes=collapse tests/golden/opt/masked_read.uop
%0 = param f32 [3, 4] slot=0
%1 = param f32 [5, 4] slot=2
%2 = param i32 [3] slot=1
%3 = reshape i32 [3, 1, 1] %2
%4 = cast i64 [3, 1, 1] %3
%5 = reshape i64 [3] %4
%6 = gather f32 [3, 4] %1 %5
%7 = reshape f32 [3, 1, 4] %6
%8 = const f32 0
%9 = add f32 [3, 1, 4] %7 %8
%10 = reshape f32 [3, 4] %9
%11 = store %0 %10
%12 = sink %11
$ telegrad-opt --passes=collapse tests/golden/opt/masked_write.uop
%0 = param f32 [5, 4] slot=0
%1 = const f32 0
%2 = reshape f32 [1, 1] %1
%3 = expand f32 [5, 4] %2
%4 = param i32 [9] slot=1
%5 = reshape i32 [9, 1, 1] %4
%6 = cast i64 [9, 1, 1] %5
%7 = reshape i64 [9] %6
%8 = param f32 [9, 4] slot=2
%9 = scatter f32 [5, 4] %3 %7 %8 kind=add
%10 = store %0 %9
%11 = sink %10
$ telegrad-opt --passes=collapse tests/golden/opt/masked_writes.uop
%0 = param f32 [5] slot=0
%1 = param f32 [5] slot=1
%2 = param i32 [8] slot=2
%3 = reshape i32 [1, 1, 8] %2
%4 = cast i64 [1, 1, 8] %3
%5 = reshape i64 [8] %4
%6 = param f32 [8] slot=3
%7 = scatter f32 [5] %1 %5 %6 kind=set
%8 = store %0 %7
%9 = sink %8
