$ telegrad-opt -p peel tests/golden/opt/concatenated.uop
%0 = param f32 [768] slot=0
%1 = const i64 16
%2 = range i64 %1 id=0 type=loop
%3 = const i64 48
%4 = mul i64 %2 %3
%5 = range i64 %3 id=1 type=loop
%6 = add i64 %4 %5
%7 = index f32 %0 %6
%8 = param f32 [320] slot=1
%9 = const i64 20
%10 = mul i64 %2 %9
%11 = range i64 %9 id=3 type=reduce
%12 = add i64 %10 %11
%13 = const bool true
%14 = index f32 %8 %12 %13
%15 = load f32 %14
%16 = param f32 [3072] slot=3
%17 = mul i64 %11 %3
%18 = add i64 %5 %17
%19 = index f32 %16 %18
%20 = load f32 %19
%21 = mul f32 %15 %20
%22 = reduce f32 %21 %11 kind=add axes=[]
%23 = param f32 [704] slot=2
%24 = const i64 44
%25 = mul i64 %2 %24
%26 = range i64 %24 id=4 type=reduce
%27 = add i64 %25 %26
%28 = index f32 %23 %27 %13
%29 = load f32 %28
%30 = mul i64 %26 %3
%31 = add i64 %5 %30
%32 = const i64 960
%33 = add i64 %31 %32
%34 = index f32 %16 %33
%35 = load f32 %34
%36 = mul f32 %29 %35
%37 = reduce f32 %36 %26 kind=add axes=[]
%38 = add f32 %22 %37
%39 = store %7 %38
%40 = end %39 %2 %5
%41 = sink %40
