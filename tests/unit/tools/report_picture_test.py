#!/usr/bin/env python3
"""Looks at a page of `tutti report` with a browser, as a person would: is it drawn, in both colour schemes?

Usage: report_picture_test.py TUTTI RANK_PROGRAM [PICTURE]; PICTURE: where the picture of the bright page is kept.
"""
import collections
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

tutti, program, *keep = sys.argv[1:]
RANKS = 6
LATE = 2
LIMIT_S = 100
WIDTH, HEIGHT = 1000, 1250


def pixels_of(path):
    """The colours of the pixels of a PNG file with 8 bits for each of 3 or 4 channels, and how many have each."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", data[:8]
    at, packed, size = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and interlaced == 0, body
            size = (width, height)
        packed += body if kind == b"IDAT" else b""
        at += length + 12
    channels = 3 if colour == 2 else 4
    lines = zlib.decompress(packed)
    stride = width * channels
    before = bytearray(stride)
    counts = collections.Counter()
    for row in range(height):
        start = row * (stride + 1)
        line = bytearray(lines[start + 1:start + 1 + stride])
        unfilter(lines[start], line, before, channels)
        counts.update(zip(line[0::channels], line[1::channels], line[2::channels]))
        before = line
    return size, counts


def unfilter(kind, line, before, step):
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        above = before[i]
        corner = before[i - step] if i >= step else 0
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + above) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + above) // 2) & 255
        elif kind == 4:
            guess = left + above - corner
            nearest = min((abs(guess - left), 0, left), (abs(guess - above), 1, above), (abs(guess - corner), 2, corner))
            line[i] = (line[i] + nearest[2]) & 255


def report(folder, page):
    """A page about a job of which one rank does not come."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    environment |= {"TUTTI_ROOT": f"127.0.0.1:{random.randrange(20000, 32000)}", "TUTTI_WORLD_SIZE": str(RANKS),
                    "TUTTI_FLIGHT_RECORDER": folder}
    ranks = [subprocess.Popen([program, str(LATE), "late"], stdin=subprocess.PIPE,
                              env=environment | {"TUTTI_RANK": str(rank)}) for rank in range(RANKS)]
    try:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            told = subprocess.run([tutti, "diagnose", folder, "--after", "1"], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False).stdout
            if f"=> look at rank {LATE} " in told and told.count("waited") >= 2:
                subprocess.run([tutti, "report", folder, "--after", "1", "-o", page], stdout=subprocess.DEVNULL,
                               check=True)
                return
            time.sleep(0.1)
        raise SystemExit(f"the job does not stand still: {told}")
    finally:
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.communicate()


def draw(page, picture, *options):
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                        f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={picture}",
                        *options, f"file://{page}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
                       timeout=LIMIT_S)
    size, counts = pixels_of(picture)
    assert size == (WIDTH, HEIGHT), size
    return counts


def has(counts, colour, least):
    """Whether that many pixels have this colour, give or take what drawing makes of it."""
    near = sum(count for other, count in counts.items() if all(abs(a - b) <= 6 for a, b in zip(colour, other)))
    return near >= least


with tempfile.TemporaryDirectory() as folder:
    page = os.path.join(folder, "report.html")
    report(os.path.join(folder, "recorded"), page)
    bright = draw(page, os.path.join(folder, "bright.png"))
    dark = draw(page, os.path.join(folder, "dark.png"), "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
    for counts, back, late, waits in ((bright, (255, 255, 255), (192, 57, 43), (214, 137, 16)),
                                      (dark, (22, 27, 34), (255, 123, 114), (227, 179, 65))):
        assert counts.most_common(1)[0][0] == back, counts.most_common(3)
        assert has(counts, late, 200), counts.most_common(10)  # the disc of the late rank
        assert has(counts, waits, 5 * 200), counts.most_common(10)  # those of the others
        assert has(counts, (59, 130, 196), 20), counts.most_common(10)  # the operations of the timeline
        assert sum(counts.values()) - counts[back] > 20000, counts.most_common(10)
    if keep:
        shutil.copyfile(os.path.join(folder, "bright.png"), keep[0])
print("passed")
