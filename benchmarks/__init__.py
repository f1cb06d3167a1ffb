"""Speed and memory, run by asv: `asv run --config benchmarks/asv.conf.json --python=same --quick`."""
