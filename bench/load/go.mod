module ottla/bench/load

go 1.21
