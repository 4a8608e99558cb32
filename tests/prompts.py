"""Ten prompts of different kinds for the tests on the real model: the benchmarks' own, one of them exchanged for odd characters."""

from benchmarks.prompts import PROMPTS as KINDS

PROMPTS = [*KINDS[:8], "Naïve café — «¿qué tal?» 日本語 and 12345 digits:", KINDS[9]]
