"""What the benchmarks share: processes of contenders, rounds, tables, results, pictures."""
