$ telegrad-opt --passes=prove tests/golden/opt/race.uop
[stderr]
telegrad-opt: prove: node 8 (store) of argument 0: of shift is not proved to store to other elements than node 6 (load) of argument 0 touches in another iteration of node 1 (range, thread): threads may race; pairs that are not proved: 1
[exit 1]
$ telegrad-opt --passes=prove tests/golden/opt/race_local.uop
[stderr]
telegrad-opt: prove: node 8 (store) of local memory 0: of exchange is not proved to store to other elements than node 13 (load) of local memory 0 touches in another iteration of node 1 (range, local): threads may race; pairs that are not proved: 1
[exit 1]
