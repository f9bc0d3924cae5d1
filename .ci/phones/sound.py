"""What is in a recording of 16-bit samples."""

import math

FRAME_MS = 20
QUIET = 500


def level(samples, rate, frequency):
    """The amplitude of one frequency (Goertzel), as a share of full scale."""
    if not samples:
        return 0.0
    step = 2 * math.cos(2 * math.pi * frequency / rate)
    one = two = 0.0
    for sample in samples:
        one, two = sample + step * one - two, one
    power = max(one * one + two * two - step * one * two, 0.0)
    return 2 * math.sqrt(power) / len(samples) / 32768


def silence(samples, rate):
    """The longest run of quiet 20 ms frames, in ms."""
    size = int(rate * FRAME_MS / 1000)
    longest = run = 0
    for start in range(0, len(samples) - size, size):
        quiet = max(abs(sample) for sample in samples[start:start + size]) < QUIET
        run = run + 1 if quiet else 0
        longest = max(longest, run)
    return longest * FRAME_MS
