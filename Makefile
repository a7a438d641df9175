# One line each: what is worth doing is done by cargo or by a script that can be run without make.

.PHONY: demo test torture bench lint servers setup

demo: setup     ## moves money between two databases, kills everything, recovers
	cargo run --quiet --features cli -- demo

test: setup     ## every test, on every server that is there
	scripts/test

torture: setup  ## every attack there is, in every case, on every server; writes docs/torture.md
	scripts/torture

bench: setup    ## the benchmarks, on real servers
	cargo bench -p integration-tests --bench two_databases
	cargo test --release -p integration-tests --test ten_thousand -- --ignored --nocapture --test-threads 1

lint:           ## formatting, clippy, documentation: no warning passes
	scripts/lint

servers: setup  ## throwaway servers with their URLs printed, until Ctrl-C
	cargo run --quiet --features cli -- servers

setup:
	scripts/setup
