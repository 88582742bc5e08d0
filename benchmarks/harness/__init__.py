"""Code shared by the benchmarks: contender processes, rounds, tables, results, pictures."""
