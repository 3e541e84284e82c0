#!/usr/bin/env python3
"""Every perf program, and perf/compare, accepts correct results, and detects damage by a preloaded library.

Usage: programs_test.py SPOILING_LIBRARY COMPARE BUILD PROGRAM...: all of the programs."""
import json
import os
import subprocess
import sys
import tempfile

LIBRARY, COMPARE, BUILD, *PROGRAMS = map(os.path.abspath, sys.argv[1:])
LONG_S = 100  # nothing here takes this long, on any machine
RANKS = 3
REDUCING = {'all_reduce', 'reduce_scatter', 'reduce', 'scan', 'exscan'}
PREFIXES = {'scan', 'exscan'}
ROOTED = {'broadcast', 'reduce', 'gather', 'scatter'}
BLOCKS = {'reduce_scatter', 'all_gather', 'gather', 'scatter', 'alltoall'}
TRANSFERS = {'sendrecv'}
RECEIVED_BY_SOME = {'reduce', 'gather', 'exscan'}
BUS_FACTORS = {'all_reduce': 2 * (RANKS - 1) / RANKS, **{name: (RANKS - 1) / RANKS for name in BLOCKS}}


def environment(spoil):
    return {**os.environ, **({'LD_PRELOAD': LIBRARY, 'TUTTI_TEST_SPOIL': spoil} if spoil else {})}


