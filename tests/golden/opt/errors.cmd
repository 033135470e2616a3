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
telegrad-opt: there is no rule table "nonsense", expected one of algebra, decompositions, divmod, emulated-arithmetic, emulated-casts, mulacc, strength
[exit 1]
$ telegrad-opt --explain=mulacc --node=%99 tests/golden/opt/multiply_add.uop
[stderr]
telegrad-opt: there is no node %99, the last is %16
[exit 1]
$ telegrad-opt --piece=2 tests/golden/opt/two_programs.uop
[stderr]
telegrad-opt: tests/golden/opt/two_programs.uop: there is no piece 2, the text has 2
[exit 1]
$ telegrad-opt --passes=schedule tests/golden/opt/multiply_add.uop
[stderr]
telegrad-opt: legalize: works on graphs of the level tensor, got a graph of the level kernel
[exit 1]
$ telegrad-opt --passes=lower tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: derive: works on graphs of the level kernel, got a graph of the level tensor
[exit 1]
$ telegrad-opt --threads=0
[stderr]
telegrad-opt: --threads: 0 is not from 1 to 65536
[exit 2]
$ telegrad-opt --vector-bytes=2
[stderr]
telegrad-opt: --vector-bytes: 2 is not from 4 to 65536
[exit 2]
$ telegrad-opt --tolerance=much
[stderr]
telegrad-opt: --tolerance: "much" is not a number of at least 0
[exit 2]
$ telegrad-opt tests/golden/opt/nowhere.uop
[stderr]
telegrad-opt: cannot open tests/golden/opt/nowhere.uop: No such file or directory
[exit 1]
$ telegrad-opt --piece=0 tests/golden/opt/errors.cmd
[stderr]
telegrad-opt: tests/golden/opt/errors.cmd: line 1: expected '%', got '$ telegrad-opt --passes='
[exit 1]
$ telegrad-opt --emit=wasm tests/golden/opt/two_programs.uop
[stderr]
telegrad-opt: --emit: "wasm" is not one of uop, llvm, c, object, ptx, asm
[exit 2]
$ telegrad-opt --emit=llvm tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: --emit: piece0 is not a program; run --passes=lower
[exit 1]
$ telegrad-opt --target=sm_81 tests/golden/opt/two_programs.uop
[stderr]
telegrad-opt: --target: "sm_81" is none of host, sm_80, sm_90a, the AMD processors, opencl, the other targets and no key; --help lists them
[exit 2]
$ telegrad-opt --emit=llvm tests/golden/opt/two_programs.uop
[stderr]
telegrad-opt: no LLVM rendering for the architecture any; expected one of x86-64, sm_80, sm_90a, gfx90a, gfx942, gfx1100, gfx1201
[exit 1]
$ telegrad-opt --trace=absent/page.html tests/golden/opt/row_sum.uop
[stderr]
telegrad-opt: cannot write absent/page.html: there is no folder absent/; make it, or name another file
[exit 1]
$ telegrad-opt --passes=schedule --disable=collapse,peel tests/golden/opt/arange.uop
[stderr]
telegrad-opt: --disable: "peel" is none of the passes that run
[exit 2]
$ telegrad-opt --passes=schedule --disable=kernels tests/golden/opt/arange.uop
[stderr]
telegrad-opt: --disable: kernels makes kernel of tensor, which the passes behind it need
[exit 2]
