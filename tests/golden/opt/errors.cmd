$ telegrad-opt --passes=algebra,nonsense tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: there is no pass "nonsense"; see --list
[exit 2]
$ telegrad-opt --nonsense
[stderr]
telegrad-opt: unknown flag --nonsense; see --help
[exit 2]
$ telegrad-opt --node=%3 tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: --node: needs --explain
[exit 2]
$ telegrad-opt --explain=nonsense tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: there is no rule table "nonsense", expected one of algebra, divmod, decompositions, mulacc, strength
[exit 1]
$ telegrad-opt --explain=mulacc --node=%99 tests/golden/opt/multiply_add.uop
[stderr]
telegrad-opt: there is no node %99, the last is %16
[exit 1]
$ telegrad-opt --piece=2 tests/golden/opt/two_programs.uop
--- second(slot1, temporary0): copies
program second iterations=1 flops=0 bytes=32 arguments=[f32 4 write, f32 4 read]
%0 = param f32 [4] slot=0
%1 = param f32 [4] slot=1
%2 = iota i64 [4]
%3 = index f32 [4] %1 %2
%4 = load f32 [4] %3
%5 = index f32 [4] %0 %2
%6 = store %5 %4
$ telegrad-opt --passes=schedule tests/golden/opt/multiply_add.uop
[stderr]
telegrad-opt: schedule: works on graphs of the level tensor, got a graph of the level kernel
[exit 1]
$ telegrad-opt --passes=lower tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: decompose: works on graphs of the level kernel, got a graph of the level tensor
[exit 1]
$ telegrad-opt --threads=0
[stderr]
telegrad-opt: --threads: 0 is not within 1 to 65536
[exit 2]
$ telegrad-opt --tolerance=much
[stderr]
telegrad-opt: --tolerance: "much" is not a number of at least 0
[exit 2]
$ telegrad-opt tests/golden/opt/nowhere.uop
[stderr]
telegrad-opt: cannot open tests/golden/opt/nowhere.uop
[exit 1]
