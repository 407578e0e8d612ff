/* The rounds of a fuzzer.  The number of a round is its seed, so a round that fails can be run again alone. */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>

static volatile sig_atomic_t ended;
static long long current;

static void name_round(int number) {
    (void)number;
    if (!ended) fprintf(stderr, "round %lld has failed: run it again with the arguments 1 %lld\n", current, current);
    ended = 1;
}

static uint64_t seed_of(int64_t round) {
    if (current == 0) signal(SIGABRT, name_round);
    current = round;
    return (uint64_t)round * 0x9E3779B97F4A7C15u + 1;
}
