"""The compiled loops of all groupings, and the hash functions that they share.

They are in one file because numba keeps compiled code until that file changes: a loop that used a function of another
file would keep the old form of it. Each loop's purpose is described by its grouping. All change their array arguments
in place, and write the chosen reducer of each record to the last one. In a part of consistent grouping, reducers are
virtual workers."""

import math
from functools import partial

import numpy as np
from numba import uint64

from dpa.routing.compiled import compiled

_SHIFT = np.uint64(32)
_FIRST, _SECOND, _THIRD = np.uint64(30), np.uint64(27), np.uint64(31)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ALL_HASHES = 2.0**32

MEMO = 2**14
"""Of PoRC: the number of keys whose position in their sequence is remembered; a power of 2."""

MAX_PROBES = 4
"""Of PoRC: probes for each reducer, after which the least loaded one is taken: nearly all have been looked at."""

CHANCE = 0.2
"""Of W-Choices by capacity: a reducer may be ahead of the least loaded by CHANCE times the square root of a reducer's
records, besides its slack: evening out differences that chance evens out by itself would cost copies."""

WIDEN, NARROW = 4.0, 0.5
"""Of W-Choices by capacity: by how much the part of a reducer's tail that may leave it grows after a record that found
it too far ahead, and shrinks after another, in units of 1 / a reducer's records."""

HEAD = 5
"""Of W-Choices: a key is hot if it has more than 1 / (HEAD n) of the records."""


@partial(compiled, signature="uint64(uint64, uint64)")
def salted(key, salt):  # type: ignore[no-untyped-def]
    """The hash of a key's 32-bit hash and a salt, in [0, 2**32): the finaliser of SplitMix64, which is a bijection of
    the pair before its upper half is taken."""
    mixed = (key << _SHIFT | salt) + _ODD
    mixed = (mixed ^ (mixed >> _FIRST)) * _A
    mixed = (mixed ^ (mixed >> _SECOND)) * _B
    return (mixed ^ (mixed >> _THIRD)) >> _SHIFT


@partial(compiled, signature="int64(uint64, uint64, uint64)")
def choice(key, salt, reducers):  # type: ignore[no-untyped-def]
    """The reducer of a key by its hash function number `salt`; number 0 is the hash itself, as key grouping has it. The
    others multiply and shift, which is several times as fast as division."""
    return key % reducers if salt == uint64(0) else salted(key, salt) * reducers >> _SHIFT


@compiled
def less_loaded_of_two(hashes, loads, owners):  # type: ignore[no-untyped-def]
    reducers = uint64(len(loads))
    for row in range(len(hashes)):
        key = uint64(hashes[row])
        first, second = choice(key, uint64(0), reducers), choice(key, uint64(1), reducers)
        chosen = first if loads[first] <= loads[second] else second
        loads[chosen] += 1
        owners[row] = chosen


@compiled
def both_choices(hashes, reducers, both):  # type: ignore[no-untyped-def]
    for row in range(len(hashes)):
        key = uint64(hashes[row])
        both[0, row] = choice(key, uint64(0), uint64(reducers))
        both[1, row] = choice(key, uint64(1), uint64(reducers))


@compiled
def _least_loaded(loads, counters):  # type: ignore[no-untyped-def]
    """A reducer of the least load. Loads only grow, so the search continues where it stopped."""
    looked_at = 0
    least, at = counters[1], counters[2]
    while loads[at] > least:
        at = (at + 1) % len(loads)
        looked_at += 1
        if looked_at == len(loads):
            least, looked_at = loads.min(), 0
    counters[1], counters[2] = least, at
    return at


@compiled
def first_with_room(hashes, epsilon, loads, counters, memo, owners):  # type: ignore[no-untyped-def]
    """`counters`: records so far, and the least load and the reducer at which the search for the least loaded stands.
    `memo`: of a key its hash, the capacity, and the number of salts that are known to lead to full reducers."""
    reducers = len(loads)
    for row in range(len(hashes)):
        counters[0] += 1
        capacity = math.ceil((1 + epsilon) * counters[0] / reducers)  # whole loads are below it just if below this
        key = hashes[row]
        chosen = choice(uint64(key), uint64(0), uint64(reducers))
        if loads[chosen] >= capacity:
            known = memo[key & (MEMO - 1)]
            salt = known[2] if known[0] == key and known[1] == capacity else 0
            while loads[chosen] >= capacity and salt < MAX_PROBES * reducers:
                salt += 1
                chosen = choice(uint64(key), uint64(salt), uint64(reducers))
            full = loads[chosen] >= capacity
            known[0], known[1], known[2] = key, capacity, salt if full else salt - 1
            if full:
                chosen = _least_loaded(loads, counters)
        loads[chosen] += 1
        owners[row] = chosen


@compiled
def first_reducer_with_room(hashes, epsilon, owners, counts, firsts, loads, sent, chosen):  # type: ignore[no-untyped-def]
    """`owners`: the reducer of each virtual worker; of each reducer, `counts`: the number of its virtual workers,
    `firsts`: one of them, `loads`."""
    virtual_workers = len(owners)
    for row in range(len(hashes)):
        sent[0] += 1
        capacity = (1 + epsilon) * sent[0] / virtual_workers
        salt, full = 0, True
        while full and salt <= MAX_PROBES * len(loads):
            found = choice(uint64(hashes[row]), uint64(salt), uint64(virtual_workers))
            reducer = owners[found]
            full = loads[reducer] >= capacity * counts[reducer]
            salt += 1
        if full:
            reducer = 0
            for other in range(len(loads)):
                if loads[other] * counts[reducer] < loads[reducer] * counts[other]:
                    reducer = other
            found = firsts[reducer]
        loads[reducer] += 1
        chosen[row] = found


