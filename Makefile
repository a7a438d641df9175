# One line each: what is worth doing is done by cargo or by a script that can be run without make.

.PHONY: demo test torture soak bench lint servers setup

demo: setup     ## moves money between two databases, kills everything, recovers
	cargo run --quiet --features cli -- demo

test: setup     ## every test, on every server that is there
	scripts/test

torture:        ## every attack there is, in every case, on every server and on the newest; writes docs/torture.md
	scripts/setup --newest
	scripts/torture

# make soak SECONDS=1200 SEED=7 PAIR=postgres_mysql; each has a default
soak: setup     ## random work under random faults, on each pair of servers
	$(if $(SEED),HANDFAST_SEED=$(SEED)) HANDFAST_SOAK_SECONDS=$(or $(SECONDS),60) \
	cargo test -p integration-tests --all-features --test soak -- --nocapture --test-threads 1 $(PAIR)

bench: setup    ## the benchmarks, on real servers
	cargo bench -p integration-tests --bench two_databases
	cargo test --release -p integration-tests --test ten_thousand -- --ignored --nocapture --test-threads 1

lint:           ## formatting, clippy, documentation: no warning passes
	scripts/lint

servers: setup  ## throwaway servers with their URLs printed, until Ctrl-C
	cargo run --quiet --features cli -- servers

setup:
	scripts/setup
