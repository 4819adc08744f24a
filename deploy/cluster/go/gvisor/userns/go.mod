module github.com/moby/sys/userns

go 1.26.0