def run(program, *arguments, spoil=None):
    """The exit status, what was printed, and the results."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'results.json')
        done = subprocess.run([program, *arguments, '-n', '1', '-w', '0', '-J', path], env=environment(spoil),
                              timeout=LONG_S, capture_output=True, text=True, check=False)
        with open(path, encoding='utf-8') as results:
            return done.returncode, done.stdout + done.stderr, json.load(results)['results']


def require(condition, what, shown):
    if not condition:
        sys.exit(f'{what}:\n{shown}')


def check_right(name, program):
    sizes = ['-b', '4', '-e', '4K', '-f', '8']
    runs = [['-t', str(RANKS), *sizes], ['-p', str(RANKS), *sizes, '-m', 'tutti', '-z', '0']]
    if name in TRANSFERS:
        runs += [['-t', '1', *sizes], *(['-p', '2', *sizes, '--ping-pong', '-z', queued] for queued in '01')]
    if name in ROOTED:
        runs.append(['-t', str(RANKS), '-b', '1K', '-e', '1K', '-r', 'all'])
    for arguments in runs:
        status, text, results = run(program, *arguments)
        what = f'{name} {" ".join(arguments)}'
        require(status == 0, f'{what}: exit status {status}', text)
        require(all(entry['errors'] == 0 for entry in results), f'{what}: errors', results)
        modes = {False} if name in TRANSFERS else {False, True}
        require({entry['in_place'] for entry in results} == modes, f'{what}: modes', results)
        named = 'ping_pong' if '--ping-pong' in arguments else name
        require({entry['collective'] for entry in results} == {named}, f'{what}: collective', results)
        roots = {entry['root'] for entry in results}
        wanted = {-1} if name not in ROOTED else set(range(RANKS)) if '-r' in arguments else {0}
        require(roots == wanted, f'{what}: roots', roots)
        for entry in results:
            blocks = RANKS if name in BLOCKS else 1
            require(entry['count'] > 0 and entry['bytes'] == entry['count'] * blocks * 4, f'{what}: size and count', entry)
            factor = BUS_FACTORS.get(name, 1)
            require(abs(entry['busbw_gbs'] - factor * entry['algbw_gbs']) <= 1e-9, f'{what}: bus bandwidth', entry)


def check_skewed(name, program):
    """Counts that differ between the ranks, as perf/harness/skew.h has them: of three blocks 2, 4, 6 where the mean is 4."""
    sizes = ['-b', '48', '-e', '24K', '-f', '8']
    for skew, share in (('1', 2 / 3), ('1.5', 5 / 6), ('3', 1)):
        for arguments in (['-t', str(RANKS)], ['-p', str(RANKS), '-z', '0', '-m', 'tutti']):
            status, text, results = run(program, *arguments, *sizes, '--skew', skew)
            what = f'{name} {" ".join(arguments)} --skew {skew}'
            require(status == 0 and len(results) == 8, f'{what}: exit status {status}', text)
            for entry in results:
                require(entry['collective'] == f'{name}_v' and entry['skew'] == float(skew), f'{what}: collective', entry)
                require(entry['errors'] == 0, f'{what}: errors', entry)
                require(entry['bytes'] == entry['count'] * RANKS * 4, f'{what}: size and count', entry)
                require(abs(entry['busbw_gbs'] - share * entry['algbw_gbs']) <= 1e-9, f'{what}: bus bandwidth', entry)
    if name in ROOTED:
        status, text, _ = run(program, '-t', str(RANKS), *sizes, '--skew', '1.5', '-r', 'all')
        require(status == 0, f'{name} --skew 1.5 -r all: exit status {status}', text)


def check_operators(name, program):
    """All datatypes, and all operators but what is not defined."""
    status, text, results = run(program, '-t', '2', '-b', '1K', '-e', '1K', '-d', 'all', '-o', 'all')
    require(status == 0 and all(entry['errors'] == 0 for entry in results), f'{name} -d all -o all', text)
    require(len({entry['datatype'] for entry in results}) == 17, f'{name}: datatypes', text)
    ops = {entry['op'] for entry in results}
    require(len(ops) == (10 if name in PREFIXES else 11) and ('avg' in ops) == (name not in PREFIXES),
            f'{name}: operators', ops)
    if name in PREFIXES:
        done = subprocess.run([program, '-t', '2', '-o', 'avg'], capture_output=True, text=True, timeout=LONG_S,
                              check=False)
        require(done.returncode == 2 and f'avg is not defined for {name}' in done.stderr, f'{name} -o avg',
                done.stdout + done.stderr)


def check_spoiled(name, program, *arguments, ranks=RANKS):
    kinds = ['result', 'beside'] + (['ignored'] if name in RECEIVED_BY_SOME else [])
    for kind in kinds:
        status, text, results = run(program, '-p', str(ranks), '-b', '48', '-e', '1200', '-f', '25', *arguments,
                                    spoil=kind)
        require(status == 1 and 'FAILED' in text, f'{name}, spoiled {kind}: exit status {status}', text)
        # Out of place and in place, of every size.
        entries = 2 if name in TRANSFERS else 4
        require(len(results) == entries and all(entry['errors'] > 0 for entry in results),
                f'{name}, spoiled {kind}: unseen', results)


def run_compare(name, *arguments, spoil=None, ranks=RANKS):
    command = [COMPARE, '--build', BUILD, '--libraries', 'tutti', '--collective', name, '-r', str(ranks), '--rounds', '1',
               '--sizes', '1200', *arguments]
    done = subprocess.run(command, env=environment(spoil), timeout=LONG_S, capture_output=True, text=True, check=False)
    return done.returncode, f'{" ".join(command)}, spoiled {spoil}: {done.stdout}{done.stderr}'


def check_compare(name, *arguments, ranks=RANKS):
    for spoil, wanted, said in ((None, 0, '# tutti: '), ('result', 1, "answered 'wrong ")):
        if spoil and name == 'barrier':
            continue
        status, text = run_compare(name, *arguments, spoil=spoil, ranks=ranks)
        require(status == wanted and said in text, f'exit status {status}', text)


def check_compare_skewed(name):
    """Of three blocks 50, 100 and 150 elements, as the perf programs have them."""
    check_compare(name, '--skew', '1.5')
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'results.json')
        status, text = run_compare(name, '--skew', '1.5', '-J', path)
        require(status == 0, f'exit status {status}', text)
        with open(path, encoding='utf-8') as written:
            entry, = json.load(written)['results']
    require(entry['collective'] == f'{name}_v' and entry['skew'] == 1.5, 'which collective', entry)
    wanted_gbs = 5 / 6 * 1200 / entry['time_us']['median'] / 1e3
    require(abs(entry['busbw_gbs'] - wanted_gbs) <= 1e-9, 'bus bandwidth', entry)


def check_compare_leaves_out_empty(name):
    """Of two floats one of three ranks has none."""
    status, text = run_compare(name, '--sizes', '8,12')
    require(status == 0 and 'leaves ranks without an element: 8\n' in text, f'exit status {status}', text)
    require('\n        12 ' in text and '\n         8 ' not in text, 'which sizes were timed', text)
    status, text = run_compare(name, '--sizes', '8')
    require(status == 1 and 'nothing to compare' in text, f'exit status {status}', text)


def check_plot():
    sys.path.insert(0, os.path.join(os.path.dirname(COMPARE), 'plot'))
    import tutti_plot
    factors = {name: factor(RANKS) for name, factor in tutti_plot.BUS_FACTORS.items()}
    names = REDUCING | ROOTED | BLOCKS | TRANSFERS | {'ping_pong'}
    wanted = {name: BUS_FACTORS.get(name, 1) for name in names}
    require(factors == wanted, 'tutti_plot has other bus factors', factors)
    # One takes 10 us, the other a nanosecond for each byte: they meet at 10000 bytes.
    sizes = (4096, 16384)
    meet = tutti_plot.crossing((sizes, [size / 1e3 for size in sizes]), (sizes, [10, 10]), 16384)
    require(abs(meet - 10000) < 1e-6, 'tutti_plot finds another crossing', meet)
    # Without a simulation at the size before, no more is known.
    meet = tutti_plot.crossing((sizes, [size / 1e3 for size in sizes]), ((16384,), [10]), 16384)
    require(meet == 16384, 'tutti_plot finds another crossing', meet)
    # The points where a line changes from one algorithm to another; entries without time are not drawn.
    entries = [{'bytes': size, 'algorithm': algorithm, 'datatype': 'float', 'op': 'sum', 'root': -1, 'in_place': in_place,
                'ranks': 2, 'collective': 'all_reduce', 'time_us': {'median': us}}
               for size, algorithm, in_place, us in ((64, 'ring', False, 3), (8, 'direct', False, 1), (16, 'direct', False, 2),
                                                     (4, 'tree', False, 0), (8, 'direct', True, 1), (1 << 20, 'ring', True, 9))]
    found = tutti_plot.algorithms_of(entries)
    require(found == {'float sum': [(8, 'direct'), (64, 'ring')], 'float sum in place': [(8, 'direct'), (1 << 20, 'ring')]},
            'tutti_plot finds other algorithms', found)
    # The latency panel has the small sizes, if there are others too.
    lines = tutti_plot.lines_of(tutti_plot.measured_points(entries))
    require(tutti_plot.latency_sizes(lines) == 3, 'tutti_plot takes other sizes for small', lines)
    small = tutti_plot.up_to(lines, 16)
    require({name: values[0] for name, values in small.items()} == {'float sum': (8, 16), 'float sum in place': (8,)},
            'tutti_plot keeps other sizes', small)
    require(tutti_plot.latency_sizes(small) == 0, 'tutti_plot repeats itself', small)


def main():
    check_plot()
    names = set()
    for program in PROGRAMS:
        name = os.path.basename(program).removesuffix('_perf')
        names.add(name)
        check_compare(name)
        if name == 'barrier':
            continue  # has no data; command_line_test.sh runs it
        check_right(name, program)
        check_spoiled(name, program)
        if name in BLOCKS:
            check_skewed(name, program)
            check_compare_skewed(name)
            check_compare_leaves_out_empty(name)
            check_spoiled(name, program, '--skew', '1.5')
        if name in TRANSFERS:
            check_spoiled(name, program, '--ping-pong', ranks=2)
            check_compare('ping_pong', ranks=2)
        if name in REDUCING:
            check_operators(name, program)
    require(REDUCING | ROOTED | BLOCKS | TRANSFERS | {'barrier'} == names, 'the programs are not those that this test knows', names)


if __name__ == '__main__':
    main()
