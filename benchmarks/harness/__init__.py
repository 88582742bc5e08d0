"""Shared by the benchmarks: processes of contenders, rounds, tables, results, pictures."""