@compiled
def count(sketch, key):  # type: ignore[no-untyped-def]
    """Returns the number of the key's counter."""
    counters, table, least, state = sketch
    mask = len(table) - 1
    entry = _home(key, mask)
    while table[entry] >= 0 and counters[table[entry], 0] != key:
        entry = (entry + 1) & mask
    counter = table[entry]
    if counter < 0:
        if state[0] < len(counters):
            counter = state[0]
            state[0] += 1
        else:
            counter = _least_counter(counters, least, state)
            counters[counter, 2] = counters[counter, 1]
            _forget(counters, table, counters[counter, 0])
            entry = _home(key, mask)
            while table[entry] >= 0:
                entry = (entry + 1) & mask
        counters[counter, 0] = key
        table[entry] = counter
    counters[counter, 1] += 1
    return counter


@compiled
def _least_counter(counters, least, state):  # type: ignore[no-untyped-def]
    """A counter of the least count. Counts only grow, so of those that had the least one when all were looked at, each
    is taken unless it has grown since; most of the many rare keys have it, so all are seldom looked at."""
    while True:
        while state[1] < state[2]:
            counter = least[state[1]]
            state[1] += 1
            if counters[counter, 1] == state[3]:
                return counter
        state[1], state[2], state[3] = 0, 0, counters[:, 1].min()
        for counter in range(len(counters)):
            if counters[counter, 1] == state[3]:
                least[state[2]] = counter
                state[2] += 1


@compiled
def _home(key, mask):  # type: ignore[no-untyped-def]
    return np.int64(salted(uint64(key), uint64(0))) & mask


@compiled
def _forget(counters, table, key):  # type: ignore[no-untyped-def]
    """Close the gap that the key leaves, so that a search for another does not end there."""
    mask = len(table) - 1
    gap = _home(key, mask)
    while counters[table[gap], 0] != key:
        gap = (gap + 1) & mask
    entry = (gap + 1) & mask
    while table[entry] >= 0:
        home = _home(counters[table[entry], 0], mask)
        if ((entry - home) & mask) >= ((entry - gap) & mask):
            table[gap] = table[entry]
            gap = entry
        entry = (entry + 1) & mask
    table[gap] = -1


@compiled
def rank_all(tree, ranks, loads, work):  # type: ignore[no-untyped-def]
    """Rank reducers by what their load would be with one record more: a tournament with reducers as leaves.
    `tree` and `ranks` have the winner of each match and its rank, the left one of equals; `tree[1]` wins over all."""
    leaves = len(tree) // 2
    for leaf in range(leaves):
        tree[leaves + leaf] = leaf
        ranks[leaves + leaf] = loads[leaf] + work[leaf] if leaf < len(loads) else np.inf
    for at in range(leaves - 1, 0, -1):
        winner = 2 * at if ranks[2 * at] <= ranks[2 * at + 1] else 2 * at + 1
        tree[at], ranks[at] = tree[winner], ranks[winner]


@compiled
def _add(tree, ranks, loads, work, chosen):  # type: ignore[no-untyped-def]
    """Add a record to a reducer. Matches above one that it does not change stay as they are."""
    loads[chosen] += work[chosen]
    at = len(tree) // 2 + chosen
    ranks[at] = loads[chosen] + work[chosen]
    while at > 1:
        at //= 2
        winner = 2 * at if ranks[2 * at] <= ranks[2 * at + 1] else 2 * at + 1
        if tree[at] == tree[winner] and ranks[at] == ranks[winner]:
            break
        tree[at], ranks[at] = tree[winner], ranks[winner]


@compiled
def _spills(key, reducer, slack, sent, loads, tree, reach):  # type: ignore[no-untyped-def]
    """Whether a tail key may leave its first reducer: only if that is ahead, and only keys whose hash number 2 lies
    below `reach`, always the same ones. The reach widens until the reducer no longer gets ahead.
    `sent`: records since capacities last changed."""
    each = sent / len(loads)
    allowed = max(slack * sent, CHANCE * math.sqrt(each))
    ahead = loads[reducer] - loads[tree[1]]
    if ahead > 2 * allowed:
        reach[reducer] = min(1.0, reach[reducer] + WIDEN / each)
    elif ahead < allowed:
        reach[reducer] = max(0.0, reach[reducer] - NARROW / each)
    return ahead > allowed and salted(key, uint64(2)) < reach[reducer] * _ALL_HASHES


@compiled
def head_or_tail(hashes, slack, reach, sent, loads, work, tree, ranks, slot_owners, sketch, owners):  # type: ignore[no-untyped-def]
    reducers, slots = len(loads), uint64(len(slot_owners))
    counters = sketch.counters
    for row in range(len(hashes)):
        sent[0] += 1
        key = uint64(hashes[row])
        counter = count(sketch, np.int64(key))
        chosen = slot_owners[choice(key, uint64(0), slots)]
        # The tail: what is certain of the key's count, without what may belong to others, is no hot key's.
        if (counters[counter, 1] - counters[counter, 2]) * HEAD * reducers <= sent[0]:
            second = slot_owners[choice(key, uint64(1), slots)]
            if loads[second] + work[second] < loads[chosen] + work[chosen] and (
                slack == 0 or _spills(key, chosen, slack, sent[0] - sent[1], loads, tree, reach)
            ):
                chosen = second
        else:  # the winner of all, unless the key's own reducer is as good
            chosen = tree[1] if ranks[1] < loads[chosen] + work[chosen] else chosen
        _add(tree, ranks, loads, work, chosen)
        owners[row] = chosen
