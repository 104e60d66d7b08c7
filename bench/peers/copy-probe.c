/* How fast this machine copies: two threads (or as many as given) copy BUFFERS buffers of BYTES bytes each with memcpy.
 * copy-probe THREADS BUFFERS BYTES RUNS; prints one line of milliseconds, one number a run. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static size_t bytes;
static int threads, buffers;
static char **from, **to;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void *copy(void *number) {
  size_t share = bytes / threads, at = share * (size_t)number;
  for (int i = 0; i < buffers; i++) memcpy(to[i] + at, from[i] + at, share);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  threads = atoi(argv[1]);
  buffers = atoi(argv[2]);
  bytes = strtoull(argv[3], NULL, 10);
  from = malloc(buffers * sizeof(char *));
  to = malloc(buffers * sizeof(char *));
  for (int i = 0; i < buffers; i++) {
    from[i] = aligned_alloc(64, bytes);
    to[i] = aligned_alloc(64, bytes);
    memset(from[i], i + 1, bytes);
    memset(to[i], 0, bytes);
  }
  for (int run = 0; run < atoi(argv[4]); run++) {
    pthread_t helpers[64];
    double began = now_ms();
    for (long i = 1; i < threads; i++) pthread_create(&helpers[i], NULL, copy, (void *)i);
    copy((void *)0);
    for (int i = 1; i < threads; i++) pthread_join(helpers[i], NULL);
    printf("%s%.6f", run == 0 ? "" : " ", now_ms() - began);
  }
  printf("\n");
  return to[buffers - 1][bytes - 1] == (char)buffers ? 0 : 1;
}
