module toolmesh.dev/bench/loadgen

go 1.25
