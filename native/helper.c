/*
 * Runs C calls that JavaScript has written down: a list of them by one foreign call, or on a detached thread. It is built by
 * tools/native.mjs and loaded by src/backends/nccl/sys/helper.ts, which states the same layout. Everything works without it.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The layout and the functions below; helper.ts refuses a build of another version. */
#ifndef HELPER_VERSION
#define HELPER_VERSION 1
#endif
/* Tells tools/native.mjs which sources a build is made of. */
#ifdef SOURCES
__attribute__((used)) static const char sources[] = SOURCES;
#endif

#define EXPORTED __attribute__((visibility("default")))

/* Symbols as the oldest C libraries that Node.js runs on have them: since 2.34 glibc has newer versions of both. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.17");
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.17");
#endif

/*
 * Any function of up to eight integers and pointers that returns an int. The conventions of x86-64 (System V) and of arm64 (AAPCS64)
 * pass each such argument in a register or stack slot of 64 bits, of which the function reads as much as its type has. The
 * caller removes the arguments, so that a function with fewer of them never sees the others.
 */
typedef int (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

struct call {
  function function;
  uint64_t arguments[8];
};

/* Calls, terminated by one without a function. */
struct list {
  int32_t status;  /* of the thread that ran the list */
  int32_t is_done; /* 1 once the thread no longer touches the list */
  uint64_t failed; /* index of the call that failed */
  struct call calls[];
};

/* Runs the calls up to the first status other than 0; returns that status, or 0. */
static int run(struct list *list) {
  for (struct call *call = list->calls; call->function != NULL; call++) {
    const uint64_t *a = call->arguments;
    int status = call->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    if (status != 0) {
      list->failed = (uint64_t)(call - list->calls);
      return status;
    }
  }
  return 0;
}

EXPORTED int twinccl_version(void) { return HELPER_VERSION; }

/*
 * One for each thread of JavaScript. A foreign call without arguments is the cheapest. In this model the word is at a fixed distance
 * from the thread's base; others call __tls_get_addr, which reads memory that a driver leaves cold.
 */
static __thread struct list *mailbox __attribute__((tls_model("initial-exec")));

/* The word of this thread that holds the address of the list to run. */
EXPORTED struct list **twinccl_mailbox(void) { return &mailbox; }

EXPORTED int twinccl_run(void) { return run(mailbox); }

/* Memory of zeros for a list on a thread, which may outlive everything of JavaScript; null if there is none. */
EXPORTED void *twinccl_allocate(size_t bytes) { return calloc(1, bytes); }

EXPORTED void twinccl_free(void *memory) { free(memory); }

static void *run_on_thread(void *memory) {
  struct list *list = memory;
  list->status = run(list);
  __atomic_store_n(&list->is_done, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Runs a list on a detached thread with such a stack; returns 0, or the error number if no thread can be started. */
EXPORTED int twinccl_start(struct list *list, size_t stack_bytes) {
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error != 0) return error;
  pthread_t thread;
  error = pthread_attr_setstacksize(&attributes, stack_bytes);
  if (error == 0) error = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (error == 0) error = pthread_create(&thread, &attributes, run_on_thread, list);
  pthread_attr_destroy(&attributes);
  return error;
}

/* An ncclUniqueId, the only structure that NCCL takes by value; a list holds its address. */
struct unique_id {
  uint8_t internal[128];
};

typedef int (*comm_init)(uint64_t, uint64_t, struct unique_id, uint64_t, uint64_t);

/* Calls ncclCommInitRankConfig, the first argument, with the structure by value. */
EXPORTED int twinccl_comm_init(comm_init init, uint64_t comm, uint64_t size, const struct unique_id *id, uint64_t rank, uint64_t config) {
  return init(comm, size, *id, rank, config);
}
