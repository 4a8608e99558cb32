"""Python files up to the middle of a function, written for this."""

FILES = [
    '''"""A small ledger: accounts, transfers between them, and a monthly statement."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path


@dataclass(frozen=True)
class Transfer:
    day: date
    source: str
    target: str
    amount: Decimal
    note: str = ""


@dataclass
class Account:
    name: str
    balance: Decimal = Decimal(0)
    history: list[Transfer] = field(default_factory=list)

    def apply(self, transfer: Transfer) -> None:
        sign = 1 if transfer.target == self.name else -1
        self.balance += sign * transfer.amount
        self.history.append(transfer)


class Ledger:
    def __init__(self):
        self.accounts: dict[str, Account] = {}

    def open(self, name: str) -> Account:
        if name in self.accounts:
            raise ValueError(f"account {name!r} exists already")
        self.accounts[name] = Account(name)
        return self.accounts[name]

    def transfer(self, day: date, source: str, target: str, amount: Decimal, note: str = "") -> None:
        """Moves money from one account to another. Both must exist, and the amount must be positive."""
''',
    '''import heapq
from collections import defaultdict


class Graph:
    """A directed graph with weights on its edges."""

    def __init__(self):
        self.edges = defaultdict(dict)

    def add_edge(self, u, v, weight=1.0):
        if weight < 0:
            raise ValueError("weights must not be negative")
        self.edges[u][v] = weight
        self.edges.setdefault(v, {})

    def neighbours(self, u):
        return self.edges[u].items()

    def breadth_first(self, start):
        seen, queue = {start}, [start]
        for u in queue:
            yield u
            for v, _ in self.neighbours(u):
                if v not in seen:
                    seen.add(v)
                    queue.append(v)

    def shortest_path(self, start, goal):
        """Dijkstra's algorithm. Returns the list of nodes and its length, or None if there is no path."""
        distance = {start: 0.0}
''',
    '''"""Reads log files of a web server and counts what happened."""

import argparse
import gzip
import re
import sys
from collections import Counter
from datetime import datetime

LINE = re.compile(
    r'(?P<host>\\S+) \\S+ (?P<user>\\S+) \\[(?P<time>[^\\]]+)\\] '
    r'"(?P<method>[A-Z]+) (?P<path>\\S+) [^"]*" (?P<status>\\d{3}) (?P<size>\\d+|-)'
)


def open_log(path):
    """Opens a plain or a gzipped file as text."""
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def parse(line):
    match = LINE.match(line)
    if match is None:
        return None
    entry = match.groupdict()
    entry["status"] = int(entry["status"])
    entry["size"] = 0 if entry["size"] == "-" else int(entry["size"])
    entry["time"] = datetime.strptime(entry["time"], "%d/%b/%Y:%H:%M:%S %z")
    return entry


def summarize(paths, top=10):
    """Prints the most requested paths, the hosts with most errors, and the bytes sent per day."""
''',
    '''import numpy as np


class KMeans:
    """Lloyd's algorithm with k-means++ seeding."""

    def __init__(self, n_clusters=8, max_iter=100, tol=1e-4, seed=None):
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.tol = tol
        self.rng = np.random.default_rng(seed)

    def _seed(self, X):
        centers = [X[self.rng.integers(len(X))]]
        while len(centers) < self.n_clusters:
            distances = self._distances(X, np.array(centers)).min(axis=1)
            probabilities = distances / distances.sum()
            centers.append(X[self.rng.choice(len(X), p=probabilities)])
        return np.array(centers)

    @staticmethod
    def _distances(X, centers):
        return ((X[:, None, :] - centers[None, :, :]) ** 2).sum(axis=-1)

    def fit(self, X):
''',
    '''import json
import threading
import time
from pathlib import Path


class CacheEntry:
    def __init__(self, value, expires_at):
        self.value = value
        self.expires_at = expires_at

    def is_expired(self, now):
        return self.expires_at is not None and now >= self.expires_at


class Cache:
    """A thread-safe cache in memory that can be stored in a file.

    Entries live for `ttl` seconds; the one that was used least recently goes when there are more than `capacity`.
    """

    def __init__(self, capacity=1000, ttl=None, clock=time.monotonic):
        self.capacity = capacity
        self.ttl = ttl
        self.clock = clock
        self.lock = threading.Lock()
        self.entries = {}
        self.hits = 0
        self.misses = 0

    def set(self, key, value):
        with self.lock:
            self.entries.pop(key, None)
            expires_at = None if self.ttl is None else self.clock() + self.ttl
            self.entries[key] = CacheEntry(value, expires_at)
            while len(self.entries) > self.capacity:
                self.entries.pop(next(iter(self.entries)))

    def get(self, key, default=None):
        with self.lock:
''',
    """import unittest
from textwrap import dedent

from template import Template, TemplateError


class TemplateTest(unittest.TestCase):
    def render(self, source, **values):
        return Template(dedent(source).strip()).render(values)

    def test_plain_text_stays_as_it_is(self):
        self.assertEqual(self.render("Hello, world"), "Hello, world")

    def test_a_name_is_replaced_by_its_value(self):
        self.assertEqual(self.render("Hello, {{ name }}", name="Ada"), "Hello, Ada")

    def test_an_unknown_name_is_an_error(self):
        with self.assertRaises(TemplateError) as caught:
            self.render("{{ nobody }}")
        self.assertIn("nobody", str(caught.exception))

    def test_values_are_escaped(self):
        self.assertEqual(self.render("{{ text }}", text="<b>"), "&lt;b&gt;")

    def test_a_loop_repeats_its_body(self):
""",
]
