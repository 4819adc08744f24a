module toolmesh.local/cluster/tools

go 1.26.0
